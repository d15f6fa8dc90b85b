"""Deployment: one ReplicaSet per pod template, and a rolling update between them."""

import math
from typing import Any

from remesh.sim import resources as res
from remesh.sim.controllers.base import Controller
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import (
    Obj,
    annotations_of,
    condition,
    controller_reference,
    copy,
    digest,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    now,
    with_condition,
)
from remesh.sim.status import StatusError
from remesh.sim.workqueue import Key

_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", _REVISION)


class DeploymentController(Controller):
    """Creates, scales and retires the ReplicaSets of Deployments."""

    name = "deployment-controller"
    workers = 5

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.watch_own(res.DEPLOYMENTS)
        self.watch_owned(res.REPLICA_SETS, res.DEPLOYMENTS)

    def sync(self, key: Key) -> None:
        """A ReplicaSet of the present template, replicas moved to it, and the numbers."""
        deployment = self.find(res.DEPLOYMENTS, key)
        if deployment is None or is_terminating(deployment):
            return
        owned = self.store.owned(res.REPLICA_SETS, deployment["metadata"]["uid"])
        new = self._current(deployment, owned)
        old = [entry for entry in owned if name_of(entry) != name_of(new)]
        if not deployment["spec"].get("paused"):
            self._roll(deployment, new, old)
        self._write_status(deployment)
        self._retire(deployment, old)

    def _current(self, deployment: Obj, owned: list[Obj]) -> Obj:
        """The ReplicaSet of the present template, created if there is none."""
        template_hash = digest(deployment["spec"]["template"])
        found = next((entry for entry in owned if labels_of(entry).get(_HASH) == template_hash), None)
        if found is None:
            revision = 1 + max((_revision(entry) for entry in owned), default=0)
            return self._create(deployment, template_hash, revision, owned)
        return self._annotate(deployment, found, owned)

    def _create(self, deployment: Obj, template_hash: str, revision: int, owned: list[Obj]) -> Obj:
        spec = deployment["spec"]
        template = copy(spec["template"])
        labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: template_hash}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = copy(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: template_hash}
        replica_set = {
            "metadata": {
                "name": f"{name_of(deployment)}-{template_hash}",
                "labels": labels,
                "annotations": self._annotations(deployment, revision),
                "ownerReferences": [controller_reference(res.DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": _first_replicas(deployment, owned),
                "selector": selector,
                "template": template,
            },
        }
        created = self.client.create(res.REPLICA_SETS, namespace_of(deployment), replica_set)
        self._note_revision(deployment, revision)
        if replicas := created["spec"]["replicas"]:
            message = f"Scaled up replica set {name_of(created)} from 0 to {replicas}"
            self.recorder.record(res.DEPLOYMENTS, deployment, "Normal", "ScalingReplicaSet", message)
        return created

    def _annotations(self, deployment: Obj, revision: int) -> dict[str, str]:
        copied = {key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED}
        desired = deployment["spec"]["replicas"]
        return {
            **copied,
            "deployment.kubernetes.io/desired-replicas": str(desired),
            "deployment.kubernetes.io/max-replicas": str(desired + _surge(deployment)),
            _REVISION: str(revision),
        }

    def _annotate(self, deployment: Obj, replica_set: Obj, owned: list[Obj]) -> Obj:
        """A Deployment's annotations are copied to its present ReplicaSet, which thereby is synced too."""
        newest = max(_revision(entry) for entry in owned)
        revision = newest if _revision(replica_set) == newest else newest + 1
        wanted = self._annotations(deployment, revision)
        self._note_revision(deployment, revision)
        if wanted.items() <= annotations_of(replica_set).items():
            return replica_set

        def annotated(current: Obj) -> Obj:
            current["metadata"]["annotations"] = {**annotations_of(current), **wanted}
            return current

        return self.client.change(res.REPLICA_SETS, namespace_of(deployment), name_of(replica_set), annotated)

    def _note_revision(self, deployment: Obj, revision: int) -> None:
        if annotations_of(deployment).get(_REVISION) == str(revision):
            return

        def annotated(current: Obj) -> Obj:
            current["metadata"]["annotations"] = {**annotations_of(current), _REVISION: str(revision)}
            return current

        self.client.change(res.DEPLOYMENTS, namespace_of(deployment), name_of(deployment), annotated)

    def _roll(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        desired = deployment["spec"]["replicas"]
        running_old = [entry for entry in old if entry["spec"]["replicas"] > 0]
        if not running_old:
            self._scale(deployment, new, desired)
            return
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            for entry in running_old:
                self._scale(deployment, entry, 0)
            if not any(entry.get("status", {}).get("replicas") for entry in old):
                self._scale(deployment, new, desired)
            return
        total = new["spec"]["replicas"] + sum(entry["spec"]["replicas"] for entry in running_old)
        room = desired + _surge(deployment) - total
        grown = min(desired, new["spec"]["replicas"] + max(0, room))
        new = self._scale(deployment, new, grown)
        self._shrink(deployment, new, running_old)

    def _shrink(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        spec = deployment["spec"]
        least = spec["replicas"] - _unavailable(deployment)
        total = new["spec"]["replicas"] + sum(entry["spec"]["replicas"] for entry in old)
        unready = new["spec"]["replicas"] - new.get("status", {}).get("availableReplicas", 0)
        excess = total - least - unready
        for entry in old:
            broken = entry["spec"]["replicas"] - entry.get("status", {}).get("availableReplicas", 0)
            fewer = min(entry["spec"]["replicas"], max(0, excess), entry["spec"]["replicas"])
            fewer = max(fewer, min(broken, max(0, excess)))
            if fewer > 0:
                self._scale(deployment, entry, entry["spec"]["replicas"] - fewer)
                excess -= fewer

    def _scale(self, deployment: Obj, replica_set: Obj, replicas: int) -> Obj:
        before = replica_set["spec"]["replicas"]
        if before == replicas:
            return replica_set

        def scaled(current: Obj) -> Obj:
            current["spec"]["replicas"] = replicas
            return current

        changed = self.client.change(res.REPLICA_SETS, namespace_of(replica_set), name_of(replica_set), scaled)
        verb = "up" if replicas > before else "down"
        message = f"Scaled {verb} replica set {name_of(replica_set)} from {before} to {replicas}"
        self.recorder.record(res.DEPLOYMENTS, deployment, "Normal", "ScalingReplicaSet", message)
        return changed

    def _write_status(self, deployment: Obj) -> None:
        owned = self.store.owned(res.REPLICA_SETS, deployment["metadata"]["uid"])
        template_hash = digest(deployment["spec"]["template"])
        new = [entry for entry in owned if labels_of(entry).get(_HASH) == template_hash]
        desired = deployment["spec"]["replicas"]
        available = _total(owned, "availableReplicas")
        status: dict[str, Any] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": _total(owned, "replicas") or None,
            "updatedReplicas": _total(new, "replicas") or None,
            "readyReplicas": _total(owned, "readyReplicas") or None,
            "availableReplicas": available or None,
            "unavailableReplicas": max(0, max(desired, _total(owned, "replicas")) - available) or None,
            "terminatingReplicas": _total(owned, "terminatingReplicas"),
            "conditions": _conditions(deployment, new, available),
        }
        self.set_status(res.DEPLOYMENTS, deployment, status)

    def _retire(self, deployment: Obj, old: list[Obj]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        idle = [entry for entry in old if not entry["spec"]["replicas"] and not entry["status"].get("replicas")]
        idle.sort(key=_revision)
        for entry in idle[: max(0, len(idle) - limit)]:
            try:
                self.client.delete(res.REPLICA_SETS, namespace_of(entry), name_of(entry), DeleteOptions())
            except StatusError as error:
                if error.code != 404:
                    raise


def _first_replicas(deployment: Obj, owned: list[Obj]) -> int:
    """How many replicas a new ReplicaSet begins with: what the old ones leave room for."""
    desired: int = deployment["spec"]["replicas"]
    present: int = sum(entry["spec"]["replicas"] for entry in owned)
    if not present:
        return desired
    if deployment["spec"]["strategy"]["type"] == "Recreate" or deployment["spec"].get("paused"):
        return 0
    return max(0, min(desired, desired + _surge(deployment) - present))


def _revision(replica_set: Obj) -> int:
    return int(annotations_of(replica_set).get(_REVISION, "0"))


def _total(replica_sets: list[Obj], field: str) -> int:
    return sum(entry.get("status", {}).get(field, 0) for entry in replica_sets)


def _surge(deployment: Obj) -> int:
    rolling = deployment["spec"]["strategy"].get("rollingUpdate")
    return share(rolling["maxSurge"], deployment["spec"]["replicas"], up=True) if rolling else 0


def _unavailable(deployment: Obj) -> int:
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    found = share(rolling["maxUnavailable"], deployment["spec"]["replicas"], up=False)
    return found if found or _surge(deployment) else 1


def share(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total`, rounded as asked."""
    if isinstance(value, int):
        return value
    part = total * int(value.rstrip("%")) / 100
    return math.ceil(part) if up else math.floor(part)


def _conditions(deployment: Obj, new: list[Obj], available: int) -> list[Obj]:
    conditions = deployment.get("status", {}).get("conditions") or []
    least = deployment["spec"]["replicas"]
    if deployment["spec"]["strategy"]["type"] == "RollingUpdate":
        least -= _unavailable(deployment)
    enough = available >= least
    conditions = with_condition(conditions, _available(enough=enough))
    current = new[0] if new else None
    if current is not None:
        done = current.get("status", {}).get("availableReplicas", 0) >= deployment["spec"]["replicas"]
        conditions = with_condition(conditions, _progressing(name_of(current), done=done))
    failure = condition(current, "ReplicaFailure") if current is not None else None
    if failure is not None:
        return with_condition(conditions, failure)
    return [entry for entry in conditions if entry["type"] != "ReplicaFailure"]


def _available(*, enough: bool) -> Obj:
    return {
        "type": "Available",
        "status": "True" if enough else "False",
        "lastUpdateTime": now(),
        "lastTransitionTime": now(),
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }


def _progressing(name: str, *, done: bool) -> Obj:
    reason, verb = (
        ("NewReplicaSetAvailable", "has successfully progressed") if done else ("ReplicaSetUpdated", "is progressing")
    )
    return {
        "type": "Progressing",
        "status": "True",
        "lastUpdateTime": now(),
        "lastTransitionTime": now(),
        "reason": reason,
        "message": f'ReplicaSet "{name}" {verb}.',
    }
