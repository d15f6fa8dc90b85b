"""metadata.managedFields, for the kinds in which the age of a field decides something: namespaces and webhooks.

As the API server keeps them for writes that are no server-side apply: whoever adds or changes a field takes it over,
and the time of their entry is that of this write. A field that is taken away leaves all entries, and no time changes.
Source: sigs.k8s.io/structured-merge-diff (merge.Updater.Update), and a real API server.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from remesh.sim import resources as res
from remesh.sim.objects import Obj, now
from remesh.sim.resources import Resource

TRACKED: Final = (res.NAMESPACES, res.MUTATING_WEBHOOKS)
# A LabelSelector is one field (x-kubernetes-map-type: atomic).
_WHOLE: Final = ("f:namespaceSelector", "f:objectSelector")
_OF_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")

Path = tuple[str, ...]


def note(resource: Resource, old: Obj | None, new: Obj, manager: str) -> None:
    """Write into `new` who manages what of it, after `manager` made it of `old`."""
    if resource not in TRACKED:
        return
    before, after = dict(_leaves(old)) if old else {}, dict(_leaves(new))
    changed = {path for path, value in after.items() if before.get(path, _NOWHERE) != value}
    entries = [each for entry in (old or {}).get("metadata", {}).get("managedFields", ()) if (each := dict(entry))]
    gone = changed | (set(before) - set(after))
    for entry in entries:
        kept = set(_paths(entry["fieldsV1"])) - gone
        if entry["manager"] == manager and changed:
            kept |= changed
            entry["time"] = now()
        entry["fieldsV1"] = _nested(kept)
    if changed and all(entry["manager"] != manager for entry in entries):
        more = {"manager": manager, "operation": "Update", "apiVersion": resource.api_version, "time": now()}
        entries.append({**more, "fieldsType": "FieldsV1", "fieldsV1": _nested(changed)})
    new["metadata"]["managedFields"] = [entry for entry in entries if entry["fieldsV1"]]


_NOWHERE: Final = object()


def _leaves(obj: Obj) -> Iterator[tuple[Path, Any]]:
    for key, value in obj.items():
        if key == "metadata":
            for name in _OF_METADATA:
                yield from _below(("f:metadata", f"f:{name}"), value.get(name))
        elif key not in ("status", "kind", "apiVersion"):
            yield from _below((f"f:{key}",), value)


def _below(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Maps by their keys, webhooks by their names; a selector and any other list are one field."""
    if value is None:
        return
    if isinstance(value, dict) and value and path[-1] not in _WHOLE:
        for key, each in value.items():
            yield from _below((*path, f"f:{key}"), each)
    elif path == ("f:webhooks",):
        for each in value:
            yield from _below((*path, f'k:{{"name":"{each["name"]}"}}'), each)
    else:
        yield path, value


def _nested(paths: Iterable[Path]) -> Obj:
    fields: Obj = {}
    for path in sorted(paths):
        place = fields
        for step in path:
            place = place.setdefault(step, {})
    return fields


def _paths(fields: Obj, start: Path = ()) -> Iterator[Path]:
    for step, below in fields.items():
        if below:
            yield from _paths(below, (*start, step))
        else:
            yield (*start, step)
