"""The manifest of a pod that nobody else would create again: what it takes to create it anew. Pure.

A manifest may hold secrets (values in `env`, arguments, annotations). It is kept under a key of its own, see
`remesh.ledger`; `withheld` keeps what it holds out of texts that people and logs see.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from hashlib import blake2s
from typing import Any, Final

import msgspec

Manifest = dict[str, Any]

_METADATA: Final = ("name", "namespace", "generateName", "labels", "annotations", "finalizers", "ownerReferences")
# Of spec: what the scheduler and the admission plug-ins Priority and RuntimeClass set. They refuse a value that is
# not what they would set now, and ephemeral containers may not be there at creation.
_SERVER_SET: Final = ("nodeName", "priority", "preemptionPolicy", "overhead", "ephemeralContainers")
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105  # a prefix of volumes' names, by the plug-in ServiceAccount
_SHORT: Final = 4  # characters; shorter values are looked for as whole words only


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
    """`text`, or a word in its place if it repeats a value of the manifest's environment.

    A webhook's denial or a validation error may quote what it does not like.
    """
    if any(_repeats(text, str(variable.get("value") or "")) for variable in _variables(manifest)):
        return "(the text is withheld: it repeats a value of the pod's environment)"
    return text


def _repeats(text: str, value: str) -> bool:
    if len(value) >= _SHORT:
        return value in text
    return bool(value) and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _variables(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = manifest.get("spec") or {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        yield from container.get("env") or ()
