"""Is a pod still what its owner's template says? A lone ReplicaSet's or ReplicationController's may have moved on.

Such an owner leaves its pods as they are when its template changes (apps/v1, v1): each pod that is evicted would bring
a piece of a rollout that nobody asked for. Above a ReplicaSet there is mostly somebody who makes a new one instead.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from remesh.objects import Pod, Workload

_KEEPS_ITS_PODS: Final = ("ReplicaSet", "ReplicationController")

Read = Callable[[str, str, str], Mapping[str, Any]]
"""One object as the API server has it, by kind, namespace and name."""


def another_template(owner: Workload, above: Workload | None, pod: Pod, read: Read) -> str:
    """Why evicting `pod` would roll out another template; "" if not. Raises what `read` raises."""
    if above is not None or owner.kind not in _KEEPS_ITS_PODS:
        return ""
    namespace = pod.metadata.namespace
    template = _at(read(owner.kind, namespace, owner.metadata.name), "spec", "template")
    live = read("Pod", namespace, pod.metadata.name)
    parts = (("spec",), ("metadata", "labels"), ("metadata", "annotations"))
    if all(_holds(_at(live, *part), _at(template, *part)) for part in parts):
        return ""
    return f"its owner's template is another than the pod's: {owner.kind}/{owner.metadata.name} was changed since"


def _at(document: Any, *path: str) -> Any:
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return {} if document is None else document


def _holds(has: Any, wanted: Any) -> bool:
    """True if everything that is wanted is there. What admission added, such as volumes, may be, too."""
    if isinstance(wanted, Mapping):
        return isinstance(has, Mapping) and all(key in has and _holds(has[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and any(isinstance(each, Mapping) for each in wanted):
        return isinstance(has, list) and all(any(_holds(one, each) for one in has) for each in wanted)
    return bool(has == wanted)
