"""What the watcher writes to the audit trail, each thing once."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from remesh.audit import Trail
from remesh.models import AuditRecord, Finding, Outcome, RecordType, RepairRequest
from watcher.findings import Tracked
from watcher.gate import Gate


class Recorder:
    """Writes the watcher's records. Every method raises TrailUnavailable when the trail cannot be written."""

    ACTOR = "watcher"

    def __init__(self, trail: Trail, cluster: str, now: Callable[[], datetime]) -> None:
        self._trail = trail
        self._cluster = cluster
        self._now = now

    def finding(self, finding: Finding) -> None:
        """A finding was seen for the first time. The same id is recorded once, whoever restarts."""
        details = {"message": finding.message, "missing": finding.missing, "desired": finding.desired}
        self._write(
            RecordType.FINDING,
            finding,
            f"{finding.id}:finding",
            action=finding.action.value,
            code=finding.code,
            reason=finding.reason,
            details=details,
        )

    def wait(self, tracked: Tracked, gate: Gate) -> None:
        """It waits behind a closed gate; once for each reason, not for each round."""
        code = "proving" if gate.code in ("not_probed", "proving") else gate.code
        if code in ("proving", tracked.said):
            return
        record_id = f"{tracked.finding.id}:wait:{tracked.attempt}:{code}"
        details = {"injector": gate.key, "ready_endpoints": gate.ready}
        self._write(RecordType.WAIT, tracked.finding, record_id, code=code, reason=gate.reason, details=details)
        tracked.said = code

    def waits(self, tracked: Tracked, code: str, reason: str) -> None:
        """It waits for something other than a gate; once for each reason."""
        if tracked.said == code:
            return
        record_id = f"{tracked.finding.id}:wait:{tracked.attempt}:{code}"
        self._write(RecordType.WAIT, tracked.finding, record_id, code=code, reason=reason)
        tracked.said = code

    def refusal(self, tracked: Tracked, code: str, reason: str) -> None:
        """It will not be repaired now, and why; once for each reason."""
        if tracked.said == code:
            return
        record_id = f"{tracked.finding.id}:refusal:{tracked.attempt}:{code}"
        self._write(RecordType.REFUSAL, tracked.finding, record_id, code=code, reason=reason)
        tracked.said = code

    def releases(self, released: Sequence[tuple[Tracked, RepairRequest]]) -> None:
        """They go to the workers."""
        records = [
            self._made(
                RecordType.RELEASE,
                tracked.finding,
                f"{request.finding_id}:release:{request.attempt}",
                action=request.action.value,
                task_id=request.task_id,
                code="released",
                reason="the gate is open and the window has room",
                details={"attempt": request.attempt, "missing": tracked.finding.missing},
            )
            for tracked, request in released
        ]
        if records:
            self._trail.append_many(records)

    def outcome(self, tracked: Tracked, outcome: Outcome) -> None:
        """It ended without a worker: recovered by itself, or its object is gone."""
        self._write(
            RecordType.OUTCOME,
            tracked.finding,
            f"{tracked.finding.id}:outcome:{tracked.attempt}:{outcome.code}",
            action=tracked.finding.action.value,
            code=outcome.code,
            reason=outcome.reason,
            details=outcome.model_dump(mode="json"),
        )

    def note(self, tracked: Tracked, code: str, reason: str) -> None:
        """Something that a reader of the chain should know."""
        record_id = f"{tracked.finding.id}:note:{tracked.attempt}:{code}"
        self._write(RecordType.NOTE, tracked.finding, record_id, code=code, reason=reason)

    def gate(self, gate: Gate) -> None:
        """A gate changed."""
        details: dict[str, Any] = {"injector": gate.key, "status": gate.status.value, "ready_endpoints": gate.ready}
        if gate.probe_seconds is not None:
            details["probe_ms"] = round(gate.probe_seconds * 1000)
        self._trail.append(
            AuditRecord(
                record_id=f"gate:{uuid4().hex}",
                type=RecordType.GATE,
                at=self._now(),
                cluster=self._cluster,
                actor=self.ACTOR,
                code=gate.code,
                reason=gate.reason,
                details=details,
            )
        )

    def _write(self, kind: RecordType, finding: Finding, record_id: str, **fields: Any) -> None:
        self._trail.append(self._made(kind, finding, record_id, **fields))

    def _made(self, kind: RecordType, finding: Finding, record_id: str, **fields: Any) -> AuditRecord:
        return AuditRecord(
            record_id=record_id,
            type=kind,
            at=self._now(),
            cluster=self._cluster,
            finding_id=finding.id,
            ref=finding.ref,
            owner=finding.owner,
            above=finding.above,
            mesh=finding.mesh,
            cause=finding.failure_class.value,
            actor=self.ACTOR,
            **fields,
        )
