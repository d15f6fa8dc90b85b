"""May this pod go now? Of its owner's pods only a share may be away, in the owner's own order. Pure.

Used by `workers.recreate_evict`. What the share is, and whether the owner is settled, `remesh.disruption` says.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from remesh.disruption import settling, share
from remesh.objects import Pod, Workload
from remesh.policy import RepairPolicy
from remesh.tally import COUNTED_KINDS, active, counts

REVISION_LABEL = "controller-revision-hash"  # on pods of StatefulSets and DaemonSets

Marked = Callable[[Pod], bool]


class Room(NamedTuple):
    """How many of an owner's pods are away, and how many may be."""

    away: int
    limit: int

    @property
    def free(self) -> bool:
        """True if one more may go."""
        return self.away < self.limit


def room(
    owner: Workload,
    above: Workload | None,
    repair: RepairPolicy,
    pods: Iterable[Pod],
    pod: Pod,
    *,
    earlier: Collection[str],
    marked: Marked,
) -> Room:
    """Room for `pod` to go. `earlier` are the UIDs of pods that are about to go: they are away already.

    A pod is away if it is missing, going, or not Ready. But when `pod` itself is not Ready, others that are bare and
    not Ready do not count: they may be so because they are bare, and would keep each other from being repaired.
    """
    others = [each for each in pods if each.metadata.uid != pod.metadata.uid and active(each)]
    wanted = max(1, counts(owner).desired if owner.kind in COUNTED_KINDS else len(others) + 1)

    def stands(each: Pod) -> bool:
        return each.metadata.uid not in earlier and (each.ready or not (pod.ready or marked(each)))

    standing = sum(1 for each in others if stands(each))
    return Room(away=max(0, wanted - 1 - standing) + settling(owner), limit=share(owner, above, repair))


def goes_first(owner: Workload, pod: Pod, waiting: Iterable[Pod]) -> Pod | None:
    """The pod that is replaced before `pod`, or None. `waiting` are the owner's pods that are to be replaced.

    A StatefulSet replaces its pods one by one from the highest ordinal (apps/v1, RollingUpdate).
    """
    if owner.kind != "StatefulSet":
        return None
    mine = ordinal(pod)
    return max((each for each in waiting if ordinal(each) > mine), key=ordinal, default=None)


def ordinal(pod: Pod) -> int:
    """Number at the end of a StatefulSet's pod's name; -1 if there is none."""
    digits = pod.metadata.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def held_back(owner: Workload, pod: Pod) -> str:
    """Why evicting would do a piece of a rollout that somebody holds back by OnDelete or a partition; "" if not."""
    status, strategy = owner.status, owner.spec.update_strategy
    if owner.kind == "StatefulSet":
        mine = (pod.metadata.labels or {}).get(REVISION_LABEL)
        if mine and status.update_revision and mine != status.update_revision:
            return f"StatefulSet/{owner.metadata.name} is held between two revisions, and the pod is of the old one"
    on_delete = owner.kind == "DaemonSet" and strategy is not None and strategy.type == "OnDelete"
    if on_delete and (status.updated_number_scheduled or 0) < (status.current_number_scheduled or 0):
        return f"DaemonSet/{owner.metadata.name} has pods of an old template, which somebody holds back by OnDelete"
    return ""
