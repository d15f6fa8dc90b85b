"""Since when an injector sees a pod as it does now: a bare pod from before has missed nothing. Pure.

Source: metadata.managedFields. Each manager has one entry with the fields that it set last and the time of its last
change to any of them, so a time may be later than the change that is asked for, never earlier. The error is to the safe
side: the pod is then reported and not replaced. A field that is taken away leaves no entry; the watcher's store
notes that itself, for as long as it runs (`left_behind`), and otherwise the order of writes shows it mostly
(`lost_something`).
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from remesh.admission import NAMESPACE_NAME_LABEL
from remesh.meshes import MeshProfile
from remesh.objects import LabelSelector, ManagedFields, Namespace, Pod, Webhook, WebhookConfiguration
from remesh.tally import parse_time

_SEES: Final = ("f:namespaceSelector", "f:objectSelector", "f:rules", "f:matchConditions", "f:matchPolicy")
"""Fields of a webhook that say which pods it sees. failurePolicy and clientConfig, which injectors patch, do not."""

REMOVED: Final = "Removed"
"""Operation of the entries that remesh adds itself, beside Kubernetes' own Apply and Update."""

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_Path = tuple[str, ...]


def configured_times(configurations: Iterable[WebhookConfiguration]) -> dict[str, datetime]:
    """By name of configuration: when what its webhooks see may have changed last, or when it was created."""
    times = ((each.metadata.name, _latest(_configuration_times(each))) for each in configurations)
    return {name: time for name, time in times if time is not None}


def _configuration_times(configuration: WebhookConfiguration) -> Iterator[datetime | None]:
    yield parse_time(configuration.metadata.creation_timestamp)
    yield _last_change(configuration.metadata.managed_fields, _says_who_is_seen)


def _says_who_is_seen(entry: ManagedFields) -> bool:
    """True if its manager set a selector or a rule, or all of a webhook, as far as can be told."""
    webhooks = entry.fields_v1.get("f:webhooks")
    if not isinstance(webhooks, dict):
        return webhooks is not None
    return any(not isinstance(each, dict) or any(key in each for key in _SEES) for each in webhooks.values())


def requested_since(
    namespace: Namespace | None, profile: MeshProfile, webhooks: Iterable[tuple[str, Webhook]] = ()
) -> datetime | None:
    """When what a namespace says to this mesh may have changed last. None: its managed fields do not tell.

    What counts are the places that the profile names and the labels that its live webhooks select by. An entry of a
    whole applied manifest counts too: a request or an opt-out that was taken out of it has moved its time.
    """
    if namespace is None:
        return None
    wanted = _places(profile, webhooks)
    return _last_change(
        namespace.metadata.managed_fields,
        lambda entry: _applied(entry) or any(_is_set(entry.fields_v1, path) for path in wanted),
    )


def _places(profile: MeshProfile, webhooks: Iterable[tuple[str, Webhook]]) -> set[_Path]:
    places = {(f"f:{place.kind}s", place.key) for place in profile.asks.places if place.on == "namespace"}
    labels = {label.partition("=")[0] for label in profile.never.namespace_labels}
    live = [hook for name, hook in webhooks if profile.serves(name, hook.name, hook.client_config.service)]
    for hook in live or profile.default_webhooks:
        labels |= _keys(hook.namespace_selector)
    places |= {("f:labels", label) for label in labels if label != NAMESPACE_NAME_LABEL}  # that one never changes
    return {("f:metadata", kind, f"f:{key}") for kind, key in places}


def _keys(selector: LabelSelector | None) -> set[str]:
    if selector is None:
        return set()
    return {*(selector.match_labels or {}), *(each.key for each in selector.match_expressions or ())}


def _applied(entry: ManagedFields) -> bool:
    """True for `kubectl apply`, on either side, of a manifest with labels or annotations."""
    if _is_set(entry.fields_v1, ("f:metadata", "f:annotations", f"f:{_APPLIED}")):
        return True
    kinds = ("f:labels", "f:annotations")
    return entry.operation == "Apply" and any(_is_set(entry.fields_v1, ("f:metadata", kind)) for kind in kinds)


def lost_something(namespace: Namespace | None, pod: Pod) -> bool:
    """True if something was taken away from the namespace after the pod came up; it may have been an opt-out.

    Resource versions are etcd's revision, one counter for all that is written. A namespace that was written later than
    the pod was last, by a write of which no manager has an entry later than the pod's creation, has lost something, and
    what that was nobody can tell. False does not prove the contrary: the pod may have been written again since, by a
    restart of a container, or another manager may have set something meanwhile.
    """
    if namespace is None:
        return False
    before, after = pod.metadata.resource_version, namespace.metadata.resource_version
    if not (before.isdecimal() and after.isdecimal() and int(after) > int(before)):
        return False
    created, told = parse_time(pod.metadata.creation_timestamp), _last_change(namespace.metadata.managed_fields, _any)
    return created is not None and (told is None or told <= created)


def _any(_: ManagedFields) -> bool:
    return True


def left_behind(before: Namespace, after: Namespace, now: datetime) -> list[ManagedFields]:
    """Entries, of the operation `REMOVED`, for labels and annotations that are gone from a namespace."""
    kinds = (
        ("f:labels", before.metadata.labels, after.metadata.labels),
        ("f:annotations", before.metadata.annotations, after.metadata.annotations),
    )
    gone: dict[str, dict[str, dict[str, str]]] = {
        kind: {f"f:{key}": {} for key in was or {} if key not in (has or {})} for kind, was, has in kinds
    }
    return [
        ManagedFields(REMOVED, now.isoformat(), {"f:metadata": {kind: keys}}) for kind, keys in gone.items() if keys
    ]


def _last_change(entries: Iterable[ManagedFields] | None, counts: Callable[[ManagedFields], bool]) -> datetime | None:
    return _latest(parse_time(entry.time) for entry in entries or () if counts(entry))


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _is_set(fields: Any, path: _Path) -> bool:
    """True if managed fields name this one. What is no object on the way names nothing."""
    for step in path:
        if not isinstance(fields, dict) or step not in fields:
            return False
        fields = fields[step]
    return True
