"""DaemonSet: one pod for each node. It has no condition that tells of a failed creation."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.controllers.base import BURST_REPLICAS, PodOwner
from remesh.sim.objects import Obj, copy, digest, is_finished, is_ready, is_terminating, labels_of, name_of
from remesh.sim.status import StatusError
from remesh.sim.store import Change
from remesh.sim.workqueue import Key

_REVISION = "controller-revision-hash"
# A daemon's pod stays where others would be sent away.
_TOLERATIONS: tuple[Obj, ...] = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class DaemonSetController(PodOwner):
    """Keeps a pod on every node that the template's node selector allows."""

    name = "daemonset-controller"
    workers = 2
    resource = res.DAEMON_SETS

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        super().watch()
        self.store.listen(res.NODES, self._node_changed)

    def _node_changed(self, change: Change) -> None:
        if change.type != "MODIFIED":
            for item in self.store.objects(self.resource):
                self.queue.add((item.obj["metadata"]["namespace"], name_of(item.obj)))

    def sync(self, key: Key) -> None:
        """One pod on each node that should have one, and the numbers."""
        owner = self.find(self.resource, key)
        if owner is None or is_terminating(owner):
            return
        failure = self._manage(owner)
        self._write_status(owner)
        if failure is not None:
            raise failure

    def _nodes(self, owner: Obj) -> list[str]:
        wanted = (owner["spec"]["template"]["spec"].get("nodeSelector") or {}).items()
        nodes = [item.obj for item in self.store.objects(res.NODES)]
        return [name_of(node) for node in nodes if wanted <= labels_of(node).items()]

    def _manage(self, owner: Obj) -> StatusError | None:
        by_node: dict[str, Obj] = {}
        for pod in self.pods_of(owner):
            if is_finished(pod) and not is_terminating(pod):
                self.delete_pod(owner, pod)
            by_node[node_of(pod)] = pod
        nodes = self._nodes(owner)
        missing = [node for node in nodes if node not in by_node][:BURST_REPLICAS]
        failure = self.slow_start(len(missing), lambda number: self._create(owner, missing[number]))
        for node, pod in by_node.items():
            if node not in nodes and not is_terminating(pod):
                self.delete_pod(owner, pod)
        if failure is None and not missing:
            self._replace_outdated(owner, by_node)
        return failure

    def _replace_outdated(self, owner: Obj, by_node: dict[str, Obj]) -> None:
        if owner["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return
        if any(not is_ready(pod) or is_terminating(pod) for pod in by_node.values()):
            return
        for pod in by_node.values():
            if labels_of(pod).get(_REVISION) != _revision(owner):
                self.delete_pod(owner, pod)
                return

    def _create(self, owner: Obj, node: str) -> StatusError | None:
        pod = copy(self.new_pod(owner, owner["spec"]["template"]))
        pod["metadata"]["labels"] |= {_REVISION: _revision(owner), "pod-template-generation": "1"}
        pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or []), *_TOLERATIONS]
        pod["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                    ]
                }
            }
        }
        return self.create_pod(owner, pod)

    def _write_status(self, owner: Obj) -> None:
        nodes = self._nodes(owner)
        pods = [pod for pod in self.pods_of(owner) if not is_terminating(pod) and node_of(pod) in nodes]
        ready = sum(1 for pod in pods if is_ready(pod))
        updated = sum(1 for pod in pods if labels_of(pod).get(_REVISION) == _revision(owner))
        status: dict[str, Any] = {
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": 0,
            "desiredNumberScheduled": len(nodes),
            "numberReady": ready,
            "observedGeneration": owner["metadata"]["generation"],
            "updatedNumberScheduled": updated or None,
            "numberAvailable": ready or None,
            "numberUnavailable": len(nodes) - ready or None,
        }
        self.set_status(self.resource, owner, status)


def _revision(owner: Obj) -> str:
    return digest(owner["spec"]["template"])


def node_of(pod: Obj) -> str:
    """The node a pod is on, or is meant for by its node affinity; empty when any node will do."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for entry in term.get("matchFields") or ():
            if entry["key"] == "metadata.name":
                return str(entry["values"][0])
    return ""
