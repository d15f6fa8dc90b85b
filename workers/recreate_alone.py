"""A bare pod without a controller (opted in by policy): evicted, and created again by remesh itself.

Used by `workers.recreate`. Nobody else would bring it back, so that is remesh's to do. It guarantees:

- before the eviction its manifest is kept in the ledger, and the intent in the trail names it by digest;
- the eviction carries UID and resourceVersion, so what goes is exactly what was kept; budgets are respected;
- from then on every run, also one of another worker after a crash, goes on until a pod of that name is there;
- nothing of the manifest reaches a log, a record, a task or an outcome. Texts that repeat a value are withheld.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from remesh import logs
from remesh.classify import classify
from remesh.errors import BrokerError, ClusterError, Conflict, NotFound
from remesh.kube.manifest import restorable, shape_hash, withheld
from remesh.kube.probe import ProbeResult
from remesh.ledger import DAY
from remesh.ledger_manifests import MANIFEST_SECONDS
from remesh.meshes import MeshProfile
from remesh.models import AuditRecord, FailureClass, RecordType, Result
from remesh.objects import Pod
from workers.context import Step, reached
from workers.recreate_attempt import Attempt, repairable
from workers.recreate_proof import from_proof, judge_all
from workers.recreate_verify import Seen, Sight, wait
from workers.trust import forbidden, mismatch, signature, signed
from workers.verdicts import MANIFEST_LOST, PERSON_NEEDED, RESTORE_PENDING, Verdict
from workers.verify import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS

log = logs.get("worker.recreate")

KEPT_DAYS: Final = MANIFEST_SECONDS // DAY


class Alone:
    """One pod without a controller, evicted and created again."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ctx, self._ref = attempt.ctx, attempt.ref
        self._manifest: dict[str, Any] = {}
        self._finalizers: list[str] = []
        self._version = ""  # resourceVersion at which the manifest was read
        self._digest = ""
        self._problem = ""  # why it is not back yet
        # A pod that comes back has another UID, so failures are counted against its name.
        attempt.ending.account = f"pod:{self._ref.namespace}:{self._ref.name}"
        attempt.shown = self._shown

    def run(self, pod: Pod) -> Verdict:
        """Step by step; each says why it ends there."""
        attempt = self._attempt
        if repairable(attempt.decide(pod)):  # else its manifest is nobody's business
            self._read()
        return attempt.judge(pod) or attempt.may_act() or self._whole(pod) or self._prove(pod) or self._act(pod)

    def resume(self, intent: AuditRecord, gone: Verdict) -> Verdict:
        """It was evicted, and nobody knows whether it is back: go on until it is."""
        attempt = self._attempt
        attempt.owed = attempt.in_debt = True
        attempt.take_over(intent)
        own = self._ctx.memory.recall(self._ref.uid)
        kept = own or self._ctx.ledger.manifest(self._ref.uid)
        if kept is None:
            lost = "; its manifest is not kept any longer, so a person has to create it again"
            return Verdict(Result.FAILED, MANIFEST_LOST, f"evicted, and {gone.reason}{lost}")
        manifest, self._digest = kept
        refused = forbidden(self._ctx.policy, attempt.request)
        refused = refused or mismatch(attempt.request, intent, manifest, self._digest)
        if refused:
            return self._leave_to_a_person(refused)
        if own is None and not self._ctx.signing_key:
            self._problem = "another worker evicted it, and without REMESH_SIGNING_KEY only that one creates it again"
            return self._there() or self._pending()
        if own is None and not signed(self._ctx.signing_key, attempt.request, intent, manifest, self._digest):
            return self._leave_to_a_person("its intent is not signed by this worker's key")
        self._manifest = manifest
        return self._bring_back() or self._verify()

    def _there(self) -> Verdict | None:
        """The verdict on a pod of its name, if one is back without our doing."""
        found = self._by_name()
        if found is None or found.metadata.uid == self._ref.uid:
            return None
        self._attempt.owed = False
        return self._verify()

    def _leave_to_a_person(self, why: str) -> Verdict:
        found = self._there()
        if found is not None:
            return found
        reason = f"evicted, and not created again: {why}. A person has to: `remesh audit manifest {self._ref.uid}`"
        return Verdict(Result.FAILED, PERSON_NEEDED, reason)

    def _shown(self, text: str) -> str:
        return withheld(text, self._manifest) if self._manifest else text

    # What is there?

    def _read(self) -> None:
        """Raises Conflict if the pod has changed since it was read first, NotFound."""
        raw = self._ctx.pods.get_raw("Pod", self._ref.namespace, self._ref.name)
        metadata = raw.get("metadata") or {}
        if metadata.get("uid") != self._ref.uid:
            raise Conflict(f"{self._ref} is another object by now", status=409)
        self._version = str(metadata.get("resourceVersion", ""))
        self._finalizers = [str(each) for each in metadata.get("finalizers") or ()]
        self._manifest = restorable(raw)
        self._attempt.ending.template_hash = shape_hash(self._manifest)

    def _whole(self, pod: Pod) -> Verdict | None:
        verdict = not_whole(pod, self._finalizers, self._attempt.sidecars)
        return self._attempt.refuse(verdict) if verdict is not None else None

    # Would it be injected?

    def _prove(self, pod: Pod) -> Verdict | None:
        self._attempt.progress("proving", {})
        return self._attempt.prove(pod, self._dry_run())

    def _dry_run(self) -> ProbeResult:
        latency = self._ctx.policy.gate.latency_seconds
        answer = self._ctx.pods.dry_run_pod(self._ref, template=self._manifest, timeout=latency + 1)
        return judge_all(answer, self._attempt.sidecars, latency, self._ctx.meter)

    # Replace it

    def _act(self, pod: Pod) -> Verdict:
        braked = self._attempt.brake(pod)
        if braked is not None:
            return braked
        self._digest = self._ctx.ledger.keep_manifest(self._ref.uid, self._manifest)
        reached(Step.MANIFEST_KEPT)
        self._ctx.ledger.owed.keep(self._attempt.request)
        self._attempt.in_debt = True
        name = signature(self._ctx.signing_key, self._attempt.request, self._digest, self._manifest)
        kept = {"digest": self._digest, "kept_days": KEPT_DAYS, "sensitive": True, "signature": name}
        reason = "evict it and create it again from its manifest, because it has no controller that would"
        verdict = self._attempt.intend("recreate", reason, {"manifest": kept})
        if verdict is not None:
            return verdict
        self._attempt.owed = True
        self._ctx.memory.keep(self._ref.uid, self._manifest, self._digest)
        verdict = self._attempt.evict(pod, self._version)
        if verdict is not None:
            self._attempt.owed = False
            return verdict
        return self._bring_back() or self._verify()

    def _bring_back(self) -> Verdict | None:
        """Wait until the old pod is gone, and create it again. None: a pod of that name is there."""
        clock, pause = self._ctx.clock, FIRST_PAUSE_SECONDS
        end = clock.monotonic() + self._ctx.policy.repair.verify_seconds
        while True:
            self._hold_if_possible()
            verdict = self._try_once()
            if verdict is not None or not self._problem:
                return verdict
            if clock.monotonic() >= end:
                return self._pending()
            clock.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, pause * 1.5)

    def _hold_if_possible(self) -> None:
        """If it is lost, another worker does the same, and one of both finds the name taken."""
        try:
            self._attempt.hold()
        except BrokerError as error:
            log.warning("lease not renewed", finding=self._attempt.request.finding_id, error=str(error))

    def _try_once(self) -> Verdict | None:
        """Sets the problem, or clears it once a pod is there."""
        try:
            there = self._by_name()
            if there is None:
                self._create()
            elif there.metadata.uid == self._ref.uid:
                self._problem = "its containers are still being stopped"
                return None
        except ClusterError as error:
            self._problem = self._shown(str(error))
            return self._namespace_gone(error)
        self._problem = ""
        self._attempt.owed = False
        return None

    def _create(self) -> None:
        self._attempt.progress("creating", {})
        made = self._ctx.pods.create_pod(self._manifest)
        reached(Step.CREATED)
        details = {"uid": made.metadata.uid, "digest": self._digest}
        reason = f"created {self._ref.name} again from its manifest"
        self._attempt.did("created", reason, details)

    def _namespace_gone(self, error: ClusterError) -> Verdict | None:
        gone = isinstance(error, NotFound) or classify(error.message) is FailureClass.NAMESPACE_TERMINATING
        if not gone:
            return None
        reason = "evicted, and then its namespace was deleted: it is not created again"
        return Verdict(Result.OBSOLETE, "namespace_terminating", reason)

    def _pending(self) -> Verdict:
        """Said in the trail at once, because a person may be faster than the next tries."""
        reason = (
            f"evicted, and not back yet: {self._problem}. It is tried again; if that does not help, a person has to "
            f"create it: its manifest is kept for {KEPT_DAYS} days, see `remesh audit manifest {self._ref.uid}` "
            f"(digest {self._digest})"
        )
        log.warning("pod not back yet", finding=self._attempt.request.finding_id, object=str(self._ref))
        self._attempt.chain.write(RecordType.NOTE, step=RESTORE_PENDING, code=RESTORE_PENDING, reason=reason)
        return Verdict(Result.ERROR, RESTORE_PENDING, reason)

    def _by_name(self) -> Pod | None:
        try:
            return self._ctx.pods.pod(self._ref.namespace, self._ref.name)
        except NotFound:
            return None

    # Did it help?

    def _verify(self) -> Verdict:
        sight = Sight(self._look, self._doubt, self._attempt.saw, self._ctx.clock)
        verdict = wait(sight, " and ".join(self._attempt.names), self._ctx.policy.repair.verify_seconds)
        reached(Step.VERIFIED)
        return verdict

    def _look(self) -> Seen:
        self._attempt.hold()
        there = self._by_name()
        if there is None or there.metadata.uid == self._ref.uid:
            return Seen(going=there is not None)
        return Seen(there, marked=self._attempt.marked(there))

    def _doubt(self) -> Verdict | None:
        """It came bare: is that the injector's doing, which fails again, or its own?"""
        verdict = from_proof(self._dry_run_of_kept())
        return verdict if verdict is not None and verdict.result is Result.WAITING else None

    def _dry_run_of_kept(self) -> ProbeResult:
        latency = self._ctx.policy.gate.latency_seconds
        ref = self._ref.model_copy(update={"uid": ""})  # the pod of that name is a new one
        answer = self._ctx.pods.dry_run_pod(ref, template=self._manifest, timeout=latency + 1)
        return judge_all(answer, self._attempt.sidecars, latency, self._ctx.meter)


def not_whole(pod: Pod, finalizers: Sequence[str], sidecars: Iterable[MeshProfile]) -> Verdict | None:
    """Why such a pod cannot be created again from its manifest; None if it can. `remesh plan` asks it, too.

    One with finalizers keeps its name until somebody else removes them: none could be created in its place. And what
    one injector has put into a running pod cannot be told from what its person wrote.
    """
    if finalizers:
        reason = f"it has finalizers ({', '.join(finalizers)}), so its name might stay taken once it is evicted"
        return Verdict(Result.REPORTED, "has_finalizers", reason)
    present = [profile.title for profile in sidecars if profile.injected(pod)]
    if not present:
        return None
    reason = f"{' and '.join(present)} has already changed it, so its manifest cannot be told from the injected pod"
    return Verdict(Result.REPORTED, "partly_injected", reason)
