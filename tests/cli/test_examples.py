"""The examples in each command's help: all can be parsed, and those that end by themselves are run as they stand."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.cli.app import COMMANDS, build
from remesh.cli.examples import EXAMPLES
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.cli.conftest import Remesh
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until

WIDTH = 43  # where the words behind an example begin
ALL = [(command, line) for command, lines in EXAMPLES.items() for line in lines]
# Those that run until they are ended, need workers, or build a cluster; they are tested where they are at home.
LONG = ("remesh run", "remesh demo", "remesh audit --follow", "remesh status --watch", "--wait")
# What each may exit with here: a stuck ReplicaSet, a Redis, no worker.
CODES = {"remesh check": (0, 1)}


def words(line: str) -> list[str]:
    """The arguments behind `remesh`, without the words that explain them and without the shell's own."""
    command = line[:WIDTH] if line[WIDTH - 1 : WIDTH] == " " else line
    command = command.removeprefix("source <(").rstrip().removesuffix(")").partition(" > ")[0]
    name, *arguments = shlex.split(command)
    assert name == "remesh"
    return arguments


def test_every_command_has_examples_of_its_own() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_them(remesh: Remesh, command: str) -> None:
    out = remesh(*command.split(), "--help").out
    assert "Examples:\n" in out
    assert all(line in out for line in EXAMPLES[command])


@pytest.mark.parametrize(("command", "line"), ALL)
def test_each_can_be_parsed(command: str, line: str) -> None:
    arguments = words(line)
    assert " ".join(arguments).startswith(command)
    group = build()
    with group.make_context("remesh", [*arguments]) as root:
        name, found, rest = group.resolve_command(root, [*root._protected_args, *root.args])
        with found.make_context(name, rest, parent=root) as context:
            if hasattr(found, "commands"):  # a group, such as quarantine
                inner, sub, left = found.resolve_command(context, [*context._protected_args, *context.args])
                sub.make_context(inner, left, parent=context).close()


@pytest.fixture(scope="module")
def scene() -> Iterator[SimCluster]:
    """The objects that the examples speak of: web-6f of Deployment web in namespace shop, stuck."""
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as cluster:
        client = Client(cluster.kubeconfig)
        client.create_meshed_namespace("shop", cluster.wear)
        cluster.inject_fault(Fault.KILLED)
        client.create("shop", w.replica_set("web-6f", 1))
        client.create("shop", w.deployment("web", 1))
        client.wait_failing("ReplicaSet", "shop", ["web-6f"])
        yield cluster
        client.close()


@pytest.mark.parametrize("line", [line for _, line in ALL if not any(long in line for long in LONG)])
def test_each_that_ends_by_itself_works(
    remesh: Remesh, scene: SimCluster, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deployment.yaml").write_text(MANIFEST, encoding="utf-8")
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_KUBECONFIG=scene.kubeconfig, REMESH_CLUSTER="examples")
    if "quarantine clear" in line:
        _quarantine(remesh, scene)
    if "brake clear" in line:
        _shut_brake()
    answer = remesh(*words(line))
    allowed = next((codes for start, codes in CODES.items() if line.startswith(start)), (0,))
    assert answer.code in allowed, answer


def _quarantine(remesh: Remesh, scene: SimCluster) -> None:
    from remesh.cli.options import Common
    from remesh.cli.session import Session

    client = Client(scene.kubeconfig)
    uid = wait_until(lambda: client.get("ReplicaSet", "shop", "web-6f")["metadata"]["uid"], "its UID")
    client.close()
    Session(Common()).ledger.quarantine(uid, "template", {"reason": "came back bare"})


def _shut_brake() -> None:
    from remesh.cli.options import Common
    from remesh.cli.session import Session

    brakes = Session(Common()).ledger.brakes
    for uid in ("uid-1", "uid-2"):
        brakes.take("istio-system/istiod", uid, 60)
        brakes.tell("istio-system/istiod", uid, good=False, shut_seconds=60)


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: app}]}
"""
