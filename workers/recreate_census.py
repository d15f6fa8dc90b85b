"""An owner's pods as they are, and in which order any worker saw them first. Used by `workers.recreate_evict`."""

from typing import Final, NamedTuple

from remesh.objects import Pod, Workload
from remesh.tally import counts
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
    flock: Flock = Flock({}, 0)  # as they are followed


def judged(ctx: RepairContext, owner: Workload) -> Census:
    """Before something is done: two seconds old at most, and for less than `MANY_PODS` as of now."""
    return _followed(ctx, owner, JUDGED_SECONDS, anew=True) or _listed(ctx, owner)


def looked(ctx: RepairContext, owner: Workload) -> Census:
    """While a replacement is waited for; its `last` means nothing."""
    return _followed(ctx, owner, LOOKED_SECONDS, anew=False) or _listed(ctx, owner)


def _followed(ctx: RepairContext, owner: Workload, seconds: float, *, anew: bool) -> Census | None:
    if ctx.following is None:
        return None
    if counts(owner).desired >= MANY_PODS:
        ctx.following.begin(owner)
    uid = owner.metadata.uid
    flock = ctx.following.pods(uid, seconds)
    if flock is None:
        return None
    last = 0

    def number(new: list[Pod]) -> dict[str, int]:
        nonlocal last
        if not new and not anew:
            return {}
        uids = [each.metadata.uid for each in new]
        last, numbers = ctx.ledger.number_pods(uid, uids)
        return dict(zip(uids, numbers, strict=True))

    numbers = ctx.following.number(uid, number)
    there = {uid: pod for uid, pod in flock.pods.items() if uid in numbers}  # the others have gone meanwhile
    return Census(there, numbers, last, flock)


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
