"""The policy file."""

from pathlib import Path

import pytest

from remesh.errors import ConfigError
from remesh.policy import Mode, Policy, load_policy
from remesh.settings import read_settings


def test_shipped_file_says_what_the_defaults_are() -> None:
    assert load_policy() == Policy()


def test_own_file_changes_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('mode = "observe"\n[scope]\nnamespaces = ["shop"]\n')
    policy = load_policy(file)
    assert policy.mode is Mode.OBSERVE
    assert policy.scope.namespaces == ("shop",)
    assert policy.scope.protected_namespaces == Policy().scope.protected_namespaces


WRONG = [
    ("[gate]\nsuccesses = 3\n[repair]\nbare_pod = true\n", "policy.toml:4: repair.bare_pod: unknown key"),
    ("\n[gate]\nlatency_seconds = -1\n", "policy.toml:3: gate.latency_seconds: must be more than 0"),
    ('[repair]\nmax_attempts = "many"\n', "policy.toml:2: repair.max_attempts: must be a whole number"),
    ("mode = observe\n", "policy.toml: not valid TOML: invalid value (at line 1, column 8)"),
    ('mode = "fix"\n', "policy.toml:1: mode: must be 'observe' or 'repair'"),
    ('[scope]\nnamespaces = "shop"\n', "policy.toml:2: scope.namespaces: must be a list"),
    ("gates = 1\n", "policy.toml:1: gates: unknown key"),
    ("[detection]\nsilent_seconds = inf\n", "policy.toml:2: detection.silent_seconds: must be a finite number"),
    ("[repair]\ncooldown_seconds = nan\n", "policy.toml:2: repair.cooldown_seconds: must be a finite number"),
    ("[repair]\ncooldown_seconds = 1e300\n", "policy.toml:2: repair.cooldown_seconds: must be at most"),
    ("[gate]\nretry_seconds = 1e9\n", "policy.toml:2: gate.retry_seconds: must be at most 3600"),
    ("[repair]\nshare = nan\n", "policy.toml:2: repair.share: must be a finite number"),
    ("\n[window]\nminimum = 9\nmaximum = 3\n", "policy.toml:2: window: minimum is 9 and maximum 3"),
    ("[window]\nminimum = 2000\n", "policy.toml:1: window: minimum is 2000 and maximum 1000"),
    (
        "[repair]\nverify_seconds = 50\nrelease_deadline_seconds = 50\n",
        "policy.toml:1: repair: release_deadline_seconds is 50 and verify_seconds 50",
    ),
    ("a = " + "[" * 2000, "policy.toml: not valid TOML"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_malformed_file_is_named_with_line_and_key(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_policy(file)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; give an existing file with --policy"):
        load_policy(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_policy(tmp_path / "bad.toml")


def test_an_empty_variable_is_as_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMESH_CONTEXT", "")  # what compose.yaml sets where nobody names a context
    monkeypatch.setenv("REMESH_SIGNING_KEY", "")
    settings = read_settings()
    assert settings.context is None
    assert settings.signing_key is None
