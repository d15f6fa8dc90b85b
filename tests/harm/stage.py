"""Bare pods, whatever is in the way of replacing them, and a repair that is asked for by a person."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from remesh.audit import Trail
from remesh.kube.api import Cluster
from remesh.kube.transport import Params
from remesh.ledger import Ledger
from remesh.models import AuditRecord, Outcome, RecordType
from remesh.policy import Policy
from remesh.redisdb import RedisClient
from remesh.sim.objects import Obj
from remesh.testbed import Fault, TestBed
from tests.agreement.agree import Answer, planned, repaired, survey_of
from tests.agreement.stage import NotingClient
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until
from workers.context import Clock

POLICY: Final = Policy()


class MeddlingClient(NotingClient):
    """Lets somebody else do something while a dry run is under way."""

    def __init__(self, kubeconfig: Any) -> None:
        super().__init__(kubeconfig)
        self.meanwhile: Callable[[], Any] = lambda: None

    def request(self, method: str, path: str, *, params: Params | None = None, **asked: Any) -> bytes:
        answer = super().request(method, path, params=params, **asked)
        if method == "POST" and (params or {}).get("dryRun") == "All" and path.endswith("/pods"):
            self.meanwhile()
        return answer


@dataclass
class Stage:
    """One namespace with bare pods."""

    bed: TestBed
    client: Client
    namespace: str
    meddling: MeddlingClient
    cluster: Cluster
    redis: RedisClient
    policy: Policy = POLICY
    attempts: int = 0

    # What is there

    def bare(self, body: Obj, count: int) -> list[str]:
        """Create it while the injector answers and injects nothing; names of its pods, once all are Ready."""
        return self.bare_all([body], count)

    def bare_all(self, bodies: Sequence[Obj], count: int) -> list[str]:
        """The same of several."""
        self.bed.inject_fault(Fault.NOT_INJECTING)
        names = self._made(bodies, count)
        self.bed.heal()
        return names

    def made(self, body: Obj, count: int) -> list[str]:
        """Create it as things are; names of its pods, all of them bare."""
        return self._made([body], count)

    def _made(self, bodies: Sequence[Obj], count: int) -> list[str]:
        for body in bodies:
            self.client.create(self.namespace, body)
        wait_until(lambda: len(self.client.ready(self.namespace)) == count, f"{count} pods Ready")
        pods = self.client.pods(self.namespace)
        assert not any(w.has_container(pod, self.bed.wear.sidecar) for pod in pods)
        return sorted(pod["metadata"]["name"] for pod in pods)

    def a_second_later(self) -> None:
        """API servers write whole seconds: what comes now is later than every pod."""
        newest = max(pod["metadata"]["creationTimestamp"] for pod in self.client.pods(self.namespace))
        end = datetime.fromisoformat(newest).timestamp() + 1
        wait_until(lambda: time.time() >= end, "another second", 5)

    def change_namespace(self, **metadata: Mapping[str, str | None]) -> None:
        """As `kubectl label` and `kubectl annotate` do it; None takes away."""
        place = f"/api/v1/namespaces/{self.namespace}?fieldManager=kubectl-label"
        self.client.api.patch(place, {"metadata": metadata})

    def uids(self, but: str = "nobody") -> set[str]:
        """Of all pods that nobody has asked to end, but those of one app."""
        found = (pod["metadata"] for pod in self.client.pods(self.namespace))
        return {each["uid"] for each in found if "deletionTimestamp" not in each and each["labels"]["app"] != but}

    def injected(self, app: str) -> list[str]:
        """Names of an app's pods that are Ready with the sidecar."""
        names = self.client.pods_ready_with_sidecar(self.namespace, self.bed.wear.sidecar)
        return [name for name in names if name.startswith(f"{app}-")]

    # What is done to it

    def stays(self, name: str, code: str) -> str:
        """Plan and repair leave this pod alone, for the same reason; returns it as the trail has it."""
        pod, before = self.cluster.pod(self.namespace, name), self.uids()
        survey = survey_of(self.cluster, self.policy, Ledger(self.redis, self.namespace))
        judged = survey.look(pod)
        plan = survey.prove(judged)
        assert planned(plan, judged, self.policy) == Answer("nothing", code), (plan.decision, plan.not_now, plan.probe)
        self.meddling.writes.clear()
        outcome = self.repair(name)
        assert (outcome.code, outcome.acted, self.meddling.writes) == (code, False, [])
        assert self.uids() == before
        return self.told(outcome)

    def repair(self, name: str) -> Outcome:
        """As `remesh repair` has it done: a person asks for it."""
        pod = self.cluster.pod(self.namespace, name)
        ref = survey_of(self.cluster, self.policy).look(pod).ref
        self.attempts += 1
        known: dict[str, Any] = {"clock": Clock(), "name": self.namespace, "attempt": self.attempts}
        return repaired(ref, self.cluster, self.policy, self.redis, **known)

    def told(self, outcome: Outcome) -> str:
        """The reason in the trail, where no intent stands."""
        records = [each for each in self.records() if each.finding_id == outcome.finding_id]
        assert RecordType.INTENT not in {each.type for each in records}
        return next(each.reason for each in reversed(records) if each.code == outcome.code)

    def records(self) -> list[AuditRecord]:
        return list(Trail(self.redis, self.namespace).read())
