"""The test cluster's nodes: objects only, with kwok in the kubelets' place."""

import datetime
from functools import partial

from tests.cluster.api import Api, Object
from tests.cluster.errors import ApiError
from tests.cluster.wait import wait_for
from tests.cluster.workloads import condition

NODES = "/api/v1/nodes"
# kwok looks after the nodes with this label; without it a node gets no heartbeat and its pods no kubelet.
KEPT_LABEL = "kwok.x-k8s.io/node"
KEPT_VALUE = "fake"
# A /20 for each node: 4094 pods.
POD_NETWORK_BITS = 12
READY_SECONDS = 60.0


class Nodes:
    """Create nodes, lose them, bring them back."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lost: set[str] = set()

    def create(self, count: int) -> None:
        """Create node-0 to node-(count-1) and return when all are Ready."""
        for index in range(count):
            self._api.post(NODES, _node(index))
        wait_for(self._all_ready, f"{count} nodes to be Ready", timeout=READY_SECONDS)

    def lose(self, name: str) -> None:
        """No more heartbeats; the node and its pods become what the node lifecycle controller makes of that.

        The controller itself waits 50 s first (its default grace period); this does its work at once, in its words.
        """
        self._lost.add(name)
        self._label(name, None)
        self._set_node_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        self._set_pods_ready(name, "False")

    def bring_back_all(self) -> None:
        """Heartbeats again, node and pods Ready again. Does nothing where no node was lost."""
        for name in sorted(self._lost):
            self._set_node_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
            self._label(name, KEPT_VALUE)
            self._lost.discard(name)
            wait_for(partial(self._is_usable, name), f"{name} to be back", timeout=READY_SECONDS)
            self._set_pods_ready(name, "True")

    def _all_ready(self) -> bool:
        return all(condition(node, "Ready").get("status") == "True" for node in self._api.items(NODES))

    def _is_usable(self, name: str) -> bool:
        node = self._api.get(f"{NODES}/{name}")
        return condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")

    def _label(self, name: str, value: str | None) -> None:
        self._api.patch(f"{NODES}/{name}", {"metadata": {"labels": {KEPT_LABEL: value}}})

    def _set_node_ready(self, name: str, status: str, reason: str, message: str) -> None:
        now = _now()
        ready = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        if status == "True":
            # Or the node lifecycle controller goes by the last heartbeat from before, and gives it up again.
            ready["lastHeartbeatTime"] = now
        self._api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [ready]}}, kind="strategic")

    def _set_pods_ready(self, node: str, status: str) -> None:
        ready = {"type": "Ready", "status": status, "lastTransitionTime": _now()}
        for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node},status.phase=Running"):
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
            try:
                self._api.patch(path, {"status": {"conditions": [ready]}}, kind="strategic")
            except ApiError as error:
                if error.status != 404:  # deleted since the list
                    raise


def _node(index: int) -> Object:
    name = f"node-{index}"
    network = (10 << 24) + (128 << 16) + (index << POD_NETWORK_BITS)
    cidr = ".".join(str((network >> shift) & 255) for shift in (24, 16, 8, 0)) + f"/{32 - POD_NETWORK_BITS}"
    resources = {"cpu": "1000", "memory": "4Ti", "pods": "4000"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", KEPT_LABEL: KEPT_VALUE},
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": f"198.19.255.{index + 1}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.36.3",
                "bootID": "",
                "containerRuntimeVersion": "",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
