"""Kubernetes Events on repaired owners: one for each outcome, counted up, never in a repair's way."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from remesh.errors import Forbidden
from remesh.kube.config import load_access
from remesh.kube.events import described, record
from remesh.kube.transport import KubeClient
from remesh.meter import Meter
from remesh.models import ObjectRef, Outcome, Result
from remesh.sim import SimCluster
from tests.client import Client
from tests.e2e.test_main_job import long_in_backoff
from tests.monitoring.scene import QUICK, break_and_deploy, start_served
from tests.stack import Stack, wait_until
from workers.announce import BURST, Announcer, Bucket

NAMESPACE = "announced"
NAMES = ["web-0", "web-1", "web-2"]
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
REF = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace=NAMESPACE, name="web", uid="u-1")


def outcome(result: Result) -> Outcome:
    return Outcome(finding_id="f-0123456789ab", result=result, code="x", reason="2 pods came")


class Told(Meter):
    def __init__(self) -> None:
        self.words: list[str] = []

    def announced(self, result: str) -> None:
        self.words.append(result)


@pytest.mark.timeout(200)
def test_the_owner_of_a_healed_workload_says_so_in_its_events(sim_cluster: SimCluster, tmp_path: Path) -> None:
    stack, client = Stack(sim_cluster, tmp_path), Client(sim_cluster.kubeconfig)
    try:
        stack.policy(QUICK)
        client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
        _, worker = start_served(stack, REMESH_KUBERNETES_EVENTS="true")
        break_and_deploy(sim_cluster, client, NAMESPACE, NAMES)
        long_in_backoff(client, NAMESPACE, NAMES[0], 13.0)
        sim_cluster.heal()
        client.wait_healed(NAMESPACE, sim_cluster.wear.sidecar, 2 * len(NAMES))

        def healed() -> list[dict[str, object]]:
            return [
                event
                for event in client.items("Event", NAMESPACE)
                if event["reason"] in ("RepairHealed", "RepairInjected") and event["source"]["component"] == "remesh"
            ]

        event = wait_until(healed, "an Event of remesh's")[0]
        assert event["involvedObject"]["kind"] == "ReplicaSet"  # type: ignore[index]
        assert "finding f-" in str(event["message"])
        sent = 'remesh_kubernetes_events_total{cluster="e2e",result="sent"}'
        wait_until(lambda: (worker.metric(sent) or 0) >= 1, "it is counted")
    finally:
        sim_cluster.heal()
        stack.stop()
        client.delete_workloads(NAMESPACE)
        client.close()


def test_the_same_again_raises_the_count(sim_cluster: SimCluster) -> None:
    client, kube = Client(sim_cluster.kubeconfig), KubeClient(load_access(sim_cluster.kubeconfig))
    client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
    for text in ("first", "second", "third"):
        record(kube, REF, "RepairFailed", text, NOW, warning=True)
    (event,) = [each for each in client.items("Event", NAMESPACE) if each["reason"] == "RepairFailed"]
    assert (event["count"], event["message"], event["type"]) == (3, "third", "Warning")
    client.close()


def test_after_ten_minutes_it_is_another_event() -> None:
    later = NOW.replace(minute=10)
    first, second = (described(REF, "RepairFailed", "x", at, warning=True) for at in (NOW, later))
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_a_missing_right_is_counted_and_stops_nothing() -> None:
    class Refusing:
        def request(self, *_: object, **__: object) -> bytes:
            raise Forbidden("no right", status=403)

    told = Told()
    announce = Announcer(Refusing(), told)  # type: ignore[arg-type]
    announce(REF, REF, outcome(Result.HEALED))
    announce(REF, REF, outcome(Result.WAITING))
    wait_until(lambda: told.words == ["failed"], "it is counted")


def test_a_flood_is_cut_off() -> None:
    now = [0.0]
    bucket = Bucket(lambda: now[0])
    assert sum(bucket.take() for _ in range(100)) == BURST
    now[0] = 3.0
    assert sum(bucket.take() for _ in range(100)) == 3
