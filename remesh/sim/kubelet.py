"""Nodes, the scheduler that puts pods on them, and the kubelets that run them: pods are Ready in milliseconds."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.client import Client
from remesh.sim.controllers.base import Controller
from remesh.sim.controllers.daemonsets import node_of
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import (
    Obj,
    annotations_of,
    condition,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    now,
    uid_of,
    with_condition,
)
from remesh.sim.status import StatusError
from remesh.sim.store import Change
from remesh.sim.workqueue import Key

# The pod stays Pending (never), or its containers end with exit code 0 (true).
READY_ANNOTATION = "test.remesh.dev/ready"
_UNPROBED: dict[str, object] = {"lastProbeTime": None}  # pods' conditions always say so
COMPLETES_ANNOTATION = "test.remesh.dev/completes"


# Fields that clients insist on, and that have nothing to say here.
_UNTOLD_NODE_INFO = (
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "machineID",
    "osImage",
    "systemUUID",
)


def new_node(number: int) -> Obj:
    """A Ready node with room for everything."""
    name = f"sim-node-{number}"
    room = {"cpu": "64", "memory": "256Gi", "pods": "10000", "ephemeral-storage": "1Ti"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": f"10.{244 + number // 256}.{number % 256}.0/24"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [node_ready("True")],
            "addresses": [
                {"type": "InternalIP", "address": f"172.18.{number // 250}.{number % 250 + 2}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                **dict.fromkeys(_UNTOLD_NODE_INFO, ""),
                "kubeletVersion": "v1.36.0-sim",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def node_ready(status: str) -> Obj:
    """The Ready condition of a node: True, False or Unknown."""
    reasons = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }
    reason, message = reasons[status]
    return {
        "type": "Ready",
        "status": status,
        "lastHeartbeatTime": now(),
        "lastTransitionTime": now(),
        "reason": reason,
        "message": message,
    }


class Scheduler(Controller):
    """Binds pods to Ready nodes in turn, or to the node that their affinity names."""

    name = "default-scheduler"

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.recorder.counts = False
        self._turn = 0

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.store.listen(res.PODS, self._pod_changed)
        self.store.listen(res.NODES, self._node_changed)

    def _pod_changed(self, change: Change) -> None:
        if change.type != "DELETED" and not change.new.obj["spec"].get("nodeName"):
            self.queue.add(change.key)

    def _node_changed(self, _change: Change) -> None:
        for item in self.store.objects(res.PODS):
            if not item.obj["spec"].get("nodeName"):
                self.queue.add((namespace_of(item.obj), name_of(item.obj)))

    def sync(self, key: Key) -> None:
        """The next step in the life of one pod, or node."""
        pod = self.find(res.PODS, key)
        if pod is None or pod["spec"].get("nodeName") or is_terminating(pod):
            return
        node = self._choose(pod)
        if node:
            self._bind(pod, node)

    def _choose(self, pod: Obj) -> str:
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        nodes = [item.obj for item in self.store.objects(res.NODES)]
        if named := node_of(pod):
            return named if any(name_of(node) == named for node in nodes) else ""
        able = [name_of(node) for node in nodes if is_ready(node) and wanted <= labels_of(node).items()]
        if not able:
            return ""
        self._turn += 1
        return able[self._turn % len(able)]

    def _bind(self, pod: Obj, node: str) -> None:
        scheduled = {**_UNPROBED, "type": "PodScheduled", "status": "True", "lastTransitionTime": now()}

        def bound(current: Obj) -> Obj:
            current["spec"]["nodeName"] = node
            conditions = with_condition(current["status"].get("conditions") or [], scheduled)
            current["status"]["conditions"] = conditions
            return current

        try:
            self.client.change(res.PODS, namespace_of(pod), name_of(pod), bound, subresource="binding")
        except StatusError as error:
            if error.code != 404:
                raise
            return
        message = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node}"
        self.recorder.record(res.PODS, pod, "Normal", "Scheduled", message)


class Kubelets(Controller):
    """All nodes' kubelets: they start what is bound, end what is to end, and stop what is deleted.

    No image runs: two annotations on a pod say what would come of it. On a node that is not Ready nothing happens.
    """

    name = "kubelet"

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._addresses: dict[str, int] = {}

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.store.listen(res.PODS, self._pod_changed)
        self.store.listen(res.NODES, self._node_changed)

    def _pod_changed(self, change: Change) -> None:
        if change.type != "DELETED" and change.new.obj["spec"].get("nodeName"):
            self.queue.add(change.key)

    def _node_changed(self, change: Change) -> None:
        for item in self.store.objects(res.PODS):
            if item.obj["spec"].get("nodeName") == change.key[1]:
                self.queue.add((namespace_of(item.obj), name_of(item.obj)))

    def sync(self, key: Key) -> None:
        """The next step in the life of one pod, or node."""
        pod = self.find(res.PODS, key)
        if pod is None:
            return
        node = self.store.get(res.NODES, "", pod["spec"]["nodeName"])
        if node is None or not is_ready(node.obj):
            return
        if is_terminating(pod):
            self._remove(pod)
        elif is_finished(pod) or annotations_of(pod).get(READY_ANNOTATION) == "never":
            return
        elif not is_ready(pod):
            self._write(pod, _running(pod, self._address(node.obj), node.obj))
        elif annotations_of(pod).get(COMPLETES_ANNOTATION) == "true":
            self._write(pod, _succeeded(pod))

    def _remove(self, pod: Obj) -> None:
        options = DeleteOptions(uid=uid_of(pod), grace=0)
        try:
            self.client.delete(res.PODS, namespace_of(pod), name_of(pod), options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _address(self, node: Obj) -> str:
        number = self._addresses[name_of(node)] = self._addresses.get(name_of(node), 0) + 1
        first, second, _, _ = node["spec"]["podCIDR"].split("/")[0].split(".")
        third = int(node["spec"]["podCIDR"].split(".")[2])
        return f"{first}.{second}.{(third + number // 250 * 16) % 256}.{number % 250 + 2}"

    def _write(self, pod: Obj, status: Obj) -> None:
        def changed(current: Obj) -> Obj:
            current["status"] = status
            return current

        try:
            self.client.change(res.PODS, namespace_of(pod), name_of(pod), changed, subresource="status")
        except StatusError as error:
            if error.code != 404:
                raise


def _running(pod: Obj, address: str, node: Obj) -> Obj:
    present = now()
    conditions = pod["status"].get("conditions") or []
    for kind in ("Initialized", "Ready", "ContainersReady"):
        conditions = with_condition(
            conditions, {**_UNPROBED, "type": kind, "status": "True", "lastTransitionTime": present}
        )
    pod_ip = pod["status"].get("podIP") or address
    host_ip = node["status"]["addresses"][0]["address"]
    status: dict[str, Any] = {
        **pod["status"],
        "phase": "Running",
        "conditions": conditions,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": host_ip if pod["spec"].get("hostNetwork") else pod_ip,
        "podIPs": [{"ip": host_ip if pod["spec"].get("hostNetwork") else pod_ip}],
        "startTime": pod["status"].get("startTime", present),
        "containerStatuses": [_container(entry, present) for entry in pod["spec"]["containers"]],
    }
    if init := pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = [_container(entry, present, init=True) for entry in init]
    return status


def _container(container: Obj, present: str, *, init: bool = False) -> Obj:
    runs = not init or container.get("restartPolicy") == "Always"
    state: Obj = {"running": {"startedAt": present}}
    if not runs:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": present, "finishedAt": present}}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": True,
        "started": runs,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _succeeded(pod: Obj) -> Obj:
    present = now()
    conditions = pod["status"].get("conditions") or []
    for kind in ("Ready", "ContainersReady"):
        ended = {**_UNPROBED, "type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": present}
        conditions = with_condition(conditions, ended)
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": present, "finishedAt": present}}
    containers = [
        {**entry, "ready": False, "started": False, "state": state}
        for entry in pod["status"].get("containerStatuses") or ()
    ]
    return {**pod["status"], "phase": "Succeeded", "conditions": conditions, "containerStatuses": containers}


class NodeLifecycle(Controller):
    """Marks the pods of a node that is not Ready as not ready, so that their endpoints go.

    `grace` is how long the endpoints of a lost node are still believed in, seconds.
    """

    name = "node-controller"

    def __init__(self, client: Client, grace: float) -> None:
        super().__init__(client)
        self._grace = grace

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.store.listen(res.NODES, self._node_changed)

    def _node_changed(self, change: Change) -> None:
        if change.type != "DELETED" and not is_ready(change.new.obj):
            self.queue.add_after(change.key, self._grace)

    def sync(self, key: Key) -> None:
        """The next step in the life of one pod, or node."""
        node = self.find(res.NODES, key)
        if node is None or is_ready(node):
            return
        for item in self.store.objects(res.PODS):
            if item.obj["spec"].get("nodeName") == key[1] and is_ready(item.obj):
                self._mark(item.obj)

    def _mark(self, pod: Obj) -> None:
        def marked(current: Obj) -> Obj:
            ready = condition(current, "Ready")
            if ready is not None:
                ready.update(status="False", lastTransitionTime=now())
            return current

        self.client.change(res.PODS, namespace_of(pod), name_of(pod), marked, subresource="status")
