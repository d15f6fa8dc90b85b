"""Reading a cluster once and judging what is there, by the same `decide()` as watcher and workers.

Used by `scan`, `explain`, `plan` and `repair`. Reads only: a dry run of a pod stores nothing.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from remesh.classify import base_class, service_named, webhook_named
from remesh.cli.session import Session, utc_now
from remesh.cli.targets import OWNED_KIND, Target
from remesh.decide import counts, decide, expected_sidecars
from remesh.detect import finding_for, owner_of, stuck_reference
from remesh.errors import ClusterError, NotFound, UsageError
from remesh.fingerprint import fingerprint_around, is_outdated
from remesh.kube.live import LiveView
from remesh.kube.probe import DRY_RUN_UNSUPPORTED, AnyPod, Injected, ProbeResult, probe
from remesh.meshes import MeshProfile
from remesh.models import (
    Action,
    BaseClass,
    Decision,
    Finding,
    InjectorHealth,
    InjectorRef,
    ObjectRef,
    Observed,
    Probe,
)
from remesh.objects import OwnerReference, Pod, Workload
from remesh.observe import observe
from remesh.policy import Mode
from remesh.tally import counted
from watcher.findings import CRITICAL, repair_of
from watcher.store import WORKLOAD_KINDS
from workers.verdicts import Verdict, from_error

if TYPE_CHECKING:
    from remesh.cli.spare import Spare
    from remesh.ledger import Quarantine

PROBE_THREADS = 8  # dry runs at a time: each is one admission call on somebody's injector


@dataclass(frozen=True, slots=True)
class Judged:
    """One object and what `decide()` says of it."""

    obj: Workload | Pod
    observed: Observed
    decision: Decision
    template_hash: str = ""  # of the workload, or of the pod's owner
    probe: ProbeResult | None = None
    not_now: Verdict | None = (
        None  # why a worker would leave a bare pod alone at this moment, whatever the dry run says
    )
    bare: tuple["Judged", ...] = ()  # of a workload that was looked at by itself: its pods that are findings
    pods: int = 0  # and how many it has
    first_seen: datetime | None = None  # by the watcher, where it is known

    @property
    def ref(self) -> ObjectRef:
        """Its identity."""
        meta = self.obj.metadata
        return ObjectRef(
            api_version=self.obj.api_version,
            kind=self.obj.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )

    @property
    def owner(self) -> ObjectRef | None:
        """The controller of a pod: what a replacement would come from, and what attempts are counted by."""
        controller = self.obj.metadata.controller
        if controller is None or isinstance(self.obj, Workload):
            return None
        return ObjectRef(
            api_version=controller.api_version,
            kind=controller.kind,
            namespace=self.obj.metadata.namespace,
            name=controller.name,
            uid=controller.uid,
        )

    @property
    def mesh(self) -> str:
        """Name of the mesh whose sidecar it is about; "" if none is known."""
        return self.decision.injector.mesh if self.decision.injector else ""

    @property
    def repairable(self) -> bool:
        """True if a repair would act on it, now or once its injector works."""
        return repair_of(self.decision) is not None

    @property
    def stands_for_itself(self) -> bool:
        """False of a workload that is fine but for its pods."""
        return self.decision.is_finding or not self.bare

    @property
    def since(self) -> datetime | None:
        """Since when it is in trouble, as far as its state tells: without pods, or without its sidecar."""
        if isinstance(self.obj, Workload):
            return stuck_reference(self.obj) or self.first_seen
        created = self.obj.metadata.creation_timestamp
        return datetime.fromisoformat(created) if created else None


@dataclass(slots=True)
class _Seen:
    """What one scan has listed."""

    workloads: list[Workload] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pods_of: dict[tuple[str, str], list[Pod]] = field(default_factory=dict)  # by namespace and owner's UID
    hashes: dict[str, str] = field(default_factory=dict)  # template hash by UID of the workload


class Survey:
    """One look at a cluster."""

    def __init__(self, session: Session) -> None:
        self.session = session
        _ = session.policy, session.profiles  # a malformed one is told even where there is nothing to judge
        self.cluster = session.cluster
        self.view = LiveView(session.cluster)
        self._above: dict[str, ObjectRef | None] = {}  # the controller of each workload that was read, by its UID

    @cached_property
    def _spare(self) -> "Spare":
        from remesh.cli.others import Others
        from remesh.cli.spare import Spare  # late: a scan asks nothing of the workers' code, which imports Redis

        others = Others(self.session)
        return Spare(self.cluster, self.session.policy, others, lambda pod: self.judge(pod).repairable)

    def scan(self, namespace: str | None, mesh: str | None = None) -> list[Judged]:
        """Every finding of now, in one namespace or in all; system-critical ones first, then by name.

        Only those of one mesh if `mesh` is given; raises UsageError if no profile has that name.
        """
        if mesh is not None:
            self.session.profiles.by_name(mesh)
        seen = self._list(namespace)
        judged = [
            self.judge(obj, pods=seen.pods_of.get((obj.metadata.namespace, obj.metadata.uid), []))
            for obj in seen.workloads
        ]
        judged += [self.judge(pod, template_hash=_owners_hash(pod, seen)) for pod in seen.pods]
        found = (each for each in judged if each.decision.is_finding and mesh in (None, each.mesh))
        return sorted(found, key=_order)

    def _list(self, namespace: str | None) -> _Seen:
        seen = _Seen()
        for kind in WORKLOAD_KINDS:
            seen.workloads += self.cluster.list(kind, namespace)
        seen.pods = self.cluster.list("Pod", namespace)
        for pod in seen.pods:
            if (controller := pod.metadata.controller) is not None:
                seen.pods_of.setdefault((pod.metadata.namespace, controller.uid), []).append(pod)
        self._above |= {each.metadata.uid: owner_of(each) for each in seen.workloads}
        seen.hashes = {each.metadata.uid: each.template_hash for each in seen.workloads}
        return seen

    def choose(self, targets: list[Target], session: Session, mesh: str | None = None) -> list[Judged]:
        """What a command works on: the targets given, findings or not, or else every finding in scope.

        A workload stands for its bare pods, too, and only for them where it lacks none.
        """
        if not targets:
            return self.scan(session.scope, mesh)
        looked = self.look_at(targets, session, mesh)
        chosen = (each for own in looked for each in ((own, *own.bare) if own.stands_for_itself else own.bare))
        return list({each.ref.uid: each for each in chosen}.values())

    def look_at(self, targets: list[Target], session: Session, mesh: str | None = None) -> list[Judged]:
        """Every target by itself, a workload with its bare pods in `bare`."""
        if mesh is not None:
            raise UsageError("--mesh chooses among findings; give it without targets")
        if session.common.all_namespaces:
            raise UsageError("a target is looked up in one namespace; give -n instead of -A")
        return [self.look(obj) for obj in self._resolve_all(targets, session.namespace)]

    def look(self, obj: Workload | Pod) -> Judged:
        """Judge one object, reading what it takes."""
        if isinstance(obj, Workload):
            return self._with_pods(obj) if obj.kind in WORKLOAD_KINDS else self.judge(obj)
        controller = obj.metadata.controller
        return self.judge(obj, template_hash=self._hash_of(controller, obj.metadata.namespace) if controller else "")

    def _with_pods(self, obj: Workload) -> Judged:
        self._above[obj.metadata.uid] = owner_of(obj)
        pods = self.cluster.pods_of(obj)
        judged = [self.judge(pod, template_hash=obj.template_hash) for pod in pods]
        bare = tuple(sorted((each for each in judged if each.decision.is_finding), key=_order))
        return replace(self.judge(obj, pods=pods), bare=bare, pods=len(pods))

    def _hash_of(self, controller: OwnerReference, namespace: str) -> str:
        if controller.kind not in WORKLOAD_KINDS:
            return ""
        try:
            owner = self.cluster.workload(controller.kind, namespace, controller.name)
        except NotFound:
            return ""
        if owner.metadata.uid != controller.uid:
            return ""
        self._above[controller.uid] = owner_of(owner)
        return owner.template_hash

    def judge(
        self,
        obj: Workload | Pod,
        *,
        pods: list[Pod] | None = None,
        template_hash: str = "",
        health: InjectorHealth | None = None,
    ) -> Judged:
        """Decide on one object. `pods` are a workload's own, where they are known."""
        workload = obj if isinstance(obj, Workload) else None
        current = counted(workload, pods) if workload is not None and pods is not None else None
        hash_ = workload.template_hash if workload else template_hash
        return self._decide(obj, hash_, current, health or InjectorHealth())

    def _decide(self, obj: Workload | Pod, template_hash: str, current: int | None, health: InjectorHealth) -> Judged:
        now = utc_now()
        since = stuck_reference(obj) if isinstance(obj, Workload) else None
        observed = observe(obj, self.view, health=health, now=now, stuck_since=since, current=current)
        return Judged(obj, observed, decide(observed, self.session.policy, self.session.profiles, now), template_hash)

    def prove(self, judged: Judged) -> Judged:
        """Decide again with the answer of a dry run of the object's own template."""
        if judged.decision.injector is None or not judged.repairable:
            return judged
        answer = self._dry_run(judged)
        return self._with(judged, answer, own=True)

    def prove_all(self, all_judged: list[Judged]) -> Iterator[Judged]:
        """`prove` for many, in their order, a few at a time.

        Where an injector does not answer one finding, its other findings are not tried too: each try could take as
        long as the webhook's time-out, and would press an injector that is down.
        """
        dead: dict[str, ProbeResult] = {}
        with ThreadPoolExecutor(PROBE_THREADS, thread_name_prefix="dry-run") as pool:
            yield from pool.map(lambda each: self._prove_unless_dead(each, dead), all_judged)

    def _prove_unless_dead(self, judged: Judged, dead: dict[str, ProbeResult]) -> Judged:
        key = judged.decision.injector.key if judged.decision.injector else ""
        known = dead.get(key)
        if known is not None and judged.repairable:
            return self._with(judged, known, own=False)
        proven = self.prove(judged)
        injector = judged.decision.injector
        if injector is not None and proven.probe is not None and _speaks_of_injector(proven.probe, injector):
            dead.setdefault(key, proven.probe)
        return proven

    def behind_open_gate(self, judged: Judged) -> Judged:
        """Decided again, knowing that the injector works for others; what is wrong with it stays what it was."""
        if not judged.repairable:
            return judged
        health = InjectorHealth(ready=self.ready(judged), probe=Probe.PASSES, own_template=False)
        again = self._decide(judged.obj, judged.template_hash, judged.observed.current, health)
        decision = again.decision.model_copy(update={"failure_class": judged.decision.failure_class})
        return replace(judged, decision=decision) if decision.is_finding else judged

    def _with(self, judged: Judged, answer: ProbeResult, *, own: bool) -> Judged:
        """Decided again, knowing the answer of a dry run; not its `own` where it was another object's."""
        health = InjectorHealth(ready=self.ready(judged), probe=answer.probe, own_template=own)
        again = self._decide(judged.obj, judged.template_hash, judged.observed.current, health)
        again = replace(again, probe=answer, bare=judged.bare, pods=judged.pods)
        if isinstance(again.obj, Pod):
            return replace(again, not_now=self._not_now(again, again.obj))
        return self._as_canary(again) if answer.code == DRY_RUN_UNSUPPORTED else again

    def _as_canary(self, judged: Judged) -> Judged:
        """Where dry runs are refused because of side effects, a worker nudges once endpoints are ready at quorum."""
        if self.session.policy.mode is not Mode.REPAIR or not judged.observed.health.ready or not judged.repairable:
            return judged
        reason = "as a canary: its webhook refuses dry runs, so only its ready endpoints speak for it"
        changed = {"action": Action.NUDGE_OWNER, "after_recovery": Action.NONE, "code": "canary", "reason": reason}
        return replace(judged, decision=judged.decision.model_copy(update=changed))

    def _not_now(self, judged: Judged, pod: Pod) -> Verdict | None:
        if not judged.repairable:
            return None
        injector = judged.decision.injector
        try:
            hindrance = self._spare.hindrance(pod, self._sidecars(pod))
            if hindrance is not None or judged.decision.action is not Action.RECREATE_POD:
                return hindrance
            hindrance = self._spare.at_last(pod, injector.key or injector.mesh if injector else "")
        except ClusterError as error:
            return from_error(error)
        return hindrance or self._spare.refusal(pod, judged.ref)

    def _sidecars(self, pod: Pod) -> list[MeshProfile]:
        """Every sidecar that it should have."""
        namespace = self.view.namespace(pod.metadata.namespace)
        expected = expected_sidecars(pod, namespace, self.view.webhooks(), self.session.profiles)
        return list({profile.name: profile for profile, _ in expected}.values())

    def _dry_run(self, judged: Judged) -> ProbeResult:
        """One dry run: of the object's template, or of a pod's owner's, which its replacement would come from."""
        if isinstance(judged.obj, Pod):
            return self._spare.proof(judged.owner or judged.ref, self._sidecars(judged.obj))
        injector = judged.decision.injector
        proof: Injected = AnyPod()
        if injector is not None and judged.decision.sidecar_expected:
            proof = self.session.profiles.by_name(injector.mesh)
        policy = self.session.policy
        return probe(self.cluster, judged.ref, proof, policy.gate, impersonate=policy.repair.impersonate_controller)

    def ready(self, judged: Judged) -> bool | None:
        """Whether the injector's Service has ready endpoints at quorum; None if it has no Service."""
        injector = judged.decision.injector
        if injector is None or not injector.service_name:
            return None
        found = self.view.endpoints(injector.service_namespace, injector.service_name)
        return found.ready >= self.session.policy.gate.quorum

    def finding(self, judged: Judged) -> Finding:
        """The finding, under an id of its own; the ledger may know it under an older one."""
        cluster = self.session.settings.cluster
        found = finding_for(judged.observed, judged.decision, cluster=cluster, now=utc_now())
        above = self._above.get(judged.owner.uid) if judged.owner else None
        if above is not None and above.namespace != found.ref.namespace:  # its owner reference is forged
            above = None
        return found.model_copy(update={"template_hash": judged.template_hash, "above": above})

    def is_outdated(self, judged: Judged, quarantine: "Quarantine") -> bool:
        """True if the webhook configuration has changed since: the worker ends such a quarantine."""
        return is_outdated(quarantine.evidence, fingerprint_around(judged.obj, self.view, self.session.profiles))

    def _resolve_all(self, targets: Iterable[Target], namespace: str) -> list[Workload | Pod]:
        """The objects of several targets, each once."""
        found = {obj.metadata.uid: obj for target in targets for obj in self._resolve(target, namespace)}
        return list(found.values())

    def _resolve(self, target: Target, namespace: str) -> list[Workload | Pod]:
        """The objects that a target means: itself, or what a Deployment or CronJob owns and still wants pods of.

        Raises NotFound if the target is not there.
        """
        obj = self._get(target, namespace)
        owned_kind = OWNED_KIND.get(target.kind)
        if owned_kind is None:
            return [obj]
        owned = [
            each for each in self.cluster.list(owned_kind, namespace) if each.metadata.controlled_by(obj.metadata.uid)
        ]
        active = [each for each in owned if counts(each).desired > 0]
        return list(active or [obj])

    def _get(self, target: Target, namespace: str) -> Workload | Pod:
        try:
            if target.kind == "Pod":
                return self.cluster.pod(namespace, target.name)
            return self.cluster.workload(target.kind, namespace, target.name)
        except NotFound as error:
            line = f"{target} is not there in namespace {namespace}; check the name, -n and --context"
            raise NotFound(line, status=404, reason=error.reason, message=error.message) from error


def _speaks_of_injector(answer: ProbeResult, injector: InjectorRef) -> bool:
    """True if this injector failed for everybody, and not only for this template, nor another webhook."""
    infra = base_class(answer.failure_class) is BaseClass.WEBHOOK_INFRA
    if answer.probe is not Probe.FAILS or not (infra or answer.code == "too_slow"):
        return False
    called = service_named(answer.message)
    if called is not None:
        return (called.namespace, called.name) == (injector.service_namespace, injector.service_name)
    return webhook_named(answer.message) in (None, injector.webhook)


def _owners_hash(pod: Pod, seen: _Seen) -> str:
    controller = pod.metadata.controller
    return seen.hashes.get(controller.uid, "") if controller else ""


def _order(judged: Judged) -> tuple[bool, str, str, str]:
    obj, ref = judged.obj, judged.ref
    if isinstance(obj, Workload):
        priority = obj.spec.template.spec.priority_class_name if obj.spec.template else ""
    else:
        priority = obj.spec.priority_class_name
    return (priority not in CRITICAL, ref.namespace, ref.kind, ref.name)
