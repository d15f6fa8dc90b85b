"""What README and docs tell a reader to type or to write can be typed and written."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from remesh.cli import exits
from remesh.cli.app import COMMANDS, build
from remesh.embedded import EmbeddedRedis
from remesh.errors import NotFound
from remesh.policy import Policy
from remesh.profile import MeshProfile
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from remesh.tomlfile import parse_toml
from tests.cli.conftest import Remesh, remesh
from tests.client import Client
from tests.cluster import workloads as w
from tests.docs import examples
from tests.docs.examples import Command

__all__ = ["remesh"]  # the fixture

COMMON = list(examples.commands())
# Others' programs, which a reader is told to use beside remesh's own.
_OTHERS = """
git pip pipx docker helm kubectl curl celery python redis-cli promtool openssl source rabbitmqctl
cp cat export echo cd sudo systemctl jq
"""
OTHERS = frozenset(_OTHERS.split())


def of(*names: str) -> list[Command]:
    return [each for each in COMMON if each.words[0] in names]


def remesh_words(command: Command) -> list[str] | None:
    """The words after `remesh`; None for another program."""
    match command.words:
        case ("remesh" | "kubectl-remesh", *rest):
            return rest
        case ("kubectl", "remesh", *rest):
            return rest
        case _:
            return None


REMESH = [each for each in COMMON if remesh_words(each) is not None]
LOOKING = (
    "scan",
    "explain",
    "plan",
    "audit",
    "status",
    "check",
    "files",
    "completion",
    "version",
    "quarantine",
    "brake",
)
ENDLESS = {"-f", "--follow", "--watch", "-w", "--wait"}


def test_there_are_examples() -> None:
    assert len(REMESH) >= 8
    assert {remesh_words(each)[0] for each in REMESH} >= {"scan", "run", "repair", "audit"}  # type: ignore[index]


def test_every_program_is_known() -> None:
    ours = {"remesh", "kubectl-remesh", "make", ".ci/run", ".ci/release"}
    unknown = [str(each) for each in COMMON if each.words[0] not in OTHERS | ours]
    assert unknown == []


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_make_targets_are_there(command: Command) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *command.words[1:]], cwd=examples.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", REMESH, ids=str)
def test_every_command_line_is_one(command: Command) -> None:
    """Parsed by the command line itself: no option or command that is not there."""
    words = remesh_words(command)
    assert words is not None
    root = build().make_context("remesh", [word.replace("…", "x") for word in words])
    with root:
        rest = [*root._protected_args, *root.args] if hasattr(root, "_protected_args") else root.args
        if not rest:
            return  # `remesh --help` has its own test
        name, found, arguments = root.command.resolve_command(root, rest)
        assert name in COMMANDS
        assert found is not None
        found.make_context(name, arguments, parent=root)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The cluster that the examples speak of: rs/web-6f in the namespace shop, stuck behind a dead injector."""
    wear = InjectorWear(timeout_seconds=2)
    redis = EmbeddedRedis(tmp_path_factory.mktemp("examples")).start()
    with SimCluster.start(wear, controller_qps=200) as cluster:
        client = Client(cluster.kubeconfig)
        for namespace in ("shop", "bank"):
            client.create_meshed_namespace(namespace, wear)
        cluster.inject_fault(Fault.KILLED)
        client.create("shop", w.replica_set("web-6f", 2))
        client.wait_failing("ReplicaSet", "shop", ["web-6f"])
        yield cluster.kubeconfig, redis.url
        client.close()
    redis.stop()


def runnable(command: Command) -> bool:
    words = remesh_words(command) or []
    told = [word for word in words if word in COMMANDS]
    return bool(told) and told[0] in LOOKING and not ENDLESS & set(words) and not {"…", "$"} & set("".join(words))


@pytest.mark.parametrize("command", [each for each in REMESH if runnable(each)], ids=str)
def test_what_only_looks_does_so(
    command: Command, incident: tuple[Path, str], remesh: Remesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run against that cluster: an answer, or the documented code where the injector is dead or a thing not there."""
    kubeconfig, redis_url = incident
    monkeypatch.chdir(tmp_path)
    remesh.set(REMESH_CLUSTER="examples", REMESH_KUBECONFIG=kubeconfig, REMESH_REDIS_URL=redis_url)
    words = remesh_words(command) or []
    for name in (word for word in words if word.endswith((".yaml", ".jsonl", ".toml"))):
        prepared(tmp_path / name)
    answer = remesh(*words)
    assert answer.code in (exits.OK, exits.FAILED, NotFound.exit_code), answer


def prepared(path: Path) -> None:
    """A file that an example reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shipped = {".toml": "config/policy.toml", ".jsonl": "tests/cases/cases.jsonl"}.get(path.suffix)
    if shipped is not None:
        path.write_text((examples.ROOT / shipped).read_text(encoding="utf-8"), encoding="utf-8")
    else:
        path.write_text(yaml.safe_dump(w.replica_set("web-6f", 2) | {"apiVersion": "apps/v1", "kind": "ReplicaSet"}))


def test_toml_is_a_policy_or_a_profile() -> None:
    for block in examples.blocks("toml"):
        model = MeshProfile if re.match(r"^name\s*=", block.text) else Policy
        assert parse_toml(str(block), block.text, model, "correct the page") is not None


def test_yaml_and_json_can_be_read() -> None:
    for block in examples.blocks("yaml"):
        assert list(yaml.safe_load_all(block.text)), block
    for block in examples.blocks("json"):
        assert json.loads(block.text) is not None, block
