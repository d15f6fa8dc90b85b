"""A large cluster as the API server's JSON: pods, ReplicaSets, nodes, namespaces, and Linkerd's injector.

The bytes are made from a few templates, so that 150,000 pods take seconds. Each object is as the real API server
writes it in a list: without white space, without `kind` and `apiVersion`.
"""

import json
from typing import Any

from benchmarks.pods import REPLICAS, at, pod

NAMESPACES = 20
WEBHOOK = "linkerd-proxy-injector.linkerd.io"
REFUSAL = (
    f'Internal error occurred: failed calling webhook "{WEBHOOK}": failed to call webhook: Post '
    '"https://linkerd-proxy-injector.linkerd.svc:443/?timeout=10s": context deadline exceeded'
)


def compact(document: Any) -> bytes:
    """JSON without white space."""
    return json.dumps(document, separators=(",", ":")).encode()


class Pods:
    """The bytes of `benchmarks.pods.pod`, by replacing what differs between pods."""

    def __init__(self) -> None:
        self._template = compact(pod(0))

    def __call__(self, number: int) -> bytes:
        """The pod of that number; the same as `compact(pod(number))`."""
        group = number // REPLICAS
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        made = self._template
        for old, new in (
            ("service-0-00000000bf-00000", f"service-{group}-{group:08x}bf-{number:05d}"),
            ("00000000bf", f"{group:08x}bf"),
            ("service-0", f"service-{group}"),
            ("00000000-1c2d", f"{number:08x}-1c2d"),
            ("00000000-aaaa", f"{group:08x}-aaaa"),
            ('"100000"', f'"{100_000 + number}"'),
            ('"team-0"', f'"team-{group % NAMESPACES}"'),
            ('"node-0"', f'"node-{number % 40}"'),
            ("10.0.0.0", address),
            (at(0), at(number)),
        ):
            made = made.replace(old.encode(), new.encode())
        return made


def replica_set(
    group: int, replicas: int = REPLICAS, *, name: str = "", refused: bool = False, old: bool = False
) -> dict[str, Any]:
    """The ReplicaSet over the pods of that group, of a Deployment that has no object here.

    `refused`: the webhook's outage kept its pods from being created. `old`: the revision before it, without pods.
    """
    app, digest = f"service-{group}", f"{group:08x}bf"[:: -1 if old else 1]
    template = pod(group * REPLICAS)
    named = name or f"{app}-{digest}"
    status: dict[str, Any] = {"replicas": 0 if refused else replicas, "observedGeneration": 1}
    if refused:
        since = "2026-05-04T10:20:31Z"
        condition = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": since, "reason": "FailedCreate"}
        status["conditions"] = [condition | {"message": REFUSAL}]
    elif replicas:
        status |= {"fullyLabeledReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}
    labels = {"app.kubernetes.io/name": app, "pod-template-hash": digest}
    annotations = {"linkerd.io/inject": "enabled", "prometheus.io/scrape": "true"}
    spec = {key: template["spec"][key] for key in ("containers", "restartPolicy", "serviceAccountName")}
    if old:
        spec["containers"] = [each | {"image": f"registry.example/{app}:1.4.1"} for each in spec["containers"]]
    return {
        "metadata": {
            "name": named,
            "namespace": f"team-{group % NAMESPACES}",
            "uid": f"{named}-uid" if name else f"{group:08x}-{'bbbb' if old else 'aaaa'}-4bbb-8ccc-0123456789ab",
            "resourceVersion": str(900_000 + group),
            "generation": 1,
            "creationTimestamp": "2026-05-04T10:20:29Z",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/desired-replicas": str(replicas)},
            "ownerReferences": [] if name else [_deployment(app, group)],
            "managedFields": template["metadata"]["managedFields"],
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
        "status": status,
    }


def _deployment(app: str, group: int) -> dict[str, Any]:
    known = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    return known | {"uid": f"{group:08x}-eeee-4bbb-8ccc-0123456789ab", "controller": True, "blockOwnerDeletion": True}


def node(number: int) -> dict[str, Any]:
    """A Ready node with the images that make nodes large: about 9 KB."""
    names = [f"registry.example/team-{image}/service@sha256:{'ab' * 32}" for image in range(50)]
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"{number:08x}-dddd-4eee-8fff-0123456789ab",
            "resourceVersion": str(800_000 + number),
            "creationTimestamp": "2026-05-04T10:00:00Z",
            "labels": {"kubernetes.io/hostname": f"node-{number}", "kubernetes.io/os": "linux"},
        },
        "spec": {"podCIDR": f"10.{number >> 8 & 255}.{number & 255}.0/24"},
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [
                {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Kubelet", "message": "ok"}
                for kind in kinds
            ],
            "images": [{"names": [name, f"{name}:1.4.2"], "sizeBytes": 123_456_789} for name in names],
        },
    }


def namespace(name: str, *, meshed: bool = True) -> dict[str, Any]:
    """A namespace, in the mesh or not."""
    annotations = {"linkerd.io/inject": "enabled"} if meshed else {}
    labels = {"kubernetes.io/metadata.name": name}
    meta = {"name": name, "uid": f"{name}-uid", "resourceVersion": "1000", "labels": labels, "annotations": annotations}
    return {"metadata": meta | {"creationTimestamp": "2026-05-04T09:00:00Z"}, "status": {"phase": "Active"}}


def webhook_configuration() -> dict[str, Any]:
    """Linkerd's, with failurePolicy Fail as in its high-availability values."""
    service = {"name": "linkerd-proxy-injector", "namespace": "linkerd", "path": "/", "port": 443}
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "cert-manager"]}
    webhook = {
        "name": WEBHOOK,
        "clientConfig": {"service": service, "caBundle": "Q0E="},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [excluded]},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "Never",
    }
    meta = {"name": "linkerd-proxy-injector-webhook-config", "uid": "webhook-uid", "resourceVersion": "1001"}
    return {"metadata": meta | {"creationTimestamp": "2026-05-04T09:30:00Z"}, "webhooks": [webhook]}


def endpoint_slice() -> dict[str, Any]:
    """One ready endpoint of the injector."""
    meta = {
        "name": "linkerd-proxy-injector-1",
        "namespace": "linkerd",
        "uid": "slice-uid",
        "resourceVersion": "1002",
        "labels": {"kubernetes.io/service-name": "linkerd-proxy-injector"},
    }
    endpoint = {"addresses": ["10.9.9.9"], "conditions": {"ready": True, "serving": True}, "nodeName": "node-0"}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [endpoint], "ports": [{"port": 8443}]}
