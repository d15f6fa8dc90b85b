"""An owner's pods as they are, and in which order any worker saw them first. Used by `workers.recreate_evict`."""

from typing import Final, NamedTuple

from remesh.disruption import share
from remesh.objects import Pod, Workload
from remesh.tally import active, counts
from workers.context import RepairContext
from workers.following import Flock

# Many pods are followed by a watch. Where that cannot be, a list of them will do for ten times as long as it took, for
# two seconds at most: with a list for each eviction the cost would grow with the square. A few pods are listed anew
# each time, however long that takes, since one of them may be half of what there is. What others do the slots tell.
MANY_PODS: Final = 100
PODS_DEAR: Final = 10.0
JUDGED_SECONDS: Final = 2.0  # age up to which what a watch says is believed before anything is done
LOOKED_SECONDS: Final = 10.0  # and where only a replacement is looked for


class Census(NamedTuple):
    """An owner's pods by UID, the oldest first where they were listed, and the numbers that they were given."""

    pods: dict[str, Pod]
    numbers: dict[str, int]  # by UID
    last: int  # the last number that any pod of this owner was given
    flock: Flock | None = None  # as they are followed; None: they were listed


def judged(ctx: RepairContext, owner: Workload, above: Workload | None, pod: Pod) -> Census:
    """Before something is done: two seconds old at most, and for less than `MANY_PODS` as of now.

    `owner` and `pod` were just read: what a watch says must agree with them, else it is behind, and is not believed.
    """
    found = _followed(ctx, owner, JUDGED_SECONDS, anew=True)
    if found is not None and _agrees(found, owner, pod, share(owner, above, ctx.policy.repair)):
        return found
    return _listed(ctx, owner)


def looked(ctx: RepairContext, owner: Workload) -> Census:
    """While a replacement is waited for; its `last` means nothing."""
    return _followed(ctx, owner, LOOKED_SECONDS, anew=False) or _listed(ctx, owner)


def _followed(ctx: RepairContext, owner: Workload, seconds: float, *, anew: bool) -> Census | None:
    if ctx.following is None:
        return None
    uid = owner.metadata.uid
    if counts(owner).desired >= MANY_PODS:
        ctx.following.begin(owner)

    def number(uids: list[str]) -> tuple[int, list[int]]:
        return ctx.ledger.number_pods(uid, uids)

    found = ctx.following.counted(uid, seconds, number, anew=anew)
    return None if found is None else Census(found.flock.pods, found.numbers, found.last, found.flock)


def _agrees(census: Census, owner: Workload, pod: Pod, limit: int) -> bool:
    """False if the owner is not large, or if pod or owner say that the watch is behind.

    An owner's own count of Ready pods comes a moment late, so a tenth of its share is no difference.
    """
    running, ready = sum(map(active, census.pods.values())), sum(each.ready for each in census.pods.values())
    wanted, seen = counts(owner), census.pods.get(pod.metadata.uid)
    if min(running, wanted.desired) < MANY_PODS or ready - wanted.ready > max(1, limit // 10):
        return False
    return seen is not None and seen.metadata.resource_version == pod.metadata.resource_version


def _listed(ctx: RepairContext, owner: Workload) -> Census:
    def take() -> Census:
        pods = sorted(ctx.cluster.pods_of(owner), key=lambda pod: pod.metadata.creation_timestamp)
        uids = [each.metadata.uid for each in pods]
        last, numbers = ctx.ledger.number_pods(owner.metadata.uid, uids)
        return Census(dict(zip(uids, pods, strict=True)), dict(zip(uids, numbers, strict=True)), last)

    found = ctx.recent.recall(("pods", owner.metadata.uid), 0.0, take, ctx.clock.monotonic, dear=dear)
    if ctx.following and len(found.pods) >= MANY_PODS:
        ctx.following.begin(owner)
    return found


def dear(census: Census) -> float:
    """For how many times as long as it took a list is believed."""
    return PODS_DEAR if len(census.pods) >= MANY_PODS else 0.0
