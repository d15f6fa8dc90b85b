"""Less memory for many objects: what a pod or workload has in common with its siblings is kept once.

Pods of one owner repeat their labels, annotations, containers and conditions word for word; a workload's labels,
selector and template repeat each other, and much of the revision before it. A reflector passes every object through
`Siblings.share`, which lets equal parts be the same objects; benchmarks/README.md says what that is worth. The parts
are shared, so nobody may change a projection in place.
"""

from typing import Any

from remesh.objects import Pod, PodTemplate, Workload

WORDS = 20_000
"""Words remembered at most: names of namespaces, nodes and images, phases."""
OWNERS = 4096
"""Owners remembered at most; each keeps one pod of about 5 KB alive. Lists come sorted, so siblings come together."""


VALUE_CHARACTERS = 256
ANNOTATIONS = 100
"""What is kept of one object's annotations. Those that decide are short; whoever may write an object may write 256 KiB
into each, kubectl's last-applied-configuration among them. A worker reads the object whole before it touches anything.
"""


class Siblings:
    """The latest object of each owner. For one kind and one thread."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] = {}
        self._words: dict[str, str] = {}

    def share(self, obj: Any) -> None:
        """Replace what `obj`, if it is a pod or workload, has in common with the last one of its owner."""
        if (meta := getattr(obj, "metadata", None)) is not None and getattr(meta, "annotations", None):
            meta.annotations = shortened(meta.annotations)
        if isinstance(obj, Pod):
            self._share_words(obj)
            sibling = self._sibling(obj)
            if sibling is not None:
                self._share(obj, sibling)
        elif isinstance(obj, Workload):
            self._share_workload(obj, self._sibling(obj))

    def _sibling(self, obj: Any) -> Any:
        """The last one of its owner, whose place it takes; None if there is none."""
        if not obj.metadata.owner_references:
            return None
        owner = obj.metadata.owner_references[0].uid
        sibling = self._latest.get(owner)
        if sibling is None and len(self._latest) >= OWNERS:
            self._latest.clear()
        self._latest[owner] = obj
        return sibling

    def _word(self, text: str) -> str:
        if len(self._words) >= WORDS:
            self._words.clear()
        return self._words.setdefault(text, text)

    def _share_words(self, pod: Pod) -> None:
        """What pods of different owners say in the same words."""
        spec, status = pod.spec, pod.status
        pod.metadata.namespace = self._word(pod.metadata.namespace)
        spec.node_name = self._word(spec.node_name)
        spec.restart_policy = self._word(spec.restart_policy)
        spec.priority_class_name = self._word(spec.priority_class_name)
        status.phase = self._word(status.phase)

    def _share_workload(self, workload: Workload, sibling: Workload | None) -> None:
        meta, template, selector = workload.metadata, workload.spec.template, workload.spec.selector
        meta.namespace = self._word(meta.namespace)
        if selector is not None and selector.match_labels == meta.labels:
            selector.match_labels = meta.labels
        if template is not None:
            if template.metadata.labels == meta.labels:
                template.metadata.labels = meta.labels
            for each in (*(template.spec.containers or ()), *(template.spec.init_containers or ())):
                each.name, each.image = self._word(each.name), self._word(each.image)
        if sibling is None:
            return
        if meta.owner_references == sibling.metadata.owner_references:
            meta.owner_references = sibling.metadata.owner_references
        if template is not None and sibling.spec.template is not None:
            _share_template(template, sibling.spec.template)

    def _share(self, pod: Pod, sibling: Pod) -> None:
        meta, known = pod.metadata, sibling.metadata
        meta.labels = known.labels if meta.labels == known.labels else meta.labels
        meta.annotations = known.annotations if meta.annotations == known.annotations else meta.annotations
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
        for condition in pod.status.conditions or ():
            condition.type, condition.status = self._word(condition.type), self._word(condition.status)


def _share_template(template: PodTemplate, known: PodTemplate) -> None:
    if template.metadata.annotations == known.metadata.annotations:
        template.metadata.annotations = known.metadata.annotations
    if template.spec == known.spec:
        template.spec = known.spec


def shortened(annotations: dict[str, str]) -> dict[str, str]:
    """The same where all is short; else with long values cut, and the first of too many."""
    if len(annotations) <= ANNOTATIONS and all(len(value) <= VALUE_CHARACTERS for value in annotations.values()):
        return annotations
    return {key: value[:VALUE_CHARACTERS] for key, value in list(annotations.items())[:ANNOTATIONS]}
