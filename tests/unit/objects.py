"""Objects for the tests of the pure modules, made with as few words as possible."""

from typing import Any

from remesh.meshes import load_profiles, pod_creation_rules
from remesh.models import InjectorHealth, Observed, Probe
from remesh.objects import (
    Condition,
    Container,
    LabelSelector,
    Namespace,
    NamespaceMeta,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    SelectorRequirement,
    ServiceReference,
    TemplateMeta,
    Webhook,
    WebhookClientConfig,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)

PROFILES = load_profiles()

LINKERD = "linkerd-proxy-injector.linkerd.io"
REFUSED = (
    f'Internal error occurred: failed calling webhook "{LINKERD}": failed to call webhook: Post '
    '"https://linkerd-proxy-injector.linkerd.svc:443/?timeout=10s": dial tcp 10.0.0.1:443: connect: connection refused'
)


def namespace(
    name: str = "shop",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    deleted: bool = False,
) -> Namespace:
    meta = NamespaceMeta(name=name, labels=labels, annotations=annotations)
    meta.deletion_timestamp = "2026-01-01T00:00:00Z" if deleted else None
    return Namespace(metadata=meta)


def meshed(name: str = "shop") -> Namespace:
    return namespace(name, annotations={"linkerd.io/inject": "enabled"})


def webhook(
    name: str = LINKERD,
    service: str = "linkerd/linkerd-proxy-injector",
    *,
    selects: list[SelectorRequirement] | None = None,
    objects: list[SelectorRequirement] | None = None,
    path: str = "",
    **more: Any,
) -> Webhook:
    where, _, who = service.partition("/")
    return Webhook(
        name=name,
        client_config=WebhookClientConfig(service=ServiceReference(namespace=where, name=who, path=path)),
        rules=more.pop("rules", pod_creation_rules()),
        namespace_selector=LabelSelector(match_expressions=selects) if selects else None,
        object_selector=LabelSelector(match_expressions=objects) if objects else None,
        **more,
    )


LIVE = [("linkerd-proxy-injector-webhook-config", webhook())]


def workload(
    kind: str = "ReplicaSet",
    *,
    message: str = "",
    desired: int = 3,
    current: int = 0,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    host_network: bool = False,
    where: str = "shop",
    name: str = "web-5d4f",
    owner: str = "web",
    created: str = "",
) -> Workload:
    template = PodTemplate(
        metadata=TemplateMeta(labels=labels, annotations=annotations), spec=PodSpec(host_network=host_network)
    )
    failed = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message=message)
    status = WorkloadStatus(replicas=current, ready_replicas=current, conditions=[failed] if message else None)
    spec = WorkloadSpec(replicas=desired, template=template)
    if kind == "DaemonSet":
        spec.replicas = None
        status.desired_number_scheduled, status.current_number_scheduled = desired, current
    if kind == "Job":
        spec.replicas, spec.parallelism, spec.completions, status.active = None, desired, desired, current
    return Workload(
        kind=kind,
        api_version="apps/v1",
        metadata=ObjectMeta(
            name=name, namespace=where, uid="uid-1", creation_timestamp=created, owner_references=[controlled_by(owner)]
        ),
        spec=spec,
        status=status,
    )


VERSIONS = {
    "ReplicationController": "v1",
    "Node": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
    "Workflow": "argoproj.io/v1alpha1",
}


def controlled_by(name: str, kind: str = "Deployment") -> OwnerReference:
    version = VERSIONS.get(kind, "apps/v1")
    return OwnerReference(kind=kind, name=name, uid="owner-uid", api_version=version, controller=True)


def pod(
    *containers: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str | None = "ReplicaSet",
    where: str = "shop",
    phase: str = "Running",
    host_network: bool = False,
    init: list[Container] | None = None,
    restart: str = "Always",
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="web-5d4f-x2x4x",
            namespace=where,
            uid="pod-uid",
            labels=labels,
            annotations=annotations,
            owner_references=[controlled_by("web-5d4f", owner)] if owner else None,
        ),
        spec=PodSpec(
            containers=[Container(name=each, image="example/app:1") for each in containers or ("app",)],
            init_containers=init,
            host_network=host_network,
            restart_policy=restart,
        ),
        status=PodStatus(phase=phase),
    )


def seen(obj: Workload | Pod, *, probe: Probe = Probe.UNKNOWN, **more: Any) -> Observed:
    """`obj` as a live cluster shows it: in a meshed namespace, with Linkerd's webhook."""
    fields: dict[str, Any] = {"namespace": meshed(obj.metadata.namespace), "webhooks": LIVE}
    return Observed(obj=obj, health=InjectorHealth(probe=probe), **(fields | more))
