"""A namespace with one workload of each kind, for calls that are allowed and calls that are refused."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster import workloads as w
from tests.cluster.cluster import RealCluster
from tests.cluster.fixtures import delete_namespace
from tests.stack import wait_until

WORKLOADS = {
    "ReplicaSet": w.replica_set("web"),
    "StatefulSet": w.stateful_set("db"),
    "DaemonSet": w.daemon_set("agent"),
    "ReplicationController": w.replication_controller("old"),
    "Job": w.job("once"),
}


@dataclass(frozen=True)
class Scene:
    """A namespace with pods of five owners, one pod of nobody's, a Secret and a ConfigMap."""

    cluster: RealCluster
    namespace: str

    def pod_of(self, owner: str) -> str:
        """Name of a pod of this owner's."""
        return str(self._pods(owner)[0])

    def pods(self) -> set[str]:
        """UIDs of all pods."""
        return {each["metadata"]["uid"] for each in self.cluster.api.items(f"/api/v1/namespaces/{self.namespace}/pods")}

    def _pods(self, owner: str) -> list[str]:
        found = self.cluster.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return [
            each["metadata"]["name"]
            for each in found
            if each["metadata"].get("ownerReferences", [{}])[0].get("name") == owner
        ]

    def ready(self) -> bool:
        """All owners have a pod."""
        return all(self._pods(each["metadata"]["name"]) for each in WORKLOADS.values())


@pytest.fixture(scope="module")
def scene(real_cluster: RealCluster, deploy_tools: None) -> Iterator[Scene]:
    """Shared by the modes: none of their calls changes more than an annotation, or evicts a pod that comes back."""
    name = real_cluster.create_namespace(f"scene-{secrets.token_hex(4)}", meshed=False)
    for kind, body in WORKLOADS.items():
        real_cluster.api.post(w.collection(kind, name), body)
    real_cluster.api.post(w.collection("Pod", name), w.pod("alone"))
    for plural in ("secrets", "configmaps"):
        real_cluster.api.post(f"/api/v1/namespaces/{name}/{plural}", {"metadata": {"name": "private"}})
    scene = Scene(real_cluster, name)
    wait_until(scene.ready, "a pod of each owner", 60)
    yield scene
    delete_namespace(real_cluster, name)
