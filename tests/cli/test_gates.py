"""What the watcher knows, in the answers of commands that ask no injector themselves."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remesh.ledger import GateState, Ledger
from remesh.presence import Presence, Role, now_seen
from remesh.sim import SimCluster
from remesh.testbed import Fault
from tests.cli.conftest import Remesh
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import CLUSTER, Stack, wait_until

pytestmark = pytest.mark.timeout(120)
NAMESPACE = "cli-gates"
KnowsGate = Callable[..., None]


@pytest.fixture
def stack(sim_cluster: SimCluster, remesh: Remesh, tmp_path: Path) -> Iterator[Stack]:
    """A Redis of its own, and a ReplicaSet that a dead injector has refused."""
    started = Stack(sim_cluster, tmp_path)
    remesh.set(REMESH_CLUSTER=CLUSTER, REMESH_REDIS_URL=started.redis.url, REMESH_KUBECONFIG=sim_cluster.kubeconfig)
    client = Client(sim_cluster.kubeconfig)
    client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
    sim_cluster.inject_fault(Fault.KILLED)
    client.create(NAMESPACE, w.replica_set("web", 2))
    client.wait_failing("ReplicaSet", NAMESPACE, ["web"])
    yield started
    started.stop()
    sim_cluster.heal()
    client.delete_workloads(NAMESPACE)
    client.close()


def items(remesh: Remesh, *arguments: str) -> Any:
    return json.loads(remesh(*arguments, "-n", NAMESPACE, "-o", "json").out)["items"]


@pytest.fixture
def knows(remesh: Remesh, stack: Stack) -> KnowsGate:
    """Says a gate's state as a live watcher would."""
    (found,) = items(remesh, "scan")
    key = f"{found['injector']['service_namespace']}/{found['injector']['service_name']}"

    def say(*, is_open: bool, mode: str = "repair") -> None:
        seen = now_seen(mode, "1.2", ()).model_copy(update={"role": Role.LEADER, "synced": True, "identity": "w"})
        Presence(stack.connection, CLUSTER).beat(seen)
        state = GateState(open=is_open, since=datetime.now(UTC), reason="3 dry runs passed" if is_open else "it fails")
        Ledger(stack.connection, CLUSTER).set_gate(key, state)

    return say


def test_a_scan_takes_an_open_gate_from_the_watcher(remesh: Remesh, stack: Stack, knows: KnowsGate) -> None:
    (before,) = items(remesh, "scan")
    assert before["action"] == "wait_for_injector"
    knows(is_open=True)
    (found,) = items(remesh, "scan")
    assert found["action"] == "nudge_owner"
    assert found["failure_class"] == before["failure_class"]
    answer = remesh("scan", "-n", NAMESPACE)
    assert "not been shown to work" not in answer.out
    assert " open: 3 dry runs passed." in answer.err
    knows(is_open=False)
    assert items(remesh, "scan")[0]["action"] == "wait_for_injector"
    assert " closed: it fails." in remesh("scan", "-n", NAMESPACE).err


def test_a_gate_that_no_live_watcher_keeps_is_not_believed(remesh: Remesh, stack: Stack, knows: KnowsGate) -> None:
    knows(is_open=True)
    stack.connection.delete(*stack.connection.keys("*watchers"))
    answer = remesh("scan", "-n", NAMESPACE)
    assert "wait_for_injector" in answer.out
    assert answer.err == ""


def test_a_scan_beside_an_observing_watcher_says_that_nothing_is_repaired(remesh: Remesh, knows: KnowsGate) -> None:
    knows(is_open=True, mode="observe")
    assert "The watcher only observes, so nothing is repaired by itself." in remesh("scan", "-n", NAMESPACE).err


def test_a_repair_that_is_not_waited_for_says_what_it_waits_for(remesh: Remesh, knows: KnowsGate) -> None:
    knows(is_open=False)
    answer = remesh("repair", "rs/web", "-n", NAMESPACE)
    assert answer.code == 0
    assert "waits until the gate of its injector opens, which is closed: it fails" in answer.out
    knows(is_open=False, mode="observe")
    assert "the watcher only observes" in remesh("repair", "rs/web", "-n", NAMESPACE).out


def test_a_repair_of_what_is_healthy_has_nothing_to_do(remesh: Remesh, sim_cluster: SimCluster, stack: Stack) -> None:
    sim_cluster.heal()
    wait_until(lambda: "has all the pods" in remesh("repair", "rs/web", "-n", NAMESPACE).out, "the next try")
    answer = remesh("repair", "rs/web", "-n", NAMESPACE)
    assert answer.code == 0
    assert "nothing to do" in answer.out
    assert "not repaired" not in answer.out
