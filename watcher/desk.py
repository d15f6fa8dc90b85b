"""What the parts of the watcher's thread share: the store, the book, trail, ledger, policy and clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from remesh.audit import Trail
from remesh.ledger import Ledger
from remesh.meshes import Profiles
from remesh.meter import NOBODY, Meter
from remesh.models import Finding, Outcome, Result
from remesh.policy import Policy
from watcher.findings import Book, State, Tracked
from watcher.records import Recorder
from watcher.shard import Shard
from watcher.store import Store

NOTE_TTL = 7 * 86400.0  # seconds; as long as an open finding keeps its id
RETRY_SECONDS = 2.0  # after Redis failed: soon enough to go on when it is back, rare enough not to press it


def _utc() -> datetime:
    return datetime.now(UTC)


def _steady() -> datetime:
    return datetime.fromtimestamp(time.monotonic(), UTC)


@dataclass
class Desk:
    """Owned by the watcher's thread; only `store` is touched by others."""

    cluster: str
    policy: Policy
    profiles: Profiles
    store: Store
    trail: Trail
    ledger: Ledger
    now: Callable[[], datetime] = _utc  # for ages and records
    steady: Callable[[], datetime] = _steady  # for deadlines: no clock's jump moves them; it is no time of day
    meter: Meter = NOBODY
    leads: Callable[[], bool] = lambda: True  # asked before each release: may this watcher still do it?
    shard: Shard = field(default_factory=Shard)
    book: Book = field(default_factory=Book)
    due: dict[str, float] = field(default_factory=dict)  # UID → monotonic time of the next look
    settling: dict[str, float] = field(default_factory=dict)  # UID → monotonic time until which it is left alone

    _noted: dict[str, State] = field(default_factory=dict)  # UID → state last shown in the ledger

    def __post_init__(self) -> None:
        self.record = Recorder(self.trail, self.cluster, self.now)

    def note(self) -> None:
        """Show findings whose state changed to the command line, and to the next watcher after a restart."""
        changed = [each for each in self.book if self._noted.get(each.finding.ref.uid) != each.state]
        self.ledger.note_findings([(each.finding, each.state.value) for each in changed], NOTE_TTL)
        self._noted = {each.finding.ref.uid: each.state for each in self.book}

    def begin(self, finding: Finding, seen: datetime | None = None) -> None:
        """A finding was seen first: show it, then record it. Once more with the same id changes nothing.

        `seen` is the time by Redis' clock where it has just been told.

        In this order, so that if this watcher dies then, the next one knows of it and gives its chain an end.
        """
        self.ledger.note_findings([(finding, State.WAITING.value)], NOTE_TTL, seen=seen)
        self.record.finding(finding)

    def forget_noted(self) -> None:
        """Show all findings anew: Redis may have lost what it was shown."""
        self._noted = {}

    def close(self, tracked: Tracked, code: str, reason: str, result: Result = Result.ALREADY_HEALTHY) -> None:
        """End a finding without a worker: write its outcome, then forget it."""
        finding = tracked.finding
        outcome = Outcome(finding_id=finding.id, result=result, code=code, reason=reason)
        self.record.outcome(tracked, outcome)
        self.ledger.close_finding(finding.ref.uid, finding.id)
        self.over(tracked, result)

    def over(self, tracked: Tracked, result: Result) -> None:
        """Forget a finding whose outcome stands in the trail."""
        self.book.drop(tracked.finding.ref.uid)
        seconds = (self.now() - tracked.failed_at).total_seconds() if tracked.failed_at else None
        self.meter.ended(tracked.finding, result, seconds)
