"""Manifests for tests, as plain dicts: the same for the real control plane and the simulated API server.

`collection(kind, namespace)` gives the path to POST them to.
"""

from collections.abc import Mapping
from typing import Any

from remesh.testbed import InjectorWear

Object = dict[str, Any]

# Annotations on a pod that kwok's stages obey, see stages.yaml.
NEVER_READY: Mapping[str, str] = {"test.remesh.dev/ready": "never"}
COMPLETES: Mapping[str, str] = {"test.remesh.dev/completes": "true"}

_PATHS = {
    "Pod": ("/api/v1", "pods"),
    "Service": ("/api/v1", "services"),
    "ReplicationController": ("/api/v1", "replicationcontrollers"),
    "Event": ("/api/v1", "events"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "DaemonSet": ("/apis/apps/v1", "daemonsets"),
    "Job": ("/apis/batch/v1", "jobs"),
    "CronJob": ("/apis/batch/v1", "cronjobs"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices"),
}


def collection(kind: str, namespace: str) -> str:
    """The path of all objects of a kind in a namespace."""
    prefix, plural = _PATHS[kind]
    return f"{prefix}/namespaces/{namespace}/{plural}"


def path(kind: str, namespace: str, name: str) -> str:
    """The path of one object."""
    return f"{collection(kind, namespace)}/{name}"


def namespace(
    name: str, *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Object:
    """A namespace."""
    metadata = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def meshed_namespace(name: str, wear: InjectorWear) -> Object:
    """A namespace that the wear's webhook sees, and whose pods ask for the sidecar where a namespace can ask."""
    labels = labels_for(wear.namespace_selector)
    if not wear.namespace_asks:
        return namespace(name, labels=labels)
    if wear.ask_label:
        labels.update([wear.ask_label])
    return namespace(name, labels=labels, annotations=dict([wear.ask_annotation]) if wear.ask_annotation else None)


def labels_for(selector: Mapping[str, Any]) -> dict[str, str]:
    """Labels that satisfy a label selector: those that it demands, and none that it forbids."""
    labels = dict(selector.get("matchLabels", {}))
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] == "In":
            labels[expression["key"]] = expression["values"][0]
        elif expression["operator"] == "Exists":
            labels[expression["key"]] = "true"
    return labels


def template(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod template with one container; further fields of the pod's spec as keywords."""
    return {
        "metadata": {"labels": {"app": name, **(labels or {})}, "annotations": dict(annotations or {})},
        "spec": {"containers": [{"name": "app", "image": "app:test"}], **spec},
    }


def pod(name: str, **of_template: Any) -> Object:
    """A pod without an owner."""
    body = template(name, **of_template)
    return {"apiVersion": "v1", "kind": "Pod", **body, "metadata": {"name": name, **body["metadata"]}}


def replica_set(name: str, replicas: int = 1, **of_template: Any) -> Object:
    """A ReplicaSet without a Deployment."""
    return _scaled("apps/v1", "ReplicaSet", name, replicas, of_template)


def deployment(name: str, replicas: int = 1, **of_template: Any) -> Object:
    """A Deployment."""
    return _scaled("apps/v1", "Deployment", name, replicas, of_template)


def stateful_set(name: str, replicas: int = 1, *, parallel: bool = False, **of_template: Any) -> Object:
    """A StatefulSet; `parallel` is the pod management policy."""
    body = _scaled("apps/v1", "StatefulSet", name, replicas, of_template)
    policy = "Parallel" if parallel else "OrderedReady"
    body["spec"].update({"serviceName": name, "podManagementPolicy": policy})
    return body


def daemon_set(name: str, **of_template: Any) -> Object:
    """A DaemonSet."""
    body = _scaled("apps/v1", "DaemonSet", name, 0, of_template)
    del body["spec"]["replicas"]
    return body


def replication_controller(name: str, replicas: int = 1, **of_template: Any) -> Object:
    """A ReplicationController."""
    body = _scaled("v1", "ReplicationController", name, replicas, of_template)
    body["spec"]["selector"] = {"app": name}
    return body


def job(name: str, parallelism: int = 1, *, completes: bool = False, **of_template: Any) -> Object:
    """A Job whose pods run for ever, or end at once where it `completes`."""
    body = template(name, restartPolicy="Never", **of_template)
    if completes:
        body["metadata"]["annotations"].update(COMPLETES)
    spec = {"parallelism": parallelism, "completions": parallelism, "template": body}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def disruption_budget(name: str, app: str, min_available: int) -> Object:
    """A PodDisruptionBudget for the pods of one of the workloads above."""
    spec = {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def has_container(pod_object: Object, name: str) -> bool:
    """Whether a pod has this container, as an ordinary one or as a native sidecar."""
    spec = pod_object["spec"]
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    return any(container["name"] == name for container in containers)


def is_injected(pod_object: Object, wear: InjectorWear) -> bool:
    """Whether a pod has the sidecar and all the marks of this wear."""
    metadata = pod_object["metadata"]
    return (
        (not wear.sidecar or has_container(pod_object, wear.sidecar))
        and wear.mark_annotations.items() <= metadata.get("annotations", {}).items()
        and wear.mark_labels.items() <= metadata.get("labels", {}).items()
    )


def is_ready(pod_object: Object) -> bool:
    """Whether a pod's condition Ready is true."""
    return condition(pod_object, "Ready").get("status") == "True"


def condition(thing: Object, kind: str) -> Object:
    """A condition of an object's status by its type; empty where it has none."""
    found = [c for c in thing.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}


def _scaled(version: str, kind: str, name: str, replicas: int, of_template: Mapping[str, Any]) -> Object:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template(name, **of_template),
    }
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
