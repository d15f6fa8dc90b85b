"""From documents to `Observed`, and from decisions to `Finding`. Pure.

`explain -f` judges the documents of a file (`remesh.documents`) without a cluster: `explain_document` decides,
`explain_line` is what `-o jsonl` prints. A cases line carries its surroundings in
`object.context`; what it does not say counts as unknown, and the charts' defaults stand in for the live webhooks.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from remesh.decide import decide
from remesh.errors import UsageError
from remesh.meshes import Profiles, pod_creation_rules
from remesh.models import Decision, Finding, InjectorHealth, ObjectRef, Observed, Probe, finding_id
from remesh.objects import (
    Namespace,
    NamespaceMeta,
    NamespaceStatus,
    Pod,
    ServiceReference,
    Webhook,
    WebhookClientConfig,
    Workload,
)
from remesh.policy import Policy
from remesh.tally import counts, failure_text, stuck_reference

__all__ = [
    "explain_document",
    "explain_line",
    "finding_for",
    "manifest_observed",
    "owner_of",
    "stuck_reference",
]

_Shape = TypeVar("_Shape")

_MESSAGE_CHARACTERS: Final = 500
_MAX_DEPTH: Final = 60  # deeper than any Kubernetes object; a recursion limit for hostile files
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def finding_for(
    observed: Observed, decision: Decision, *, cluster: str, now: datetime, first_seen: datetime | None = None
) -> Finding:
    """The finding of an object in trouble. Its id is the same for the same trouble of the same object."""
    obj = observed.obj
    workload = obj if isinstance(obj, Workload) else None
    template_hash = workload.template_hash if workload else ""
    message = observed.message or (failure_text(workload) if workload else "")
    reference = stuck_reference(workload) if workload else None
    return Finding(
        id=finding_id(cluster, obj.metadata.uid, template_hash, _episode(obj)),
        cluster=cluster,
        ref=_ref(obj),
        owner=owner_of(obj),
        mesh=decision.injector.mesh if decision.injector else "",
        injector=decision.injector,
        failure_class=decision.failure_class,
        action=decision.action,
        after_recovery=decision.after_recovery,
        code=decision.code,
        reason=decision.reason,
        message=message[:_MESSAGE_CHARACTERS],
        sidecar_expected=decision.sidecar_expected,
        missing=decision.missing,
        desired=counts(workload, observed.current).desired if workload else 1,
        template_hash=template_hash,
        priority_class=_priority(obj),
        first_seen=first_seen or reference or now,
    )


def _episode(obj: Workload | Pod) -> str:
    """Tells one outage from the next: when the condition came, or which generation lacks pods."""
    if isinstance(obj, Pod):
        return ""
    for condition in obj.status.conditions or ():
        if condition.type == "ReplicaFailure" and condition.last_transition_time:
            return condition.last_transition_time
    return str(obj.metadata.generation)


def _ref(obj: Workload | Pod) -> ObjectRef:
    meta = obj.metadata
    return ObjectRef(
        api_version=obj.api_version or "v1", kind=obj.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def owner_of(obj: Workload | Pod) -> ObjectRef | None:
    """Its controller. Anybody may write anything into an owner reference, so what is too long is cut."""
    owner = obj.metadata.controller
    if owner is None:
        return None
    return ObjectRef(
        api_version=owner.api_version[:253],
        kind=owner.kind[:253],
        namespace=obj.metadata.namespace,
        name=owner.name[:253],
        uid=owner.uid[:64],
    )


def _priority(obj: Workload | Pod) -> str:
    if isinstance(obj, Pod):
        return obj.spec.priority_class_name
    return obj.spec.template.spec.priority_class_name if obj.spec.template else ""


def explain_document(document: Mapping[str, Any], policy: Policy, profiles: Profiles, now: datetime) -> Decision:
    """Decide about one manifest or one line of a cases file. Raises UsageError if it is neither."""
    return decide(manifest_observed(document), policy, profiles, now)


def explain_line(document: Mapping[str, Any], decision: Decision) -> dict[str, str]:
    """The line that `-o jsonl` prints. A manifest without an id goes by `Kind/name -n namespace`."""
    found = manifest_observed(document).obj if "id" not in document else None
    return {
        "id": str(document["id"]) if found is None else str(_ref(found)),
        "class": decision.failure_class.value,
        "action": decision.action.value,
        "reason": decision.reason,
    }


def manifest_observed(document: Mapping[str, Any]) -> Observed:
    """What a manifest, or a line of a cases file, lets one observe. Raises UsageError if it is malformed."""
    case = document.get("object")
    body = _mapping(case if case is not None else document, "object")
    context = _mapping(body.get("context") or {}, "object.context")
    obj = _object(body)
    injector = _mapping(context.get("injector") or {}, "object.context.injector")
    webhooks, complete = _webhooks(context)
    message = _text(document.get("message")) if case is not None else ""
    return Observed(
        obj=obj,
        namespace=_namespace(obj, context),
        webhooks=webhooks,
        webhooks_complete=complete,
        message=message,
        health=_health(injector, context),
        stuck_seconds=_stuck(context),
        attempts=_whole(context.get("attempts")),
        exists=_exists(body, context, is_case=case is not None),
        webhook_older=_webhook_older(context),
        no_events=_no_events(context, known=case is not None and not message),
        notes=dict(context),
    )


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {type(value).__name__} where a mapping was expected; correct the document")
    return value


def _object(body: Mapping[str, Any]) -> Workload | Pod:
    kind = body.get("kind")
    if not isinstance(kind, str) or not kind:
        raise UsageError("kind: missing; give a Kubernetes manifest or a line of a cases file")
    api_version = _text(body.get("apiVersion")) or "v1"
    if kind == "Pod":
        return _convert({key: body[key] for key in ("metadata", "spec", "status") if key in body}, Pod)
    fields = {key: body[key] for key in ("metadata", "spec", "status") if key in body}
    if kind in _WORKLOADS:
        return _convert({**fields, "kind": kind, "apiVersion": api_version}, Workload)
    # Any other kind has a spec of its own shape, of which nothing is used.
    return _convert({"kind": kind, "apiVersion": api_version, "metadata": fields.get("metadata", {})}, Workload)


_WORKLOADS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Deployment"})


def _convert(fields: Mapping[str, Any], shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.convert(_without_nulls(fields, 0), shape)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        key = where.strip("`").removeprefix("$.") or "document"
        raise UsageError(f"{key}: {problem[0].lower()}{problem[1:]}; correct the document") from error


def _without_nulls(value: Any, depth: int) -> Any:
    """YAML's `metadata:` with nothing behind it means absent, not null. Times become text again."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"document: nested deeper than {_MAX_DEPTH} levels; it is no Kubernetes object")
    if isinstance(value, Mapping):
        return {str(key): _without_nulls(each, depth + 1) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each, depth + 1) for each in value if each is not None]
    return value.isoformat() if isinstance(value, datetime) else value


def _namespace(obj: Workload | Pod, context: Mapping[str, Any]) -> Namespace:
    """The namespace as the document tells it; without a word about it, one without labels and annotations."""
    given = _mapping(context.get("namespace") or {}, "object.context.namespace")
    leaving = given.get("deletionTimestamp")
    meta = NamespaceMeta(
        name=obj.metadata.namespace,
        labels=_strings(given.get("labels"), "object.context.namespace.labels"),
        annotations=_strings(given.get("annotations"), "object.context.namespace.annotations"),
        deletion_timestamp=str(leaving) if leaving else None,
    )
    return Namespace(metadata=meta, status=NamespaceStatus(phase=_text(given.get("phase"))))


def _strings(value: Any, where: str) -> dict[str, str] | None:
    return {str(key): str(each) for key, each in _mapping(value, where).items()} if value else None


def _webhooks(context: Mapping[str, Any]) -> tuple[list[tuple[str, Webhook]] | None, bool]:
    """Live webhooks, and whether they are all: `webhooks` lists all, `webhook` names the one that matters."""
    if isinstance(context.get("webhooks"), list):
        return [_webhook(each) for each in context["webhooks"]], True
    if "webhook" not in context:
        return None, False
    return ([_webhook(context["webhook"])], False) if context["webhook"] else ([], True)


def _webhook(given: Any) -> tuple[str, Webhook]:
    where = "object.context.webhook"
    fields = dict(_mapping(given, where))
    configuration, service = _text(fields.pop("configuration", "")), fields.pop("service", None)
    webhook = _convert(fields, Webhook)
    if service is not None:
        webhook.client_config = WebhookClientConfig(service=_service(service))
    webhook.rules = webhook.rules or pod_creation_rules()
    return configuration, webhook


def _service(given: Any) -> ServiceReference:
    if isinstance(given, Mapping):
        return _convert(given, ServiceReference)
    namespace, _, name = str(given).partition("/")
    return ServiceReference(namespace=namespace, name=name)


def _health(injector: Mapping[str, Any], context: Mapping[str, Any]) -> InjectorHealth:
    """`injector.probe` is about the injector; `probe_dry_run` is about this very template."""
    own = context.get("probe_dry_run")
    ready = injector.get("ready")
    return InjectorHealth(
        ready=ready if isinstance(ready, bool) else None,
        probe=_probe(own if own is not None else injector.get("probe")),
        own_template=own is not None,
    )


def _probe(text: Any) -> Probe:
    return Probe(text) if text in (Probe.PASSES, Probe.FAILS) else Probe.UNKNOWN


def _stuck(context: Mapping[str, Any]) -> float | None:
    """`stuck` or `age`, such as `8h` or `45m, until …`; words like `hours` mean long enough."""
    given = context.get("stuck", context.get("age"))
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    number, rest = "", _text(given)
    while rest and (rest[0].isdecimal() and rest[0].isascii()) and len(number) < 12:
        number, rest = number + rest[0], rest[1:]
    unit = _UNITS.get(rest[:1])
    return float(number) * unit if number and unit else None


def _exists(body: Mapping[str, Any], context: Mapping[str, Any], *, is_case: bool) -> bool:
    if isinstance(context.get("exists"), bool):
        return bool(context["exists"])
    return is_case or "status" in body


def _no_events(context: Mapping[str, Any], *, known: bool) -> bool:
    """A case without text is one whose trouble left none, unless it lists Kubernetes Events."""
    return context.get("events", "<none>" if known else None) in ("<none>", "none", [])


def _webhook_older(context: Mapping[str, Any]) -> bool | None:
    """`created: before …` says that the pod is older than the mesh or the request for it."""
    created = _text(context.get("created")).lstrip().lower()
    return False if created.startswith(("before", "older")) else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
