"""Reading a cluster once and judging what is there, by the same `decide()` as watcher and workers.

Used by `scan`, `explain`, `plan` and `repair`. Reads only: a dry run of a pod stores nothing.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from remesh.classify import base_class
from remesh.cli.session import Session, utc_now
from remesh.cli.targets import OWNED_KIND, Target
from remesh.decide import counts, decide
from remesh.detect import finding_for, stuck_reference
from remesh.errors import NotFound, UsageError
from remesh.kube.live import LiveView
from remesh.kube.probe import ProbeResult, probe
from remesh.models import Action, BaseClass, Decision, Finding, InjectorHealth, ObjectRef, Observed, Probe
from remesh.objects import Pod, Workload
from remesh.observe import observe

WORKLOAD_KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
PROBE_THREADS = 8  # dry runs at a time: each is one admission call on somebody's injector
# What a finding may lead to by itself, now or once its injector works.
REPAIRABLE = (Action.NUDGE_OWNER,)


@dataclass(frozen=True, slots=True)
class Judged:
    """One object and what `decide()` says of it."""

    obj: Workload | Pod
    observed: Observed
    decision: Decision
    probe: ProbeResult | None = None

    @property
    def ref(self) -> ObjectRef:
        """Its identity."""
        return reference(self.obj)

    @property
    def repairable(self) -> bool:
        """True if a repair would act on it, now or once its injector works."""
        return self.decision.action in REPAIRABLE or self.decision.after_recovery in REPAIRABLE

    @property
    def stuck_since(self) -> datetime | None:
        """Since when it lacks pods, as far as its state tells."""
        return stuck_reference(self.obj) if isinstance(self.obj, Workload) else None


def reference(obj: Workload | Pod) -> ObjectRef:
    """Identity of an object."""
    meta = obj.metadata
    return ObjectRef(api_version=obj.api_version, kind=obj.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


class Survey:
    """One look at a cluster."""

    def __init__(self, session: Session) -> None:
        self.session = session
        _ = session.policy, session.profiles  # a malformed one is told even where there is nothing to judge
        self.cluster = session.cluster
        self.view = LiveView(session.cluster)

    def scan(self, namespace: str | None) -> list[Judged]:
        """Every finding of now, in one namespace or in all; system-critical ones first, then by name."""
        judged = (self.judge(obj) for kind in WORKLOAD_KINDS for obj in self.cluster.list(kind, namespace))
        return sorted((each for each in judged if each.decision.is_finding), key=_order)

    def resolve(self, target: Target, namespace: str) -> list[Workload | Pod]:
        """The objects that a target means: itself, or what a Deployment or CronJob owns and still wants pods of.

        Raises NotFound if the target is not there.
        """
        obj = self._get(target, namespace)
        owned_kind = OWNED_KIND.get(target.kind)
        if owned_kind is None:
            return [obj]
        owned = [each for each in self.cluster.list(owned_kind, namespace) if _owned_by(each, obj.metadata.uid)]
        active = [each for each in owned if counts(each).desired > 0]
        return list(active or [obj])

    def resolve_all(self, targets: Iterable[Target], namespace: str) -> list[Workload | Pod]:
        """The objects of several targets, each once."""
        found = {obj.metadata.uid: obj for target in targets for obj in self.resolve(target, namespace)}
        return list(found.values())

    def choose(self, targets: list[Target], session: Session) -> list[Judged]:
        """What a command works on: the targets given, findings or not, or else every finding in scope."""
        if not targets:
            return self.scan(session.scope)
        if session.common.all_namespaces:
            raise UsageError("a target is looked up in one namespace; give -n instead of -A")
        return [self.judge(obj) for obj in self.resolve_all(targets, session.namespace)]

    def judge(self, obj: Workload | Pod, health: InjectorHealth | None = None) -> Judged:
        """Decide on one object."""
        now = utc_now()
        observed = observe(
            obj,
            self.view,
            health=health or InjectorHealth(),
            now=now,
            stuck_since=stuck_reference(obj) if isinstance(obj, Workload) else None,
        )
        return Judged(obj, observed, decide(observed, self.session.policy, self.session.profiles, now))

    def prove(self, judged: Judged) -> Judged:
        """Decide again with the answer of a dry run of the object's own template."""
        if judged.decision.injector is None or not judged.repairable:
            return judged
        answer = self.dry_run(judged)
        health = InjectorHealth(ready=self.ready(judged), probe=answer.probe, own_template=True)
        return replace(self.judge(judged.obj, health), probe=answer)

    def prove_all(self, all_judged: list[Judged]) -> Iterator[Judged]:
        """`prove` for many, in their order, a few at a time.

        Where an injector does not answer one finding, its other findings are not tried too: each try could take as
        long as the webhook's time-out, and would press an injector that is down.
        """
        dead: dict[str, Judged] = {}
        with ThreadPoolExecutor(PROBE_THREADS, thread_name_prefix="dry-run") as pool:
            yield from pool.map(lambda each: self._prove_unless_dead(each, dead), all_judged)

    def _prove_unless_dead(self, judged: Judged, dead: dict[str, Judged]) -> Judged:
        key = judged.decision.injector.key if judged.decision.injector else ""
        known = dead.get(key)
        if known is not None:
            health = InjectorHealth(ready=self.ready(judged), probe=Probe.FAILS)
            return replace(self.judge(judged.obj, health), probe=known.probe)
        proven = self.prove(judged)
        if proven.probe is not None and _speaks_of_injector(proven.probe):
            dead.setdefault(key, proven)
        return proven

    def dry_run(self, judged: Judged) -> ProbeResult:
        """One dry run of the object's own template."""
        injector = judged.decision.injector
        if injector is None:
            raise UsageError(f"{judged.ref} has no injector to try")
        profile = self.session.profiles.by_name(injector.mesh)
        return probe(self.cluster, judged.ref, profile, self.session.policy.gate)

    def ready(self, judged: Judged) -> bool | None:
        """Whether the injector's Service has ready endpoints at quorum; None if it has no Service."""
        injector = judged.decision.injector
        if injector is None or not injector.service_name:
            return None
        found = self.view.endpoints(injector.service_namespace, injector.service_name)
        return bool(found.ready >= self.session.policy.gate.quorum)

    def finding(self, judged: Judged) -> Finding:
        """The finding, under an id of its own; the ledger may know it under an older one."""
        return finding_for(judged.observed, judged.decision, cluster=self.session.settings.cluster, now=utc_now())

    def _get(self, target: Target, namespace: str) -> Workload | Pod:
        try:
            if target.kind == "Pod":
                return self.cluster.pod(namespace, target.name)
            return self.cluster.workload(target.kind, namespace, target.name)
        except NotFound as error:
            line = f"{target} is not there in namespace {namespace}; check the name, -n and --context"
            raise NotFound(line, status=404, reason=error.reason, message=error.message) from error


def _speaks_of_injector(answer: ProbeResult) -> bool:
    """True if the injector failed for everybody, and not only for this template."""
    infra = base_class(answer.failure_class) is BaseClass.WEBHOOK_INFRA
    return answer.probe is Probe.FAILS and (infra or answer.code == "too_slow")


def _owned_by(obj: Workload, uid: str) -> bool:
    controller = obj.metadata.controller
    return controller is not None and controller.uid == uid


def _order(judged: Judged) -> tuple[bool, str, str, str]:
    template = judged.obj.spec.template if isinstance(judged.obj, Workload) else None
    critical = template is not None and template.spec.priority_class_name.startswith("system-")
    ref = judged.ref
    return (not critical, ref.namespace, ref.kind, ref.name)
