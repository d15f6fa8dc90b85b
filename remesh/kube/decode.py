"""The API server's JSON into slim projections, in one pass from the bytes, with msgspec.

No I/O. Everything that a projection does not name is skipped while parsing; see benchmarks/decode.py for what
that is worth. Bytes that are not what was asked for become a ClusterError.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2s
from typing import Any, Generic, TypeVar

import msgspec

from remesh.errors import ClusterError
from remesh.kube.resources import resource_of
from remesh.objects import (
    LabelSelector,
    ObjectMeta,
    PodTemplate,
    SelectorRequirement,
    Slim,
    UpdateStrategy,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
    type_of_kind,
)

T = TypeVar("T")

_DAMAGES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

POD_TEMPLATE_HASH = "pod-template-hash"  # label that the Deployment controller writes on its ReplicaSets


class ListMeta(Slim):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, gc=False):
    """One page of a list."""

    items: list[Any]
    resource_version: str = ""
    continue_token: str = ""  # "" on the last page

    def page(self) -> "ListPage":
        """Itself: it is whole already."""
        return self


class Status(Slim):
    """The API server's own answer to what failed (meta/v1 Status)."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: "StatusDetails | None" = None


class StatusCause(Slim):
    """One cause in a Status, such as DisruptionBudget or NamespaceTerminating."""

    reason: str = ""
    message: str = ""


class StatusDetails(Slim):
    """What a Status is about."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: int = 0
    causes: list[StatusCause] | None = None


class WatchEvent(msgspec.Struct, gc=False):
    """One line of a watch. `object` is None for BOOKMARK and ERROR."""

    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
    object: Any = None
    resource_version: str = ""
    status: Status | None = None  # of an ERROR


class Named(Slim):
    """Any kind without a projection of its own: who it is, and nothing else."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class _List(Slim, Generic[T]):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


class _Line(Slim):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class _BookmarkMeta(Slim):
    resource_version: str = ""


class _Bookmark(Slim):
    metadata: _BookmarkMeta = msgspec.field(default_factory=_BookmarkMeta)


class _JobTemplateSpec(Slim):
    template: msgspec.Raw = msgspec.Raw()


class _JobTemplate(Slim):
    spec: _JobTemplateSpec = msgspec.field(default_factory=_JobTemplateSpec)


class _WireSpec(Slim):
    """A workload's spec before its template is looked into: the template's bytes are needed for its hash."""

    replicas: int | None = None
    template: msgspec.Raw = msgspec.Raw()
    job_template: _JobTemplate | None = None  # CronJob
    pod_management_policy: str | None = None
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    selector: msgspec.Raw = msgspec.Raw()  # a plain map in a ReplicationController
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    paused: bool | None = None
    min_ready_seconds: int | None = None


class _WireWorkload(Slim):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _WireSpec = msgspec.field(default_factory=_WireSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


def decode_list(kind: str, data: bytes) -> ListPage:
    """One page of a list of `kind`. Raises ClusterError if the bytes are no such list."""
    with no_collection():
        page = _decode(_list_decoder(kind), data, f"a list of {kind}")
    items = page.items or []
    if resource_of(kind).workload:
        items = [_workload(kind, item) for item in items]
    return ListPage(items, page.metadata.resource_version, page.metadata.continue_)


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's collector would look for cycles several times a page, and a page makes none: a fifteenth of its time.

    Of threads that decode at the same time the first to end lets it run again; that costs time and nothing else.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def decode_object(kind: str, data: bytes) -> Any:
    """One object of `kind`: the projection that `remesh.objects.type_of_kind` names, or Workload."""
    found = _decode(_object_decoder(kind), data, f"a {kind}")
    return _workload(kind, found) if resource_of(kind).workload else found


def decode_watch_line(kind: str, line: bytes) -> WatchEvent:
    """One line of a watch of `kind`. Raises ClusterError if the line is damaged."""
    event = _decode(_line_decoder(), line, "a watch event")
    raw = event.object
    if event.type == "ERROR":
        return WatchEvent("ERROR", status=_decode(_plain_decoder(Status), raw, "a Status"))
    if event.type == "BOOKMARK":
        mark = _decode(_plain_decoder(_Bookmark), raw, "a bookmark")
        return WatchEvent("BOOKMARK", resource_version=mark.metadata.resource_version)
    found = decode_object(kind, raw)
    return WatchEvent(event.type, found, found.metadata.resource_version)


def decode_status(data: bytes) -> Status | None:
    """The Status object of a failed request, or None if the body is something else (a proxy's page, say)."""
    try:
        return _plain_decoder(Status).decode(data)  # type: ignore[no-any-return]
    except _DAMAGES:
        return None


def decode_json(data: bytes) -> dict[str, Any]:
    """Any JSON object, whole. Raises ClusterError if the bytes are none."""
    return _decode(_plain_decoder(dict[str, Any]), data, "a JSON object")  # type: ignore[no-any-return]


def template_hash(template: bytes) -> str:
    """Hash of a pod template, the same for any order of keys and any white space. "" without a template.

    For everything but the ReplicaSets of a Deployment, which carry the label pod-template-hash.
    """
    if not template:
        return ""
    document = msgspec.json.decode(template)
    if isinstance(document, dict) and isinstance(document.get("metadata"), dict):
        document["metadata"].pop("creationTimestamp", None)  # null; older API servers write it, newer ones do not
    return blake2s(msgspec.json.encode(document, order="sorted"), digest_size=6).hexdigest()


def selector_text(selector: LabelSelector | None) -> str:
    """A label selector as the API server takes it in a query. "" selects everything."""
    if selector is None:
        return ""
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    return ",".join(parts + [_requirement(part) for part in selector.match_expressions or ()])


def _requirement(part: SelectorRequirement) -> str:
    values = ",".join(part.values or ())
    forms = {"In": f"{part.key} in ({values})", "NotIn": f"{part.key} notin ({values})"}
    return forms.get(part.operator) or ("!" if part.operator == "DoesNotExist" else "") + part.key


def _workload(kind: str, wire: _WireWorkload) -> Workload:
    """Its template and selector came as bytes, and are looked into only here."""
    try:
        return _whole(kind, wire)
    except _DAMAGES as error:
        raise damaged(f"a {kind}", error) from error


def _whole(kind: str, wire: _WireWorkload) -> Workload:
    spec = wire.spec
    raw = bytes(spec.job_template.spec.template if spec.job_template else spec.template)
    template: PodTemplate | None = _plain_decoder(PodTemplate).decode(raw) if raw else None
    label = (wire.metadata.labels or {}).get(POD_TEMPLATE_HASH) if kind == "ReplicaSet" else None
    return Workload(
        kind=kind,
        api_version=resource_of(kind).api_version,
        metadata=wire.metadata,
        spec=WorkloadSpec(
            replicas=spec.replicas,
            template=template,
            parallelism=spec.parallelism,
            completions=spec.completions,
            suspend=spec.suspend,
            paused=spec.paused,
            min_ready_seconds=spec.min_ready_seconds,
            pod_management_policy=spec.pod_management_policy,
            strategy=spec.strategy,
            update_strategy=spec.update_strategy,
            selector=_selector(kind, spec.selector),
        ),
        status=wire.status,
        template_hash=label or template_hash(raw),
    )


def _selector(kind: str, raw: msgspec.Raw) -> LabelSelector | None:
    if not bytes(raw):
        return None
    if kind == "ReplicationController":
        return LabelSelector(match_labels=_plain_decoder(dict[str, str]).decode(raw))
    return _plain_decoder(LabelSelector).decode(raw)  # type: ignore[no-any-return]


def _decode(decoder: Any, data: bytes | msgspec.Raw, what: str) -> Any:
    try:
        return decoder.decode(data)
    except _DAMAGES as error:
        raise damaged(what, error) from error


def damaged(what: str, error: Exception) -> ClusterError:
    """The error for bytes that are not `what`."""
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return ClusterError(
        f"the API server sent something that is not {what}: {why}; check the server's URL in the kubeconfig"
    )


def _wire_type(kind: str) -> Any:
    return _WireWorkload if resource_of(kind).workload else type_of_kind.get(kind, Named)


@cache
def _list_decoder(kind: str) -> Any:
    return msgspec.json.Decoder(_List[_wire_type(kind)])  # type: ignore[misc]


@cache
def _object_decoder(kind: str) -> Any:
    return msgspec.json.Decoder(_wire_type(kind))


@cache
def _line_decoder() -> Any:
    return msgspec.json.Decoder(_Line)


@cache
def _plain_decoder(shape: Any) -> Any:
    return msgspec.json.Decoder(shape)
