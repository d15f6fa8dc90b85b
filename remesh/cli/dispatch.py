"""Handing repairs to the workers on a person's behalf, and waiting for their outcomes.

The same steps as the watcher's release: the finding's id from the ledger, a number for the attempt, the release marked
and recorded, then the task. A finding that is released already is joined, never sent twice.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from remesh.audit import record_id, record_of_finding, record_of_request
from remesh.cli.session import Session, utc_now
from remesh.cli.survey import Judged, Survey
from remesh.errors import BrokerError
from remesh.models import Action, AuditRecord, Finding, Outcome, RecordType, RepairRequest, Result
from remesh.queue import send
from watcher.findings import repair_of

ENDED_WELL = (Result.HEALED, Result.INJECTED, Result.ALREADY_HEALTHY, Result.OBSOLETE)
FAILURES = (Result.FAILED, Result.QUARANTINED, Result.ERROR)
TAIL_SECONDS = 1.0  # how long one look at the trail blocks; Ctrl-C is noticed within it


@dataclass(frozen=True, slots=True)
class Sent:
    """A repair that is with the workers."""

    finding: Finding
    task_id: str
    attempt: int
    joined: bool = False  # sent earlier by somebody else, and not ended yet


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that is not repaired, and why. `fine` where there is nothing to repair."""

    judged: Judged
    code: str
    reason: str
    fine: bool = False


class Dispatcher:
    """Sends repairs of one session, as one actor."""

    def __init__(self, session: Session, survey: Survey) -> None:
        self._session = session
        self._survey = survey
        self._ledger = session.ledger
        self._trail = session.trail
        self.actor = session.actor
        self.position = session.trail.last_position()
        """The trail's end before anything was sent: outcomes come after it."""

    def dispatch(self, judged: Judged) -> Sent | Kept:
        """Send the repair of one object, or say why not. Raises BrokerError; then nothing was sent."""
        decision = judged.decision
        if not decision.is_finding:
            return Kept(judged, decision.code, decision.reason, fine=True)
        if not judged.repairable:
            return Kept(judged, decision.code, decision.reason)
        finding = self._survey.finding(judged)
        owner = judged.owner or judged.ref
        quarantine = self._ledger.quarantined(owner.uid, finding.template_hash)
        if quarantine is not None and not self._survey.is_outdated(judged, quarantine):
            reason = f"quarantined since {quarantine.since:%Y-%m-%d %H:%M:%SZ}; see `remesh quarantine clear`"
            return Kept(judged, "quarantined", reason)
        kept = self._ledger.open_finding(finding.ref.uid, finding.id)
        return self._send(finding.model_copy(update={"id": kept}))

    def _send(self, finding: Finding) -> Sent:
        self._trail.append(self._finding_record(finding))
        attempt = self._ledger.next_attempt(finding.id)
        request = self._request(finding, attempt)
        deadline = self._session.policy.repair.release_deadline_seconds
        if not self._ledger.mark_released(finding.id, attempt, request.task_id, deadline):
            released = self._ledger.released(finding.id)
            if released is not None:
                return Sent(finding, released.task_id, released.attempt, joined=True)
        try:
            self._trail.append(self._release_record(request))
            send(self._session.app, request)
        except BrokerError:
            self._ledger.clear_released(finding.id)
            raise
        return Sent(finding, request.task_id, attempt)

    def _request(self, finding: Finding, attempt: int) -> RepairRequest:
        return RepairRequest(
            cluster=self._session.settings.cluster,
            finding_id=finding.id,
            ref=finding.ref,
            mesh=finding.mesh,
            cause=finding.failure_class,
            action=repair_of(finding) or Action.NUDGE_OWNER,
            attempt=attempt,
            actor=self.actor,
            on_demand=True,
            requested_at=utc_now(),
        )

    def _finding_record(self, finding: Finding) -> AuditRecord:
        details = {"message": finding.message, "missing": finding.missing, "desired": finding.desired}
        record = record_of_finding(finding, RecordType.FINDING, at=utc_now(), actor=self.actor, details=details)
        # The watcher's id of this record, so that whoever sees the finding first writes it, once.
        return record.model_copy(update={"record_id": f"{finding.id}:finding"})

    def _release_record(self, request: RepairRequest) -> AuditRecord:
        return record_of_request(
            request,
            RecordType.RELEASE,
            at=utc_now(),
            code="asked_for",
            reason="asked for on the command line",
            details={"attempt": request.attempt},
        )


def outcomes(session: Session, sent: list[Sent], position: str, seconds: float) -> Iterator[tuple[Sent, Outcome]]:
    """Each repair with its outcome, as they come in, until all have one or `seconds` have passed."""
    waiting = {record_id(each.finding.id, RecordType.OUTCOME, each.attempt): each for each in sent}
    end = time.monotonic() + seconds
    while waiting and (left := end - time.monotonic()) > 0:
        for record in session.trail.tail(position, min(TAIL_SECONDS, left)):
            position = record.position
            each = waiting.pop(record.record_id, None)
            if each is not None:
                yield each, Outcome.model_validate(record.details)
