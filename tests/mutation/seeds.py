"""What is mutated: real failure texts, objects as an API server sends them, files, messages and records."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from remesh.audit import record_of_finding, to_json_line
from remesh.models import Action, FailureClass, Finding, ObjectRef, RecordType, RepairRequest, Result
from tests.unit.objects import REFUSED

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
OLD, YOUNG = "2026-06-01T10:00:00Z", "2026-06-01T11:00:00Z"


def cases() -> list[dict[str, Any]]:
    """The public cases."""
    lines = (ROOT / "tests" / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def texts() -> tuple[str, ...]:
    """Failure texts of the public cases."""
    return tuple(sorted({case["message"] for case in cases() if case["message"]}))


def _meta(name: str, **more: Any) -> dict[str, Any]:
    known = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": YOUNG, "generation": 2}
    return {**known, "resourceVersion": "17", "labels": {"app": "web"}, "annotations": {"a": "b"}, **more}


def _owned_by(kind: str, name: str) -> list[dict[str, Any]]:
    ref = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return [ref]


_SPEC: dict[str, Any] = {
    "containers": [{"name": "app", "image": "example/app:1", "env": [{"name": "A", "value": "b"}]}],
    "restartPolicy": "Always",
    "hostNetwork": False,
    "priorityClassName": "high",
}
_TEMPLATE = {"metadata": {"labels": {"app": "web"}, "annotations": {"x": "y"}}, "spec": _SPEC}


def _workload(kind: str, version: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": REFUSED}
    status = {**status, "observedGeneration": 2, "conditions": [{**refused, "lastTransitionTime": YOUNG}]}
    meta = _meta("web-5d4f", ownerReferences=_owned_by("Deployment", "web"))
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, "status": status}


def _pod(*containers: str, **status: Any) -> dict[str, Any]:
    spec = {**_SPEC, "containers": [{"name": name, "image": "i:1"} for name in containers], "nodeName": "n1"}
    meta = _meta("web-5d4f-x2x4x", ownerReferences=_owned_by("ReplicaSet", "web-5d4f"))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running", **status}}


WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {**_meta("linkerd-proxy-injector-webhook-config", creationTimestamp=OLD), "namespace": ""},
    "webhooks": [
        {
            "name": "linkerd-proxy-injector.linkerd.io",
            "clientConfig": {
                "service": {"namespace": "linkerd", "name": "linkerd-proxy-injector", "path": "/", "port": 443},
                "caBundle": "QUJD",
            },
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "config.linkerd.io/admission-webhooks", "operator": "NotIn", "values": ["d"]}
                ]
            },
            "objectSelector": {"matchLabels": {}},
            "failurePolicy": "Ignore",
            "timeoutSeconds": 10,
            "matchConditions": [],
        }
    ],
}
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        **_meta("shop", creationTimestamp=OLD, annotations={"linkerd.io/inject": "enabled"}),
        "managedFields": [{"manager": "kubectl", "time": OLD, "fieldsV1": {"f:metadata": {"f:annotations": {}}}}],
    },
    "status": {"phase": "Active"},
}
SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": _meta("injector-1", labels={"kubernetes.io/service-name": "linkerd-proxy-injector"}),
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "i"}}
    ],
    "ports": [{"port": 8443}],
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": _meta("n1"),
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}

OBJECTS: tuple[dict[str, Any], ...] = (
    _pod("app"),
    _pod("app", "linkerd-proxy"),
    _workload("ReplicaSet", "apps/v1", {"replicas": 3, "template": _TEMPLATE}, {"replicas": 0}),
    _workload("ReplicationController", "v1", {"replicas": 3, "template": _TEMPLATE, "selector": {"a": "b"}}, {}),
    _workload("StatefulSet", "apps/v1", {"replicas": 3, "template": _TEMPLATE, "podManagementPolicy": "Parallel"}, {}),
    _workload("DaemonSet", "apps/v1", {"template": _TEMPLATE}, {"desiredNumberScheduled": 3}),
    _workload("Job", "batch/v1", {"parallelism": 2, "completions": 4, "template": _TEMPLATE}, {"startTime": OLD}),
    _workload("Deployment", "apps/v1", {"replicas": 3, "template": _TEMPLATE, "strategy": {"type": "x"}}, {}),
    NAMESPACE,
    WEBHOOK,
    SLICE,
    NODE,
)

KUBECONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "secret", "exec": {"command": "none", "args": ["x"], "env": []}}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    "current-context": "x",
}


def request() -> RepairRequest:
    """What a watcher of this version sends."""
    return RepairRequest(
        cluster="test",
        finding_id="f-0123456789ab",
        ref=ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-5d4f", uid="uid-web"),
        mesh="linkerd",
        cause=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.NUDGE_OWNER,
        attempt=2,
        actor="alice@desk",
        on_demand=True,
        requested_at=NOW,
    )


def record_lines() -> tuple[str, ...]:
    """One record of each type, as the trail holds it."""
    ref = request().ref
    found = Finding(
        id="f-0123456789ab",
        cluster="test",
        ref=ref,
        owner=ref,
        mesh="linkerd",
        failure_class=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.NUDGE_OWNER,
        code="x",
        reason="y",
        first_seen=NOW,
    )
    outcome = {"finding_id": found.id, "result": Result.FAILED.value, "code": "no_pods", "reason": "z", "bare": 1}
    own = {"number": 3, "position": "1-0", "hash": "0" * 40, "seal": "00"}
    lines = [to_json_line(record_of_finding(found, kind, at=NOW, details=outcome)) for kind in RecordType]
    notes = [
        to_json_line(record_of_finding(found, RecordType.NOTE, at=NOW, code=code, details=own, step=code))
        for code in ("trail_pruned", "trail_lost", "trail_sealed")
    ]
    return (*lines, *notes)
