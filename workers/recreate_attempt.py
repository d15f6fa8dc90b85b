"""What all replacing of pods has in common: deciding, refusing, evicting, and the end of it.

Used by `workers.recreate_evict` (pods with a controller) and `workers.recreate_alone` (pods without). A method here has
one effect, and says by a `Verdict` why the repair ends with it, or by None that it goes on.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from remesh import logs
from remesh.classify import classify
from remesh.decide import decide, expected_sidecars
from remesh.errors import BrokerError, ClusterError, ClusterUnreachable, NotFound, Rejected, Throttled, UsageError
from remesh.fingerprint import fingerprint_around
from remesh.kube.probe import ProbeResult
from remesh.ledger import Failures
from remesh.ledger_brake import Braked
from remesh.meshes import MeshProfile
from remesh.models import (
    DRY_RUN_NEW,
    Action,
    AuditRecord,
    Decision,
    FailureClass,
    InjectorHealth,
    Observed,
    Outcome,
    Probe,
    RecordType,
    RepairRequest,
    Result,
)
from remesh.objects import Node, Pod
from remesh.observe import observe
from remesh.policy import Mode
from workers.chain import Chain
from workers.context import LeasePort, RepairContext, Step, reached
from workers.ending import USED_UP, Ending, in_quarantine
from workers.recreate_brake import from_brake
from workers.recreate_lost import still_missing, what_goes
from workers.recreate_nodes import nowhere
from workers.recreate_proof import from_proof
from workers.recreate_verify import Seen
from workers.verdicts import (
    MANIFEST_LOST,
    NO_LONGER_WANTED,
    NOT_AVAILABLE_YET,
    NOT_READY_YET,
    PERSON_NEEDED,
    RESTORE_PENDING,
    Verdict,
    leaves_for_another_try,
    revoked,
    works_again_later,
)

log = logs.get("worker.recreate")

GIVEN_UP: Final = frozenset({PERSON_NEEDED, MANIFEST_LOST, "namespace_terminating"})
"""Codes with which a pod that was evicted is not created again. With any other one the tries go on."""

# Of all nodes only that there is any for it. A thousand of them are some 10 MB.
NODES_SECONDS: Final = 15.0

Progress = Callable[[str, dict[str, int]], None]

# From policy/v1's eviction (registry/core/pod/storage): with two budgets it cannot tell which to count against.
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"
_BUDGET_NAME: Final = re.compile(r"disruption budget (\S+)")


class Attempt:
    """One attempt to replace one pod, while its lease is held."""

    def __init__(
        self, request: RepairRequest, ctx: RepairContext, lease: LeasePort, task_id: str, progress: Progress
    ) -> None:
        self.request, self.ref, self.ctx = request, request.ref, ctx
        self.progress = progress
        self.task_id = task_id
        self.chain = Chain(ctx.trail, request, ctx.clock.now, task_id)
        self.ending = Ending(request, ctx, self.chain)
        self.begun = self.chain.unfinished_intent()
        self.notes: list[str] = []  # what else the outcome has to say
        self.sidecars: list[MeshProfile] = []  # that it should have; known once it was judged
        self.proof: ProbeResult | None = None
        self.proof_is_new = False  # True if this attempt asked for it
        self.acted = False  # True once anything may have been written to the cluster
        self.owed = False  # True from when it may be gone until remesh has created it again
        self._unwritten: list[tuple[str, str, dict[str, Any]]] = []  # records of actions that wait for the trail
        self.in_debt = False  # True once the ledger says that it may be owed
        self.slot_of = ""  # UID of the owner whose slot it holds
        self.braked = False  # True once it counts as on its way with the brake of its injector
        self.was_ready = True  # the pod, when it was evicted
        self.shown: Callable[[str], str] = str  # what of a text people may see
        self._lease = lease
        self._failures = Failures()  # of its owner and template, as read last
        self._seen = Seen()

    # Judging

    def decide(self, pod: Pod, probe: Probe = Probe.UNKNOWN, *, anew: bool = True) -> Decision:
        """What is right for a pod of this owner now. `anew`: with its failures read now, and not a moment ago."""
        now = self.ctx.clock.now()
        return decide(self._observed(pod, probe, anew), self.ctx.policy, self.ctx.profiles, now)

    def _observed(self, pod: Pod, probe: Probe, anew: bool) -> Observed:
        ending, now = self.ending, self.ctx.clock.now()
        if anew and ending.template_hash:
            self._failures = self.ctx.ledger.failures(ending.account, ending.template_hash)
        failed = self._failures.count
        return observe(pod, self.ctx.view, health=InjectorHealth(probe=probe), now=now, attempts=failed)

    def _expect_of(self, pod: Pod, decision: Decision) -> None:
        """Note who injects it, with which sidecars, under which configuration."""
        webhooks = self.ctx.view.webhooks()
        namespace = self.ctx.view.namespace(pod.metadata.namespace)
        expected = expected_sidecars(pod, namespace, webhooks, self.ctx.profiles)
        self.sidecars = list({profile.name: profile for profile, _ in expected}.values())
        self.ending.injector_key = decision.injector.key if decision.injector else ""
        self.ending.evidence["webhooks"] = fingerprint_around(pod, self.ctx.view, self.ctx.profiles)

    def judge(self, pod: Pod) -> Verdict | None:
        """Decide, and write the decision down."""
        decision = self.decide(pod)
        self._expect_of(pod, decision)
        details = {
            "after_recovery": decision.after_recovery.value,
            "injector": self.ending.injector_key,
            "sidecars": self.names,
            "template_hash": self.ending.template_hash,
        }
        self.chain.write_decision(decision, details)
        reached(Step.DECIDED)
        if decision.failure_class is FailureClass.HAS_SIDECAR:
            return Verdict(Result.ALREADY_HEALTHY, decision.code, decision.reason)
        if decision.code != USED_UP and not repairable(decision):
            return self.refuse(Verdict(Result.REPORTED, decision.code, decision.reason))
        held = self.ending.held(decision)
        if decision.code == USED_UP and held is None:  # its quarantine has ended, and its failures with it
            self._failures = self.ctx.ledger.failures(self.ending.account, self.ending.template_hash)
        return self.refuse(in_quarantine(held)) if held is not None else None

    def may_act(self) -> Verdict | None:
        """Cooldown, as of the decision a moment ago, and mode."""
        left = self._failures.cooldown_left
        if left > 0 and not self.request.on_demand:
            return self.refuse(Verdict(Result.SKIPPED, "cooling_down", f"its owner cools down for {left:.0f} s more"))
        if self.ctx.policy.mode is Mode.OBSERVE:
            return self.refuse(Verdict(Result.REPORTED, "observe_mode", "the policy's mode is observe: not touched"))
        return None

    def prove(self, pod: Pod, proof: ProbeResult) -> Verdict | None:
        """Go on only if the dry run came back with every sidecar, and the decision is to recreate it then."""
        self.proof = proof
        verdict = from_proof(proof)
        if verdict is not None:
            return verdict if leaves_for_another_try(verdict) else self.refuse(verdict)
        decision = self.decide(pod, Probe.PASSES, anew=False)  # it is decided again before anything is done
        if decision.action is not Action.RECREATE_POD:
            return self.refuse(Verdict(Result.REPORTED, decision.code, decision.reason))
        return None

    def refuse(self, verdict: Verdict) -> Verdict:
        """Write down that it is not touched, and why."""
        reason = self.shown(verdict.reason)
        self.chain.write(RecordType.REFUSAL, step=verdict.code, code=verdict.code, reason=reason)
        return verdict

    # Acting

    def brake(self, pod: Pod, pods: Iterable[Pod] = ()) -> Verdict | None:
        """Asked right before the intent: did what was evicted before come back? `pods` are its owner's.

        And is there a node for what shall come in its place? Raises ClusterError if that cannot be read.
        """
        reason = nowhere(pod, self.chain.owner.kind if self.chain.owner else "", self.ctx.pods, self._nodes)
        if reason:
            return self.refuse(Verdict(Result.SKIPPED, "no_node", reason))
        self.was_ready = pod.ready
        about = what_goes(pod, self.chain.owner, pods)
        found = self._take_brake(about)
        if found.code == "lost":
            missing = self._still_lost()
            if missing:
                return self._braked(found, missing)
            found = self._take_brake(about)
        self.braked = found.free
        return self._braked(found)

    def _braked(self, found: Braked, missing: str = "") -> Verdict | None:
        verdict = from_brake(found, missing)
        return self.refuse(verdict) if verdict is not None else None

    def _nodes(self) -> list[Node]:
        return self.ctx.recent.recall(("nodes",), NODES_SECONDS, self.ctx.pods.nodes, self.ctx.clock.monotonic)

    def _take_brake(self, about: str) -> Braked:
        seconds = self.ctx.policy.repair.cooldown_seconds
        return self.ctx.ledger.brakes.take(self._brake_key, self.ref.uid, seconds, about)

    def _still_lost(self) -> str:
        """The first of those that keep the brake shut, looked for anew; "" if all are back."""
        brakes = self.ctx.ledger.brakes
        for holder, about in brakes.lost(self._brake_key).items():
            missing = still_missing(about, self.ctx.cluster, self.ctx.pods)
            if missing:
                return missing
            brakes.found_again(self._brake_key, holder)
        return ""

    @property
    def _brake_key(self) -> str:
        return self.ending.injector_key or self.request.mesh

    def intend(self, code: str, reason: str, details: dict[str, Any]) -> Verdict | None:
        """Write the intent, which begins with what the dry run showed. Without it nothing is touched.

        Raises TrailUnavailable.
        """
        if not self.hold():
            return Verdict(Result.SKIPPED, "lease_lost", "the hold on the pod ran out before anything was done")
        if self.ctx.revoked(self.task_id):
            return self.refuse(revoked())
        known = {
            "pod": self.ref.name,
            "uid": self.ref.uid,
            "sidecars": self.names,
            "injector": self.ending.injector_key,
            "template_hash": self.ending.template_hash,
            "webhooks": self.ending.evidence.get("webhooks", ""),
            "dry_run": self.proof.code if self.proof else "",
            "dry_run_ms": round(self.proof.seconds * 1000) if self.proof else None,
            DRY_RUN_NEW: self.proof_is_new,
            "was_ready": self.was_ready,
        }
        proven = f"{self.shown(self.proof.reason)}: " if self.proof else ""
        self.chain.write(RecordType.INTENT, code=code, reason=f"{proven}{reason}", details=known | details)
        reached(Step.INTENT_WRITTEN)
        return None

    def take_over(self, intent: AuditRecord) -> None:
        """What a dead worker evicted is this one's now, as its intent says."""
        told, ending = intent.details, self.ending
        self.acted = self.braked = True
        self.was_ready = told.get("was_ready") is not False
        self.notes.append("evicted by a worker that could not end it; nothing else was evicted")
        self.sidecars = self._profiles(told.get("sidecars", ()))
        self.chain.owner, self.chain.above = intent.owner, intent.above
        ending.injector_key = str(told.get("injector", ""))
        ending.template_hash = str(told.get("template_hash", ""))
        ending.evidence["webhooks"] = str(told.get("webhooks", ""))

    def _profiles(self, names: Iterable[object]) -> list[MeshProfile]:
        """Raises UsageError for an unknown mesh; but what is owed comes back with or without its profile."""
        try:
            return [self.ctx.profiles.by_name(str(name)) for name in names]
        except UsageError:
            if not self.owed:
                raise
            return []

    def evict(self, pod: Pod, resource_version: str = "") -> Verdict | None:
        """Evict it through the Eviction API, bound to its UID. Raises ClusterError if it may have happened."""
        self.progress("evicting", {})
        try:
            self.ctx.pods.evict(self.ref, resource_version=resource_version)
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "it went away by itself before it was evicted")
        except Throttled as error:
            if not _by_budget(error):
                raise
            return self.refuse(Verdict(Result.SKIPPED, "blocked_by_pdb", self._blocked(error, pod)))
        except Rejected as error:
            return self.refuse(self._refused(error, pod))
        except ClusterUnreachable:
            self.acted = True  # perhaps: the next try sees
            raise
        self.acted = True
        reached(Step.EVICTED)
        self.did("evicted", f"evicted {self.ref.name}")
        return None

    def did(self, code: str, reason: str, details: dict[str, Any] | None = None) -> None:
        """Write down what was done. While it is owed, bringing it back goes first and a trail that fails waits."""
        try:
            self.chain.write(RecordType.ACTION, step=code, code=code, reason=reason, details=details)
        except BrokerError as error:
            if not self.owed:
                raise
            self._unwritten.append((code, reason, details or {}))
            log.warning("an action is written down later", finding=self.request.finding_id, code=code, error=str(error))

    def _blocked(self, error: Throttled, pod: Pod) -> str:
        names = [found[1] for text in error.budgets if (found := _BUDGET_NAME.search(text))] or self._budgets(pod)
        said = "; ".join(error.budgets) or error.message
        return f"not now, says {_budget_names(names)}: {said}"

    def _refused(self, error: Rejected, pod: Pod) -> Verdict:
        if _SEVERAL_BUDGETS in error.message:
            names = _budget_names(self._budgets(pod))
            reason = f"it cannot be evicted: {names} select it, and Kubernetes evicts no pod of several"
            return Verdict(Result.REPORTED, "several_pdbs", reason)
        found = classify(error.message)
        if works_again_later(found):
            return Verdict(Result.WAITING, found.value, f"the eviction was refused, a webhook fails: {error}")
        return Verdict(Result.REPORTED, "eviction_refused", f"the eviction was refused: {error}")

    def _budgets(self, pod: Pod) -> list[str]:
        try:
            return self.ctx.pods.budgets_of(pod)
        except ClusterError as error:
            log.debug("budgets not read", finding=self.request.finding_id, error=str(error))
            return []

    def hold(self) -> bool:
        """Keep the lease on the pod. False: another worker may have it."""
        return self._lease.renew()

    # Seeing what came of it, and the end

    @property
    def names(self) -> list[str]:
        """Names of the sidecars that it should have."""
        return [profile.name for profile in self.sidecars]

    def marked(self, pod: Pod) -> bool:
        """True if a pod carries every sidecar that is expected."""
        return all(profile.injected(pod) for profile in self.sidecars)

    def saw(self, seen: Seen) -> None:
        """Note what was seen last, and show it."""
        if seen != self._seen:
            self._seen = seen
            self.progress("verifying", {"created": seen.created, "ready": seen.ready, "bare": int(seen.bare)})

    def end(self, verdict: Verdict) -> Outcome:
        """The outcome, written down unless it is left for another try."""
        if self.owed and self.acted and verdict.code not in GIVEN_UP:
            verdict = Verdict(Result.ERROR, RESTORE_PENDING, verdict.reason)
        outcome = Outcome(
            finding_id=self.request.finding_id,
            result=verdict.result,
            code=verdict.code,
            reason="; ".join([self.shown(verdict.reason), *self.notes]),
            created=self._seen.created,
            ready=self._seen.ready,
            bare=int(self._seen.bare),
            acted=self.acted,
        )
        again = leaves_for_another_try(outcome)
        settling = outcome.code == NOT_AVAILABLE_YET  # its slot ends by itself, once its owner may count it
        if self.slot_of and not (again and self.acted) and not settling:
            self._give_slot_back()
        if self.braked and not (again and self.acted):
            self._tell_brake(outcome)
        if again:
            return outcome
        for code, why, details in self._unwritten:
            self.chain.write(RecordType.ACTION, step=code, code=code, reason=why, details=details)
        outcome = self.ending.conclude(outcome)
        if self.in_debt:
            self._settle_debt(outcome)
        return outcome

    def _settle_debt(self, outcome: Outcome) -> None:
        """It is back, was never taken away, or a person is told."""
        if outcome.acted and self.owed:
            say_person_needed(outcome, self.request)
        self.ctx.memory.forget(self.ref.uid)
        try:
            self.ctx.ledger.owed.settle(self.ref.uid)
        except BrokerError as error:
            log.warning("a debt was not struck off", finding=self.request.finding_id, error=str(error))

    def _tell_brake(self, outcome: Outcome) -> None:
        good = came_back(outcome, was_ready=self.was_ready)
        seconds = self.ctx.policy.repair.cooldown_seconds
        try:
            self.ctx.ledger.brakes.tell(self._brake_key, self.ref.uid, good, seconds)
        except BrokerError as error:
            log.warning("brake not told, it takes it for bad", finding=self.request.finding_id, error=str(error))

    def _give_slot_back(self) -> None:
        try:
            self.ctx.ledger.give_slot_back(self.slot_of, self.ref.uid)
        except BrokerError as error:
            log.warning("slot not given back, it ends by itself", finding=self.request.finding_id, error=str(error))


def repairable(decision: Decision) -> bool:
    """True if recreating the pod is right, now or once its injector works."""
    return Action.RECREATE_POD in (decision.action, decision.after_recovery)


def say_person_needed(outcome: Outcome, request: RepairRequest) -> None:
    """Loud: a pod is gone, and nobody but a person brings it back."""
    log.error(
        "a pod was evicted and is not created again: a person is needed",
        finding=outcome.finding_id,
        object=str(request.ref),
        code=outcome.code,
        reason=outcome.reason,
    )


def came_back(outcome: Outcome, *, was_ready: bool) -> bool | None:
    """Did an eviction bring a Ready replacement? None: that says nothing, or none was evicted.

    A replacement that is no less Ready than the pod before takes nothing from anybody. But an owner that wants none
    right after the eviction of a Ready one may want none because of it, whatever it says.
    """
    if outcome.result is Result.HEALED or outcome.code == NOT_AVAILABLE_YET:
        return True
    if outcome.acted and outcome.code == NO_LONGER_WANTED:
        return False if was_ready else None
    if not outcome.acted or outcome.result is Result.OBSOLETE:
        return None
    return None if outcome.code == NOT_READY_YET and not was_ready else False


def _by_budget(error: Throttled) -> bool:
    """A PodDisruptionBudget says no; any other 429 is an API server that is busy."""
    return bool(error.budgets) or "disruption budget" in error.message


def _budget_names(names: list[str]) -> str:
    return ", ".join(f"PodDisruptionBudget/{name}" for name in sorted(set(names))) or "a PodDisruptionBudget"
