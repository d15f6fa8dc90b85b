"""StatefulSet: named pods in order. It has no condition that tells of a failed creation."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.controllers.base import PodOwner
from remesh.sim.objects import Obj, digest, is_finished, is_ready, is_terminating, labels_of, name_of, namespace_of
from remesh.sim.status import StatusError
from remesh.sim.workqueue import Key

_REVISION = "controller-revision-hash"


class StatefulSetController(PodOwner):
    """Creates one pod after the other, each when those before it are ready (or all at once, if Parallel)."""

    name = "statefulset-controller"
    workers = 5
    resource = res.STATEFUL_SETS

    def sync(self, key: Key) -> None:
        """The next step towards the wanted pods; the status is written even when that fails."""
        owner = self.find(self.resource, key)
        if owner is None or is_terminating(owner):
            return
        failure: StatusError | None = None
        try:
            self._manage(owner)
        except StatusError as error:
            failure = error
        self._write_status(owner)
        if failure is not None:
            raise failure

    def _manage(self, owner: Obj) -> None:
        parallel = owner["spec"]["podManagementPolicy"] == "Parallel"
        pods = {name_of(pod): pod for pod in self.pods_of(owner)}
        wanted = [f"{name_of(owner)}-{ordinal}" for ordinal in range(owner["spec"]["replicas"])]
        for name in wanted:
            pod = pods.get(name)
            if pod is None:
                self._create(owner, name)
                if not parallel:
                    return
            elif is_finished(pod) and not is_terminating(pod):
                self.delete_pod(owner, pod)
                return
            elif not parallel and (is_terminating(pod) or not is_ready(pod)):
                return
        self._give_up(owner, pods, wanted, parallel=parallel)

    def _give_up(self, owner: Obj, pods: dict[str, Obj], wanted: list[str], *, parallel: bool) -> None:
        """Scale down, and then replace pods of an old template, from the highest ordinal."""
        surplus = [pods[name] for name in sorted(pods, key=_ordinal, reverse=True) if name not in wanted]
        outdated = [
            pods[name]
            for name in reversed(wanted)
            if name in pods and labels_of(pods[name]).get(_REVISION) != _revision(owner)
        ]
        on_delete = owner["spec"]["updateStrategy"]["type"] == "OnDelete"
        for pod in surplus or ([] if on_delete else outdated):
            if not is_terminating(pod):
                self.delete_pod(owner, pod)
            if not parallel:
                return

    def _create(self, owner: Obj, name: str) -> None:
        template = owner["spec"]["template"]
        pod = self.new_pod(owner, template)
        metadata = pod["metadata"]
        metadata["name"] = name
        metadata["generateName"] = f"{name_of(owner)}-"
        metadata["labels"] |= {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(_ordinal(name)),
            _REVISION: _revision(owner),
        }
        pod["spec"] = {**pod["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
        text = f"Create Pod {name} in StatefulSet {name_of(owner)}"
        try:
            self.client.create(res.PODS, namespace_of(owner), pod)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            message = f"{text} failed error: {error.message}"
            self.recorder.record(self.resource, owner, "Warning", "FailedCreate", message)
            raise
        self.recorder.record(self.resource, owner, "Normal", "SuccessfulCreate", f"{text} successful")

    def _write_status(self, owner: Obj) -> None:
        pods = [pod for pod in self.pods_of(owner) if not is_finished(pod)]
        revision = _revision(owner)
        updated = [pod for pod in pods if labels_of(pod).get(_REVISION) == revision]
        ready = [pod for pod in pods if is_ready(pod)]
        before = owner.get("status", {})
        current = before.get("currentRevision", revision)
        if len(updated) == len(pods) == owner["spec"]["replicas"] == len(ready):
            current = revision
        status: dict[str, Any] = {
            "observedGeneration": owner["metadata"]["generation"],
            "replicas": len(pods),
            "readyReplicas": len(ready) or None,
            "currentReplicas": sum(1 for pod in pods if labels_of(pod).get(_REVISION) == current) or None,
            "updatedReplicas": len(updated) or None,
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
            "availableReplicas": len(ready),
        }
        self.set_status(self.resource, owner, status)


def _revision(owner: Obj) -> str:
    return f"{name_of(owner)}-{digest(owner['spec']['template'])}"


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
