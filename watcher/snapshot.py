"""The watcher's state in numbers, taken by its own thread and read by whoever scrapes. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from watcher.findings import Book, State
from watcher.gate import Gate, GateStatus

Samples = list[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class GateLine:
    """One gate."""

    mesh: str
    injector: str
    status: GateStatus
    ready: int | None
    waiting: int
    oldest: datetime | None  # first_seen of the one that waits longest
    evictions: int  # that may be under way

    @property
    def labels(self) -> tuple[str, str]:
        """Mesh and injector."""
        return (self.mesh, self.injector)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Findings and gates at one moment."""

    findings: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # by cause, mesh and state
    oldest: Mapping[str, datetime] = field(default_factory=dict)  # first_seen by state
    gates: tuple[GateLine, ...] = ()


def take(book: Book, gates: Iterable[Gate]) -> Snapshot:
    """Count what the book holds."""
    findings: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[str, datetime] = {}
    waiting: dict[str, list[datetime]] = {}
    meshes: dict[str, str] = {}
    for each in book:
        finding, state = each.finding, each.state.value
        findings[(finding.failure_class.value, finding.mesh, state)] += 1
        oldest[state] = min(oldest.get(state, finding.first_seen), finding.first_seen)
        meshes.setdefault(each.gate, finding.mesh)
        if each.state is State.WAITING:
            waiting.setdefault(each.gate, []).append(finding.first_seen)
    lines = (_line(gate, meshes.get(gate.key, ""), waiting.get(gate.key, [])) for gate in gates)
    return Snapshot(dict(findings), oldest, tuple(lines))


def _line(gate: Gate, mesh: str, waiting: list[datetime]) -> GateLine:
    return GateLine(
        mesh, gate.key, gate.status, gate.ready, len(waiting), min(waiting, default=None), int(gate.pace.limit)
    )


def samples(taken: Snapshot, now: datetime) -> dict[str, Samples]:
    """The snapshot as metrics. Ages go on while nobody takes a new one."""

    def age(since: datetime | None) -> float:
        return max(0.0, (now - since).total_seconds()) if since is not None else 0.0

    gates = taken.gates
    return {
        "remesh_findings": [(labels, number) for labels, number in taken.findings.items()],
        "remesh_oldest_finding_seconds": [((state.value,), age(taken.oldest.get(state.value))) for state in State],
        "remesh_gate_status": [
            ((*each.labels, status.value), float(each.status is status)) for each in gates for status in GateStatus
        ],
        "remesh_gate_ready_endpoints": [(each.labels, each.ready) for each in gates if each.ready is not None],
        "remesh_gate_waiting_findings": [(each.labels, each.waiting) for each in gates],
        "remesh_gate_oldest_waiting_seconds": [(each.labels, age(each.oldest)) for each in gates],
        "remesh_gate_evictions_at_once": [(each.labels, each.evictions) for each in gates],
    }
