"""Objects at the edge of what the API server stores: a reason in the trail, no crash, and nothing lost.

A worker repairs them inside the test, on the simulated and on the real control plane.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from remesh.audit import Trail, to_json_line
from remesh.kube.api import Cluster
from remesh.models import AuditRecord, ObjectRef, Outcome, RecordType, Result
from remesh.redisdb import RedisClient
from remesh.testbed import Fault, TestBed
from tests.agreement.agree import planned, repaired, survey_of
from tests.agreement.stage import NotingClient
from tests.agreement.test_on_clusters import POLICY
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.api import Object
from tests.stack import wait_until
from workers.context import Clock

LIMIT = 256 * 1024  # bytes of an object's annotations, keys and values together
# The controllers' back-off doubles from 5 ms: they try after 5.1 s, and then not before 10.2 s.
BACK_OFF_SECONDS = 5.5


@dataclass
class Place:
    """One meshed namespace, and a worker for what is in it."""

    bed: TestBed
    client: Client
    redis: RedisClient
    namespace: str
    noting: NotingClient

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.noting)

    def ref(self, thing: Object) -> ObjectRef:
        meta = thing["metadata"]
        return ObjectRef(
            api_version=thing["apiVersion"],
            kind=thing["kind"],
            namespace=self.namespace,
            name=meta["name"],
            uid=meta["uid"],
        )

    def repair(self, thing: Object) -> tuple[Outcome, list[AuditRecord]]:
        """The outcome and the trail of one repair."""
        name = f"odd-{secrets.token_hex(4)}"
        self.noting.writes.clear()
        outcome = repaired(self.ref(thing), self.cluster, POLICY, self.redis, Clock(), name)
        return outcome, list(Trail(self.redis, name).read())

    def plan(self, thing: Object) -> str:
        """What `plan` says would be done."""
        survey = survey_of(self.cluster, POLICY)
        obj = self.cluster.get(thing["kind"], self.namespace, thing["metadata"]["name"])
        before = survey.look(obj)  # type: ignore[arg-type]
        return planned(survey.prove(before), before, POLICY).effect

    def bare(self, body: Object, count: int) -> list[Object]:
        """Create a workload while nothing is injected, and heal; its pods, Ready and bare."""
        self.bed.inject_fault(Fault.NOT_INJECTING)
        self.client.create(self.namespace, body)
        wait_until(lambda: len(self.client.ready(self.namespace)) == count, f"{count} bare pods Ready", 60)
        self.bed.heal()
        return [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in self.client.pods(self.namespace)]

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.client.pods(self.namespace)}


@pytest.fixture(params=["sim", pytest.param("real", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, redis: RedisClient) -> Iterator[Place]:
    bed: TestBed = request.getfixturevalue(f"{request.param}_cluster")
    client, noting = Client(bed.kubeconfig), NotingClient(bed.kubeconfig)
    name = f"odd-{secrets.token_hex(3)}"
    client.create_meshed_namespace(name, bed.wear)
    yield Place(bed, client, redis, name, noting)
    bed.heal()
    client.delete_workloads(name)
    noting.close()
    client.close()


def filled(limit: int) -> dict[str, str]:
    """Annotations of exactly so many bytes."""
    return {"note": "é" * ((limit - len("note")) // 2)}


def size(annotations: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def test_an_owner_without_room_for_the_nudge_is_reported_with_the_reason(place: Place) -> None:
    body = w.replica_set("full")
    body["metadata"]["annotations"] = filled(LIMIT)
    assert size(body["metadata"]["annotations"]) == LIMIT
    place.bed.inject_fault(Fault.KILLED)
    made = place.client.create(place.namespace, body)
    began = time.monotonic()
    place.client.wait_failing("ReplicaSet", place.namespace, ["full"])
    wait_until(lambda: time.monotonic() > began + BACK_OFF_SECONDS, "a long back-off", BACK_OFF_SECONDS + 5)
    place.bed.heal()

    outcome, trail = place.repair(made)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "nudge_refused"), outcome
    assert "Too long: may not be more than 262144 bytes" in outcome.reason
    assert trail[-1].type is RecordType.OUTCOME
    assert "Too long" in trail[-1].reason
    assert place.noting.writes == []
    assert place.client.nudge_annotations(place.namespace) == []
    short(trail)


def test_a_pod_without_room_for_the_injectors_marks_is_not_evicted(place: Place) -> None:
    (pod,) = place.bare(w.replica_set("full", annotations=filled(LIMIT)), 1)
    before = place.uids()

    assert place.plan(pod) == "nothing"
    outcome, trail = place.repair(pod)

    assert outcome.result in (Result.REPORTED, Result.WAITING, Result.SKIPPED), outcome
    assert "Too long: may not be more than 262144 bytes" in outcome.reason
    assert place.noting.writes == []
    assert place.uids() == before
    short(trail)


def test_annotations_of_a_quarter_of_a_megabyte_keep_nobody_from_the_sidecar(place: Place) -> None:
    body = w.replica_set("large", annotations=filled(LIMIT - 1024))
    body["metadata"]["annotations"] = filled(LIMIT - 1024)
    (pod,) = place.bare(body, 1)

    assert place.plan(pod) == "evict"
    outcome, trail = place.repair(pod)

    assert outcome.result is Result.HEALED, outcome
    place.client.wait_healed(place.namespace, place.bed.wear.sidecar, 1)
    (now,) = place.client.pods(place.namespace)
    assert now["metadata"]["annotations"]["note"] == filled(LIMIT - 1024)["note"]
    short(trail)


def test_a_budget_of_everything_holds_and_is_named_and_those_of_nothing_do_not_count(place: Place) -> None:
    pods = place.bare(w.replica_set("web", 2), 2)
    for name, selector in (("nobody", {"matchLabels": {"app": "nobody"}}), ("null", None), ("all", {})):
        spec = {"minAvailable": "100%"} | ({"selector": selector} if selector is not None else {})
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        place.client.create(place.namespace, body)

    def counted() -> bool:
        found = place.client.get("PodDisruptionBudget", place.namespace, "all")
        return bool(found.get("status", {}).get("currentHealthy") == 2)

    wait_until(counted, "the budget of everything to be counted")
    before = place.uids()

    assert place.plan(pods[0]) == "nothing"
    outcome, trail = place.repair(pods[0])

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "blocked_by_pdb"), outcome
    assert "all" in outcome.reason.split()
    assert "nobody" not in outcome.reason
    assert trail[-1].code == "blocked_by_pdb"
    assert place.noting.writes == []
    assert place.uids() == before

    place.client.api.delete(w.path("PodDisruptionBudget", place.namespace, "all"))

    for pod in pods:
        wait_until(lambda pod=pod: place.repair(pod)[0].result is Result.HEALED, "the pod is replaced", 60)  # type: ignore[misc]
    place.client.wait_healed(place.namespace, place.bed.wear.sidecar, 2)


def short(trail: list[AuditRecord]) -> None:
    """What others have written is cut in the trail."""
    assert trail
    assert max(len(to_json_line(record)) for record in trail) < 20_000
