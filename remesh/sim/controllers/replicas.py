"""ReplicaSet and ReplicationController: the two kinds that carry a ReplicaFailure condition."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.controllers.base import BURST_REPLICAS, PodOwner
from remesh.sim.objects import Obj, condition, is_active, is_finished, is_ready, is_terminating, labels_of, now
from remesh.sim.selectors import equality_selector
from remesh.sim.status import StatusError
from remesh.sim.workqueue import Key


class ReplicaSetController(PodOwner):
    """Five workers for all ReplicaSets: creations that hang keep the other ReplicaSets waiting."""

    name = "replicaset-controller"
    workers = 5
    resource = res.REPLICA_SETS

    def sync(self, key: Key) -> None:
        """As many active pods as asked for; the status is written even when that fails."""
        owner = self.find(self.resource, key)
        if owner is None:
            return
        active = [pod for pod in self.pods_of(owner) if is_active(pod)]
        failure = None if is_terminating(owner) else self._manage(owner, active)
        self._write_status(owner, active, failure)
        if failure is not None:
            raise failure

    def _manage(self, owner: Obj, active: list[Obj]) -> StatusError | None:
        missing = owner["spec"]["replicas"] - len(active)
        if missing > 0:
            pod = self.new_pod(owner, owner["spec"]["template"])
            return self.slow_start(min(missing, BURST_REPLICAS), lambda _: self.create_pod(owner, pod))
        for pod in _least_useful(active)[: min(-missing, BURST_REPLICAS)]:
            try:
                self.delete_pod(owner, pod)
            except StatusError as error:
                return error
        return None

    def _write_status(self, owner: Obj, active: list[Obj], failure: StatusError | None) -> None:
        labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        selects = equality_selector(labels)
        ready = sum(1 for pod in active if is_ready(pod))
        status: dict[str, Any] = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(1 for pod in active if selects(labels_of(pod))) or None,
            "readyReplicas": ready or None,
            "availableReplicas": ready or None,
            "terminatingReplicas": self._terminating(owner),
            "observedGeneration": owner["metadata"].get("generation", 1),
            "conditions": _conditions(owner, len(active), failure) or None,
        }
        self.set_status(self.resource, owner, status)

    def _terminating(self, owner: Obj) -> int | None:
        return sum(1 for pod in self.pods_of(owner) if is_terminating(pod) and not is_finished(pod))


class ReplicationControllerController(ReplicaSetController):
    """The same for ReplicationControllers, with five workers of its own."""

    name = "replication-controller"
    resource = res.REPLICATION_CONTROLLERS

    def _terminating(self, _owner: Obj) -> int | None:
        return None  # a field of the apps group


def _conditions(owner: Obj, active: int, failure: StatusError | None) -> list[Obj]:
    """The first failure stays, message and time, until a sync succeeds."""
    present = owner.get("status", {}).get("conditions") or []
    if failure is None:
        return [entry for entry in present if entry["type"] != "ReplicaFailure"]
    if condition(owner, "ReplicaFailure") is not None:
        return list(present)
    new = {
        "type": "ReplicaFailure",
        "status": "True",
        "lastTransitionTime": now(),
        "reason": "FailedCreate" if active < owner["spec"]["replicas"] else "FailedDelete",
        "message": failure.message,
    }
    return [*present, new]


def _least_useful(pods: list[Obj]) -> list[Obj]:
    """Pods in the order in which they are given up: unassigned, not ready, young."""
    by_age = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    return sorted(by_age, key=lambda pod: (bool(pod["spec"].get("nodeName")), is_ready(pod)))
