"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and what is needed of the strategic merge patch."""

from typing import Any

from remesh.sim.objects import Obj, copy
from remesh.sim.status import StatusError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)

# Lists that the strategic merge patch merges by key instead of replacing. The key can depend on the list only.
_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "webhooks": ("name",),
    "tolerations": ("key",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
}


def apply_patch(kind: str, obj: Obj, patch: Any) -> Obj:
    """`obj` with a decoded patch of media type `kind` applied; `obj` itself is left alone.

    Raises StatusError: 400 for a patch of the wrong shape, 422 when a JSON patch does not apply.
    """
    if kind == JSON_PATCH:
        return json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into an object")
    merged = merge_patch(obj, patch) if kind == MERGE_PATCH else strategic_patch(obj, patch)
    result: Obj = merged
    return result


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(target: Any, patch: Any, field: str = "") -> Any:
    """A merge patch that merges some lists by key; `field` is the name of the list."""
    if isinstance(patch, list):
        return _strategic_list(target, patch, field)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = strategic_patch(result.get(key), value, key)
    return result


def _strategic_list(target: Any, patch: list[Any], field: str) -> list[Any]:
    if field == "finalizers":
        present = list(target or [])
        return present + [item for item in patch if item not in present]
    keys = _MERGE_KEYS.get(field, ())
    key = next((k for k in keys if any(isinstance(item, dict) and k in item for item in patch)), None)
    if key is None or not isinstance(target, list):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "delete")]
    return _merge_by_key(target, patch, key)


def _merge_by_key(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(target)
    for item in patch:
        if "$patch" in item and item["$patch"] == "replace":
            return [other for other in patch if "$patch" not in other]
        index = next((i for i, present in enumerate(result) if present.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            result.append(item)
        else:
            result[index] = strategic_patch(result[index], item)
    return result


def json_patch(obj: Obj, operations: Any) -> Obj:
    """RFC 6902. Raises StatusError: 400, or 422 when an operation does not apply."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result: Any = copy(obj)
    for operation in operations:
        result = _operate(result, operation)
    patched: Obj = result
    return patched


def _operate(document: Any, operation: Obj) -> Any:
    kind, path = operation.get("op"), operation.get("path", "")
    if kind == "test":
        if _read(document, path) != operation.get("value"):
            raise _inapplicable()
    elif kind == "add":
        _write(document, path, operation.get("value"), insert=True)
    elif kind == "replace":
        _read(document, path)
        _write(document, path, operation.get("value"), insert=False)
    elif kind == "remove":
        _remove(document, path)
    elif kind in ("move", "copy"):
        value = _read(document, operation.get("from", ""))
        if kind == "move":
            _remove(document, operation["from"])
        _write(document, path, value, insert=True)
    else:
        raise bad_request(f'Unexpected kind: "{kind}"')
    return document


def _inapplicable() -> StatusError:
    # kube-apiserver does not say which operation failed either.
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, details={})


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _parent(document: Any, path: str) -> tuple[Any, str]:
    steps = _steps(path)
    if not steps:
        raise _inapplicable()
    for step in steps[:-1]:
        document = _child(document, step)
    return document, steps[-1]


def _child(container: Any, step: str) -> Any:
    try:
        return container[int(step)] if isinstance(container, list) else container[step]
    except (KeyError, IndexError, ValueError, TypeError):
        raise _inapplicable() from None


def _read(document: Any, path: str) -> Any:
    container, step = _parent(document, path)
    return _child(container, step)


def _write(document: Any, path: str, value: Any, *, insert: bool) -> None:
    container, step = _parent(document, path)
    if isinstance(container, list):
        index = _index(container, step)
        container[index : index if insert else index + 1] = [value]
    elif isinstance(container, dict):
        container[step] = value
    else:
        raise _inapplicable()


def _index(container: list[Any], step: str) -> int:
    if step == "-":
        return len(container)
    if not step.isdigit() or int(step) > len(container):
        raise _inapplicable()
    return int(step)


def _remove(document: Any, path: str) -> None:
    container, step = _parent(document, path)
    _child(container, step)
    if isinstance(container, list):
        del container[int(step)]
    else:
        del container[step]
