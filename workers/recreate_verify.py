"""Did a pod with its sidecar come in the place of the one that was evicted?

The judging is pure; `wait` does it until there is an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from remesh.errors import ClusterUnreachable, NotFound, Throttled
from remesh.models import Result
from remesh.objects import Pod
from workers.context import Clock
from workers.verdicts import NOT_AVAILABLE_YET, NOT_READY_YET, NOT_REPLACED, STILL_TERMINATING, Verdict
from workers.verify import DOUBT_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at what came of an eviction."""

    new: Pod | None = None  # the pod in its place
    marked: bool = False  # `new` carries every expected sidecar
    going: bool = False  # the evicted pod is still being stopped

    @property
    def missing(self) -> bool:
        """True if it is gone and nothing came."""
        return self.new is None and not self.going

    @property
    def bare(self) -> bool:
        """True if what came lacks a sidecar."""
        return self.new is not None and not self.marked

    @property
    def created(self) -> int:
        """Pods that came with every sidecar: 0 or 1."""
        return int(self.new is not None and self.marked)

    @property
    def ready(self) -> int:
        """Of those: Ready."""
        return int(self.new is not None and self.marked and self.new.ready)


def judge(seen: Seen, sidecars: str, *, final: bool, left: float = 0.0) -> Verdict | None:
    """The verdict, or None while it is worth waiting. `sidecars` are the expected ones, for people.

    `left` are the seconds for which a Ready replacement has to stay so until its owner takes it for available.
    """
    if seen.ready and left > 0 and seen.new is not None:
        name = seen.new.metadata.name
        reason = f"{name} came in its place with the {sidecars} sidecar and is Ready, to be so for {left:.0f} s more"
        return Verdict(Result.INJECTED, NOT_AVAILABLE_YET, reason) if final else None
    if seen.new is not None:
        return _of_new(seen, seen.new.metadata.name, sidecars, final=final)
    if not final:
        return None
    if seen.going:
        return Verdict(Result.ERROR, STILL_TERMINATING, "evicted, and its containers are still being stopped")
    return Verdict(Result.FAILED, NOT_REPLACED, "evicted, and no pod came in its place")


def _of_new(seen: Seen, name: str, sidecars: str, *, final: bool) -> Verdict | None:
    if not seen.marked:
        return Verdict(Result.FAILED, "came_back_bare", f"{name} came in its place without the {sidecars} sidecar")
    if seen.new is not None and seen.new.ready:
        return Verdict(Result.HEALED, "healed", f"{name} came in its place with the {sidecars} sidecar and is Ready")
    if final:
        reason = f"{name} came in its place with the {sidecars} sidecar and is not Ready yet"
        return Verdict(Result.INJECTED, NOT_READY_YET, reason)
    return None


@dataclass(frozen=True, slots=True)
class Sight:
    """What `wait` looks through."""

    look: Callable[[], Seen]  # raises NotFound once the owner is gone
    doubt: Callable[[], Verdict | None]  # why nothing comes, or comes bare, if it is not the template's own fault
    progress: Callable[[Seen], None]
    clock: Clock
    rest: Callable[[float], None] | None = None  # between two looks, in seconds or until something has changed

    def pause(self, seconds: float) -> None:
        """Wait for the next look."""
        (self.rest or self.clock.sleep)(seconds)


class _Steady:
    """For how long a replacement still has to be Ready: `minReadySeconds`, from when it was first seen so.

    Pods' conditions are read without their times, so it counts anew whenever it is seen not Ready.
    """

    def __init__(self, min_ready: float) -> None:
        self._min_ready = min_ready
        self._pod = ""
        self._since = 0.0

    def left(self, seen: Seen, now: float) -> float:
        if not seen.ready or seen.new is None:
            self._pod = ""
            return self._min_ready
        if self._pod != seen.new.metadata.uid:
            self._pod, self._since = seen.new.metadata.uid, now
        return max(0.0, self._since + self._min_ready - now)


def wait(sight: Sight, sidecars: str, seconds: float, min_ready: float = 0.0) -> Verdict:
    """Look until there is a verdict, for at most `seconds`, and one dry run more.

    A replacement has come back once it has been Ready for `min_ready` seconds: before, its owner does not count it.
    Raises ClusterUnreachable or Throttled if the API server does not answer at the end of that time.
    """
    began, pause, doubted = sight.clock.monotonic(), FIRST_PAUSE_SECONDS, False
    steady = _Steady(min_ready)
    while True:
        passed = sight.clock.monotonic() - began
        final = passed >= seconds
        try:
            seen = sight.look()
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "evicted, and then its owner went away")
        except (ClusterUnreachable, Throttled):
            if final:
                raise
            seen = Seen(going=True)  # not known; looked at again
        sight.progress(seen)
        verdict = judge(seen, sidecars, final=final, left=steady.left(seen, sight.clock.monotonic()))
        if seen.bare or (seen.missing and (final or (passed >= DOUBT_SECONDS and not doubted))):
            doubted = True
            verdict = sight.doubt() or verdict
        if verdict is not None:
            return verdict
        sight.pause(max(0.05, min(pause, seconds - passed)))
        pause = min(LONGEST_PAUSE_SECONDS, pause * 1.5)
