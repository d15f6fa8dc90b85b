"""Plan and repair agree on running clusters, too: a dozen random namespaces, simulated and on the real API server."""

import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from remesh.kube.api import Cluster
from remesh.models import Outcome, Result
from remesh.objects import Pod, Workload
from remesh.policy import Policy
from remesh.redisdb import RedisClient
from remesh.sim.objects import Obj
from remesh.testbed import Fault, TestBed
from tests.agreement.agree import Answer, planned, repaired, survey_of
from tests.agreement.stage import NotingClient
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until
from watcher.store import WORKLOAD_KINDS
from workers.context import Clock

SEEDS = range(12)
# The controllers' back-off doubles from 5 ms: they try after 10.2 s, and then not before 20.5 s.
BACK_OFF_SECONDS = 11.5
# Long enough is at once, because nobody wants to wait for it here.
PATIENCE = {"detection": {"silent_seconds": 0, "no_condition_seconds": 0}, "repair": {"bare_pods": True}}
POLICY = Policy.model_validate(PATIENCE)
OPTED_OUT = {"linkerd.io/inject": "disabled"}


@pytest.fixture
def namespace(bed: TestBed, client: Client) -> Iterator[str]:
    name = f"agree-{secrets.token_hex(3)}"
    client.create_meshed_namespace(name, bed.wear)
    yield name
    client.delete_workloads(name)


@dataclass
class Town:
    """One namespace, filled at random."""

    bed: TestBed
    client: Client
    namespace: str
    dice: random.Random
    patient: bool  # True: refused workloads are left alone until their controllers make a long pause
    began: float = 0.0  # monotonic time at which they were created

    def fill(self) -> None:
        """Injected, bare and refused pods of all kinds; then the injector works, or does not."""
        self._wave("injected", None)
        self._wave("bare", Fault.NOT_INJECTING)
        self._wave("refused", Fault.KILLED)
        if self.dice.random() < 0.3:
            self.client.create(self.namespace, w.disruption_budget("keep", self.dice.choice(("bare-0", "bare-1")), 2))
        if self.patient:
            end = self.began + BACK_OFF_SECONDS
            wait_until(lambda: time.monotonic() > end, "a long back-off", BACK_OFF_SECONDS + 5)
        self.bed.heal()
        now = (
            None
            if self.patient
            else self.dice.choice((None, None, None, None, Fault.KILLED, Fault.NOT_INJECTING, Fault.DENYING))
        )
        if now is not None:
            self.bed.inject_fault(now)

    def _wave(self, name: str, fault: Fault | None) -> None:
        self.bed.heal()
        if fault is not None:
            self.bed.inject_fault(fault)
        self.began = time.monotonic()
        bodies = [self._owner(f"{name}-{number}") for number in range(self.dice.randint(1, 2))]
        if fault is not Fault.KILLED and self.dice.random() < 0.5:
            bodies.append(w.pod(f"{name}-alone", **self._template()))
        for body in bodies:
            self.client.create(self.namespace, body)
        if fault is Fault.KILLED:
            names = [body["metadata"]["name"] for body in bodies if body["kind"] == "ReplicaSet"]
            self.client.wait_failing("ReplicaSet", self.namespace, names)
            return
        for body in bodies:
            wait_until(partial(self._complete, body), f"the pods of {body['metadata']['name']}", 60)

    def _owner(self, name: str) -> Obj:
        count = self.dice.randint(1, 3)
        makers = (w.replica_set, w.replica_set, w.deployment, w.stateful_set, w.replication_controller)
        return self.dice.choice(makers)(name, count, **self._template())

    def _template(self) -> Obj:
        kind = self.dice.choice(("meshed", "meshed", "meshed", "opted out", "host network"))
        if kind == "opted out":
            return {"annotations": OPTED_OUT}
        return {"hostNetwork": True} if kind == "host network" else {}

    def _complete(self, body: Obj) -> bool:
        wanted = body["spec"].get("replicas", 1) if body["kind"] != "Pod" else 1
        name = body["metadata"]["name"]
        pods = self.client.items("Pod", self.namespace)
        mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == name]
        settled = body["kind"] == "Pod" or self._settled(body["kind"], name, wanted)
        return settled and len(mine) == wanted and all(w.is_ready(pod) for pod in mine)

    def _settled(self, kind: str, name: str, wanted: int) -> bool:
        status = self.client.get(kind, self.namespace, name).get("status", {})
        return bool(status.get("readyReplicas") == wanted)

    def sacred(self) -> set[str]:
        """UIDs of pods that nobody may touch: they have their sidecar, or want none."""
        return {
            pod["metadata"]["uid"]
            for pod in self.client.items("Pod", self.namespace)
            if w.has_container(pod, self.bed.wear.sidecar)
            or pod["spec"].get("hostNetwork")
            or pod["metadata"].get("annotations", {}).get("linkerd.io/inject") == "disabled"
        }

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.client.items("Pod", self.namespace)}


@dataclass
class Hall:
    """Where plans are made and carried out, one object after the other."""

    cluster: Cluster
    noting: NotingClient
    redis: RedisClient

    def plan(self, obj: Workload | Pod) -> Answer:
        survey = survey_of(self.cluster, POLICY)
        before = survey.look(obj)
        return planned(survey.prove(before), before, POLICY)

    def agrees(self, obj: Workload | Pod) -> bool:
        """Plan, and repair. What is written must have been planned; if nothing is, things may have moved in between."""
        kind, meta = obj.kind, obj.metadata
        now = self.cluster.get(kind, meta.namespace, meta.name)
        assert isinstance(now, Workload | Pod)
        expected = self.plan(now)
        self.noting.writes.clear()
        ref = survey_of(self.cluster, POLICY).look(now).ref
        outcome = repaired(ref, self.cluster, POLICY, self.redis, Clock())
        done = self.done()
        answer = Answer(done, "" if done != "nothing" else outcome.code)
        if done != "nothing":
            assert answer == expected, (ref, outcome)
            assert all(self._about(place, meta.name, meta.namespace) for _, place in self.noting.writes)
            return True
        return answer == expected or self._came_first(expected, outcome)

    @staticmethod
    def _came_first(expected: Answer, outcome: Outcome) -> bool:
        """A workload's controller tried again by itself between plan and repair."""
        return expected.effect == "nudge" and outcome.result is Result.ALREADY_HEALTHY

    @staticmethod
    def _about(place: str, name: str, namespace: str) -> bool:
        parts = place.split("?", maxsplit=1)[0].split("/")
        return namespace in parts and (name in parts or parts[-1] == "pods")

    def done(self) -> str:
        verbs = tuple(
            "evict" if place.endswith("/eviction") else method.lower() for method, place in self.noting.writes
        )
        known = {
            (): "nothing",
            ("patch", "patch"): "nudge",
            ("evict",): "evict",
            ("evict", "post"): "recreate",
        }
        return known.get(verbs, str(verbs))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_plan_and_repair_agree(bed: TestBed, client: Client, namespace: str, redis: RedisClient, seed: int) -> None:
    town = Town(bed, client, namespace, random.Random(seed), patient=seed % 4 == 0)
    town.fill()
    sacred = town.sacred()
    noting = NotingClient(bed.kubeconfig)
    cluster = Cluster(noting)
    hall = Hall(cluster, noting, redis)
    objects: list[Workload | Pod] = [each for kind in WORKLOAD_KINDS for each in cluster.list(kind, namespace)]
    objects += cluster.list("Pod", namespace)
    for obj in objects:
        uid = obj.metadata.uid
        if not isinstance(obj, Pod) or uid in town.uids():
            wait_until(partial(hall.agrees, obj), f"plan and repair agree on {obj.metadata.name}", 60)
    assert sacred <= town.uids()
    noting.close()
