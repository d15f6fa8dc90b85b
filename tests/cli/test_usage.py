"""Whatever a person types or has configured wrongly: one line that says what to do, and the documented exit code."""

import json
import sys
from pathlib import Path

import pytest

from remesh import __version__, errors
from remesh.cli import exits
from remesh.cli.app import COMMANDS
from remesh.sim import SimCluster
from tests.cli.conftest import ROOT, Remesh, kubeconfig, run_apart

CLUSTER_COMMANDS = (("scan",), ("explain", "rs/a"), ("plan",), ("repair", "--all"))


def test_help_names_every_command_and_exit_code(remesh: Remesh) -> None:
    answer = remesh("--help")
    assert answer.code == 0
    assert all(f"\n  {name} " in answer.out for name in COMMANDS)
    assert all(f" {code:<4} {meaning}" in answer.out for code, meaning in exits.TABLE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(remesh: Remesh, command: str) -> None:
    answer = remesh(command, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: remesh {command}")


def test_every_exit_code_that_an_error_can_have_is_documented() -> None:
    found = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    assert found <= {code for code, _ in exits.TABLE}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from remesh.cli import main; code = main.run(['--help']);"
        "heavy = {'kubernetes', 'celery', 'redis', 'pydantic', 'rich', 'yaml', 'urllib3'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scann"], "Did you mean 'scan'"),
        (["scan", "--colour"], "No such option"),
        (["scan", "-o", "xml"], "xml"),
        (["explain"], "give targets"),
        (["explain", "rs/a", "-f", "x.yaml"], "one of them"),
        (["explain", "app"], "KIND/NAME"),
        (["plan", "ingress/a"], "known are"),
        (["repair"], "--all"),
        (["repair", "rs/a", "--all"], "one of them"),
        (["repair", "rs/a", "--wait", "--timeout", "soon"], "--timeout"),
        (["quarantine", "clear"], "--all"),
        (["audit", "--since", "yesterday"], "90s"),
        (["audit", "--type", "rumour"], "finding, wait, gate"),
        (["audit", "-n", "shop", "gizmo/a"], "known are"),
        (["--cluster", "Prod!", "audit"], "lower-case"),
        (["demo", "--on", "moon"], "moon"),
        (["run", "-n", "kube-system"], "protects this namespace"),
        (["run", "-n", "shop,Shop"], "'Shop'"),
        (["run", "-A"], "No such option"),
        (["-A", "run"], "takes no --all-namespaces"),
        (["status", "-n", "shop"], "No such option"),
        (["-n", "shop", "check"], "takes no --namespace"),
        (["demo", "--count", "0"], "--count': must be at least 1; see"),
        (["run", "--concurrency", "many"], "--concurrency': must be a whole number; see"),
        (["check", "--wait", "long"], "--wait': must be a number; see"),
        (["scan", "-o", "xml"], "'--output': 'xml' is not one of"),
        (["completion", "csh"], "csh"),
    ],
)
def test_a_command_line_that_cannot_be_right(remesh: Remesh, arguments: list[str], words: str) -> None:
    answer = remesh(*arguments)
    assert (answer.code, answer.out) == (exits.USAGE, "")
    assert words in answer.line


def test_an_unexpected_error_is_one_line(remesh: Remesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such luck")

    monkeypatch.setattr("remesh.cli.app.build", broken)
    answer = remesh("scan")
    assert (answer.code, answer.out) == (exits.FAILED, "")
    assert answer.line == (
        "remesh: internal error: ValueError: no such luck; run with REMESH_LOG_LEVEL=DEBUG for the traceback"
    )


def test_the_readme_repeats_the_exit_codes() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"| {code} | {meaning} |" in readme for code, meaning in exits.TABLE)


def test_version_in_every_format(remesh: Remesh) -> None:
    assert remesh("--version").out == f"remesh {__version__}\n"
    assert remesh("version").out == f"remesh {__version__}\n"
    assert json.loads(remesh("version", "-o", "json").out) == {"version": __version__}
    assert json.loads(remesh("-o", "jsonl", "version").out) == {"version": __version__}
    assert remesh("version", "-o", "yaml").out == f"version: {__version__}\n"


def test_an_option_after_the_command_wins_over_one_before(remesh: Remesh) -> None:
    assert remesh("-o", "json", "version", "-o", "table").out == f"remesh {__version__}\n"


def test_completion_is_a_script_for_the_shell(remesh: Remesh) -> None:
    assert "complete -o default" in remesh("completion", "bash").out


# Configuration


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_without_a_kubeconfig(remesh: Remesh, tmp_path: Path, command: tuple[str, ...]) -> None:
    remesh.set(HOME=tmp_path)
    answer = remesh(*command)
    assert answer.code == exits.USAGE
    assert "no kubeconfig found" in answer.line


def test_a_kubeconfig_that_is_not_there(remesh: Remesh, tmp_path: Path) -> None:
    answer = remesh("scan", "--kubeconfig", tmp_path / "gone")
    assert answer.code == exits.USAGE
    assert "gone" in answer.line


def test_a_kubeconfig_without_a_current_context(remesh: Remesh, tmp_path: Path) -> None:
    answer = remesh("scan", "--kubeconfig", kubeconfig(tmp_path, current=""))
    assert answer.code == exits.USAGE
    assert "no current context" in answer.line
    assert "--context" in answer.line


@pytest.mark.parametrize("command", ["scan", "status", "audit"])
def test_a_context_that_is_not_in_the_kubeconfig(remesh: Remesh, tmp_path: Path, command: str) -> None:
    answer = remesh(command, "--kubeconfig", kubeconfig(tmp_path), "--context", "production")
    assert answer.code == exits.USAGE
    assert "'production'" in answer.line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mode = ", "not valid TOML"),
        ("[gate]\nquorums = 2\n", ":2: gate.quorums: unknown key"),
        ('mode = "destroy"\n', ":1: mode"),
    ],
)
def test_a_malformed_policy_is_named_with_its_line(
    remesh: Remesh, sim: SimCluster, tmp_path: Path, text: str, words: str
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    answer = remesh("scan", "--kubeconfig", sim.kubeconfig, "--policy", policy)
    assert answer.code == exits.USAGE
    assert words in answer.line
    assert str(policy) in answer.line


def test_a_malformed_mesh_profile_is_named(remesh: Remesh, sim: SimCluster, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\ntitle = "Mine"\nsidecar = 1\n')
    answer = remesh("scan", "--kubeconfig", sim.kubeconfig, "--meshes", tmp_path)
    assert answer.code == exits.USAGE
    assert "mine.toml" in answer.line


def test_a_setting_that_cannot_be_right_is_named(remesh: Remesh) -> None:
    for name, value, words in (
        ("REMESH_LOG_FORMAT", "xml", "must be text or json"),
        ("REMESH_METRICS_PORT", "http", "must be a whole number"),
        ("REMESH_ALLOW_UNSAFE_BROKER", "perhaps", "must be true or false"),
        ("REMESH_CLUSTER", "My Cluster", "must be at most 63 lower-case letters, digits, '-' and '.'"),
        ("REMESH_SIGNING_KEY", "short", "must have at least 16 characters"),
    ):
        remesh.set(**{name: value})
        answer = remesh("audit")
        assert answer.code == exits.USAGE
        assert answer.line.startswith(f"remesh: {name}: {words}")
        remesh.set(**{name: ""})


def test_a_redis_url_that_cannot_be_right(remesh: Remesh) -> None:
    remesh.set(REMESH_REDIS_URL="http://:hunter2@example")
    answer = remesh("audit")
    assert answer.code == exits.USAGE
    assert "REMESH_REDIS_URL" in answer.line
    assert "hunter2" not in answer.line


# Cluster


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_an_unreachable_cluster(remesh: Remesh, tmp_path: Path, command: tuple[str, ...]) -> None:
    answer = remesh(*command, "--kubeconfig", kubeconfig(tmp_path))
    assert answer.code == 3
    assert "cannot reach the API server at http://127.0.0.1:1" in answer.line


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_expired_credentials(remesh: Remesh, sim: SimCluster, tmp_path: Path, command: tuple[str, ...]) -> None:
    expired = kubeconfig(tmp_path, server=sim.url, token="expired")
    answer = remesh(*command, "--kubeconfig", expired)
    assert answer.code == 4
    assert "log in again" in answer.line
    assert "expired" not in answer.line.replace("expired or wrong", "")


def test_a_missing_right_is_named(remesh: Remesh, sim: SimCluster) -> None:
    sim.refuse("list", "replicasets")
    try:
        answer = remesh("scan", "--kubeconfig", sim.kubeconfig)
    finally:
        sim.router.refused.clear()
    assert answer.code == 4
    assert "replicasets" in answer.line


def test_check_names_the_rights_that_are_missing(remesh: Remesh, sim: SimCluster, redis_url: str) -> None:
    remesh.set(REMESH_REDIS_URL=redis_url)
    sim.refuse("patch", "statefulsets")
    try:
        answer = remesh("check", "--kubeconfig", sim.kubeconfig)
    finally:
        sim.router.refused.clear()
    assert answer.code == 4
    assert "✗ rights for mode repair: missing patch statefulsets.apps" in answer.out
    assert "✓ rights for mode observe: all" in answer.out


def test_check_of_an_unreachable_cluster_still_looks_at_the_rest(
    remesh: Remesh, tmp_path: Path, redis_url: str
) -> None:
    remesh.set(REMESH_REDIS_URL=redis_url)
    answer = remesh("check", "--kubeconfig", kubeconfig(tmp_path))
    assert answer.code == 3
    assert "✗ cannot reach the API server" in answer.out
    assert "✓ append-only file on" in answer.out


@pytest.mark.parametrize("command", ["explain", "plan", "repair"])
def test_a_target_that_is_not_there(remesh: Remesh, sim: SimCluster, command: str) -> None:
    answer = remesh(command, "sts/ghost", "--kubeconfig", sim.kubeconfig)
    assert answer.code == 6
    assert "StatefulSet/ghost is not there in namespace default" in answer.line


@pytest.mark.parametrize("command", [("scan",), ("plan",), ("repair", "--all")])
def test_an_unknown_mesh_is_answered_with_the_known_ones(
    remesh: Remesh, sim: SimCluster, command: tuple[str, ...]
) -> None:
    answer = remesh(*command, "--mesh", "istioo", "--kubeconfig", sim.kubeconfig)
    assert answer.code == exits.USAGE
    assert "unknown mesh 'istioo'" in answer.line
    assert "istio, " in answer.line


def test_a_mesh_chooses_among_findings_and_not_among_targets(remesh: Remesh, sim: SimCluster) -> None:
    answer = remesh("plan", "rs/a", "--mesh", "istio", "--kubeconfig", sim.kubeconfig)
    assert answer.code == exits.USAGE


def test_a_namespace_and_all_of_them_exclude_each_other(remesh: Remesh, sim: SimCluster) -> None:
    answer = remesh("scan", "-A", "-n", "shop", "--kubeconfig", sim.kubeconfig)
    assert answer.code == exits.USAGE
    assert "exclude each other" in answer.line


def test_a_name_that_would_reach_another_path(remesh: Remesh, sim: SimCluster) -> None:
    answer = remesh("explain", "rs/..", "--kubeconfig", sim.kubeconfig)
    assert answer.code == exits.USAGE


# Broker


@pytest.mark.parametrize(
    "command",
    [
        ("audit",),
        ("audit", "export"),
        ("status",),
        ("quarantine", "list"),
        ("quarantine", "clear", "--all"),
        ("brake", "list"),
        ("brake", "clear", "--all"),
    ],
)
def test_a_broker_that_is_down(remesh: Remesh, command: tuple[str, ...]) -> None:
    answer = remesh(*command)
    assert answer.code == 5
    assert "127.0.0.1:1" in answer.line


def test_repair_with_the_broker_down_sends_nothing(remesh: Remesh, sim: SimCluster) -> None:
    answer = remesh("repair", "--all", "-A", "--kubeconfig", sim.kubeconfig)
    assert answer.code == 5
    assert "127.0.0.1:1" in answer.line


# The process as a whole


def test_a_process_says_the_same_as_its_module(tmp_path: Path) -> None:
    answer = run_apart("scan", "--kubeconfig", str(kubeconfig(tmp_path)))
    assert answer.code == 3
    assert answer.line.startswith("remesh: cannot reach the API server")


def test_output_that_nobody_reads_is_no_error() -> None:
    import subprocess

    command = f"{sys.executable} -m remesh --help | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("Usage: remesh")
    assert done.stderr == ""
