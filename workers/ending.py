"""How a repair ends: the failure is counted, the outcome written, the ledger and the window told.

Used by `workers.repair` and `workers.recreate`. The order matters: once the outcome stands in the trail the repair is
over, and what fails after that only costs time.
"""

from collections.abc import Callable
from typing import Any, Final

from remesh import logs
from remesh.errors import BrokerError
from remesh.fingerprint import ENDED, ENDED_BECAUSE, is_outdated
from remesh.ledger import Quarantine
from remesh.models import Action, Decision, Outcome, RecordType, RepairRequest, Result
from remesh.policy import Mode
from workers.chain import Chain
from workers.context import RepairContext, Step, reached
from workers.verdicts import NOT_READY_YET, NOT_REPLACED, Verdict

log = logs.get("worker")

CLOSES: Final = frozenset({Result.HEALED, Result.INJECTED, Result.ALREADY_HEALTHY, Result.OBSOLETE})
"""Results after which the finding is over."""


USED_UP: Final = "attempts_used_up"
"""decide()'s code for an owner whose repairs failed too often."""


class Ending:
    """Ends repairs of one object."""

    def __init__(self, request: RepairRequest, ctx: RepairContext, chain: Chain) -> None:
        self._request = request
        self._ctx = ctx
        self._chain = chain
        self.account = request.ref.uid  # whom a failure is counted against: for a pod, its controller
        self.evidence: dict[str, Any] = {}  # what else a quarantine has to say
        self.template_hash = ""  # known once the object was read
        self.injector_key = ""  # known once it was judged

    def conclude(self, outcome: Outcome) -> Outcome:
        """Write down how it ended; returns the outcome, which is QUARANTINED after one failure too many.

        Raises BrokerError if it could not be written.
        """
        account = f"{self.account}:{self.template_hash}" if self.template_hash else ""
        outcome = self._count_failure(outcome.model_copy(update={"account": account}))
        self._chain.write_outcome(outcome)
        reached(Step.OUTCOME_WRITTEN)
        self._quietly(self._settle, outcome)
        self._quietly(self._tell_window, outcome)
        self._announce(outcome)
        log.info(
            "repair ended",
            finding=outcome.finding_id,
            object=str(self._request.ref),
            result=outcome.result.value,
            code=outcome.code,
            created=outcome.created,
            ready=outcome.ready,
        )
        return outcome

    def _announce(self, outcome: Outcome) -> None:
        """On the owner, if that is asked for, and where remesh writes at all."""
        policy, ref = self._ctx.policy, self._request.ref
        if policy.mode is Mode.OBSERVE or policy.scope.bars(ref.namespace):
            return
        self._ctx.announce(self._chain.owner or ref, ref, outcome)

    def settle_again(self, outcome: Outcome) -> None:
        """The outcome was written by a worker that may have died before it told the ledger."""
        self._quietly(self._settle, outcome)

    def held(self, decision: Decision) -> Quarantine | None:
        """The quarantine that it is in. One from under another webhook configuration ends here, and is none."""
        ledger = self._ctx.ledger
        found = ledger.quarantined(self.account, self.template_hash)
        if found is None and decision.code == USED_UP:  # a worker died after it had counted the last failure
            reason = ledger.failures(self.account, self.template_hash).reason
            evidence = {"ref": self._request.ref.model_dump(), **self.evidence, "reason": reason}
            found = ledger.quarantine(self.account, self.template_hash, evidence)
        if found is None or not is_outdated(found.evidence, self.evidence.get("webhooks", "")):
            return found
        self._chain.write(RecordType.NOTE, step=ENDED, code=ENDED, reason=ENDED_BECAUSE)
        ledger.clear_quarantine(self.account, self.template_hash)
        return None

    def _count_failure(self, outcome: Outcome) -> Outcome:
        """A failed repair counts against its owner and template; too many mean quarantine."""
        if outcome.result is not Result.FAILED:
            return outcome
        limits, ledger = self._ctx.policy.repair, self._ctx.ledger
        if not self._request.on_demand and ledger.failures(self.account, self.template_hash).cooldown_left > 0:
            return outcome  # begun before another repair of the same owner failed: one burst is one failure
        failed = ledger.record_failure(
            self.account,
            self.template_hash,
            outcome.reason,
            cooldown_seconds=limits.cooldown_seconds,
            token=f"{outcome.finding_id}:{self._request.attempt}",
        )
        if failed < limits.max_attempts:
            return outcome
        reason = f"{outcome.reason}; {failed} repairs failed, so it is left alone"
        evidence = outcome.model_dump(mode="json") | {"reason": reason, "ref": self._request.ref.model_dump()}
        ledger.quarantine(self.account, self.template_hash, evidence | self.evidence)
        return outcome.model_copy(update={"result": Result.QUARANTINED, "reason": reason})

    def _settle(self, outcome: Outcome) -> None:
        ledger, uid = self._ctx.ledger, self._request.ref.uid
        ledger.set_outcome(outcome)
        unproven = _unproven(self._request, outcome)
        if outcome.result in CLOSES and not unproven:
            ledger.close_finding(uid, outcome.finding_id)
        if outcome.result in (Result.HEALED, Result.INJECTED) and self.template_hash and not unproven:
            ledger.record_success(self.account, self.template_hash)
        if self.injector_key:
            ledger.release_reservation(self.injector_key, outcome.finding_id, self._request.attempt)

    def _tell_window(self, outcome: Outcome) -> None:
        worked = False if _unproven(self._request, outcome) else injector_worked(outcome)
        if worked is not None and self.injector_key:
            self._ctx.ledger.window_feedback(
                self.injector_key, worked, self._ctx.policy.window, max(1, outcome.created)
            )

    def _quietly(self, tell: Callable[[Outcome], None], outcome: Outcome) -> None:
        try:
            tell(outcome)
        except BrokerError as error:
            log.warning("the ledger was not told of an outcome", finding=outcome.finding_id, error=str(error))


def in_quarantine(held: Quarantine) -> Verdict:
    """It is left alone, and why."""
    why = held.evidence.get("reason", "its repairs failed too often")
    return Verdict(Result.QUARANTINED, "quarantined", f"in quarantine: {why}")


def _unproven(request: RepairRequest, outcome: Outcome) -> bool:
    """True if a pod was taken away and what should be in its place does not run: slower, whosever fault it is."""
    evicted = request.action is Action.RECREATE_POD and outcome.acted
    return evicted and outcome.code in (NOT_READY_YET, NOT_REPLACED)


def injector_worked(outcome: Outcome) -> bool | None:
    """What an outcome says of the injector: it worked, it failed, or nothing."""
    if outcome.result in (Result.HEALED, Result.INJECTED) and outcome.created:
        return True
    if outcome.result is Result.WAITING or outcome.code == "came_back_bare":
        return False
    return None
