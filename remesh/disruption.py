"""How many pods of one owner may be down by our doing, and whether it is settled enough to touch at all. Pure.

Watcher, workers and `plan` ask the same functions. `owner` is the pod's controller; `above` is the Deployment over a
ReplicaSet where there is one, because its rolling update says what its people accept.
"""

from collections.abc import Iterable
from typing import Final

from remesh.admission import compile_selector
from remesh.objects import OwnerReference, Pod, Workload
from remesh.policy import RepairPolicy
from remesh.tally import counts

REVISION_ANNOTATION: Final = "deployment.kubernetes.io/revision"  # on a ReplicaSet; its newest is the Deployment's own


_BUILT_IN: Final = frozenset(
    {
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("", "ReplicationController"),
        ("batch", "Job"),
    }
)
"""Group and kind of Kubernetes' own controllers that create pods."""


def is_custom(controller: OwnerReference) -> bool:
    """True for a kind that is not Kubernetes' own: whether it creates pods nobody knows."""
    group = _group(controller)
    return "." in group and not group.endswith(".k8s.io")


def creates_pods(controller: OwnerReference) -> bool:
    """False for Kubernetes' own kinds that create none, such as Deployment and CronJob.

    Anybody may write such a reference by hand, and nobody would put another pod in the place of an evicted one.
    """
    if not controller.api_version:  # only in documents: the API server demands it
        return any(controller.kind == kind for _, kind in _BUILT_IN)
    return is_custom(controller) or (_group(controller), controller.kind) in _BUILT_IN


def _group(controller: OwnerReference) -> str:
    return controller.api_version.rpartition("/")[0]


def stranger(owner: Workload, pod: Pod, repair: RepairPolicy) -> tuple[str, str] | None:
    """Code and reason if it is not shown that this owner would put another pod in the place of `pod`.

    A reference alone shows nothing, for its writer needs no right on the owner. Kubernetes' own controllers keep the
    pods that their selector selects; of others it takes the policy's word.
    """
    what = f"{owner.kind}/{owner.metadata.name}"
    selector, labels = compile_selector(owner.spec.selector), pod.metadata.labels or {}
    custom = is_custom(OwnerReference(kind=owner.kind, api_version=owner.api_version))
    if (selector is None and not custom) or (selector is not None and selector(labels) is not True):
        return "not_its_owner", f"{what} does not select it, whatever its reference says: nobody would create it again"
    if custom and not repair.custom_owners:
        return "custom_owner", f"whether {what} creates pods again is not known; policy repair.custom_owners allows it"
    return None


def share(owner: Workload, above: Workload | None, repair: RepairPolicy) -> int:
    """Pods of this owner that may be away at the same time by our doing; at least one: what says 0 see `forbids`.

    The policy's `share` where it is set; else what the owner's own rolling update allows to be unavailable; else a
    quarter. An ordered StatefulSet gives up one pod at a time whatever it says, as its controller replaces them.
    """
    desired = max(1, counts(owner).desired)
    if owner.kind == "StatefulSet":
        return 1
    if repair.share is not None:
        return max(1, int(desired * repair.share))
    allowed = _max_unavailable(above if above is not None else owner, desired)
    return max(1, allowed if allowed is not None else desired // 4)


def _max_unavailable(workload: Workload, desired: int) -> int | None:
    """Of its rolling update, in pods, rounded down as the Deployment controller does. None: it says nothing."""
    strategy = workload.spec.strategy or workload.spec.update_strategy
    if strategy is None or strategy.rolling_update is None:
        return None
    given = strategy.rolling_update.max_unavailable
    if given is None or isinstance(given, int):
        return given
    digits = given.removesuffix("%")
    return desired * int(digits) // 100 if digits.isdigit() and given.endswith("%") else None


def forbids(owner: Workload, above: Workload | None, repair: RepairPolicy) -> str:
    """Why none of its pods may be away, or "". Only a 0 that somebody wrote counts, and the policy's `share` beats it.

    A percentage that rounds down to none does not: a rolling update then brings the new pod up first, which eviction
    cannot, and every owner of one replica would be left bare.
    """
    workload = above if above is not None else owner
    strategy = workload.spec.strategy or workload.spec.update_strategy
    rolling = strategy.rolling_update if strategy is not None else None
    if repair.share is not None or owner.kind == "StatefulSet" or rolling is None:
        return ""
    if rolling.max_unavailable not in (0, "0", "0%"):
        return ""
    return f"its owner allows none to be missing: maxUnavailable of {workload.kind}/{workload.metadata.name} is 0"


def min_ready_seconds(owner: Workload) -> float:
    """For how long a new pod has to be Ready until its owner takes it for available; a day at most."""
    return float(min(86400, max(0, owner.spec.min_ready_seconds or 0)))


def settling(owner: Workload) -> int:
    """Pods that are Ready, but not yet for as long as their owner asks: for it they are away."""
    status = owner.status
    if not min_ready_seconds(owner) or owner.kind not in ("ReplicaSet", "ReplicationController", "StatefulSet"):
        return 0  # of others the number is not read, or need not be there
    return max(0, (status.ready_replicas or 0) - (status.available_replicas or 0))


def unsettled(owner: Workload, above: Workload | None) -> str:
    """Why this owner is left alone now: rolling out, paused, scaling or going away. Empty: it is settled."""
    if owner.metadata.deletion_timestamp or (above and above.metadata.deletion_timestamp):
        return "its owner is being deleted"
    for each in (owner, above):
        if each is not None and (reason := _busy(each)):
            return f"{each.kind}/{each.metadata.name} {reason}"
    if above is not None:
        return _outdated(owner, above) or _uneven(owner, above)
    return ""


def _busy(workload: Workload) -> str:
    spec, status = workload.spec, workload.status
    if spec.paused:
        return "is paused"
    if status.observed_generation is not None and status.observed_generation < workload.metadata.generation:
        return "has a change that its controller has not looked at yet"
    numbers = counts(workload)
    if workload.kind == "Deployment":
        # Not by `updated < desired`: that is also so for the moment in which one of its pods is being replaced.
        return "is rolling out" if numbers.current > (status.updated_replicas or 0) else ""
    if workload.kind == "DaemonSet":
        return "is rolling out" if _rolling_daemon_set(workload) else ""
    if workload.kind == "StatefulSet":
        return "is rolling out" if _rolling_stateful_set(workload) else ""
    if numbers.current > numbers.desired:
        return "is scaling down"
    return ""


def _rolling_daemon_set(workload: Workload) -> bool:
    status, strategy = workload.status, workload.spec.update_strategy
    if strategy is not None and strategy.type == "OnDelete":
        return False
    return (status.updated_number_scheduled or 0) < (status.current_number_scheduled or 0)  # as of a Deployment's


def _rolling_stateful_set(workload: Workload) -> bool:
    status, strategy = workload.status, workload.spec.update_strategy
    by_hand = strategy is not None and (
        strategy.type == "OnDelete" or bool(strategy.rolling_update and strategy.rolling_update.partition)
    )
    return not by_hand and bool(status.update_revision) and status.current_revision != status.update_revision


def _outdated(owner: Workload, above: Workload) -> str:
    """An old ReplicaSet of a Deployment goes away by itself: its pods are not worth a repair."""
    mine = (owner.metadata.annotations or {}).get(REVISION_ANNOTATION)
    newest = (above.metadata.annotations or {}).get(REVISION_ANNOTATION)
    if mine is not None and newest is not None and mine != newest:
        return f"it belongs to revision {mine} of {above.kind}/{above.metadata.name}, which is at {newest}"
    return ""


def _uneven(owner: Workload, above: Workload) -> str:
    """A Deployment's only ReplicaSet wants as many pods as the Deployment does, unless it is just being scaled."""
    if owner.kind != "ReplicaSet" or above.kind != "Deployment" or counts(owner).desired == counts(above).desired:
        return ""
    return f"{above.kind}/{above.metadata.name} is scaling"


def away(pods: Iterable[Pod]) -> int:
    """Pods that are not Ready or are going: they use up the share too, whoever made them so."""
    return sum(1 for pod in pods if not pod.ready or pod.metadata.deletion_timestamp is not None)
