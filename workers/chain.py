"""The part of the audit trail that belongs to one repair: what was written before, and what is written now.

Used by `workers.repair` and `workers.recreate`. Record ids are the same for the same step of the same attempt, so a
task that runs twice leaves one chain.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from remesh.audit import record_of_request
from remesh.models import Action, AuditRecord, Decision, ObjectRef, Outcome, RecordType, RepairRequest, Result
from workers.context import TrailPort

DRY_RUN_DECIDES: Final = "dry_run_decides"
_IF_IT_PASSES: Final = {Action.NUDGE_OWNER: "nudged", Action.RECREATE_POD: "evicted"}


class Chain:
    """Reads and writes one finding's records. Every write raises TrailUnavailable."""

    def __init__(
        self, trail: TrailPort, request: RepairRequest, now: Callable[[], datetime], task_id: str = ""
    ) -> None:
        self._trail = trail
        self._request = request
        self._now = now
        self._task_id = task_id or request.task_id
        self._records = trail.history(request.finding_id)
        decided = (record for record in self._of(RecordType.DECISION) if self._is_mine(record))
        self._run = 1 + sum(1 for _ in decided)
        # Set when they have been read; until then, as the finding's first record named them.
        self.owner: ObjectRef | None = None
        self.above: ObjectRef | None = None

    def write(self, kind: RecordType, *, step: str = "", details: dict[str, Any] | None = None, **fields: Any) -> None:
        """Append one record of this attempt. `fields` are AuditRecord's own."""
        fields["owner"] = self.owner or next((each.owner for each in self._records if each.owner), None)
        fields["above"] = self.above or next((each.above for each in self._records if each.above), None)
        record = record_of_request(
            self._request,
            kind,
            at=self._now(),
            step=self._step(kind, step),
            task_id=self._task_id,
            details={"attempt": self._request.attempt, **(details or {})},
            **fields,
        )
        self._trail.append(record)

    def _step(self, kind: RecordType, step: str) -> str:
        """A run of the same attempt after a crash writes records of its own; an outcome is written once."""
        if self._run == 1 or kind is RecordType.OUTCOME:
            return step
        return f"{step}:{self._run}" if step else str(self._run)

    def write_decision(self, decision: Decision, details: dict[str, Any]) -> None:
        """What was decided on what is known before the dry run, as `decided` puts it."""
        action, code, reason = decided(decision)
        cause = decision.failure_class.value
        self.write(RecordType.DECISION, action=action.value, cause=cause, code=code, reason=reason, details=details)

    def write_outcome(self, outcome: Outcome) -> None:
        """The end of this attempt; the watcher reads it back from `details`."""
        details = outcome.model_dump(mode="json")
        self.write(RecordType.OUTCOME, code=outcome.code, reason=outcome.reason, details=details)

    def outcome(self) -> Outcome | None:
        """The outcome of this very attempt, if it stands already: the task was delivered once more."""
        for record in self._of(RecordType.OUTCOME):
            if self._is_mine(record) and record.task_id:  # the watcher's own, without a task, are no end of a repair
                return _outcome(record)
        return None

    def unfinished_intent(self) -> AuditRecord | None:
        """The last intent without an outcome after it: a worker died in between, whichever attempt it was.

        An outcome that only says that API server or Redis failed is no end of it, and neither is one of the watcher's
        own (without a task), which has only seen that the object is gone.
        """
        found: AuditRecord | None = None
        for record in self._of(RecordType.INTENT, RecordType.OUTCOME):
            if record.type is RecordType.INTENT:
                found = record
            elif record.task_id and record.details.get("result") != Result.ERROR.value:
                found = None
        return found

    @property
    def found(self) -> bool:
        """True if the finding itself stands in the trail: the watcher or a person's command judged it before."""
        return any(True for _ in self._of(RecordType.FINDING))

    def _is_mine(self, record: AuditRecord) -> bool:
        return bool(record.details.get("attempt") == self._request.attempt)

    def _of(self, *types: RecordType) -> Iterable[AuditRecord]:
        return (record for record in self._records if record.type in types)


def decided(decision: Decision) -> tuple[Action, str, str]:
    """Action, code and reason of a decision as the trail has them.

    To a worker "not proven" means that its own dry run comes next, and not that it waits.
    """
    repair = _IF_IT_PASSES.get(decision.after_recovery)
    if decision.action is not Action.WAIT_FOR_INJECTOR or decision.code != "not_proven" or repair is None:
        return decision.action, decision.code, decision.reason
    return decision.after_recovery, DRY_RUN_DECIDES, f"a dry run decides now; if it passes, it is to be {repair}"


def _outcome(record: AuditRecord) -> Outcome | None:
    try:
        return Outcome.model_validate(record.details)
    except ValidationError:
        return None  # of another version: the attempt is made anew, which its preconditions make harmless
