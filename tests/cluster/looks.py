"""What tests look at in a cluster, and the nudge that wakes a controller up."""

import secrets

from tests.cluster import workloads
from tests.cluster.api import Object
from tests.cluster.cluster import RealCluster
from tests.cluster.wait import wait_for


def pods(cluster: RealCluster, namespace: str, app: str) -> list[Object]:
    """The pods of a workload of `workloads`."""
    return cluster.api.items(workloads.collection("Pod", namespace), labelSelector=f"app={app}")


def ready_pods(cluster: RealCluster, namespace: str, app: str, count: int) -> list[Object]:
    """Wait until a workload has this many pods and all are Ready, and return them."""

    def look() -> list[Object] | None:
        found = pods(cluster, namespace, app)
        return found if len(found) == count and all(map(workloads.is_ready, found)) else None

    return wait_for(look, f"{count} pods of {app} to be Ready", timeout=60)


def failure_of(cluster: RealCluster, namespace: str, name: str) -> str:
    """Wait until a ReplicaSet is refused its pods, and return the refusal."""

    def look() -> str | None:
        found = cluster.api.get(workloads.path("ReplicaSet", namespace, name))
        message: str | None = workloads.condition(found, "ReplicaFailure").get("message")
        return message

    return wait_for(look, f"{name} to be refused its pods", timeout=60)


def nudge(cluster: RealCluster, kind: str, namespace: str, name: str) -> None:
    """Have the owner's controller look again now."""
    change = {"metadata": {"annotations": {"test.remesh.dev/nudge": secrets.token_hex(4)}}}
    cluster.api.patch(workloads.path(kind, namespace, name), change)
