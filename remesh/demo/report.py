"""How the demo ended, in figures taken from the audit trail and the API server."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from remesh.cli.text import count
from remesh.demo.stage import Sight
from remesh.models import AuditRecord, RecordType, Result

NUDGED = (Result.HEALED.value, Result.INJECTED.value)
ENDED_WELL = (*NUDGED, Result.ALREADY_HEALTHY.value)


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that the summary is made of."""

    stuck: int
    whole: int
    total: int
    back_at: datetime  # when the injector answered again
    now: datetime
    injected: int  # pods that are Ready and carry the sidecar
    pods: int  # all pods
    records: list[AuditRecord]
    events: int
    alone: Sight
    outage: float  # seconds

    @property
    def healed(self) -> bool:
        """True if every workload has all its pods, and each carries the sidecar."""
        return self.whole == self.total > 0 and self.injected == self.pods


def rows(ending: Ending) -> Iterator[tuple[str, str]]:
    """The summary: names and what is to be said of each."""
    opened = gate_opened(ending.records, ending.back_at)
    ends = first_ends(ending.records)
    last = max((record.at for record in ends.values()), default=None)
    yield "stuck", f"{count(ending.stuck, 'ReplicaSet')} refused at creation and in back-off"
    pods = f"{ending.injected} of {count(ending.pods, 'pod')} Ready with the sidecar"
    yield "healed", f"{ending.whole} of {ending.total}, {pods}; {_by_whom(ends)}"
    if opened is not None and last is not None:
        after_back, after_gate = (opened - ending.back_at).total_seconds(), (last - opened).total_seconds()
        opening = f"the gate opened {_seconds(after_back)} after the injector came back"
        yield "in", f"{_seconds(after_gate)} from the gate's opening to the last outcome; {opening}"
    yield "left alone", _alone(ending)
    yield "audit", _trail(ending.records, ends)
    yield "events", f"{count(ending.events, 'Kubernetes Event')} kept of the same story, and forgotten within an hour"


def gate_opened(records: Iterable[AuditRecord], after: datetime) -> datetime | None:
    """When the gate first opened after a moment."""
    opened = (
        r.at for r in records if r.type is RecordType.GATE and r.details.get("status") == "open" and r.at >= after
    )
    return min(opened, default=None)


def first_ends(records: Iterable[AuditRecord]) -> dict[str, AuditRecord]:
    """By the UID of each object: the first outcome after which nothing was left to do."""
    found: dict[str, AuditRecord] = {}
    for record in records:
        if record.ref is not None and ended_well(record):
            found.setdefault(record.ref.uid, record)
    return found


def ended_well(record: AuditRecord) -> bool:
    """True for an outcome after which nothing is left to do."""
    return record.type is RecordType.OUTCOME and record.details.get("result") in ENDED_WELL


def _by_whom(ends: dict[str, AuditRecord]) -> str:
    """How many were nudged, and how many Kubernetes' own retry happened to reach first."""
    results = Counter(str(record.details.get("result")) for record in ends.values())
    nudged = sum(results[result] for result in NUDGED)
    by_itself = results[Result.ALREADY_HEALTHY.value]
    return f"{nudged} nudged, nothing deleted" + (
        f", {by_itself} reached first by their own retry" if by_itself else ""
    )


def _alone(ending: Ending) -> str:
    alone, since = ending.alone, (ending.now - ending.back_at).total_seconds()
    if alone.whole == alone.total > 0:
        return "the one ReplicaSet without remesh has its pods, too, by Kubernetes' own retry"
    due = f"its back-off may last as long as the outage did ({ending.outage:.0f} s)"
    return f"the one ReplicaSet without remesh still has no pods {since:.0f} s after the injector came back; {due}"


def _trail(records: list[AuditRecord], ends: dict[str, AuditRecord]) -> str:
    found = {record.ref.uid for record in records if record.ref is not None and record.type is RecordType.FINDING}
    kinds = Counter(record.type.value for record in records)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    complete = f"{len(found & set(ends))} of {count(len(found), 'object')} with a chain from finding to outcome"
    return f"{count(len(records), 'record')}, {complete} ({listed})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
