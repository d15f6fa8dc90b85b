"""Parts of the command line that stand by themselves."""

import tomllib
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from remesh.cli.options import Common, Output, merged
from remesh.cli.policies import policy_of_run, policy_text, write_policy
from remesh.cli.render import Table, emit, emit_one, print_table, terminal_lines
from remesh.cli.session import Session, check_cluster_name, cluster_name_of, data_folder, environment_of
from remesh.demo.report import gate_opened
from remesh.demo.screen import Scene, Screen
from remesh.demo.stage import deployment, meshed_namespace
from remesh.policy import Mode, load_policy
from remesh.settings import Settings, read_settings
from remesh.testbed import InjectorWear


def test_a_policy_written_is_the_policy_read(tmp_path: Path) -> None:
    policy = policy_of_run(load_policy(), ["shop"], observe=True)
    assert load_policy(write_policy(policy, tmp_path / "policy.toml")) == policy
    assert policy.mode is Mode.OBSERVE


def test_a_policy_with_awkward_names_is_still_toml() -> None:
    policy = load_policy()
    scope = policy.scope.model_copy(update={"namespaces": ('a"b', "c\\d", "e\nf")})
    text = policy_text(policy.model_copy(update={"scope": scope}))
    assert tomllib.loads(text)["scope"]["namespaces"] == ['a"b', "c\\d", "e\nf"]


@pytest.mark.parametrize("context", ["kind-dev", "k3d-a.b"])
def test_a_contexts_name_is_its_clusters(context: str) -> None:
    assert cluster_name_of(context) == context


@pytest.mark.parametrize("context", ["arn:aws:eks:eu-west-1:1:cluster/prod", "gke_a_b", "A", "::", "x" * 100, "-a-"])
def test_a_context_of_any_name_makes_a_clusters_name_of_its_own(context: str) -> None:
    name = cluster_name_of(context)
    check_cluster_name(name)
    assert name != cluster_name_of(context + "/")


def test_a_child_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = SecretStr("redis://:s3cret@h/1")
    settings = Settings(cluster="prod", kubeconfig=tmp_path, redis_url=url, allow_unsafe_broker=True)
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    assert read_settings() == settings


def test_options_after_the_command_override_those_before() -> None:
    before = Common(namespace="a", context="x", output=Output.JSON)
    assert merged(before, {"namespace": "b", "context": None}) == Common("b", context="x", output=Output.JSON)
    assert merged(None, {}).format is Output.TABLE


def test_each_cluster_has_a_data_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert data_folder("prod") == tmp_path / "remesh" / "prod"
    assert Session(Common(cluster="prod")).data_folder == tmp_path / "remesh" / "prod"


def test_a_table_is_aligned_and_ends_without_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table(("NAME", "REASON"), [["a", "short"], ["longer-name", "x\x1b[2Jy"]]))
    assert capsys.readouterr().out == "NAME          REASON\na             short\nlonger-name   x\\x1b[2Jy\n"


WIDE = [
    "a-namespace-of-some-length",
    "rs/a-very-long-name-of-a-replicaset-that-goes-on-59ff54b4c6",
    "2026-01-01 00:00:00Z",
]
REASON = "its webhook's certificate is not trusted by the API server, which somebody has to correct first"


@pytest.mark.parametrize("room", [30, 80, 130, 200, 400])
def test_on_a_terminal_nothing_is_cut_and_names_stay_whole(room: int) -> None:
    columns = ["NAMESPACE", "OBJECT", "TIME", "REASON"]
    row = [*WIDE, REASON]
    lines = list(terminal_lines(columns, [row], [len(cell) for cell in row], room))
    text = "\n".join(lines)
    assert all(cell in text for cell in WIDE)
    assert " ".join(text.split()).endswith(REASON) or all(word in text for word in REASON.split())
    longest = max(len(word) for word in WIDE)
    assert room < 80 or all(len(each) <= max(room, longest + 35) for each in lines)


def test_nothing_to_show_is_a_remark_and_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Output.TABLE, [], Table(("A",), []), empty="Nothing.", kind="List")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Nothing.\n")


def test_documents_are_ascii_whatever_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    for output in (Output.JSON, Output.JSONL, Output.YAML):
        emit_one(output, {"name": "\u202eevil\x9b"})
        out = capsys.readouterr().out
        assert out.isascii()
        assert yaml.safe_load(out) == {"name": "\u202eevil\x9b"}


def test_the_demos_namespace_asks_for_the_sidecar() -> None:
    wear = InjectorWear(
        namespace_selector={"matchExpressions": [{"key": "mesh", "operator": "In", "values": ["on"]}]},
        ask_label=("inject", "yes"),
    )
    metadata = meshed_namespace("shop", wear)["metadata"]
    assert metadata["labels"] == {"mesh": "on", "inject": "yes"}
    assert metadata["annotations"] == {"linkerd.io/inject": "enabled"}
    assert deployment("app", 3)["spec"]["replicas"] == 3


def test_a_gate_that_never_opened_has_no_time() -> None:
    from datetime import UTC, datetime

    assert gate_opened([], datetime.now(UTC)) is None


def test_the_demo_in_a_pipe_says_every_ten_seconds_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for seconds in (0.0, 0.5, 3.0, 9.0, 10.0, 15.0, 20.5):
        screen.show(Scene(total=1, stuck=1, healed=0, gate="closed", findings="1 waiting", seconds=seconds))
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["0.0", "10.0", "20.5"]
