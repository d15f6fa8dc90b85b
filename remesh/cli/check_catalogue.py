"""Every check of `remesh check` by its id: in which group it stands, and what to do where it is not right.

Each id is a section of docs/check.md, which says what it means, why it matters and how to mend it; a test holds them
together.
"""

from dataclasses import dataclass
from typing import Final

DOCS: Final = "https://remesh.dev/docs/check/"
"""Where docs/check.md is published; `#id` is one check's section."""

CONFIGURATION: Final = "Configuration"
CLUSTER: Final = "Cluster"
RIGHTS: Final = "Rights"
INJECTORS: Final = "Injectors"
INJECTOR: Final = "Injector"
BROKER: Final = "Broker"
PARTS: Final = "Watcher and workers"


@dataclass(frozen=True, slots=True)
class Entry:
    """One check."""

    group: str
    hint: str  # one line; a check that knows better says more


CATALOGUE: Final[dict[str, Entry]] = {
    "policy": Entry(CONFIGURATION, "correct the file that is named; `remesh check` reads it as the workers do"),
    "mesh-profiles": Entry(CONFIGURATION, "correct the profile that is named, or leave --meshes out"),
    "cluster-access": Entry(CLUSTER, "try `kubectl version` with the same --kubeconfig and --context"),
    "cluster-clock": Entry(CLUSTER, "run a time service, such as chrony, here and on the control plane"),
    "rights-observe": Entry(RIGHTS, "grant them by a ClusterRole and a ClusterRoleBinding"),
    "rights-repair": Entry(RIGHTS, 'grant them by a ClusterRole and a ClusterRoleBinding, or set mode = "observe"'),
    "rights-impersonate": Entry(RIGHTS, "grant impersonate, or set repair.impersonate_controller = false"),
    "rights-events": Entry(RIGHTS, "grant them, or set REMESH_KUBERNETES_EVENTS=false"),
    "rights-lease": Entry(RIGHTS, "grant them by a Role in the Lease's namespace, or run one watcher without election"),
    "injectors-found": Entry(
        INJECTORS, "install a mesh, or describe its webhook in a profile in the folder given with --meshes"
    ),
    "injector-service": Entry(INJECTOR, "install the injector again, or correct clientConfig.service in its webhook"),
    "injector-endpoints": Entry(INJECTOR, "see why its pods are not Ready: `kubectl describe pods` in its namespace"),
    "injector-replicas": Entry(INJECTOR, "run two or more: while the only one restarts, pods are refused or come bare"),
    "injector-spread": Entry(INJECTOR, "give its Deployment topologySpreadConstraints or anti-affinity by node"),
    "injector-nodes": Entry(INJECTOR, "bring the node back or delete it: `kubectl get nodes`"),
    "injector-budget": Entry(INJECTOR, "give it a PodDisruptionBudget, so that drains leave one running"),
    "failure-policy": Entry(INJECTOR, "keep in mind that pods start without their sidecar while the injector is away"),
    "webhook-timeout": Entry(INJECTOR, "set timeoutSeconds to 10 or less: a hung injector blocks creations that long"),
    "side-effects": Entry(INJECTOR, "set sideEffects to None; until then readiness and one canary repair prove it"),
    "kube-system": Entry(INJECTOR, "exclude kube-system in the webhook's namespaceSelector"),
    "own-namespace": Entry(INJECTOR, "exclude the injector's own namespace or pods in the webhook's selectors"),
    "overlapping-webhooks": Entry(INJECTORS, "narrow their selectors until each pod is seen by one of them"),
    "ca-bundle": Entry(INJECTOR, "let whoever keeps it (cert-manager, the mesh's own operator) write it anew"),
    "served-certificate": Entry(INJECTOR, "issue certificate and caBundle together, then restart the injector"),
    "dry-run": Entry(INJECTOR, "pods that it is asked for are refused or come up bare now; see the injector's log"),
    "broker-access": Entry(
        BROKER, "start one with AOF and noeviction, set REMESH_REDIS_URL, or use `remesh run`, which brings its own"
    ),
    "broker-persistence": Entry(BROKER, "start it with `--appendonly yes` on a disk that stays"),
    "broker-eviction": Entry(BROKER, "start it with `--maxmemory-policy noeviction`"),
    "broker-memory": Entry(BROKER, "raise maxmemory, or export and shorten the trail: `remesh audit prune`"),
    "broker-clock": Entry(BROKER, "run a time service, such as chrony, on both"),
    "task-broker": Entry(BROKER, "see that REMESH_BROKER_URL is right, and the same for watcher and workers"),
    "audit-trail": Entry(BROKER, "mend Redis first: nothing is repaired while the trail cannot be written"),
    "watcher": Entry(PARTS, "start one: `python -m watcher`; or `remesh run`, which brings watcher and worker"),
    "watcher-synced": Entry(PARTS, "wait for its first lists; if it lasts, read the watcher's log"),
    "watcher-leader": Entry(PARTS, "wait one lease; if it lasts, read the watchers' logs"),
    "workers": Entry(
        PARTS, "start one: `celery -A workers.app worker --pool threads --concurrency 64 -E`; or `remesh run`"
    ),
    "metrics": Entry(PARTS, "open the port to whoever scrapes; see docs/metrics.md"),
}


def link(check: str) -> str:
    """Where a check is explained."""
    return f"{DOCS}#{check}"
