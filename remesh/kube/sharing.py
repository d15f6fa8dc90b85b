"""Less memory for many pods: what a pod has in common with its siblings is kept once.

Pods of one owner repeat their labels, annotations, containers and conditions word for word. A reflector passes
every pod through `Siblings.share`, which lets equal parts be the same objects. Measured on injected pods: 10,000
take 18 MB instead of 50. The parts are shared, so nobody may change a projection in place.
"""

from typing import Any

from remesh.objects import Pod

OWNERS = 4096
"""Owners remembered at most; each keeps one pod of about 5 KB alive. Lists come sorted, so siblings come together."""


VALUE_CHARACTERS = 256
ANNOTATIONS = 100
"""What is kept of one object's annotations. Those that decide are short; whoever may write an object may write 256 KiB
into each, kubectl's last-applied-configuration among them. A worker reads the object whole before it touches anything.
"""


class Siblings:
    """The latest pod of each owner. For one thread."""

    def __init__(self) -> None:
        self._latest: dict[str, Pod] = {}
        self._words: dict[str, str] = {}

    def share(self, obj: Any) -> None:
        """Replace what `obj`, if it is a pod with an owner, has in common with the last one of that owner."""
        if (meta := getattr(obj, "metadata", None)) is not None and getattr(meta, "annotations", None):
            meta.annotations = shortened(meta.annotations)
        if not isinstance(obj, Pod) or not obj.metadata.owner_references:
            return
        owner = obj.metadata.owner_references[0].uid
        sibling = self._latest.get(owner)
        if sibling is None and len(self._latest) >= OWNERS:
            self._latest.clear()
        self._latest[owner] = obj
        if sibling is not None:
            self._share(obj, sibling)

    def _share(self, pod: Pod, sibling: Pod) -> None:
        meta, known = pod.metadata, sibling.metadata
        meta.labels = known.labels if meta.labels == known.labels else meta.labels
        meta.annotations = known.annotations if meta.annotations == known.annotations else meta.annotations
        meta.namespace = known.namespace if meta.namespace == known.namespace else meta.namespace
        meta.generate_name = known.generate_name if meta.generate_name == known.generate_name else meta.generate_name
        if meta.owner_references == known.owner_references:
            meta.owner_references = known.owner_references
        if pod.spec.containers == sibling.spec.containers:
            pod.spec.containers = sibling.spec.containers
        if pod.spec.init_containers == sibling.spec.init_containers:
            pod.spec.init_containers = sibling.spec.init_containers
        self._share_conditions(pod, sibling)

    def _share_conditions(self, pod: Pod, sibling: Pod) -> None:
        if pod.status.conditions == sibling.status.conditions:
            pod.status.conditions = sibling.status.conditions
            return
        if len(self._words) > OWNERS:
            self._words.clear()
        for condition in pod.status.conditions or ():
            condition.type = self._words.setdefault(condition.type, condition.type)
            condition.status = self._words.setdefault(condition.status, condition.status)


def shortened(annotations: dict[str, str]) -> dict[str, str]:
    """The same where all is short; else with long values cut, and the first of too many."""
    if len(annotations) <= ANNOTATIONS and all(len(value) <= VALUE_CHARACTERS for value in annotations.values()):
        return annotations
    return {key: value[:VALUE_CHARACTERS] for key, value in list(annotations.items())[:ANNOTATIONS]}
