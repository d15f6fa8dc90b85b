"""The resources that the simulated API server knows, and how each is addressed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API. `subresources` are those that can be written or read by path."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    # Whether a change of anything but metadata and status raises metadata.generation.
    has_generation: bool = False
    # Whether the API server itself collects it as garbage only when asked to (old default of these kinds).
    orphans_by_default: bool = False

    @property
    def api_version(self) -> str:
        """As in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """How messages name it: `pods`, `replicasets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def has_status(self) -> bool:
        """Whether the status is written apart from the rest."""
        return "status" in self.subresources


_STATUS = frozenset({"status"})
_SCALE = frozenset({"status", "scale"})

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, frozenset({"status", "finalize"}), ("ns",))
NODES = Resource("", "v1", "nodes", "Node", False, _STATUS, ("no",))
PODS = Resource(
    "", "v1", "pods", "Pod", True, frozenset({"status", "eviction", "binding"}), ("po",), has_generation=True
)
SERVICES = Resource("", "v1", "services", "Service", True, _STATUS, ("svc",))
EVENTS = Resource("", "v1", "events", "Event", True, frozenset(), ("ev",))
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True, _SCALE, ("rc",), True, True
)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, frozenset(), ("sa",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, frozenset(), ("cm",))
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, _STATUS, ("quota",))
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, _SCALE, ("deploy",), True)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, _SCALE, ("rs",), True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, _SCALE, ("sts",), True)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, _STATUS, ("ds",), True)
JOBS = Resource("batch", "v1", "jobs", "Job", True, _STATUS, (), True, True)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True, _STATUS, ("cj",), True)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
    has_generation=True,
)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", has_generation=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, _STATUS, ("pdb",), True
)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)

STORED: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    EVENTS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    RESOURCE_QUOTAS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    MUTATING_WEBHOOKS,
    ENDPOINT_SLICES,
    LEASES,
    DISRUPTION_BUDGETS,
)
ALL: tuple[Resource, ...] = (*STORED, ACCESS_REVIEWS)

BY_PATH: dict[tuple[str, str, str], Resource] = {(r.group, r.version, r.plural): r for r in ALL}
BY_KIND: dict[tuple[str, str], Resource] = {(r.api_version, r.kind): r for r in ALL}
