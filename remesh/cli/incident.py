"""The last incident, and how fast repairs go now, as the audit trail tells it. Pure. Used by `remesh status`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from remesh.models import Action, AuditRecord, RecordType, Result

APART_SECONDS: Final = 300.0  # quiet for so long, and what comes next is another incident
RECENT_SECONDS: Final = 60.0  # over which the rate of repairs is measured
LEAST_SECONDS: Final = 2.0  # a burst within less says nothing of what comes
REPAIRED: Final = frozenset({Action.NUDGE_OWNER, Action.RECREATE_POD, Action.WAIT_FOR_INJECTOR})
# What is reported at first and repaired once somebody has mended its cause shows so by one of these.
ON_ITS_WAY: Final = frozenset({RecordType.WAIT, RecordType.RELEASE, RecordType.INTENT})
HEALED: Final = frozenset({Result.HEALED, Result.ALREADY_HEALTHY})
# Reported, because the policy only observes: as broken as before, and repaired as soon as somebody changes the mode.
ONLY_OBSERVED: Final = frozenset({"observe_mode", "observe_only"})
OVER: Final = HEALED | {Result.INJECTED, Result.OBSOLETE, Result.QUARANTINED, Result.REPORTED}


@dataclass(slots=True)
class _Chain:
    """One finding's records, as far as they count here."""

    first: datetime
    last: datetime
    mesh: str
    cause: str
    counts: bool  # it was to be repaired
    result: str = ""
    ended: datetime | None = None  # when it was over, well or not


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings that came close together, and what became of them."""

    began: datetime
    ended: datetime | None  # when the last one was over; None while any is open
    objects: int
    healed: int
    not_ready: int  # replaced with its sidecar, and not Ready when that was last seen
    quarantined: int
    left: int  # not over yet
    meshes: tuple[str, ...]
    causes: tuple[str, ...]
    gate_opened: datetime | None  # the last time before the end, if a gate was closed meanwhile
    healed_at: datetime | None  # the last one's

    @property
    def seconds(self) -> float | None:
        """From the first finding to the last healed one; None if none is healed."""
        return (self.healed_at - self.began).total_seconds() if self.healed_at else None

    @property
    def repair_seconds(self) -> float | None:
        """From the gate's opening to the last healed one."""
        if self.healed_at is None or self.gate_opened is None or self.healed_at < self.gate_opened:
            return None
        return (self.healed_at - self.gate_opened).total_seconds()

    def document(self) -> dict[str, Any]:
        """For JSON and YAML."""
        return {
            "began": self.began.isoformat(),
            "ended": self.ended.isoformat() if self.ended else None,
            "objects": self.objects,
            "healed": self.healed,
            "not_ready": self.not_ready,
            "quarantined": self.quarantined,
            "left": self.left,
            "meshes": list(self.meshes),
            "causes": list(self.causes),
            "gate_opened": self.gate_opened.isoformat() if self.gate_opened else None,
            "seconds": self.seconds,
            "repair_seconds": self.repair_seconds,
        }


def last_incident(records: Sequence[AuditRecord]) -> Incident | None:
    """The last one among these records, which are in the order of the trail; None if nothing was to be repaired."""
    chains = _chains(records)
    if not chains:
        return None
    group: list[_Chain] = []
    end = datetime.min
    for chain in sorted(chains, key=lambda each: each.first):
        if group and chain.first - end > timedelta(seconds=APART_SECONDS):
            group = []
        group.append(chain)
        end = max(chain.last, end) if len(group) > 1 else chain.last
    return _incident(group, records)


def _chains(records: Iterable[AuditRecord]) -> list[_Chain]:
    found: dict[str, _Chain] = {}
    for record in records:
        chain = found.get(record.finding_id)
        if chain is None:
            if record.type is RecordType.FINDING:
                repaired = record.action in REPAIRED or record.code in ONLY_OBSERVED
                found[record.finding_id] = _Chain(record.at, record.at, record.mesh, record.cause, repaired)
            continue
        chain.last = max(chain.last, record.at)
        chain.counts |= record.type in ON_ITS_WAY
        result = str(record.details.get("result", "")) if record.type is RecordType.OUTCOME else ""
        if result in OVER and record.code not in ONLY_OBSERVED:
            chain.result, chain.ended = result, record.at
    return [chain for chain in found.values() if chain.counts]


def _incident(group: list[_Chain], records: Iterable[AuditRecord]) -> Incident:
    began = min(chain.first for chain in group)
    ends = [chain.ended for chain in group if chain.ended is not None]
    healed = [chain.ended for chain in group if chain.result in HEALED and chain.ended]
    last = max(healed, default=None)
    opened = [each.at for each in records if _opens(each) and each.at >= began and (last is None or each.at <= last)]
    return Incident(
        began=began,
        ended=max(ends) if len(ends) == len(group) else None,
        objects=len(group),
        healed=len(healed),
        not_ready=sum(1 for chain in group if chain.result == Result.INJECTED),
        quarantined=sum(1 for chain in group if chain.result == Result.QUARANTINED),
        left=len(group) - len(ends),
        meshes=tuple(sorted({chain.mesh for chain in group if chain.mesh})),
        causes=tuple(sorted({chain.cause for chain in group if chain.cause})),
        gate_opened=max(opened, default=None),
        healed_at=last,
    )


def _opens(record: AuditRecord) -> bool:
    return record.type is RecordType.GATE and record.details.get("status") == "open"


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast repairs end well now, and when the rest will have."""

    per_second: float | None  # None: too few to say
    eta_seconds: float | None
    why_unknown: str = field(default="")


def pace(records: Iterable[AuditRecord], left: int, now: datetime, *, gate_open: bool) -> Pace:
    """From the repairs that ended well within the last minute. Nothing is guessed: too few, and it is not known."""
    since = now - timedelta(seconds=RECENT_SECONDS)
    ended = [each.at for each in records if _ended_well(each) and since <= each.at <= now]
    span = (now - min(ended)).total_seconds() if ended else 0.0
    rate = len(ended) / span if len(ended) > 1 and span >= LEAST_SECONDS else None
    if not left:
        return Pace(rate, 0.0)
    if not gate_open:
        return Pace(rate, None, "the gate is closed")
    if rate is None:
        return Pace(None, None, "too few repairs have ended within the last minute")
    return Pace(rate, left / rate)


def _ended_well(record: AuditRecord) -> bool:
    return record.type is RecordType.OUTCOME and record.details.get("result") in HEALED | {Result.INJECTED}
