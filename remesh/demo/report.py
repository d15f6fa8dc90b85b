"""How the demo ended, in figures taken from the audit trail and the API server."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from remesh.cli.text import count
from remesh.demo.stage import Sight, next_retry
from remesh.models import AuditRecord, RecordType, Result

ENDED_WELL = (Result.HEALED.value, Result.INJECTED.value)


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that the summary is made of."""

    stuck: int
    whole: int
    total: int
    back_at: datetime  # when the injector answered again
    now: datetime
    records: list[AuditRecord]
    events: int
    alone: Sight

    @property
    def healed(self) -> bool:
        """True if every workload has all its pods."""
        return self.whole == self.total > 0


def lines(ending: Ending) -> Iterator[str]:
    """The summary, line by line."""
    opened = gate_opened(ending.records, ending.back_at)
    last = last_outcome(ending.records)
    yield f"stuck       {count(ending.stuck, 'ReplicaSet')} refused at creation and in back-off"
    yield f"healed      {ending.whole} of {ending.total}, all pods Ready with the sidecar; nothing was deleted"
    if opened is not None and last is not None:
        after_back, after_gate = (opened - ending.back_at).total_seconds(), (last - opened).total_seconds()
        opening = f"the gate opened {_seconds(after_back)} after the injector came back"
        yield f"in          {_seconds(after_gate)} from the gate's opening to the last outcome; {opening}"
    yield f"left alone  {_alone(ending)}"
    yield f"audit       {_trail(ending.records)}"
    yield f"events      {count(ending.events, 'Kubernetes Event')} kept of the same story, and forgotten within an hour"


def gate_opened(records: Iterable[AuditRecord], after: datetime) -> datetime | None:
    """When the gate first opened after a moment."""
    opened = (
        r.at for r in records if r.type is RecordType.GATE and r.details.get("status") == "open" and r.at >= after
    )
    return min(opened, default=None)


def last_outcome(records: Iterable[AuditRecord]) -> datetime | None:
    """When the last repair had ended well."""
    return max((r.at for r in records if ended_well(r)), default=None)


def ended_well(record: AuditRecord) -> bool:
    """True for the outcome of a repair that worked."""
    return record.type is RecordType.OUTCOME and record.details.get("result") in ENDED_WELL


def chains(records: Iterable[AuditRecord]) -> dict[str, list[RecordType]]:
    """Types of the records of each finding, in order."""
    found: dict[str, list[RecordType]] = {}
    for record in records:
        if record.finding_id:
            found.setdefault(record.finding_id, []).append(record.type)
    return found


def _alone(ending: Ending) -> str:
    alone, since = ending.alone, (ending.now - ending.back_at).total_seconds()
    if alone.whole == alone.total > 0:
        return "Kubernetes' own retry came, too, by now"
    due = (
        f"; its next retry is due in about {next_retry(alone.first_failure, ending.now):.0f} s"
        if alone.first_failure
        else ""
    )
    return f"the one ReplicaSet without remesh still has no pods {since:.0f} s after the injector came back{due}"


def _trail(records: list[AuditRecord]) -> str:
    complete = sum(1 for types in chains(records).values() if {RecordType.FINDING, RecordType.OUTCOME} <= set(types))
    kinds = Counter(record.type.value for record in records)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"{count(len(records), 'record')}, {complete} chains from finding to outcome ({listed})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
