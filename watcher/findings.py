"""The findings that the watcher holds, and what each is waiting for.

Pure bookkeeping: no I/O, and the time is an argument. A finding is the watcher's from first sight until its outcome
stands in the audit trail; the queue is transport and never memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from remesh.models import Action, Decision, Finding

REPAIRS = (Action.NUDGE_OWNER, Action.RECREATE_POD)
CRITICAL = ("system-cluster-critical", "system-node-critical")  # Kubernetes' own priority classes

# A refusal may be short-lived: an injector that just came up denies before its caches are synced, a quota is raised.
# So the template is tried again by dry run, first soon, then rarely.
REFUSED_SECONDS = 10.0
REFUSED_LONGEST_SECONDS = 600.0


class State(StrEnum):
    """Where a finding stands."""

    WAITING = "waiting"  # behind the gate, or for room in the window
    RELEASED = "released"  # its task is with the workers
    COOLING = "cooling"  # waits until `until`, then behind the gate again
    REPORTED = "reported"  # not ours to repair; looked at again when the object changes
    QUARANTINED = "quarantined"  # left alone until template or webhook change


def repair_of(judged: Decision | Finding) -> Action | None:
    """What would repair it, now or once its injector works; None if nothing that remesh does."""
    return next((each for each in (judged.action, judged.after_recovery) if each in REPAIRS), None)


def owner_uid(finding: Finding) -> str:
    """UID that attempts and quarantine are counted by: of the pod's controller, or of the workload itself."""
    owned = finding.ref.kind == "Pod" and finding.owner is not None
    return finding.owner.uid if owned and finding.owner else finding.ref.uid


class _Facts(NamedTuple):
    """What a finding says of how it is released."""

    gate: str
    owner_uid: str
    template: tuple[str, str, str]
    order: tuple[bool, datetime, str]
    evicts: bool


def _facts_of(finding: Finding) -> _Facts:
    uid = owner_uid(finding)
    return _Facts(
        gate=finding.injector.key if finding.injector else "",
        owner_uid=uid,
        template=(finding.ref.namespace, uid, finding.template_hash),
        order=(finding.priority_class not in CRITICAL, finding.first_seen, finding.id),
        evicts=repair_of(finding) is Action.RECREATE_POD,
    )


@dataclass(slots=True)
class Tracked:
    """One finding and its state."""

    finding: Finding
    state: State = State.WAITING
    attempt: int = 0  # attempts released so far
    until: datetime | None = None  # RELEASED: its deadline; COOLING: its end; by the desk's steady clock
    said: str = ""  # code of the last wait or refusal that was recorded, so that it is recorded once
    refusals: int = 0  # times in a row that a dry run of its template was refused for a reason of its own
    failures: int = 0  # repairs in a row that did not heal it
    failed_at: datetime | None = None  # when the trouble began, as far as its state tells; for measuring only
    begun: bool = False  # a worker may have written an intent, and no outcome
    suspect: bool = False  # its own dry run failed in a way that says more about it than about the injector
    _said_of: Finding | None = field(default=None, init=False, repr=False, compare=False)
    _facts: "_Facts | None" = field(default=None, init=False, repr=False, compare=False)

    @property
    def gate(self) -> str:
        """Key of the injector whose gate it waits behind."""
        return self._known().gate

    @property
    def owner_uid(self) -> str:
        """See `owner_uid`."""
        return self._known().owner_uid

    @property
    def template(self) -> tuple[str, str, str]:
        """Whose template a dry run of it tries: a thousand bare pods of one owner are one question."""
        return self._known().template

    @property
    def order(self) -> tuple[bool, datetime, str]:
        """Sort key of the release: system-critical first, then the oldest."""
        return self._known().order

    @property
    def evicts(self) -> bool:
        """True if its repair takes a running pod away."""
        return self._known().evicts

    def _known(self) -> "_Facts":
        """Each round asks thousands of waiting findings, several times; a finding never changes in place."""
        if self._facts is None or self._said_of is not self.finding:
            self._said_of, self._facts = self.finding, _facts_of(self.finding)
        return self._facts


@dataclass(slots=True)
class Book:
    """All findings held, by the UID of their object."""

    _by_uid: dict[str, Tracked] = field(default_factory=dict)
    _uid_of: dict[str, str] = field(default_factory=dict)

    def add(self, finding: Finding) -> Tracked:
        """Start holding a finding."""
        tracked = Tracked(finding)
        self._by_uid[finding.ref.uid] = tracked
        self._uid_of[finding.id] = finding.ref.uid
        return tracked

    def drop(self, uid: str) -> Tracked | None:
        """Stop holding the finding of an object; None if there was none."""
        tracked = self._by_uid.pop(uid, None)
        if tracked is not None:
            self._uid_of.pop(tracked.finding.id, None)
        return tracked

    def get(self, uid: str) -> Tracked | None:
        """The finding of an object."""
        return self._by_uid.get(uid)

    def by_id(self, finding_id: str) -> Tracked | None:
        """The finding with this id."""
        return self._by_uid.get(self._uid_of.get(finding_id, ""))

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def waiting(self, gate: str) -> list[Tracked]:
        """What waits behind one gate, in the order of release."""
        found = (each for each in self._by_uid.values() if each.state is State.WAITING and each.gate == gate)
        return sorted(found, key=attrgetter("order"))

    def gates(self) -> dict[str, Finding]:
        """Every gate that something waits behind or has been released through, with one such finding."""
        active = (State.WAITING, State.RELEASED)
        return {each.gate: each.finding for each in self._by_uid.values() if each.gate and each.state in active}

    def expired(self, now: datetime) -> list[Tracked]:
        """Released findings past their deadline, and cooled ones at their end."""
        return [each for each in self._by_uid.values() if each.until is not None and each.until <= now]

    def next_expiry(self) -> datetime | None:
        """When `expired` will next have something."""
        return min((each.until for each in self._by_uid.values() if each.until is not None), default=None)


def to_waiting(tracked: Tracked) -> None:
    """Back behind the gate."""
    tracked.state, tracked.until, tracked.said = State.WAITING, None, ""


def to_released(tracked: Tracked, attempt: int, deadline: datetime) -> None:
    """Handed to the workers; released again if no outcome stands in the trail by the deadline."""
    tracked.state, tracked.attempt, tracked.until, tracked.said = State.RELEASED, attempt, deadline, ""
    tracked.begun = True


def to_cooling(tracked: Tracked, now: datetime, seconds: float) -> None:
    """Left alone for a while."""
    tracked.state, tracked.until = State.COOLING, now + timedelta(seconds=seconds)


def to_refused(tracked: Tracked, now: datetime) -> None:
    """Its own template is refused (denied, quota, …). Nothing is done to it; the next dry run is ever later."""
    tracked.refusals += 1
    to_cooling(tracked, now, min(REFUSED_SECONDS * 2 ** (tracked.refusals - 1), REFUSED_LONGEST_SECONDS))


def to_rest(tracked: Tracked, state: State) -> None:
    """Reported or quarantined: nothing is scheduled."""
    tracked.state, tracked.until = state, None
