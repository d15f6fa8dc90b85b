"""Is there a node on which a pod's replacement may run? Reads only. Used by the workers and by `remesh plan`.

An eviction takes away at once; that nothing can come in its place shows only afterwards. Sources: "Taints and
Tolerations" and "DaemonSet" in Kubernetes' documentation.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from remesh.errors import NotFound
from remesh.objects import Node, Pod, Taint

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})

Tolerations = Callable[[], Iterable[Mapping[str, Any]]]
"""The running pod's own: with those that its controller and admission have added. Asked for only where they count."""


class Reads(Protocol):
    """What is read of the cluster for it, as `remesh.kube.api.Cluster` has it."""

    def get_raw(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """One object as the API server has it."""

    def node(self, name: str) -> Node:
        """One node, read now. Raises NotFound."""


def nowhere(pod: Pod, owner_kind: str, cluster: Reads, nodes: Callable[[], Iterable[Node]]) -> str:
    """Why nothing could come in the pod's place, or "". A DaemonSet's comes where the pod is, any other's anywhere.

    Raises ClusterError if that cannot be read.
    """

    def tolerations() -> Iterable[Mapping[str, Any]]:
        raw = cluster.get_raw("Pod", pod.metadata.namespace, pod.metadata.name)
        return (raw.get("spec") or {}).get("tolerations") or []

    name = pod.spec.node_name
    if owner_kind != "DaemonSet" or not name:
        reason = no_place(nodes(), tolerations)
    else:
        try:
            reason = no_place_on(cluster.node(name), tolerations)
        except NotFound:
            reason = f"node {name} is gone"
    return f"nothing could come in its place: {reason}" if reason else ""


def no_place_on(node: Node, tolerations: Tolerations) -> str:
    """Why a DaemonSet would not create another pod on this node now, or ""; what runs there it leaves running."""
    name = node.metadata.name
    if not node.ready:
        return f"node {name} is not Ready"
    taint = _in_the_way(node, tolerations)
    if taint is None:
        return ""
    return f"node {name} has the taint {taint.key}:{taint.effect}, which the pod does not tolerate"


def no_place(nodes: Iterable[Node], tolerations: Tolerations) -> str:
    """Why a replacement could be scheduled nowhere at all, or ""."""
    ready = [node for node in nodes if node.ready]
    if not ready:
        return "no node is Ready"
    if any(not _taints(node) for node in ready):
        return ""
    if any(_in_the_way(node, tolerations) is None for node in ready):
        return ""
    return "every node that is Ready is cordoned, or has a taint that the pod does not tolerate"


def _taints(node: Node) -> list[Taint]:
    found = [taint for taint in node.spec.taints or () if taint.effect in _KEEPS_OFF]
    if node.spec.unschedulable and not any(taint.key == UNSCHEDULABLE for taint in found):
        found.append(Taint(UNSCHEDULABLE, "", "NoSchedule"))  # a controller adds it a moment later
    return found


def _in_the_way(node: Node, tolerations: Tolerations) -> Taint | None:
    taints = _taints(node)
    if not taints:
        return None
    known = list(tolerations())
    return next((taint for taint in taints if not any(_tolerates(each, taint) for each in known)), None)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """As ToleratesTaint of k8s.io/api/core/v1: no effect means each, no key with Exists means each."""
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == taint.value
