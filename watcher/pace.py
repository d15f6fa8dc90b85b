"""How many evictions may be under way through an injector, and how evenly, by how long it takes to answer. Pure.

The window of pods halves when an admission fails; by then somebody was hurt. Before an injector fails it becomes slow,
and what makes it slow may be the repair. So evictions, which take away pods that serve and can wait, are paced by how
long dry runs take, against what they took while nothing of ours was on its way: as TCP Vegas paces by round trip times,
twice as many per sample at first, then one more each time, and half as many when it is slow. Never more than the window
has room for: that limit is another one, and stays.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from remesh.policy import WindowPolicy

FACTOR: Final = 2.0  # of the time at rest: slower than this is slow
SLACK_SECONDS: Final = 0.02  # that much is chance, where the injector answers within a few milliseconds
# One slow answer among fast ones is chance, too, on a machine that does other things; the middle of three says more.
SAMPLES: Final = 3
# Evictions follow one another at so many times what an admission takes: evenly, since several at the same moment make
# one another slow, and all others' pods, too; and so of the injector's time one part in so many is theirs.
SPREAD: Final = 7.0
SPREAD_SECONDS: Final = 1.0  # an injector that takes longer than a seventh of this has time for one a second, too


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of one injector's speed. Replaced by the functions below, never changed."""

    limit: float = 2.0  # evictions under way
    rest: float | None = None  # seconds; the fastest dry run while nothing of ours was on its way
    last: tuple[float, ...] = ()  # seconds of the last dry runs since the limit was lowered
    doubling: bool = True  # nothing was slow yet
    cuts: int = 0  # times that it was halved

    @property
    def tolerated(self) -> float | None:
        """Seconds that a dry run may take; None while nothing is known."""
        return None if self.rest is None else max(FACTOR * self.rest, self.rest + SLACK_SECONDS)

    @property
    def recent(self) -> float | None:
        """Seconds of late: the middle of the last dry runs, the faster one of two. None: one alone says nothing."""
        return sorted(self.last)[(len(self.last) - 1) // 2] if len(self.last) > 1 else None


AT_FIRST: Final = Pace()


def spacing(pace: Pace) -> float:
    """Seconds between two evictions: more while the injector takes longer than at rest, none while nothing is known."""
    return min(SPREAD_SECONDS, SPREAD * max(pace.rest or 0.0, pace.recent or 0.0))


class Spread:
    """When the next eviction may go, by gate, in monotonic seconds. Only bookkeeping: the time is an argument."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._held: set[str] = set()  # gates whose next eviction waits for nothing but its time
        self._now = 0.0

    def begin(self, gates: Collection[str], now: float) -> None:
        """A round begins; gates that are gone are forgotten."""
        self._now, self._held = now, set()
        self._due = {gate: due for gate, due in self._due.items() if gate in gates}

    def free(self, gate: str) -> bool:
        """May one go now? If not, it waits for `next_turn`."""
        if self._due.get(gate, 0.0) <= self._now:
            return True
        self._held.add(gate)
        return False

    def took(self, gate: str, seconds: float) -> None:
        """One goes now; the next so many seconds later, or than it was due, so that a late round loses no time."""
        due = self._due.get(gate, 0.0)
        self._due[gate] = (due if self._now - due < seconds else self._now) + seconds

    def next_turn(self) -> float | None:
        """When the first of those that are held may go."""
        return min((self._due[gate] for gate in self._held), default=None)


def anew(pace: Pace) -> Pace:
    """The injector failed: gently again. What it takes at rest is no other for that."""
    return replace(AT_FIRST, rest=pace.rest)


def at_rest(pace: Pace, seconds: float) -> Pace:
    """A dry run while nothing of ours was on its way."""
    return _heard(replace(pace, rest=seconds if pace.rest is None else min(pace.rest, seconds)), seconds)


def at_work(pace: Pace, seconds: float, *, under_way: int, window: WindowPolicy) -> Pace:
    """A dry run while so many evictions were under way."""
    tolerated = pace.tolerated
    if tolerated is None:  # of a watcher that came to lead meanwhile: the least so far is the best that it knows
        return at_rest(pace, seconds)
    pace = _heard(pace, seconds)
    if pace.recent is None:
        return pace
    if pace.recent > tolerated:
        return _slower(pace, under_way)
    if seconds > tolerated or under_way < pace.limit / 2:
        return pace  # perhaps it is about to be slow; or whether more would do is not known: not so many were tried
    limit = pace.limit * 2 if pace.doubling else pace.limit + 1
    return replace(pace, limit=max(1.0, min(limit, float(window.maximum))))


def _heard(pace: Pace, seconds: float) -> Pace:
    return replace(pace, last=(*pace.last, seconds)[-SAMPLES:])


def _slower(pace: Pace, under_way: int) -> Pace:
    """Half of what was really under way. What was decided needs a moment to show, so the next samples begin anew."""
    limit = max(1.0, min(pace.limit, float(max(1, under_way))) / 2)
    return replace(pace, limit=limit, doubling=False, cuts=pace.cuts + 1, last=())
