"""What the API server fills in and refuses before an object is admitted: defaults and the validation that matters."""

import re
from typing import Any

import msgspec

from remesh.sim import resources as res
from remesh.sim.objects import Obj
from remesh.sim.resources import Resource
from remesh.sim.selectors import equality_selector, label_selector
from remesh.sim.status import invalid

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_ANNOTATIONS_BYTES = 256 * 1024  # all keys and values of one object


def fill(resource: Resource, obj: Obj) -> None:
    """Set the defaults of a new or changed object in place."""
    spec = obj.setdefault("spec", {}) if resource in _SPEC_DEFAULTS else {}
    for key, value in _SPEC_DEFAULTS.get(resource, {}).items():
        spec.setdefault(key, value)
    if resource is res.PODS:
        _fill_pod_spec(spec, own=True)
    elif isinstance(spec.get("template"), dict):
        _fill_pod_spec(spec["template"].setdefault("spec", {}), own=False)
        drop_empty(spec["template"].get("metadata") or {})
    _FILLERS.get(resource, _nothing)(obj)


_SPEC_DEFAULTS: dict[Resource, dict[str, Any]] = {
    res.PODS: {},
    res.DEPLOYMENTS: {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    res.REPLICA_SETS: {"replicas": 1},
    res.REPLICATION_CONTROLLERS: {"replicas": 1},
    res.STATEFUL_SETS: {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10},
    res.DAEMON_SETS: {"revisionHistoryLimit": 10},
    res.JOBS: {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    },
    res.SERVICES: {"type": "ClusterIP", "sessionAffinity": "None"},
    res.DISRUPTION_BUDGETS: {},
}


# What a status shows before any controller has looked at the object: numbers that are always written out.
FIRST_STATUS: dict[Resource, Obj] = {
    res.SERVICES: {"loadBalancer": {}},
    res.REPLICA_SETS: {"replicas": 0},
    res.REPLICATION_CONTROLLERS: {"replicas": 0},
    res.STATEFUL_SETS: {"replicas": 0, "availableReplicas": 0},
    res.DAEMON_SETS: {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    res.DISRUPTION_BUDGETS: {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
}


def _nothing(_obj: Obj) -> None: ...


def drop_empty(metadata: Obj) -> None:
    """Take out what the API server does not write either: empty maps and lists."""
    for key in [key for key, value in metadata.items() if value in ({}, [], None)]:
        del metadata[key]


def _fill_pod_spec(spec: Obj, *, own: bool) -> None:
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    if own:
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("priority", 0)
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")


def _fill_deployment(obj: Obj) -> None:
    strategy = obj["spec"].setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")


def _fill_stateful_set(obj: Obj) -> None:
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    obj["spec"].setdefault("persistentVolumeClaimRetentionPolicy", kept)
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)


def _fill_daemon_set(obj: Obj) -> None:
    annotations = obj["metadata"].get("annotations") or {}
    obj["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "1", **annotations}
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", 0)
        rolling.setdefault("maxUnavailable", 1)


def _fill_replication_controller(obj: Obj) -> None:
    labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
    obj["spec"].setdefault("selector", dict(labels))
    _label_like_template(obj)


def _label_like_template(obj: Obj) -> None:
    """Old kinds take their template's labels when they have none of their own."""
    labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def _fill_job(obj: Obj) -> None:
    spec = obj["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    uid = obj["metadata"].get("uid")
    if uid is None or "selector" in spec:
        return
    identity = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": obj["metadata"]["name"],
        "controller-uid": uid,
        "job-name": obj["metadata"]["name"],
    }
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    template_meta = spec.setdefault("template", {}).setdefault("metadata", {})
    template_meta["labels"] = {**(template_meta.get("labels") or {}), **identity}
    _label_like_template(obj)


def _fill_webhooks(obj: Obj) -> None:
    for hook in obj.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("timeoutSeconds", 10)
        hook.setdefault("reinvocationPolicy", "Never")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        if service := (hook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)


def _fill_service(obj: Obj) -> None:
    spec = obj["spec"]
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if "clusterIP" in spec:
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])


def _fill_namespace(obj: Obj) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"], **(obj.get("spec") or {})}
    obj["status"] = {"phase": "Active", **(obj.get("status") or {})}
    if name := obj["metadata"].get("name"):
        labels = obj["metadata"].get("labels") or {}
        obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}


_FILLERS = {
    res.DEPLOYMENTS: _fill_deployment,
    res.STATEFUL_SETS: _fill_stateful_set,
    res.DAEMON_SETS: _fill_daemon_set,
    res.REPLICATION_CONTROLLERS: _fill_replication_controller,
    res.JOBS: _fill_job,
    res.MUTATING_WEBHOOKS: _fill_webhooks,
    res.SERVICES: _fill_service,
    res.NAMESPACES: _fill_namespace,
}


def validate(resource: Resource, obj: Obj) -> None:
    """Raises StatusError (422) for what the API server would not store."""
    name = obj["metadata"]["name"]
    if not _SUBDOMAIN.match(name) or len(name) > 253:
        raise invalid(resource, name, "metadata.name", f'Invalid value: "{name}": {_SUBDOMAIN_RULE}')
    _validate_annotations(resource, name, obj["metadata"], "metadata.annotations")
    if resource is res.PODS:
        _validate_pod_spec(resource, name, obj["spec"], "spec")
    elif resource in _OF_TEMPLATES:
        _validate_template(resource, name, obj["spec"])
    elif resource is res.MUTATING_WEBHOOKS:
        _validate_webhooks(resource, name, obj)


_OF_TEMPLATES = (
    res.DEPLOYMENTS,
    res.REPLICA_SETS,
    res.REPLICATION_CONTROLLERS,
    res.STATEFUL_SETS,
    res.DAEMON_SETS,
    res.JOBS,
)


def _validate_annotations(resource: Resource, name: str, metadata: Obj, path: str) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in (metadata.get("annotations") or {}).items())
    if size > _ANNOTATIONS_BYTES:
        why = f"Too long: may not be more than {_ANNOTATIONS_BYTES} bytes"
        raise invalid(resource, name, path, why, "FieldValueTooLong")


def _validate_pod_spec(resource: Resource, name: str, spec: Obj, path: str) -> None:
    if not spec.get("containers"):
        raise invalid(resource, name, f"{path}.containers", "Required value", "FieldValueRequired")
    for index, container in enumerate(spec["containers"]):
        if not container.get("name"):
            field = f"{path}.containers[{index}].name"
            raise invalid(resource, name, field, "Required value", "FieldValueRequired")
        if not _LABEL.match(container["name"]) or len(container["name"]) > 63:
            field = f"{path}.containers[{index}].name"
            raise invalid(resource, name, field, f'Invalid value: "{container["name"]}": {_LABEL_RULE}')


def _validate_template(resource: Resource, name: str, spec: Obj) -> None:
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if resource is not res.REPLICATION_CONTROLLERS and spec.get("selector") is None:
        raise invalid(resource, name, "spec.selector", "Required value", "FieldValueRequired")
    selects = equality_selector if resource is res.REPLICATION_CONTROLLERS else label_selector
    if not selects(spec.get("selector"))(labels):
        why = f"Invalid value: {msgspec.json.encode(labels).decode()}: `selector` does not match template `labels`"
        raise invalid(resource, name, "spec.template.metadata.labels", why)
    _validate_annotations(resource, name, template.get("metadata") or {}, "spec.template.annotations")
    _validate_pod_spec(resource, name, template.get("spec") or {}, "spec.template.spec")


def _validate_webhooks(resource: Resource, name: str, obj: Obj) -> None:
    for index, hook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        if hook.get("matchConditions"):
            # CEL is not to be had here, and a condition that is silently ignored would be a lie.
            why = "Forbidden: the simulated API server cannot evaluate match conditions"
            raise invalid(resource, name, f"{path}.matchConditions", why, "FieldValueForbidden")
        if hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            why = f'Unsupported value: "{hook.get("sideEffects")}": supported values: "None", "NoneOnDryRun"'
            raise invalid(resource, name, f"{path}.sideEffects", why, "FieldValueNotSupported")
        if not hook.get("admissionReviewVersions"):
            field = f"{path}.admissionReviewVersions"
            raise invalid(resource, name, field, "Required value", "FieldValueRequired")
