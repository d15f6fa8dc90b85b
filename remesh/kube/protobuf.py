"""Lists of pods in the API server's protobuf form, into the same projections as their JSON gives.

No I/O. Who asks for lists (`remesh.kube.api`) and who reads refusals (`remesh.kube.failures`) come here first: the
first bytes of a body say whether it is protobuf. Such a body is `MAGIC` and a runtime.Unknown around the object
(k8s.io/apimachinery, pkg/runtime/serializer/protobuf).

Field numbers are those of generated.proto in k8s.io/api/core/v1, k8s.io/apimachinery/pkg/apis/meta/v1 and pkg/runtime,
read at Kubernetes 1.36; a number is never given to another field. Fields that are not named here are skipped.
`google.protobuf` is imported when a list is first asked for: who lists no pods does not pay for it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Final, Generic, TypeVar

from remesh.errors import ClusterError
from remesh.kube import decode
from remesh.kube.decode import ListPage, Status, StatusCause, StatusDetails, damaged, no_collection
from remesh.objects import (
    NAME_CHARACTERS,
    UID_CHARACTERS,
    Container,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)

T = TypeVar("T")

MAGIC: Final = b"k8s\0"
_JSON: Final = "application/json"
_ACCEPT: Final = f"application/vnd.kubernetes.protobuf,{_JSON};q=0.9"
_PODS: Final = "a list of Pod"

Shape = dict[str, tuple[int, str]]

# Message → field → its number and what it holds: text, a flag, a number, another message, or the bytes of one that is
# read later. `*` is before what is repeated, `?` behind what may be absent and is then not the same as empty: a pointer
# in Go.
_SHAPES: Final[dict[str, Shape]] = {
    "Entry": {"key": (1, "text"), "value": (2, "text")},  # of a map
    "Time": {"seconds": (1, "number?")},
    "OwnerReference": {
        "kind": (1, "text"),
        "name": (3, "text"),
        "uid": (4, "text"),
        "api_version": (5, "text"),
        "controller": (6, "flag?"),
    },
    "ObjectMeta": {
        "name": (1, "text"),
        "namespace": (3, "text"),
        "uid": (5, "text"),
        "resource_version": (6, "text"),
        "generation": (7, "number"),
        "creation_timestamp": (8, "Time"),
        "deletion_timestamp": (9, "Time"),
        "labels": (11, "*bytes"),  # Entry
        "annotations": (12, "*bytes"),  # Entry
        "owner_references": (13, "*bytes"),  # OwnerReference
    },
    "Container": {"name": (1, "text"), "image": (2, "text"), "restart_policy": (24, "text?")},
    "PodSpec": {
        "containers": (2, "*Container"),
        "restart_policy": (3, "text"),
        "node_name": (10, "text"),
        "host_network": (11, "flag"),
        "init_containers": (20, "*Container"),
        "priority_class_name": (24, "text"),
    },
    "PodCondition": {"type": (1, "text"), "status": (2, "text")},
    "PodStatus": {"phase": (1, "text"), "conditions": (2, "*PodCondition"), "reason": (4, "text")},
    "Pod": {"metadata": (1, "ObjectMeta"), "spec": (2, "PodSpec"), "status": (3, "PodStatus")},
    "ListMeta": {"resource_version": (2, "text"), "continue_token": (3, "text")},
    "PodList": {"metadata": (1, "ListMeta"), "items": (2, "*bytes")},  # Pod
    "StatusCause": {"reason": (1, "text"), "message": (2, "text")},
    "StatusDetails": {
        "name": (1, "text"),
        "kind": (3, "text"),
        "causes": (4, "*StatusCause"),
        "retry_after_seconds": (5, "number"),
    },
    "Status": {"message": (3, "text"), "reason": (4, "text"), "details": (5, "StatusDetails"), "code": (6, "number")},
    "TypeMeta": {"api_version": (1, "text"), "kind": (2, "text")},
    # runtime.Unknown, whose bytes `raw` are read in one go as what they are known to hold.
    "PodListAnswer": {"type_meta": (1, "TypeMeta"), "raw": (2, "PodList"), "content_encoding": (3, "text")},
    "StatusAnswer": {"type_meta": (1, "TypeMeta"), "raw": (2, "Status"), "content_encoding": (3, "text")},
}


def accepted() -> str:
    """Media types to ask a list of pods in: JSON alone where the protobuf package comes without its C library.

    Pure Python would take many times as long as JSON.
    """
    from google.protobuf.internal import api_implementation

    return _JSON if api_implementation.Type() == "python" else _ACCEPT


def is_protobuf(body: bytes) -> bool:
    """True if an answer's body is protobuf, whatever its headers say. JSON never begins like it."""
    return body.startswith(MAGIC)


class PodPage:
    """One page of a list, read but for its pods: what follows it is known already."""

    def __init__(self, body: bytes) -> None:
        """Raises ClusterError if the bytes are no list of pods."""
        self._found = _opened(body, "PodListAnswer", ("v1", "PodList"), _PODS)
        self.continue_token: str = self._found.metadata.continue_token

    def page(self) -> ListPage:
        """As `decode_list` of the same page's JSON. Raises ClusterError if a pod is none that an API server stores."""
        with no_collection(), _damage_of(_PODS):
            made = _Pods()
            items = [made.pod(_read("Pod", each)) for each in self._found.items]
        return ListPage(items, self._found.metadata.resource_version, self.continue_token)


def decode_pods(body: bytes) -> ListPage:
    """One page of a list of pods. Raises ClusterError if the bytes are no such list."""
    return PodPage(body).page()


def decode_status(body: bytes) -> Status | None:
    """The Status of a failed request in either form, or None if the body is something else."""
    if not is_protobuf(body):
        return decode.decode_status(body)
    try:
        found = _opened(body, "StatusAnswer", ("v1", "Status"), "a Status")
    except ClusterError:
        return None
    details = _details(found.details) if found.HasField("details") else None
    return Status(found.message, found.reason, found.code, details)


def _opened(body: bytes, answer: str, type_meta: tuple[str, str], what: str) -> Any:
    """The object in an answer."""
    with _damage_of(what):
        if not is_protobuf(body):
            raise ValueError("it does not begin as the API server's protobuf does")
        found = _read(answer, memoryview(body)[len(MAGIC) :])
        meta = found.type_meta
        if (meta.api_version, meta.kind) != type_meta or found.content_encoding:
            raise ValueError(f"it is {meta.api_version[:60]!r} {meta.kind[:60]!r}")
        if not found.HasField("raw"):  # an empty list has its metadata at least
            raise ValueError("it ends before the object")
        return found.raw


@contextmanager
def _damage_of(what: str) -> Iterator[None]:
    from google.protobuf.message import DecodeError

    try:
        yield
    except (DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise damaged(what, error) from error


def _read(name: str, data: bytes | memoryview) -> Any:
    """A message: strictly, and with its texts mended where that fails. Raises DecodeError."""
    strict = _messages(strict=True)[name]
    try:
        return strict.FromString(data)
    except Exception:  # DecodeError, whose import would cost each message more than all else here
        mended = _messages(strict=False)[name].FromString(data)
        _mend(mended)
        return strict.FromString(mended.SerializeToString())


def _mend(message: Any) -> None:
    """Put U+FFFD for each byte that is no UTF-8, as Go does where it writes JSON.

    Whoever may create a pod may have such bytes stored in an annotation, by sending protobuf. One of these pods must
    not make the whole list unreadable.
    """
    for field, value in message.ListFields():
        if isinstance(value, bytes):
            setattr(message, field.name, _text(value).encode())
        elif hasattr(value, "ListFields"):
            _mend(value)
        elif not isinstance(value, int):
            for each in value:
                if not isinstance(each, bytes):  # else a message that is read later
                    _mend(each)


def _text(data: bytes) -> str:
    return re.sub("[\udc80-\udcff]", "\ufffd", data.decode("utf-8", "surrogateescape"))


class _Pods:
    """Makes the pods of one page. Siblings come together in a list, so each gets what it has in common with the last.

    That is a third of the time. Nobody may change a projection in place, as everywhere (`remesh.kube.sharing`).
    """

    def __init__(self) -> None:
        self._labels = _Last(_map)
        self._annotations = _Last(_map)
        self._owners = _Last(_owner_references)

    def pod(self, found: Any) -> Pod:
        spec, status = found.spec, found.status
        return Pod(
            self._meta(found.metadata),
            PodSpec(
                _containers(spec.containers),
                _containers(spec.init_containers),
                spec.host_network,
                spec.node_name,
                spec.priority_class_name,
                spec.restart_policy,
            ),
            PodStatus(
                status.phase,
                status.reason,
                [PodCondition(each.type, each.status) for each in status.conditions] or None,
            ),
        )

    def _meta(self, found: Any) -> ObjectMeta:
        name, namespace, uid = found.name, found.namespace, found.uid
        if len(name) > NAME_CHARACTERS or len(namespace) > NAME_CHARACTERS or len(uid) > UID_CHARACTERS:
            raise ValueError("metadata has a name, a namespace or a UID that is too long")
        return ObjectMeta(
            name,
            namespace,
            uid,
            found.resource_version,
            found.generation,
            _time(found.creation_timestamp) or "",
            _time(found.deletion_timestamp) if found.HasField("deletion_timestamp") else None,
            self._labels.made(found.labels),
            self._annotations.made(found.annotations),
            self._owners.made(found.owner_references),
        )


class _Last(Generic[T]):
    """What was last made of repeated bytes, and is so again while they are the same."""

    def __init__(self, make: Callable[[list[bytes]], T | None]) -> None:
        self._make = make
        self._of: list[bytes] = []
        self._is: T | None = None

    def made(self, repeated: Iterable[bytes]) -> T | None:
        found = list(repeated)
        if found != self._of:
            self._of, self._is = found, self._make(found)
        return self._is


def _map(entries: list[bytes]) -> dict[str, str] | None:
    return {entry.key: entry.value for entry in (_read("Entry", each) for each in entries)} or None


def _owner_references(found: list[bytes]) -> list[OwnerReference] | None:
    return [_owner(_read("OwnerReference", each)) for each in found] or None


def _owner(found: Any) -> OwnerReference:
    controller = found.controller if found.HasField("controller") else None
    return OwnerReference(found.kind, found.name, found.uid, found.api_version, controller)


def _containers(found: Iterable[Any]) -> list[Container] | None:
    return [
        Container(each.name, each.image, each.restart_policy if each.HasField("restart_policy") else None)
        for each in found
    ] or None


def _details(found: Any) -> StatusDetails:
    causes = [StatusCause(each.reason, each.message) for each in found.causes]
    return StatusDetails(found.name, found.kind, found.retry_after_seconds, causes or None)


def _time(found: Any) -> str | None:
    """RFC 3339, as JSON has it. Go writes a time that is zero as an empty message."""
    return _moment(found.seconds) if found.HasField("seconds") else None


@lru_cache(maxsize=1024)  # siblings are of the same second
def _moment(seconds: int) -> str:
    return f"{(datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()}Z"


@cache
def _messages(*, strict: bool) -> dict[str, Any]:
    """Classes of the messages by name. Strict ones refuse texts that are no UTF-8, the others have texts as bytes."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "remesh.strict" if strict else "remesh.loose"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    types = {"flag": "TYPE_BOOL", "number": "TYPE_INT64", "bytes": "TYPE_BYTES"}
    types["text"] = "TYPE_STRING" if strict else "TYPE_BYTES"
    for name, shape in _SHAPES.items():
        _add_message(file, name, shape, types)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass
    return {name: made(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _SHAPES}


def _add_message(file: Any, name: str, shape: Shape, types: dict[str, str]) -> None:
    message = file.message_type.add(name=name)
    for field, (number, told) in shape.items():
        kind = told.strip("*?")
        label = "LABEL_REPEATED" if told[0] == "*" else "LABEL_OPTIONAL"
        added = message.field.add(name=field, number=number, label=label, type=types.get(kind, "TYPE_MESSAGE"))
        if kind not in types:
            added.type_name = f".{file.package}.{kind}"
        if told[-1] == "?":  # proto3 tells absent from empty only where a field stands alone in a `oneof`
            added.proto3_optional, added.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field}")
