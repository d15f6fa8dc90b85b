"""Slim projections of Kubernetes objects: only the fields that decide.

Plain data without I/O. `remesh.kube.decode` fills them from the API server's JSON with msgspec, which skips all
other fields while parsing; the cases file and manifests are converted into the same types. Field names are
Kubernetes' own in snake case (`rename="camel"` maps them).
"""

from typing import Annotated, Any

import msgspec


class Slim(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of the projections: unknown fields are skipped, absent ones take their default."""


# No API server stores a longer one; whatever sends one is none. `ObjectRef` has the same bounds.
NAME_CHARACTERS = 253
UID_CHARACTERS = 64
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS)]


class OwnerReference(Slim):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(Slim):
    name: Name = ""
    namespace: Name = ""
    uid: Annotated[str, msgspec.Meta(max_length=UID_CHARACTERS)] = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""  # RFC 3339, as the API server writes it
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference marked as controller, or None."""
        for ref in self.owner_references or ():  # a loop: asked five times for each change, and twice as fast
            if ref.controller:
                return ref
        return None

    def controlled_by(self, uid: str) -> bool:
        """True if the object of this UID is its controller."""
        controller = self.controller
        return controller is not None and controller.uid == uid


class Container(Slim):
    name: str = ""
    image: str = ""
    restart_policy: str | None = None  # "Always" on an init container makes it a native sidecar


class PodSpec(Slim):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    host_network: bool = False
    node_name: str = ""
    priority_class_name: str = ""
    restart_policy: str = ""


class PodCondition(Slim):
    """Without times: they are most of a condition's weight, and differ between pods that are otherwise the same."""

    type: str = ""
    status: str = ""


class Condition(PodCondition):
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Slim):
    phase: str = ""
    reason: str = ""
    conditions: list[PodCondition] | None = None


class Pod(Slim):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    kind = "Pod"  # class constant; the list's items carry no kind
    api_version = "v1"

    @property
    def ready(self) -> bool:
        """True if the condition Ready is True."""
        for condition in self.status.conditions or ():  # a loop: asked of each of an owner's pods for each eviction
            if condition.type == "Ready":
                return condition.status == "True"
        return False


class TemplateMeta(Slim):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(Slim):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class RollingUpdate(Slim):
    max_unavailable: int | str | None = None  # pods, or a percentage such as "25%"
    partition: int | None = None  # StatefulSet


class UpdateStrategy(Slim):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Slim):
    replicas: int | None = None
    template: PodTemplate | None = None
    parallelism: int | None = None  # Job
    completions: int | None = None  # Job
    suspend: bool | None = None  # Job
    paused: bool | None = None  # Deployment
    min_ready_seconds: int | None = None  # Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet
    pod_management_policy: str | None = None  # StatefulSet; None: OrderedReady
    strategy: UpdateStrategy | None = None  # Deployment
    update_strategy: UpdateStrategy | None = None  # StatefulSet, DaemonSet
    selector: "LabelSelector | None" = None  # a ReplicationController's plain map is turned into this by remesh.kube


class WorkloadStatus(Slim):
    replicas: int | None = None
    ready_replicas: int | None = None
    observed_generation: int | None = None
    conditions: list[Condition] | None = None
    updated_replicas: int | None = None  # Deployment, StatefulSet
    available_replicas: int | None = None
    current_replicas: int | None = None  # StatefulSet
    current_revision: str | None = None  # StatefulSet
    update_revision: str | None = None  # StatefulSet
    updated_number_scheduled: int | None = None  # DaemonSet
    desired_number_scheduled: int | None = None  # DaemonSet
    current_number_scheduled: int | None = None  # DaemonSet
    number_ready: int | None = None  # DaemonSet
    active: int | None = None  # Job
    ready: int | None = None  # Job
    succeeded: int | None = None  # Job
    failed: int | None = None  # Job
    terminating: int | None = None  # Job
    start_time: str | None = None  # Job


class Workload(Slim):
    """A ReplicaSet, ReplicationController, StatefulSet, DaemonSet, Job, Deployment or CronJob."""

    kind: str = ""
    api_version: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)
    template_hash: str = ""  # set by remesh.kube.decode: of the pod template as the API server sent it


class NamespaceStatus(Slim):
    phase: str = ""


class ManagedFields(Slim):
    """Who set which fields, and when one of them last changed."""

    operation: str = ""  # "Apply" or "Update"
    time: str | None = None
    fields_v1: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class NamespaceMeta(ObjectMeta):
    managed_fields: list[ManagedFields] | None = None  # not on pods, of which it would be most of their weight


class ConfigurationMeta(ObjectMeta):
    managed_fields: list[ManagedFields] | None = None


class Namespace(Slim):
    metadata: NamespaceMeta = msgspec.field(default_factory=NamespaceMeta)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)

    @property
    def terminating(self) -> bool:
        """True from the deletion request on."""
        return self.metadata.deletion_timestamp is not None or self.status.phase == "Terminating"


class SelectorRequirement(Slim):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Slim):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class ServiceReference(Slim):
    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443


class WebhookClientConfig(Slim):
    service: ServiceReference | None = None
    url: str | None = None
    ca_bundle: str | None = None  # base64, as the API server sends it


class RuleWithOperations(Slim):
    operations: list[str] | None = None
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    scope: str = "*"


class MatchCondition(Slim):
    name: str = ""
    expression: str = ""


class Webhook(Slim):
    name: str = ""
    client_config: WebhookClientConfig = msgspec.field(default_factory=WebhookClientConfig)
    rules: list[RuleWithOperations] | None = None
    failure_policy: str = "Fail"
    match_policy: str = "Equivalent"
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    match_conditions: list[MatchCondition] | None = None
    side_effects: str = "None"
    timeout_seconds: int = 10
    reinvocation_policy: str = "Never"


class WebhookConfiguration(Slim):
    """A MutatingWebhookConfiguration."""

    metadata: ConfigurationMeta = msgspec.field(default_factory=ConfigurationMeta)
    webhooks: list[Webhook] | None = None


class EndpointConditions(Slim):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Slim):
    addresses: list[str] | None = None
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)
    node_name: str | None = None


class EndpointSlice(Slim):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    endpoints: list[Endpoint] | None = None


class NodeStatus(Slim):
    conditions: list[Condition] | None = None


class Taint(Slim):
    key: str = ""
    value: str = ""
    effect: str = ""  # "NoSchedule", "PreferNoSchedule" or "NoExecute"


class NodeSpec(Slim):
    taints: list[Taint] | None = None
    unschedulable: bool = False  # cordoned


class Node(Slim):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        """True if the condition Ready is True."""
        for condition in self.status.conditions or ():  # a loop: asked of each of an owner's pods for each eviction
            if condition.type == "Ready":
                return condition.status == "True"
        return False


type_of_kind: dict[str, Any] = {
    "Pod": Pod,
    "Namespace": Namespace,
    "Node": Node,
    "MutatingWebhookConfiguration": WebhookConfiguration,
    "EndpointSlice": EndpointSlice,
}
"""Projection of each kind; every other kind is a `Workload`."""
