"""A bare pod with a controller: evicted when its owner can spare it, and its replacement watched.

Used by `workers.recreate`. It guarantees:

- not more of an owner's pods are away by our doing than its share, however many workers there are;
- what its controller would create in its place has come back from a dry run with every sidecar, seconds ago;
- pod and owner were read again after that dry run, and nothing that decides had changed;
- one request evicts one pod: every eviction carries the UID, and a dead worker's eviction is only looked after.
"""

from collections.abc import Callable
from typing import Any, Final

from remesh.detect import owner_of
from remesh.disruption import forbids, is_custom, min_ready_seconds, share, stranger, unsettled
from remesh.errors import NotFound
from remesh.fingerprint import fingerprint
from remesh.kube.api import DryRun
from remesh.kube.probe import ProbeResult, account_of
from remesh.models import Action, AuditRecord, ObjectRef, Probe, Result
from remesh.objects import OwnerReference, Pod, Workload
from remesh.tally import COUNTED_KINDS, active, counts
from workers.context import Step, reached
from workers.following import Flock
from workers.recreate_attempt import Attempt, repairable
from workers.recreate_census import Census, judged, looked
from workers.recreate_proof import from_proof, judge_all, passes, proof_seconds
from workers.recreate_share import goes_first, held_back, room
from workers.recreate_template import another_template
from workers.recreate_verify import Seen, Sight, wait
from workers.verdicts import Verdict

# Age up to which an owner that was read will do while several of its pods are looked at; before anything is done it is
# read again.
OWNER_SECONDS: Final = 0.5
# Between two looks for a replacement, whatever happens meanwhile.
REST_SECONDS: Final = 0.05
# A slot outlives the longest pause between two tries of its task; a dead worker's ends by itself.
SLOT_SPARE_SECONDS: Final = 60.0


Read = Callable[[OwnerReference], Workload]
"""Whom an owner reference names. Raises NotFound."""


class Eviction:
    """One pod's eviction."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ctx, self._ref = attempt.ctx, attempt.ref
        self._owner = Workload()
        self._above: Workload | None = None
        self._pod = Pod()
        # The last number of the owner's pods before the eviction: a pod with a higher one came after it.
        self._last = 0
        self._desired = 0  # pods that its owner wanted then
        self._mine = ""  # UID of the replacement, once one is claimed
        self._counted = Census({}, {}, 0)  # its owner's pods when they were last counted
        self._flock: Flock | None = None  # and as of the last look, if they are followed

    def run(self, pod: Pod) -> Verdict:
        """Step by step; each says why it ends there."""
        self._pod = pod
        return (
            self._judge() or self._attempt.may_act() or self._settled(self._recently) or self._turn() or self._in_slot()
        )

    def resume(self, intent: AuditRecord, gone: Verdict) -> Verdict:
        """Another worker evicted it and died: look after its replacement, and touch nothing."""
        attempt, details = self._attempt, intent.details
        attempt.take_over(intent)
        if intent.owner is None:
            return gone
        attempt.ending.account = attempt.slot_of = intent.owner.uid
        attempt.ending.evidence["ref"] = intent.owner.model_dump()
        self._last, self._desired = int(details.get("last_pod", 0)), int(details.get("desired", 0))
        try:
            self._owner = self._ctx.pods.owner(self._ref.namespace, _reference(intent.owner))
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "evicted, and then its owner went away")
        return self._verify()

    # What is there, and whose is it?

    def _judge(self) -> Verdict | None:
        controller = self._pod.metadata.controller
        if controller is None:  # not for this class
            return Verdict(Result.REPORTED, "no_controller", "nobody would create it again")
        self._attempt.chain.owner = _ref_of(self._pod, controller)
        orphaned = None
        if repairable(self._attempt.decide(self._pod)):
            orphaned = self._read_owner(controller, self._recently)
        return self._attempt.judge(self._pod) or (self._attempt.refuse(orphaned) if orphaned else None)

    def _read_owner(self, controller: OwnerReference, read: Read) -> Verdict | None:
        ending = self._attempt.ending
        try:
            self._owner = read(controller)
        except NotFound as error:
            reason = f"nobody would put another pod in its place: {error}"
            return Verdict(Result.REPORTED, "owner_gone", reason)
        self._attempt.chain.above = owner_of(self._owner)
        ending.account, ending.template_hash = self._owner.metadata.uid, self._owner.template_hash
        ending.evidence["ref"] = _ref_of(self._pod, controller).model_dump()
        if self._owner.spec.template is None:
            reason = f"{controller.kind}/{controller.name} has no pod template that a dry run could try"
            return Verdict(Result.REPORTED, "no_template", reason)
        found = stranger(self._owner, self._pod, self._ctx.policy.repair)
        return Verdict(Result.REPORTED, *found) if found is not None else None

    def _now(self, reference: OwnerReference) -> Workload:
        return self._ctx.pods.owner(self._ref.namespace, reference)

    def _recently(self, reference: OwnerReference) -> Workload:
        """As of a moment ago: before anything is done both owners are read again."""
        named = (reference.api_version, reference.kind, reference.name, reference.uid)
        key, clock = ("owner", self._ref.namespace, *named), self._ctx.clock
        return self._ctx.recent.recall(key, OWNER_SECONDS, lambda: self._now(reference), clock.monotonic)

    def _settled(self, read: Read) -> Verdict | None:
        """Left alone until nobody else is at work on its owner."""
        reason = self._read_above(read) or unsettled(self._owner, self._above) or held_back(self._owner, self._pod)
        reason = reason or another_template(self._owner, self._above, self._pod, self._ctx.pods.get_raw)
        if reason:
            return self._attempt.refuse(Verdict(Result.SKIPPED, "owner_unsettled", reason))
        reason = forbids(self._owner, self._above, self._ctx.policy.repair)
        return self._attempt.refuse(Verdict(Result.SKIPPED, "none_to_spare", reason)) if reason else None

    def _read_above(self, read: Read) -> str:
        controller = self._owner.metadata.controller
        if self._owner.kind != "ReplicaSet" or controller is None:
            return ""
        try:
            self._above = read(controller)
        except NotFound:
            return f"the {controller.kind} above its ReplicaSet is gone"
        return ""

    # May it go now?

    def _turn(self) -> Verdict | None:
        if self._owner.kind != "StatefulSet":
            return None
        waiting = [each for each in self._ctx.cluster.pods_of(self._owner) if active(each) and self._waits(each)]
        first = goes_first(self._owner, self._pod, waiting)
        if first is None:
            return None
        reason = f"{first.metadata.name} is replaced first, from the highest ordinal down"
        return self._attempt.refuse(Verdict(Result.SKIPPED, "not_its_turn", reason))

    def _waits(self, pod: Pod) -> bool:
        return pod.metadata.uid != self._ref.uid and repairable(self._attempt.decide(pod))

    def _in_slot(self) -> Verdict:
        repair, uid = self._ctx.policy.repair, self._owner.metadata.uid
        limit = share(self._owner, self._above, repair)
        seconds = repair.verify_seconds + min_ready_seconds(self._owner) + SLOT_SPARE_SECONDS
        earlier = self._ctx.ledger.take_slot(uid, self._ref.uid, limit, seconds)
        if earlier is None:
            reason = f"{limit} of its owner's pods are being replaced already, which is its share"
            return self._attempt.refuse(Verdict(Result.SKIPPED, "share_taken", reason))
        self._attempt.slot_of = uid
        spared = self._spared(earlier) or self._prove() or self._afresh()
        # Counted once more: a budget's own numbers follow what happens to pods a moment later than a list of them does.
        return spared or self._spared(earlier) or self._act(len(earlier), limit)

    def _spared(self, earlier: list[str]) -> Verdict | None:
        """Counted after the slot was taken, so that of two that come at once the later one sees the earlier."""
        census = self._counted = judged(self._ctx, self._owner, self._above, self._pod)
        self._last = census.last
        self._desired = counts(self._owner).desired
        if self._last < 2 and is_custom(_reference(self._owner_ref())):
            reason = f"{self._owner.kind}/{self._owner.metadata.name} was never seen with another pod than this one"
            return self._attempt.refuse(Verdict(Result.REPORTED, "custom_owner_unproven", reason))
        found = room(
            self._owner,
            self._above,
            self._ctx.policy.repair,
            census.pods.values(),
            self._pod,
            earlier=earlier,
            marked=self._attempt.marked,
        )
        if found.free:
            return None
        reason = f"{found.away} of its owner's pods are away already, and {found.limit} may be"
        return self._attempt.refuse(Verdict(Result.SKIPPED, "share_taken", reason))

    # Would another pod be injected?

    def _prove(self) -> Verdict | None:
        self._attempt.progress("proving", {})
        return self._attempt.prove(self._pod, self._proof())

    def _proof(self) -> ProbeResult:
        """A dry run of the owner's template, or what one said a moment ago under the same configuration."""
        webhooks = fingerprint(self._ctx.view.webhooks())
        key = ("proof", self._owner.metadata.uid, self._owner.template_hash, webhooks, *self._attempt.names)
        gate, clock = self._ctx.policy.gate, self._ctx.clock
        # A failure is news for those who wait for it now; a moment later the injector may be back.
        return self._ctx.recent.recall(key, proof_seconds(gate), self._dry_run, clock.monotonic, lasts=passes)

    def _dry_run(self) -> ProbeResult:
        self._attempt.proof_is_new = True
        latency = self._ctx.policy.gate.latency_seconds
        account = account_of(self._owner.kind) if self._ctx.policy.repair.impersonate_controller else ""
        # A second past the bound is enough to know; a hung webhook would hold the API server for its own time-out.
        answer: DryRun = self._ctx.pods.dry_run_pod(self._owner_ref(), timeout=latency + 1, impersonate=account)
        return judge_all(answer, self._attempt.sidecars, latency, self._ctx.meter)

    # Is all of it still so?

    def _afresh(self) -> Verdict | None:
        """Read pod and owner again, and decide again: a dry run lasts, and people go on working meanwhile."""
        return self._pod_again() or self._owner_again() or self._settled(self._now) or self._decide_again()

    def _pod_again(self) -> Verdict | None:
        try:
            found = self._ctx.pods.pod(self._ref.namespace, self._ref.name)
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "it went away by itself before it was evicted")
        if found.metadata.uid != self._ref.uid:
            return Verdict(Result.OBSOLETE, "replaced", "another pod has its name by now")
        if _said(found) != _said(self._pod):
            reason = "somebody changed its labels, annotations or owner, or deleted it, while a dry run went on"
            return self._attempt.refuse(Verdict(Result.SKIPPED, "changed_meanwhile", reason))
        self._pod = found
        return None

    def _owner_again(self) -> Verdict | None:
        before, controller = self._owner.template_hash, _reference(self._owner_ref())
        verdict = self._read_owner(controller, self._now)
        if verdict is None and self._owner.template_hash != before:
            reason = f"the template of {controller.kind}/{controller.name} changed while a dry run went on"
            verdict = Verdict(Result.SKIPPED, "changed_meanwhile", reason)
        return self._attempt.refuse(verdict) if verdict is not None else None

    def _decide_again(self) -> Verdict | None:
        decision = self._attempt.decide(self._pod, Probe.PASSES)
        if decision.action is Action.RECREATE_POD:
            return None
        return self._attempt.refuse(Verdict(Result.REPORTED, decision.code, decision.reason))

    def _owner_ref(self) -> ObjectRef:
        owner = self._owner
        return ObjectRef(
            api_version=owner.api_version,
            kind=owner.kind,
            namespace=self._ref.namespace,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
        )

    # Replace it

    def _act(self, earlier: int, limit: int) -> Verdict:
        attempt = self._attempt
        details: dict[str, Any] = {
            "owner": f"{self._owner.kind}/{self._owner.metadata.name}",
            "share": limit,
            "slots_taken": earlier,
            "last_pod": self._last,
            "desired": self._desired,
        }
        reason = f"evict it, so that {details['owner']} puts a pod with its sidecar in its place"
        braked = attempt.brake(self._pod, self._counted.pods.values())
        return braked or attempt.intend("evict", reason, details) or attempt.evict(self._pod) or self._verify()

    def _verify(self) -> Verdict:
        sight = Sight(self._look, self._doubt, self._attempt.saw, self._ctx.clock, self._rest)
        seconds = self._ctx.policy.repair.verify_seconds
        verdict = wait(sight, " and ".join(self._attempt.names), seconds, min_ready_seconds(self._owner))
        reached(Step.VERIFIED)
        return verdict

    def _look(self) -> Seen:
        self._attempt.hold()  # if it is lost, looking on harms nobody
        census = looked(self._ctx, self._owner)
        self._flock, going = census.flock, self._ref.uid in census.pods
        new = self._replacement(census)
        return Seen(new, marked=new is not None and self._attempt.marked(new), going=going)

    def _rest(self, seconds: float) -> None:
        """Until the replacement comes or has become Ready, where its owner's pods are followed; a moment at least."""
        clock, following = self._ctx.clock, self._ctx.following
        began, shortest = clock.monotonic(), min(seconds, REST_SECONDS)
        flock, uid = self._flock, self._owner.metadata.uid
        if flock is None or following is None or not following.wait(uid, flock, self._mine, seconds):
            shortest = seconds
        clock.sleep(max(0.0, shortest - (clock.monotonic() - began)))

    def _replacement(self, census: Census) -> Pod | None:
        """The pod that came for this one: several may be replaced at once, and each new pod counts for one of them.

        The first come for the first gone, or somebody would be left with pods that are too old to be its own.
        """
        new = self._new(census)
        kept = next((each for each in new if each.metadata.uid == self._mine), None)
        if kept is not None:
            return kept
        self._mine = self._ctx.ledger.claim([each.metadata.uid for each in new], self._ref.uid)
        return next((each for each in new if each.metadata.uid == self._mine), None)

    def _new(self, census: Census) -> list[Pod]:
        """Running pods from after the eviction, in the order in which they came; a StatefulSet's own name first."""
        numbers = census.numbers
        new = [each for uid, each in census.pods.items() if numbers[uid] > self._last and active(each)]
        return sorted(new, key=lambda pod: (pod.metadata.name != self._ref.name, numbers[pod.metadata.uid]))

    def _doubt(self) -> Verdict | None:
        """Nothing came, or it came bare: because of the owner, or does the injector fail again?"""
        try:
            if not self._mine and not self._wanted():
                return Verdict(Result.OBSOLETE, "no_longer_wanted", "evicted, and its owner wants no pod in its place")
        except NotFound:
            return Verdict(Result.OBSOLETE, "gone", "evicted, and then its owner went away")
        self._ctx.recent.forget("proof")
        verdict = from_proof(self._proof())
        return verdict if verdict is not None and verdict.result in (Result.WAITING, Result.REPORTED) else None

    def _wanted(self) -> bool:
        """False if its owner wants fewer pods than before, and has them: it was scaled down, or has finished."""
        found = self._ctx.pods.owner(self._ref.namespace, _reference(self._owner_ref()))
        there, desired = sum(map(active, self._ctx.cluster.pods_of(self._owner))), counts(found).desired
        return found.kind not in COUNTED_KINDS or desired >= self._desired or there < desired


def _said(pod: Pod) -> tuple[object, ...]:
    """What decides whether and by whom it would be replaced. Its status, which kubelets write often, does not."""
    meta = pod.metadata
    return meta.labels or {}, meta.annotations or {}, meta.owner_references or [], meta.deletion_timestamp


def _ref_of(pod: Pod, owner: OwnerReference) -> ObjectRef:
    return ObjectRef(
        api_version=owner.api_version[:253],
        kind=owner.kind[:253],
        namespace=pod.metadata.namespace,
        name=owner.name[:253],
        uid=owner.uid[:64],
    )


def _reference(ref: ObjectRef) -> OwnerReference:
    return OwnerReference(kind=ref.kind, name=ref.name, uid=ref.uid, api_version=ref.api_version, controller=True)
