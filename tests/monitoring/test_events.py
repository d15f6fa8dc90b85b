"""Kubernetes Events on repaired owners: one for each outcome, counted up, never in a repair's way."""

from datetime import UTC, datetime
from typing import Any

import pytest

from remesh.errors import Forbidden
from remesh.kube.config import load_access
from remesh.kube.events import described, record
from remesh.kube.transport import KubeClient
from remesh.meter import Meter
from remesh.models import ObjectRef, Outcome, Result
from remesh.sim import SimCluster
from tests.client import Client
from tests.monitoring.conftest import Incident
from tests.stack import wait_until
from workers.announce import BURST, Announcer, Bucket

NAMESPACE = "announced"
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
def test_the_owner_of_a_healed_workload_says_so_in_its_events(incident: Incident) -> None:
    def healed() -> list[dict[str, Any]]:
        events = incident.client.items("Event", incident.namespace)
        ours = [event for event in events if event.get("source", {}).get("component") == "remesh"]
        return [event for event in ours if event["reason"] in ("RepairHealed", "RepairInjected")]

    event = wait_until(healed, "an Event of remesh's")[0]
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert event["involvedObject"]["name"] in incident.names
    assert "finding f-" in event["message"]
    sent = 'remesh_kubernetes_events_total{cluster="e2e",result="sent"}'
    wait_until(lambda: (incident.worker.metric(sent) or 0) >= 1, "it is counted")


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
