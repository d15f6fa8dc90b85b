"""In-memory doubles of the ports of `workers.context`, for the logic of a repair; trail and ledger run on fakeredis."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import fakeredis

from remesh.audit import Trail
from remesh.errors import ClusterError, NotFound, TrailUnavailable
from remesh.kube.api import ReadyEndpoints
from remesh.kube.probe import Injected, ProbeResult
from remesh.ledger import Ledger
from remesh.meshes import load_profiles
from remesh.models import (
    Action,
    AuditRecord,
    FailureClass,
    Finding,
    ObjectRef,
    Probe,
    RecordType,
    RepairRequest,
)
from remesh.objects import (
    Condition,
    Container,
    Namespace,
    NamespaceMeta,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PodTemplate,
    TemplateMeta,
    Webhook,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from remesh.policy import Policy
from workers.context import Clock, PodPort, RepairContext
from workers.nudge import NUDGE_ANNOTATION

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
FINDING = "f-00aa"
REFUSED = (
    'Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": failed to call webhook: '
    'Post "https://linkerd-proxy-injector.linkerd.svc:443/?timeout=10s": dial tcp 10.0.0.1:443: connect: '
    "connection refused"
)
PASSES = ProbeResult(Probe.PASSES, 0.03, "sidecar_in_reply", "the dry run came back with the sidecar")
REFUSES = ProbeResult(
    Probe.FAILS,
    0.02,
    "webhook_connection_refused",
    "the dry run was refused: webhook connection refused",
    REFUSED,
    FailureClass.WEBHOOK_CONNECTION_REFUSED,
)
DENIED = ProbeResult(
    Probe.FAILS, 0.02, "webhook_denied", "the dry run was refused: webhook denied", "no", FailureClass.WEBHOOK_DENIED
)
QUOTA = ProbeResult(
    Probe.FAILS, 0.02, "quota_exceeded", "the dry run was refused: quota exceeded", "no", FailureClass.QUOTA_EXCEEDED
)
UNSUPPORTED = ProbeResult(Probe.UNKNOWN, 0.01, "dry_run_unsupported", "a webhook declares side effects")
UNREACHABLE = ProbeResult(Probe.UNKNOWN, 0.0, "api_unreachable", "cannot reach the API server")


class StillClock(Clock):
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.while_asleep: Callable[[], object] = lambda: None
        self.ahead = 0.0  # by how much the time of day has jumped

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed + self.ahead)

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.while_asleep()


class FixedView:
    """A namespace that asks for Linkerd, and Linkerd's own webhook."""

    def __init__(self) -> None:
        self._webhooks = [
            ("linkerd-proxy-injector-webhook-config", hook)
            for hook in load_profiles().by_name("linkerd").default_webhooks
        ]

    def namespace(self, name: str) -> Namespace:
        return Namespace(metadata=NamespaceMeta(name=name, annotations={"linkerd.io/inject": "enabled"}))

    def webhooks(self) -> list[tuple[str, Webhook]]:
        return self._webhooks

    def configured(self) -> dict[str, datetime]:
        return {}


@dataclass
class FakeCluster:
    """One workload and its pods. `obey` is what its controller does when it is nudged."""

    found: Workload
    pods: list[Pod] = field(default_factory=list)
    obey: "Callable[[FakeCluster], None]" = lambda cluster: cluster.create_missing()
    writes: list[str | None] = field(default_factory=list)  # values of the annotation, as written
    errors: list[ClusterError | None] = field(default_factory=list)  # for the next writes, in order
    read_errors: list[ClusterError] = field(default_factory=list)
    ready_endpoints: int = 1

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        if self.read_errors:
            raise self.read_errors.pop(0)
        if (kind, namespace, name) != (self.found.kind, self.found.metadata.namespace, self.found.metadata.name):
            raise NotFound("not found", status=404)
        return self.found

    def pods_of(self, workload: Workload) -> list[Pod]:
        return list(self.pods)

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        return ReadyEndpoints(ready=self.ready_endpoints, total=self.ready_endpoints)

    def annotate(self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str | None = None) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        value = annotations[NUDGE_ANNOTATION]
        self.writes.append(value)
        kept = dict(self.found.metadata.annotations or {})
        if value is None:
            kept.pop(NUDGE_ANNOTATION, None)
        else:
            kept[NUDGE_ANNOTATION] = value
        self.found.metadata.annotations = kept
        self.obey(self)

    @property
    def annotated(self) -> bool:
        return NUDGE_ANNOTATION in (self.found.metadata.annotations or {})

    def create_missing(self, *, marked: bool = True, ready: bool = True, at_most: int = 1000) -> None:
        wanted = self.found.spec.replicas or 0
        for _ in range(min(at_most, wanted - len(self.pods))):
            self.pods.append(a_pod(len(self.pods), marked=marked, ready=ready))


class ScriptedProbe:
    """Answers dry runs from a list; the last answer stays."""

    def __init__(self, *answers: ProbeResult) -> None:
        self.answers = list(answers) or [PASSES]
        self.asked: list[str] = []

    def __call__(self, ref: ObjectRef, profile: Injected) -> ProbeResult:
        self.asked.append(profile.name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class BrokenTrail(Trail):
    """A trail that refuses records of some types."""

    refuses: frozenset[RecordType] = frozenset()

    def append(self, record: AuditRecord) -> str:
        if record.type in self.refuses:
            raise TrailUnavailable("the audit trail cannot be written: Redis is full")
        return super().append(record)


def a_replica_set(replicas: int = 3, *, message: str = REFUSED, **more: object) -> Workload:
    conditions = [
        Condition(
            type="ReplicaFailure",
            status="True",
            reason="FailedCreate",
            message=message,
            last_transition_time="2026-03-04T05:01:00Z",
        )
    ]
    return a_workload("ReplicaSet", replicas, WorkloadStatus(conditions=conditions if message else None), **more)


def a_workload(kind: str, replicas: int, status: WorkloadStatus, **more: object) -> Workload:
    meta = ObjectMeta(
        name="web-5d8",
        namespace="shop",
        uid="uid-web",
        generation=1,
        creation_timestamp="2026-03-04T05:00:00Z",
        owner_references=[
            OwnerReference(kind="Deployment", name="web", uid="uid-d", api_version="apps/v1", controller=True)
        ],
    )
    for key, value in more.items():
        setattr(meta, key, value)
    template = PodTemplate(
        metadata=TemplateMeta(labels={"app": "web"}), spec=PodSpec(containers=[Container(name="app", image="app")])
    )
    status.observed_generation = 1
    return Workload(
        kind=kind,
        api_version="apps/v1",
        metadata=meta,
        spec=WorkloadSpec(replicas=replicas, template=template),
        status=status,
        template_hash="t-1",
    )


def a_pod(number: int, *, marked: bool = True, ready: bool = True, phase: str = "Running", at: str = "") -> Pod:
    containers = [Container(name="app", image="app")] + ([Container(name="linkerd-proxy")] if marked else [])
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    meta = ObjectMeta(
        name=f"web-5d8-{number}", uid=f"uid-pod-{number}", creation_timestamp=at or "2026-03-04T05:06:08Z"
    )
    return Pod(metadata=meta, spec=PodSpec(containers=containers), status=PodStatus(phase=phase, conditions=conditions))


def a_request(**more: object) -> RepairRequest:
    known: dict[str, object] = {
        "cluster": "test",
        "finding_id": FINDING,
        "ref": ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-5d8", uid="uid-web"),
        "mesh": "linkerd",
        "cause": FailureClass.WEBHOOK_CONNECTION_REFUSED,
        "action": Action.NUDGE_OWNER,
        "requested_at": START,
    }
    return RepairRequest.model_validate(known | more)


def a_finding() -> Finding:
    request = a_request()
    return Finding(
        id=request.finding_id,
        cluster=request.cluster,
        ref=request.ref,
        mesh=request.mesh,
        failure_class=request.cause,
        action=Action.WAIT_FOR_INJECTOR,
        code="not_proven",
        reason="waits",
        first_seen=START,
    )


@dataclass
class World:
    """Everything one repair sees."""

    cluster: FakeCluster
    probe: ScriptedProbe = field(default_factory=ScriptedProbe)
    policy: Policy = field(default_factory=Policy)
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.redis = fakeredis.FakeRedis(decode_responses=True)
        self.trail = BrokenTrail(self.redis, "test")
        self.ledger = Ledger(self.redis, "test")

    @property
    def ctx(self) -> RepairContext:
        return RepairContext(
            cluster_name="test",
            cluster=self.cluster,
            view=FixedView(),
            probe=self.probe,
            trail=self.trail,
            ledger=self.ledger,
            policy=self.policy,
            profiles=load_profiles(),
            pods=cast(PodPort, self.cluster),  # a nudge touches no pod
            clock=self.clock,
        )

    def types(self) -> list[str]:
        return [record.type.value for record in self.trail.read()]

    def records(self, kind: RecordType) -> list[AuditRecord]:
        return list(self.trail.read(types=[kind]))
