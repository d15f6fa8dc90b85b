"""One repair: read again, decide again, prove, write the intent, nudge, verify, write the outcome.

Called by `workers.tasks`. Bare pods are replaced by `workers.recreate`, from here; all else is about nudging. It
guarantees:

- nothing is written to the cluster unless its intent stands in the audit trail, and nothing at all in mode "observe";
- the nudge annotation is taken off again on every path after it was put on;
- doing it twice does nothing the second time: a lease holds the object, every write carries its UID, and a repair
  that a dead worker left unfinished is looked at first, and nudged again only if pods are still missing.

What things mean is decided in `remesh.decide`, `workers.verdicts` and `workers.verify`; a method here has one effect.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from remesh import logs, tracing
from remesh.decide import counts, decide
from remesh.detect import owner_of
from remesh.errors import BrokerError, NotFound, RemeshError
from remesh.fingerprint import fingerprint_around
from remesh.kube.probe import DRY_RUN_UNSUPPORTED, AnyPod, Injected, ProbeResult
from remesh.models import (
    Action,
    AuditRecord,
    Decision,
    InjectorHealth,
    Outcome,
    Probe,
    RecordType,
    RepairRequest,
    Result,
)
from remesh.objects import Pod, Workload
from remesh.observe import observe
from remesh.policy import Mode
from remesh.tally import counted, stuck_reference
from workers.chain import Chain
from workers.context import LeasePort, RepairContext, Step, reached
from workers.ending import USED_UP, Ending, in_quarantine
from workers.nudge import NUDGE_ANNOTATION, Nudge, left_on
from workers.recreate import recreate
from workers.recreate_attempt import say_person_needed
from workers.verdicts import (
    PERSON_NEEDED,
    RESTORE_PENDING,
    Verdict,
    from_error,
    from_probe,
    leaves_for_another_try,
    revoked,
)
from workers.verify import Sight, Tally, tally, watch

log = logs.get("worker")

# Renewed before every write and at every look, so it may be short: a worker's death holds up its successor so long.
LEASE_SECONDS: Final = 20.0

Progress = Callable[[str, dict[str, int]], None]
"""Told what a repair is at, such as "verifying", with numbers."""


def quiet(_phase: str, _numbers: dict[str, int]) -> None:
    """Progress that nobody watches."""


def repair(request: RepairRequest, ctx: RepairContext, *, task_id: str = "", progress: Progress = quiet) -> Outcome:
    """Repair one object once, and write down how it ended.

    An outcome that `leaves_for_another_try` is not written down: the caller tries again, or calls `give_up`.
    Raises nothing that is a RemeshError.
    """
    try:
        lease = ctx.ledger.lease(request.ref.uid, LEASE_SECONDS)
        if lease is None:
            return _outcome(request, Verdict(Result.SKIPPED, "held_elsewhere", "another worker holds the object"))
        try:
            if request.action is Action.RECREATE_POD:
                return recreate(request, ctx, lease, task_id, progress)
            return _Repair(request, ctx, lease, task_id, progress).run()
        finally:
            _let_go(lease)
    except RemeshError as error:
        return _outcome(request, _unless_owed(request, ctx, from_error(error)))


def _unless_owed(request: RepairRequest, ctx: RepairContext, verdict: Verdict) -> Verdict:
    """Trail or ledger failed: if the pod may be gone by our doing, the tries must not end soon."""
    if request.action is not Action.RECREATE_POD or not ctx.policy.repair.bare_pods:
        return verdict
    try:
        owed = ctx.memory.recall(request.ref.uid) is not None or ctx.ledger.owed.has(request.ref.uid)
    except BrokerError:
        owed = True  # perhaps
    return Verdict(Result.ERROR, RESTORE_PENDING, verdict.reason) if owed else verdict


def give_up(request: RepairRequest, ctx: RepairContext, outcome: Outcome, *, task_id: str = "") -> None:
    """Write down an outcome that was left for another try, now that there will be none.

    Another worker's hold is only noted: the outcome of this attempt may still be that worker's to write.
    Raises BrokerError.
    """
    chain = Chain(ctx.trail, request, ctx.clock.now, task_id)
    if outcome.result is Result.SKIPPED:
        chain.write(RecordType.REFUSAL, step=outcome.code, code=outcome.code, reason=outcome.reason)
        return
    begun = chain.unfinished_intent()
    lost = outcome.code == RESTORE_PENDING and begun is not None and begun.code == "recreate"
    if lost:
        reason = f"{outcome.reason}; it was tried long enough: a person has to create it again"
        outcome = outcome.model_copy(update={"code": PERSON_NEEDED, "reason": reason})
    chain.write_outcome(outcome)
    if lost:
        say_person_needed(outcome, request)
        ctx.memory.forget(request.ref.uid)
        ctx.ledger.owed.settle(request.ref.uid)
    _tell_brake(request, ctx, begun)
    ctx.ledger.set_outcome(outcome)


def _tell_brake(request: RepairRequest, ctx: RepairContext, intent: AuditRecord | None) -> None:
    """A pod was evicted, and nobody saw what came: that is no reason to evict another one."""
    if request.action is Action.RECREATE_POD and intent is not None:
        key = str(intent.details.get("injector", "")) or request.mesh
        ctx.ledger.brakes.tell(key, request.ref.uid, False, ctx.policy.repair.cooldown_seconds)


class _Repair:
    """One repair under way, while its lease is held."""

    def __init__(
        self, request: RepairRequest, ctx: RepairContext, lease: LeasePort, task_id: str, progress: Progress
    ) -> None:
        self._request = request
        self._ref = request.ref
        self._ctx = ctx
        self._lease = lease
        self._progress = progress
        self._task_id = task_id
        self._chain = Chain(ctx.trail, request, ctx.clock.now, task_id)
        self._nudge = Nudge(ctx.cluster, request.ref, self._chain, ctx.clock)
        self._ending = Ending(request, ctx, self._chain)
        self._unfinished = self._chain.unfinished_intent()
        self._seen = Tally(wanted=0)
        self._counted_at = ""  # resourceVersion of the owner when its pods were counted
        self._notes: list[str] = []  # what else the outcome has to say
        # From here on: known once the object has been read, judged, proven.
        self._workload = Workload()
        self._pods: list[Pod] = []
        self._before: frozenset[str] = frozenset()
        self._decision: Decision | None = None
        self._sidecar: Injected = AnyPod()
        self._proof: ProbeResult | None = None

    def run(self) -> Outcome:
        """Step by step; each says why the repair ends here, or None to go on."""
        done = self._chain.outcome()
        if done is not None:
            self._ending.settle_again(done)
            return done
        try:
            verdict = self._read() or self._judge() or self._may_act() or self._prove() or self._act()
            if verdict.result not in (Result.OBSOLETE, Result.ERROR):
                self._clean_up()
        except RemeshError as error:
            verdict = from_error(error)
        return self._end(verdict)

    # What is there?

    def _read(self) -> Verdict | None:
        self._progress("reading", {})
        found = self._ctx.cluster.workload(self._ref.kind, self._ref.namespace, self._ref.name)
        if found.metadata.uid != self._ref.uid:
            return Verdict(Result.OBSOLETE, "replaced", "another object has its name by now")
        if found.metadata.deletion_timestamp is not None:
            return Verdict(Result.OBSOLETE, "being_deleted", "it is being deleted")
        self._workload = found
        self._pods = self._ctx.cluster.pods_of(found)
        self._before = _before(self._pods, self._unfinished)
        self._chain.owner = owner_of(found)
        self._ending.template_hash = found.template_hash
        self._ending.evidence["webhooks"] = fingerprint_around(found, self._ctx.view, self._ctx.profiles)
        return None

    def _judge(self) -> Verdict | None:
        decision = self._decide(Probe.UNKNOWN)
        self._chain.write_decision(decision, self._described(decision))
        reached(Step.DECIDED)
        if self._unfinished is not None and not self._count(self._workload, self._pods).missing:
            return self._finish_what_was_begun()
        if decision.action is Action.NONE:
            return _nothing_to_do(decision)
        held = self._ending.held(decision)
        if held is not None:
            return self._refuse(in_quarantine(held))
        if decision.code == USED_UP:  # but not any more
            decision = self._decide(Probe.UNKNOWN)
        if Action.NUDGE_OWNER not in (decision.action, decision.after_recovery):
            return self._refuse(Verdict(Result.REPORTED, decision.code, decision.reason))
        return None

    def _decide(self, probe: Probe) -> Decision:
        ctx, now = self._ctx, self._ctx.clock.now()
        observed = observe(
            self._workload,
            ctx.view,
            health=InjectorHealth(probe=probe),
            now=now,
            stuck_since=self._stuck_since(),
            current=counted(self._workload, self._pods),
            attempts=ctx.ledger.failures(self._ref.uid, self._workload.template_hash).count,
        )
        decision = decide(observed, ctx.policy, ctx.profiles, now)
        self._decision = decision
        self._sidecar = self._expected(decision)
        self._ending.injector_key = decision.injector.key if decision.injector else ""
        return decision

    def _stuck_since(self) -> datetime | None:
        """None leaves `decide()` to its age: a finding was made only after the object had lacked pods long enough."""
        return None if self._chain.found else stuck_reference(self._workload)

    def _expected(self, decision: Decision) -> Injected:
        """The sidecar that its pods must carry; after a crash, the one that the intent named."""
        if self._unfinished is not None and "sidecar" in self._unfinished.details:
            return self._profile(str(self._unfinished.details["sidecar"]))
        if decision.sidecar_expected and decision.injector is not None:
            return self._profile(decision.injector.mesh)
        return AnyPod()

    def _profile(self, mesh: str) -> Injected:
        return self._ctx.profiles.by_name(mesh) if mesh else AnyPod()

    # May it be repaired?

    def _may_act(self) -> Verdict | None:
        left = self._ctx.ledger.failures(self._ref.uid, self._workload.template_hash).cooldown_left
        if left > 0 and not self._request.on_demand:
            return self._refuse(Verdict(Result.SKIPPED, "cooling_down", f"cools down for {left:.0f} s more"))
        if self._ctx.policy.mode is Mode.OBSERVE:
            return self._refuse(Verdict(Result.REPORTED, "observe_mode", "the policy's mode is observe: not touched"))
        return None

    def _refuse(self, verdict: Verdict) -> Verdict:
        self._chain.write(RecordType.REFUSAL, step=verdict.code, code=verdict.code, reason=verdict.reason)
        return verdict

    # Would its pods be injected now?

    def _prove(self) -> Verdict | None:
        self._progress("proving", {})
        self._proof = self._ctx.probe(self._ref, self._sidecar)
        verdict = from_probe(self._proof, at_quorum=self._at_quorum())
        if verdict is not None:
            return verdict if leaves_for_another_try(verdict) else self._refuse(verdict)
        if self._proof.code == DRY_RUN_UNSUPPORTED:
            self._notes.append("a canary: its webhook refuses dry runs, so only its endpoints spoke for it")
            return None
        decision = self._decide(Probe.PASSES)
        if decision.action is not Action.NUDGE_OWNER:
            return self._refuse(Verdict(Result.REPORTED, decision.code, decision.reason))
        return None

    def _at_quorum(self) -> bool:
        injector = self._decision.injector if self._decision else None
        if self._proof is None or self._proof.code != DRY_RUN_UNSUPPORTED:
            return True
        if injector is None or not injector.service_name:
            return False
        found = self._ctx.cluster.endpoints(injector.service_namespace, injector.service_name)
        return found.ready >= self._ctx.policy.gate.quorum

    # Repair it

    def _act(self) -> Verdict:
        if not self._lease.renew(LEASE_SECONDS):
            return Verdict(Result.SKIPPED, "lease_lost", "the hold on the object ran out before anything was done")
        if self._unfinished is None and self._ctx.revoked(self._task_id):
            return self._refuse(revoked())
        self._chain.write(
            RecordType.INTENT,
            code="nudge",
            reason=f"{self._proven()}set {NUDGE_ANNOTATION} and remove it, so that its controller tries again now",
            details=self._intended(),
        )
        reached(Step.INTENT_WRITTEN)
        self._progress("nudging", {})
        self._nudge.give(self._request.finding_id)
        reached(Step.NUDGE_OFF)
        return self._verify()

    def _proven(self) -> str:
        """What speaks for acting now, for whoever reads the trail."""
        return f"{self._proof.reason}: " if self._proof is not None else ""

    def _clean_up(self) -> None:
        """Remove what a dead worker left, unless this run has nudged and so removed it."""
        if not left_on(self._workload) or self._nudge.written or self._ctx.policy.mode is Mode.OBSERVE:
            return
        if self._ctx.policy.scope.bars(self._ref.namespace) or not self._lease.renew(LEASE_SECONDS):
            return
        reason = f"remove the {NUDGE_ANNOTATION} that a worker left behind"
        self._chain.write(RecordType.INTENT, step="cleanup", code="cleanup", reason=reason, details=self._intended())
        self._nudge.clean_up()
        self._notes.append(f"{NUDGE_ANNOTATION} had been left behind")

    # Did it help?

    def _finish_what_was_begun(self) -> Verdict:
        """A dead worker has nudged, and the pods are there: only watch them become Ready."""
        self._notes.append("begun by a worker that could not end it; not nudged again")
        self._clean_up()
        return self._verify()

    def _verify(self) -> Verdict:
        sight = Sight(self._look_again, self._doubt, self._saw, self._ctx.clock)
        with tracing.inner("verify"):
            verdict = watch(sight, self._ref.kind, self._ctx.policy.repair.verify_seconds)
        reached(Step.VERIFIED)
        return verdict

    def _look_again(self, anew: bool) -> Tally:
        """Count its pods, unless its status says that nothing has changed: a large owner's pods are megabytes."""
        self._lease.renew(LEASE_SECONDS)  # if it is lost, looking on harms nobody
        found = self._ctx.cluster.workload(self._ref.kind, self._ref.namespace, self._ref.name)
        if found.metadata.uid != self._ref.uid:
            raise NotFound(f"{self._ref} is another object by now", status=404)
        version = found.metadata.resource_version
        if anew or not version or version != self._counted_at:
            self._seen = self._count(found, self._ctx.cluster.pods_of(found))
            self._counted_at = version
        return self._seen

    def _count(self, workload: Workload, pods: list[Pod]) -> Tally:
        return tally(counts(workload).desired, pods, marked=self._sidecar.injected, before=self._before)

    def _doubt(self) -> Verdict | None:
        """Nothing comes: does the injector fail again?"""
        verdict = from_probe(self._ctx.probe(self._ref, self._sidecar), at_quorum=True)
        return verdict if verdict and verdict.result in (Result.WAITING, Result.REPORTED) else None

    def _saw(self, seen: Tally) -> None:
        self._progress("verifying", seen.counted())

    # How did it end?

    def _end(self, verdict: Verdict) -> Outcome:
        acted = self._nudge.written or self._unfinished is not None
        notes = [*self._notes, self._nudge.problem] if self._nudge.problem else self._notes
        removed = verdict.result is Result.ALREADY_HEALTHY and self._nudge.written
        outcome = Outcome(
            finding_id=self._request.finding_id,
            result=verdict.result,
            code="nudge_removed" if removed else verdict.code,
            reason="; ".join([verdict.reason, *notes]),
            created=self._seen.created,
            ready=self._seen.ready,
            bare=self._seen.bare,
            acted=acted,
        )
        return outcome if leaves_for_another_try(outcome) else self._ending.conclude(outcome)

    # What the records say

    def _described(self, decision: Decision) -> dict[str, Any]:
        return {
            "missing": decision.missing,
            "after_recovery": decision.after_recovery.value,
            "injector": self._ending.injector_key,
            "template_hash": self._workload.template_hash,
        }

    def _intended(self) -> dict[str, Any]:
        proof = self._proof
        return {
            "annotation": NUDGE_ANNOTATION,
            "sidecar": self._sidecar.name,
            "pods": len(self._pods),
            "injector": self._ending.injector_key,
            "dry_run": proof.code if proof else "",
            "dry_run_ms": round(proof.seconds * 1000) if proof else None,
        }


def _outcome(request: RepairRequest, verdict: Verdict) -> Outcome:
    return Outcome(finding_id=request.finding_id, result=verdict.result, code=verdict.code, reason=verdict.reason)


def _let_go(lease: LeasePort) -> None:
    try:
        lease.release()
    except BrokerError as error:
        log.warning("lease not released, it ends by itself", error=str(error))


def _nothing_to_do(decision: Decision) -> Verdict:
    result = Result.SKIPPED if decision.code == "too_young" else Result.ALREADY_HEALTHY
    return Verdict(result, decision.code, decision.reason)


def _before(pods: list[Pod], unfinished: AuditRecord | None) -> frozenset[str]:
    """UIDs of the pods from before the nudge.

    After a crash these are the pods older than the intent, by two clocks that may differ by seconds.
    """
    if unfinished is None:
        return frozenset(pod.metadata.uid for pod in pods)
    began = unfinished.at.replace(microsecond=0)  # creationTimestamp has whole seconds
    return frozenset(pod.metadata.uid for pod in pods if _created(pod) < began)


def _created(pod: Pod) -> datetime:
    return datetime.fromisoformat(pod.metadata.creation_timestamp)
