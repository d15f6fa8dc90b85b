"""The manifest of a pod that nobody else would create again: what it takes to create it anew. Pure.

A manifest may hold secrets (values in `env`, arguments, annotations). It is kept under a key of its own, see
`remesh.ledger`; `withheld` keeps what it holds out of texts that people and logs see.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from hashlib import blake2s
from typing import Any, Final

import msgspec

from remesh.classify import classify

Manifest = dict[str, Any]

_METADATA: Final = ("name", "namespace", "generateName", "labels", "annotations", "finalizers", "ownerReferences")
# Of spec: what the scheduler and the admission plug-ins Priority and RuntimeClass set. They refuse a value that is
# not what they would set now, and ephemeral containers may not be there at creation.
_SERVER_SET: Final = ("nodeName", "priority", "preemptionPolicy", "overhead", "ephemeralContainers")
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105  # a prefix of volumes' names, by the plug-in ServiceAccount
_SHORT: Final = 4  # characters; shorter values are looked for as whole words only
_PIECE: Final = 12  # characters; a value that was cut anywhere is found by any piece of it that long
_BEGINNING: Final = 6  # characters before an ellipsis or the text's end that are taken for a value cut there
_USERINFO: Final = re.compile(r"://([^/@\s]+)@")
_PART: Final = re.compile(r"[^\s=,;:@/?&\"'`\\]+")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
COVERED: Final = "(covered)"
_MAY_BE_SECRET: Final = frozenset(
    {"value", "command", "args", "annotations", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}
    | {"volumeAttributes", "options"}
)
# Behind these words of `remesh.kube.failures` stands what somebody else has written, to the end of the line.
# `a right is missing` is not among them: RBAC says it before anything reads the pod.
_FOREIGN: Final = re.compile(
    r"(refused by an admission webhook|refused at admission|another object has this name by now|changed meanwhile"
    r"|not found|the list is too old|come back in \S+ s|is not available|did not finish in time"
    r"|[A-Z]+ /\S* was refused|the eviction was refused): (?!\(withheld)(.+)",
    re.DOTALL,
)


def restorable(pod: Mapping[str, Any]) -> Manifest:
    """The manifest from which the same pod can be created again. `pod` is as the API server has it.

    Left out: status, identity and history, what the server sets, and the volume with the service account's token.
    nodeName stays where the pod's creator had set it: its managed fields tell, for binding leaves no trace there.
    """
    meta, spec = pod.get("metadata") or {}, deepcopy(dict(pod.get("spec") or {}))
    pinned = spec.get("nodeName") if _set_by_creator(meta) else None
    for key in _SERVER_SET:
        spec.pop(key, None)
    if pinned:
        spec["nodeName"] = pinned
    if spec.get("automountServiceAccountToken") is not False:
        _without_token(spec)
    metadata = {key: deepcopy(meta[key]) for key in _METADATA if meta.get(key)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _set_by_creator(meta: Mapping[str, Any]) -> bool:
    fields = (entry.get("fieldsV1") or {} for entry in meta.get("managedFields") or ())
    return any("f:nodeName" in (each.get("f:spec") or {}) for each in fields)


def _without_token(spec: Manifest) -> None:
    names = {str(volume.get("name")) for volume in spec.get("volumes") or () if _is_token(volume)}
    if not names:
        return
    spec["volumes"] = [volume for volume in spec["volumes"] if volume.get("name") not in names]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        mounts = [mount for mount in container.get("volumeMounts") or () if mount.get("name") not in names]
        container["volumeMounts"] = mounts


def _is_token(volume: Mapping[str, Any]) -> bool:
    return str(volume.get("name")).startswith(_TOKEN_VOLUME) and "projected" in volume


def shape_hash(manifest: Mapping[str, Any]) -> str:
    """Hash of labels and spec without the values in `env`: the same for a pod that came back as it was.

    Nothing of a secret can be tried out on it. Annotations are left out: networks write addresses there.
    """
    bare = {"labels": manifest["metadata"].get("labels"), "spec": deepcopy(manifest["spec"])}
    for variable in _variables(bare):
        variable.pop("value", None)
    return blake2s(msgspec.json.encode(bare, order="sorted"), digest_size=6).hexdigest()


def withheld(text: str, manifest: Mapping[str, Any]) -> str:
    """`text` without what others have written in it, or a word in its place if it still repeats a value.

    A webhook's denial or a validation error may quote what it does not like, cut or escaped in ways that nobody knows:
    of such a text only its length and what it was classified as are left. What remesh says itself stays, unless it
    repeats a value of the manifest's environment, commands, arguments or annotations.
    """
    own = _FOREIGN.sub(_length_and_class, text)
    readings = _readings(own)
    pieces = {each[at : at + _PIECE] for each in readings for at in range(len(each) - _PIECE + 1)}
    if any(_repeats(readings, pieces, value) for value in _sensitive(manifest)):
        return f"(withheld: {len(text)} characters, which repeat a value of the pod's manifest)"
    return own


def covered(manifest: Mapping[str, Any]) -> Manifest:
    """The manifest with a word in the place of whatever may be secret, for a screen. It cannot be created from it.

    Covered are values in `env`, commands, arguments, probes, hooks, annotations and the options of volume drivers.
    Names, images, and references to Secrets and ConfigMaps stay.
    """
    return {name: _covered(value, name in _MAY_BE_SECRET) for name, value in manifest.items()}


def _covered(value: Any, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {name: _covered(each, secret or name in _MAY_BE_SECRET) for name, each in value.items()}
    if isinstance(value, list):
        return [_covered(each, secret) for each in value]
    return COVERED if secret and value not in (None, "") else value


def _length_and_class(found: re.Match[str]) -> str:
    said = classify(found[2]).value.replace("_", " ")
    return f"{found[1]}: (withheld: {len(found[2])} characters, classified as {said})"


def _readings(text: str) -> set[str]:
    """The text as it is, and with JSON's and Go's escapes undone once and twice; each also with single blanks."""
    once = _unescaped(text)
    found = {text, once, _unescaped(once)}
    return found | {" ".join(each.split()) for each in found}


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else _ESCAPED.get(m[3], m[3]), text)


def _repeats(readings: set[str], pieces: set[str], value: str) -> bool:
    for form in {value, " ".join(value.split()), base64.b64encode(value.encode(errors="replace")).decode()}:
        if any(_has(text, form) for text in readings):
            return True
        if any(form[at : at + _PIECE] in pieces for at in range(len(form) - _PIECE + 1)):
            return True
    return False


def _has(text: str, value: str) -> bool:
    if len(value) < _SHORT:
        return bool(value) and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
    if value in text:
        return True
    cut = re.escape(value[:_BEGINNING])
    return len(value) > _BEGINNING and re.search(rf"{cut}[^\s]*?(?:\.\.\.|…|$)", text) is not None


def _sensitive(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Values whole, and of what may hold several things (arguments, URLs) the parts that look like no word."""
    yield from (str(variable.get("value") or "") for variable in _variables(manifest))
    for value in (*_written(manifest), *(str(variable.get("value") or "") for variable in _variables(manifest))):
        for userinfo in _USERINFO.findall(value):
            yield from (part for part in userinfo.split(":") if len(part) >= _SHORT)
        yield from (part for part in _PART.findall(value) if _no_word(part))


def _written(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Commands, arguments, what probes and hooks run and send, and annotations."""
    yield from map(str, ((manifest.get("metadata") or {}).get("annotations") or {}).values())
    for container in _containers(manifest):
        yield from map(str, (*(container.get("command") or ()), *(container.get("args") or ())))
        for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            yield from _PART.findall(json.dumps(container.get(key) or {}, ensure_ascii=False))


def _no_word(part: str) -> bool:
    """Long enough, and with a digit or mixed cases: how secrets look, and not `enabled`, `sleep` or `8080`."""
    mixed = any(c.isdigit() for c in part) or (not part.islower() and not part.isupper() and not part.istitle())
    return len(part) >= _BEGINNING and mixed and any(c.isalpha() for c in part)


def _containers(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = manifest.get("spec") or {}
    yield from (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))


def _variables(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for container in _containers(manifest):
        yield from container.get("env") or ()
