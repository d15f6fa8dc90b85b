"""Pods as a mesh's API server lists them: with sidecar, statuses and managedFields, about 6.4 KB each."""

import json
from typing import Any

REPLICAS = 10
"""Pods of one ReplicaSet; what they have in common stands in each of them again."""


def pod_list(first: int, count: int) -> bytes:
    """One page of a list, as the API server writes it: without white space."""
    items = [pod(number) for number in range(first, first + count)]
    page = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "184467"}, "items": items}
    return json.dumps(page, separators=(",", ":")).encode()


def pod(number: int) -> dict[str, Any]:
    """The pod of that number."""
    app, digest = f"service-{number // REPLICAS}", f"{number // REPLICAS:08x}bf"
    return {
        "metadata": _metadata(app, digest, number),
        "spec": {
            "volumes": [_token_volume()],
            "initContainers": [_container("linkerd-init", "proxy-init:v2.4.3"), _sidecar()],
            "containers": [_container("app", f"registry.example/{app}:1.4.2")],
            "restartPolicy": "Always",
            "serviceAccountName": app,
            "nodeName": f"node-{number % 40}",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "priority": 0,
            "enableServiceLinks": True,
        },
        "status": _status(number),
    }


def _metadata(app: str, digest: str, number: int) -> dict[str, Any]:
    uid = f"{number:08x}-1c2d-4e5f-8a9b-0123456789ab"
    return {
        "name": f"{app}-{digest}-{number:05d}",
        "generateName": f"{app}-{digest}-",
        "namespace": f"team-{number // REPLICAS % 20}",
        "uid": uid,
        "resourceVersion": str(100_000 + number),
        "creationTimestamp": at(number),
        "labels": {
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/version": "1.4.2",
            "linkerd.io/control-plane-ns": "linkerd",
            "linkerd.io/proxy-deployment": app,
            "linkerd.io/workload-ns": f"team-{number // REPLICAS % 20}",
            "pod-template-hash": digest,
        },
        "annotations": {
            "linkerd.io/created-by": "linkerd/proxy-injector stable-2.14.10",
            "linkerd.io/inject": "enabled",
            "linkerd.io/proxy-version": "stable-2.14.10",
            "linkerd.io/trust-root-sha256": "c0ffee" * 10,
            "viz.linkerd.io/tap-enabled": "true",
            "prometheus.io/scrape": "true",
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{app}-{digest}",
                "uid": f"{number // REPLICAS:08x}-aaaa-4bbb-8ccc-0123456789ab",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [_managed(manager) for manager in ("kube-controller-manager", "kubelet")],
    }


def _managed(manager: str) -> dict[str, Any]:
    fields: dict[str, Any] = {f"f:field-{number}": {".": {}, "f:name": {}, "f:value": {}} for number in range(5)}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-05-04T10:20:31Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": fields}},
    }


def at(number: int) -> str:
    """When that pod was created: no two of an owner at the same time."""
    return f"2026-05-04T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"


def _token_volume() -> dict[str, Any]:
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return {"name": "kube-api-access", "projected": {"sources": [token, authority], "defaultMode": 420}}


def _container(name: str, image: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(4)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/token"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
    }


def _sidecar() -> dict[str, Any]:
    probe = {"httpGet": {"path": "/ready", "port": 4191, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    settings = [{"name": f"LINKERD2_PROXY_SETTING_{number}", "value": f"setting-{number}"} for number in range(10)]
    extra = {"restartPolicy": "Always", "env": settings, "livenessProbe": probe, "readinessProbe": probe}
    return _container("linkerd-proxy", "proxy:stable-2.14.10") | extra


def _status(number: int) -> dict[str, Any]:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": at(number)} for kind in kinds
        ],
        "hostIP": "192.0.2.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": at(number),
        "initContainerStatuses": [_running("linkerd-init"), _running("linkerd-proxy")],
        "containerStatuses": [_running("app")],
        "qosClass": "Burstable",
    }


def _running(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": "2026-05-04T10:20:34Z"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example/{name}:1",
        "imageID": f"registry.example/{name}@sha256:" + "ab" * 32,
        "containerID": "containerd://" + "cd" * 32,
        "started": True,
    }
