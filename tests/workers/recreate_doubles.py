"""In-memory doubles for replacing pods: one owner with its pods, and a controller that obeys a test."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import fakeredis

from remesh.errors import ClusterError, Conflict, NotFound
from remesh.kube.api import DryRun, ReadyEndpoints
from remesh.ledger import Ledger
from remesh.meshes import load_profiles
from remesh.models import Action, AuditRecord, FailureClass, ObjectRef, RecordType, RepairRequest
from remesh.objects import (
    Condition,
    Container,
    LabelSelector,
    Namespace,
    NamespaceMeta,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PodTemplate,
    RollingUpdate,
    Taint,
    TemplateMeta,
    UpdateStrategy,
    Webhook,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from remesh.policy import Policy
from tests.workers.doubles import FINDING, START, BrokenTrail, StillClock
from workers.context import RepairContext

PROFILES = load_profiles()
OLD = "2026-03-04T05:00:00Z"
NEW = "2026-03-04T05:06:08Z"
VAULT_ASKS = {"vault.hashicorp.com/agent-inject": "true"}
VAULT_MARK = {"vault.hashicorp.com/agent-inject-status": "injected"}


def hooks(*meshes: str) -> list[tuple[str, Webhook]]:
    """Live webhooks as the charts of these meshes make them."""
    return [(f"{mesh}-config", hook) for mesh in meshes for hook in PROFILES.by_name(mesh).default_webhooks]


@dataclass
class View:
    """A namespace that asks for Linkerd, and Linkerd's webhook."""

    found: list[tuple[str, Webhook]] = field(default_factory=lambda: hooks("linkerd"))
    annotations: dict[str, str] = field(default_factory=lambda: {"linkerd.io/inject": "enabled"})

    def namespace(self, name: str) -> Namespace:
        return Namespace(metadata=NamespaceMeta(name=name, annotations=self.annotations))

    def webhooks(self) -> list[tuple[str, Webhook]]:
        return self.found

    def configured(self) -> dict[str, datetime]:
        return {}


def an_owner(kind: str = "ReplicaSet", desired: int = 4, **meta: Any) -> Workload:
    """A settled owner of `desired` pods."""
    controller = OwnerReference(kind="Deployment", name="web", uid="uid-d", api_version="apps/v1", controller=True)
    metadata = ObjectMeta(name="web", namespace="shop", uid="uid-web", generation=1, creation_timestamp=OLD)
    if kind == "ReplicaSet":
        metadata.owner_references = [controller]
    for key, value in meta.items():
        setattr(metadata, key, value)
    template = PodTemplate(metadata=TemplateMeta(labels={"app": "web"}), spec=PodSpec(containers=[Container("app")]))
    spec = WorkloadSpec(template=template, selector=LabelSelector(match_labels={"app": "web"}))
    status = WorkloadStatus(observed_generation=1)
    if kind == "DaemonSet":
        status.desired_number_scheduled = status.updated_number_scheduled = desired
        status.current_number_scheduled = status.number_ready = desired
        spec.update_strategy = UpdateStrategy("RollingUpdate", RollingUpdate(max_unavailable=1))
    elif kind == "Job":
        spec.parallelism = spec.completions = status.active = desired
    else:
        spec.replicas = status.replicas = status.ready_replicas = desired
    if kind == "StatefulSet":
        status.current_revision = status.update_revision = "web-1"
        spec.update_strategy = UpdateStrategy("RollingUpdate", RollingUpdate(partition=0))
    version = {"Job": "batch/v1", "ReplicationController": "v1", "CloneSet": "apps.kruise.io/v1"}.get(kind, "apps/v1")
    return Workload(kind, version, metadata, spec, status, template_hash="t-1")


def a_deployment(desired: int = 4, **spec: Any) -> Workload:
    """The settled Deployment above."""
    metadata = ObjectMeta(name="web", namespace="shop", uid="uid-d", generation=1)
    status = WorkloadStatus(replicas=desired, updated_replicas=desired, ready_replicas=desired, observed_generation=1)
    rolling = UpdateStrategy("RollingUpdate", RollingUpdate(max_unavailable="25%"))
    return Workload("Deployment", "apps/v1", metadata, WorkloadSpec(replicas=desired, strategy=rolling, **spec), status)


def a_pod(
    number: int, *, marked: bool = False, ready: bool = True, owner: Workload | None = None, at: str = OLD, **meta: Any
) -> Pod:
    """Pod `web-<number>`, bare unless `marked`."""
    containers = [Container(name="app", image="app")] + ([Container(name="linkerd-proxy")] if marked else [])
    references = None
    if owner is not None:
        references = [
            OwnerReference(owner.kind, owner.metadata.name, owner.metadata.uid, owner.api_version, controller=True)
        ]
    metadata = ObjectMeta(
        name=f"web-{number}",
        namespace="shop",
        uid=f"uid-{number}",
        resource_version="7",
        creation_timestamp=at,
        labels={"app": "web"},
        owner_references=references,
    )
    for key, value in meta.items():
        setattr(metadata, key, value)
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    spec = PodSpec(containers=containers, restart_policy="Always")
    return Pod(metadata, spec, PodStatus(phase="Running", conditions=conditions))


def answered(*containers: str, seconds: float = 0.03, annotations: dict[str, str] | None = None) -> DryRun:
    """A dry run that came back with these containers."""
    pod = Pod(ObjectMeta(annotations=annotations), PodSpec(containers=[Container(name) for name in containers]))
    return DryRun(pod, seconds)


def refused(error: ClusterError) -> DryRun:
    return DryRun(None, 0.02, error, error.message)


INJECTS = answered("app", "linkerd-proxy")
INJECTS_NOT = answered("app")

Obey = Callable[["FakePods", Pod], None]


def replaces(**how: Any) -> Obey:
    """The evicted pod is gone at once, and another one is there."""

    def obey(cluster: "FakePods", gone: Pod) -> None:
        del cluster.pods[gone.metadata.name]
        cluster.add(a_pod(cluster.next_number, owner=cluster.main, at=NEW, **({"marked": True} | how)))

    return obey


def replaces_by_name(**how: Any) -> Obey:
    """As a StatefulSet does."""

    def obey(cluster: "FakePods", gone: Pod) -> None:
        cluster.next_number += 1
        pod = a_pod(cluster.next_number, owner=cluster.main, at=NEW, **({"marked": True} | how))
        pod.metadata.name = gone.metadata.name
        cluster.pods[gone.metadata.name] = pod

    return obey


def vanishes(cluster: "FakePods", gone: Pod) -> None:
    del cluster.pods[gone.metadata.name]


def lingers(cluster: "FakePods", gone: Pod) -> None:
    gone.metadata.deletion_timestamp = NEW


def a_node(name: str = "node-1", *taints: Taint, ready: bool = True, cordoned: bool = False) -> Node:
    status = NodeStatus(conditions=[Condition(type="Ready", status="True" if ready else "Unknown")])
    return Node(ObjectMeta(name=name), NodeSpec(taints=list(taints), unschedulable=cordoned), status)


@dataclass
class FakePods:
    """One owner and its pods, as the API server shows them."""

    main: Workload = field(default_factory=an_owner)
    above: Workload | None = field(default_factory=a_deployment)
    obey: Obey = field(default_factory=replaces)
    answers: list[DryRun] = field(default_factory=lambda: [INJECTS])  # the last one stays
    pods: dict[str, Pod] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)  # of the one pod without a controller
    evicted: list[str] = field(default_factory=list)  # UIDs
    versions: list[str] = field(default_factory=list)  # resourceVersions that evictions were bound to
    created: list[Mapping[str, Any]] = field(default_factory=list)
    tried: list[tuple[ObjectRef, str, Any]] = field(default_factory=list)  # dry runs: of whom, as whom, which template
    evict_errors: list[Exception] = field(default_factory=list)
    create_errors: list[Exception] = field(default_factory=list)
    read_errors: list[ClusterError] = field(default_factory=list)
    budgets: list[str] = field(default_factory=list)
    injects: bool = True  # pods created from a manifest
    next_number: int = 100
    all_nodes: list[Node] = field(default_factory=lambda: [a_node()])

    def add(self, *pods: Pod) -> "FakePods":
        for pod in pods:
            self.pods[pod.metadata.name] = pod
            self.next_number += 1
        return self

    # What a worker asks

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        return self.main

    def pods_of(self, workload: Workload) -> list[Pod]:
        if self.read_errors:
            raise self.read_errors.pop(0)
        uid = workload.metadata.uid
        return [pod for pod in self.pods.values() if (owner := pod.metadata.controller) and owner.uid == uid]

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        return ReadyEndpoints(1, 1)

    def annotate(self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str | None = None) -> None:
        raise AssertionError("replacing a pod annotates nothing")

    def pod(self, namespace: str, name: str) -> Pod:
        if name not in self.pods:
            raise NotFound(f'not found: pods "{name}" not found', status=404)
        return deepcopy(self.pods[name])  # as it was when it was read

    def get_raw(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        self.pod(namespace, name)
        return self.raw

    def owner(self, namespace: str, reference: OwnerReference) -> Workload:
        found = {"Deployment": self.above, self.main.kind: self.main}.get(reference.kind)
        if found is None or found.metadata.uid != reference.uid:
            raise NotFound(f"{reference.kind}/{reference.name} is gone", status=404)
        return deepcopy(found)  # as it was when it was read

    def dry_run_pod(
        self, ref: ObjectRef, *, template: Mapping[str, Any] | None = None, timeout: float = 10.0, impersonate: str = ""
    ) -> DryRun:
        self.tried.append((ref, impersonate, template))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def evict(self, ref: ObjectRef, *, resource_version: str = "") -> None:
        if self.evict_errors:
            raise self.evict_errors.pop(0)
        self.pod(ref.namespace, ref.name)
        pod = self.pods[ref.name]
        if pod.metadata.uid != ref.uid:
            raise Conflict("another object has this name by now", status=409)
        self.evicted.append(ref.uid)
        self.versions.append(resource_version)
        self.obey(self, pod)

    def create_pod(self, manifest: Mapping[str, Any]) -> Pod:
        name = manifest["metadata"]["name"]
        if name in self.pods:
            raise Conflict(f'changed meanwhile: pods "{name}" already exists', status=409, reason="AlreadyExists")
        if self.create_errors:
            raise self.create_errors.pop(0)
        self.created.append(manifest)
        made = a_pod(self.next_number, marked=self.injects, at=NEW, name=name)
        self.add(made)
        return made

    def node(self, name: str) -> Node:
        found = next((each for each in self.all_nodes if each.metadata.name == name), None)
        if found is None:
            raise NotFound(f'not found: nodes "{name}" not found', status=404)
        return found

    def nodes(self) -> list[Node]:
        return self.all_nodes

    def budgets_of(self, pod: Pod) -> list[str]:
        return self.budgets


def a_request(number: int = 0, **more: object) -> RepairRequest:
    """About the pod `web-<number>`."""
    ref = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name=f"web-{number}", uid=f"uid-{number}")
    known: dict[str, object] = {
        "cluster": "test",
        "finding_id": FINDING if number == 0 else f"f-{number:04x}",
        "ref": ref,
        "mesh": "linkerd",
        "cause": FailureClass.MISSING_SIDECAR,
        "action": Action.RECREATE_POD,
        "requested_at": START,
    }
    return RepairRequest.model_validate(known | more)


@dataclass
class PodWorld:
    """Everything that one replacement sees."""

    cluster: FakePods = field(default_factory=FakePods)
    policy: Policy = field(default_factory=Policy)
    view: View = field(default_factory=View)
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.redis = fakeredis.FakeRedis(decode_responses=True)
        self.trail = BrokenTrail(self.redis, "test")
        self.ledger = Ledger(self.redis, "test")
        self.ctx = RepairContext(
            cluster_name="test",
            cluster=self.cluster,
            view=self.view,
            probe=lambda ref, profile: self.never(),
            trail=self.trail,
            ledger=self.ledger,
            policy=self.policy,
            profiles=PROFILES,
            pods=self.cluster,
            clock=self.clock,
            signing_key=b"a key of all workers",
        )

    def never(self) -> Any:
        raise AssertionError("a pod's replacement is proven by its owner's template")

    def use(self, policy: dict[str, Any]) -> None:
        self.policy = Policy.model_validate(policy)
        self.ctx = replace(self.ctx, policy=self.policy)

    def another_worker(self) -> RepairContext:
        """The context of a second process: it remembers nothing."""
        return replace(self.ctx, recent=type(self.ctx.recent)(), memory=type(self.ctx.memory)())

    def types(self) -> list[str]:
        return [record.type.value for record in self.trail.read()]

    def records(self, kind: RecordType) -> list[AuditRecord]:
        return list(self.trail.read(types=[kind]))


def a_world(kind: str = "ReplicaSet", desired: int = 4, bare: int = 1) -> PodWorld:
    """An owner with `desired` Ready pods, of which the first `bare` ones lack their sidecar."""
    owner = an_owner(kind, desired)
    cluster = FakePods(main=owner, above=a_deployment(desired) if kind == "ReplicaSet" else None)
    cluster.add(*(a_pod(number, owner=owner, marked=number >= bare) for number in range(desired)))
    return PodWorld(cluster)
