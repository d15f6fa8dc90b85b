"""The same with watcher and worker at work: of many bare pods only those go that may."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.testbed import TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.harm.conftest import Opened
from tests.harm.test_pods_that_stay import ASKS, NODES, OPT_OUT
from tests.stack import Stack, wait_until

pytestmark = pytest.mark.timeout(200)

POLICY = "[repair]\nbare_pods = true\ncooldown_seconds = 1.0\n"


@pytest.fixture
def stack(bed: TestBed, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(bed, tmp_path)
    yield started
    started.stop()


@pytest.fixture
def tainted(client: Client) -> Iterator[str]:
    """A node that no new pod may use."""
    name = client.api.items(NODES)[0]["metadata"]["name"]
    yield name
    client.api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})


def test_only_those_go_that_may(stage: Opened, client: Client, stack: Stack, tainted: str) -> None:
    asked_later = stage(labels={"team": "a"})
    asked_later.made(w.deployment("early", 2), 2)
    opted_out = stage(labels={OPT_OUT: "disabled"}, annotations=ASKS)
    opted_out.made(w.deployment("out", 2), 2)
    here = stage()
    lonely, agent = w.pod("lonely"), w.daemon_set("agent", nodeSelector={"kubernetes.io/hostname": tainted})
    lonely["metadata"]["finalizers"] = ["example.com/kept"]
    here.bare_all([lonely, agent, w.replica_set("alone", 2), w.deployment("free", 2)], 6)
    containers = {"containers": [{"name": "app", "image": "app:next"}]}
    client.api.patch(w.path("ReplicaSet", here.namespace, "alone"), {"spec": {"template": {"spec": containers}}})
    taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
    client.api.patch(f"{NODES}/{tainted}", {"spec": {"taints": [taint]}})
    opted_out.a_second_later()
    asked_later.change_namespace(annotations=ASKS)
    opted_out.change_namespace(labels={OPT_OUT: None})
    kept = asked_later.uids() | opted_out.uids() | here.uids(but="free")

    stack.policy(POLICY)
    stack.start_worker()
    stack.start_watcher()

    def said() -> set[tuple[str, str]]:
        return {(each.ref.name.partition("-")[0], each.code) for each in stack.records() if each.ref}

    expected = {
        ("early", "older_than_mesh"),
        ("out", "older_than_mesh"),
        ("lonely", "has_finalizers"),
        ("alone", "owner_unsettled"),
        ("agent", "no_node"),
        ("free", "healed"),
    }
    try:
        wait_until(lambda: expected <= said(), f"{expected} in the trail", 120)
        wait_until(lambda: len(here.injected("free")) == 2, "the pods that may go to come back with their sidecar", 90)
        assert kept <= asked_later.uids() | opted_out.uids() | here.uids()
    finally:
        client.api.patch(w.path("Pod", here.namespace, "lonely"), {"metadata": {"finalizers": None}})
