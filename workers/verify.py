"""Did the repair work? Counts the owner's pods, and judges them; `watch` does so until there is an answer.

The counting and judging is pure. A pod counts only with the injector's mark, because a nudge whose pods come back
bare has healed nothing. What was there before the nudge is told apart by UID, so no two clocks are compared.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from remesh.errors import ClusterUnreachable, NotFound, Throttled
from remesh.models import Result
from remesh.objects import Pod
from remesh.tally import active
from workers.context import Clock
from workers.verdicts import Verdict

FIRST_PAUSE_SECONDS: Final = 0.25  # a nudged ReplicaSet had its ten pods after 0.36 s
LONGEST_PAUSE_SECONDS: Final = 2.0
# A controller that was nudged syncs within about a second. If nothing came by then, a dry run says whether the
# injector fails again, so that the finding goes back behind the gate without waiting for the deadline.
DOUBT_SECONDS: Final = 5.0
# A StatefulSet's next pod waits until the last one is Ready, a Job's until its back-off has passed: once a pod has come
# with the mark, those that are still missing say nothing of the injector.
PACED_KINDS: Final = frozenset({"StatefulSet", "Job"})


@dataclass(frozen=True, slots=True)
class Tally:
    """The owner's pods at one moment."""

    wanted: int
    marked: int = 0  # running or about to, with the mark
    ready: int = 0  # of those: Ready
    older_bare: int = 0  # running, there before the nudge, without the mark: not this repair's doing
    created: int = 0  # not there before the nudge, with the mark; also those that have ended by now
    bare: int = 0  # not there before the nudge, without the mark

    @property
    def missing(self) -> int:
        """Pods that should be there and are not."""
        return max(0, self.wanted - self.marked - self.older_bare - self.bare)

    @property
    def healed(self) -> bool:
        """True if nothing more can come: all there, marked and Ready."""
        return not self.missing and not self.bare and self.ready == self.marked

    def counted(self) -> dict[str, int]:
        """For events: what a person who watches wants to see."""
        return {"wanted": self.wanted, "created": self.created, "ready": self.ready, "bare": self.bare}


def tally(wanted: int, pods: Iterable[Pod], *, marked: Callable[[Pod], bool], before: Collection[str]) -> Tally:
    """Count. `marked` tells an injected pod, `before` holds the UIDs of the pods from before the nudge."""
    with_mark: list[Pod] = []
    bare: list[Pod] = []
    for pod in pods:
        (with_mark if marked(pod) else bare).append(pod)
    running = [pod for pod in with_mark if active(pod)]
    return Tally(
        wanted=wanted,
        marked=len(running),
        ready=sum(1 for pod in running if pod.ready),
        older_bare=sum(1 for pod in bare if active(pod) and pod.metadata.uid in before),
        created=sum(1 for pod in with_mark if pod.metadata.uid not in before),
        bare=sum(1 for pod in bare if pod.metadata.uid not in before),
    )


def judge(seen: Tally, kind: str, *, growing: bool, final: bool) -> Verdict | None:
    """The verdict, or None while it is worth waiting.

    `growing`: pods have appeared within the last seconds. `final`: the time is up, so there is always a verdict.
    """
    if seen.bare:
        reason = f"{seen.bare} new pods came without the sidecar, {seen.created} with it"
        return Verdict(Result.FAILED, "came_back_bare", reason)
    if seen.healed:
        return Verdict(Result.HEALED, "healed", f"{_there(seen)} and Ready")
    if not final:
        return None
    if not seen.missing:
        return Verdict(Result.INJECTED, "not_ready_yet", f"{_there(seen)}, {seen.ready} of them Ready so far")
    if not seen.created:
        reason = f"nudged, and no pod appeared; {seen.missing} are still missing"
        return Verdict(Result.FAILED, "nothing_created", reason)
    if kind in PACED_KINDS or growing:
        reason = f"{seen.created} pods came with the sidecar; its controller goes on with the other {seen.missing}"
        return Verdict(Result.INJECTED, "progressing", reason)
    reason = f"{seen.created} pods came with the sidecar, then no more; {seen.missing} are still missing"
    return Verdict(Result.FAILED, "partly_created", reason)


def _there(seen: Tally) -> str:
    older = f" ({seen.older_bare} older ones lack it)" if seen.older_bare else ""
    return f"{seen.created} pods came, {seen.marked} of {seen.wanted} are there with the sidecar{older}"


@dataclass(frozen=True, slots=True)
class Sight:
    """What `watch` looks through."""

    look: Callable[[bool], Tally]  # True: count anew, whatever is known. Raises NotFound once the object is gone
    doubt: Callable[[], Verdict | None]  # a dry run; a verdict if it shows why nothing comes
    progress: Callable[[Tally], None]  # told whenever the numbers change
    clock: Clock


def watch(sight: Sight, kind: str, seconds: float) -> Verdict:
    """Look until there is a verdict, for at most `seconds`, and one dry run more.

    Raises ClusterUnreachable or Throttled if the API server does not answer at the end of that time.
    """
    return _Watch(sight, kind, seconds).run()


class _Watch:
    """One verification under way."""

    def __init__(self, sight: Sight, kind: str, seconds: float) -> None:
        self._sight = sight
        self._kind = kind
        self._seconds = seconds
        self._began = sight.clock.monotonic()
        self._grew = self._began  # when the last new pod was seen
        self._seen: Tally | None = None
        self._asked = False  # a dry run was made because nothing came

    def run(self) -> Verdict:
        pause = FIRST_PAUSE_SECONDS
        while True:
            verdict = self._look()
            if verdict is not None:
                return verdict
            left = self._seconds - self._since(self._began)
            self._sight.clock.sleep(max(0.05, min(pause, left)))
            pause = min(LONGEST_PAUSE_SECONDS, pause * 1.5)

    def _look(self) -> Verdict | None:
        final = self._since(self._began) >= self._seconds
        try:
            seen = self._sight.look(final)
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "it went away while its pods were awaited")
        except (ClusterUnreachable, Throttled):
            if final:
                raise
            return None
        self._note(seen)
        growing = self._since(self._grew) < DOUBT_SECONDS
        verdict = judge(seen, self._kind, growing=growing, final=final)
        if not seen.missing or seen.bare or growing or (self._asked and not final):
            return verdict
        self._asked = True
        return self._sight.doubt() or verdict

    def _note(self, seen: Tally) -> None:
        if seen == self._seen:
            return
        if self._seen is None or seen.created > self._seen.created:
            self._grew = self._sight.clock.monotonic()
        self._seen = seen
        self._sight.progress(seen)

    def _since(self, moment: float) -> float:
        return self._sight.clock.monotonic() - moment
