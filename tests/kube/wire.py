"""Objects written as the API server writes protobuf, from what its JSON says of them. By hand, and as Go does it.

Go writes what is no pointer even if it is empty, and leaves a pointer out that is nil.
"""

from datetime import UTC, datetime
from typing import Any

from remesh.kube import protobuf

# What `remesh.kube.protobuf` reads as bytes first.
LATER = {"labels": "Entry", "annotations": "Entry", "owner_references": "OwnerReference", "items": "Pod"}
POINTERS = ("deletion_timestamp", "details")


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def chunk(number: int, data: bytes) -> bytes:
    """A field that holds bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode(name: str, document: dict[str, Any]) -> bytes:
    """One message, with the fields that `remesh.kube.protobuf` knows."""
    return b"".join(
        _field(field, number, told, document.get(_json_name(field)))
        for field, (number, told) in protobuf._SHAPES[name].items()
    )


def _json_name(field: str) -> str:
    head, *rest = field.removesuffix("_token").split("_")
    return head + "".join(word.capitalize() for word in rest)


def _field(field: str, number: int, told: str, value: Any) -> bytes:
    kind = LATER[field] if told == "*bytes" else told.strip("*?")
    if value is None and (told[0] == "*" or told[-1] == "?" or field in POINTERS):
        return b""
    if kind == "Entry":
        value = [{"key": key, "value": text} for key, text in value.items()]
    if told[0] == "*":
        return b"".join(chunk(number, encode(kind, each)) for each in value)
    if kind in ("flag", "number"):
        return varint(number << 3) + varint(int(value or 0))
    if kind == "text":
        return chunk(number, value if isinstance(value, bytes) else (value or "").encode())
    return chunk(number, _time(value) if kind == "Time" else encode(kind, value or {}))


def _time(text: str | None) -> bytes:
    """Nothing at all for a time that is zero; else the nanoseconds, too, which are always 0."""
    if not text:
        return b""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return varint(1 << 3) + varint(round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())) + b"\x10\0"


def answer(kind: str, raw: bytes, *, encoding: bytes = b"", version: bytes = b"v1") -> bytes:
    """The body around an object."""
    meta = chunk(1, version) + chunk(2, kind.encode())
    return protobuf.MAGIC + chunk(1, meta) + chunk(2, raw) + chunk(3, encoding) + chunk(4, b"")


def pod_list(document: dict[str, Any]) -> bytes:
    """The body that has this list of pods."""
    return answer("PodList", encode("PodList", document))


def status(document: dict[str, Any]) -> bytes:
    """The body that has this Status."""
    return answer("Status", encode("Status", document))
