"""The verbs of the API server on stored objects: what HTTP requests and the controllers both go through."""

import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from remesh.sim import defaults, managed, podadmission, status
from remesh.sim import resources as res
from remesh.sim.admission import Admission, Attributes
from remesh.sim.deletion import DeleteOptions, check_preconditions, terminating
from remesh.sim.eviction import claim_disruption, mark_disrupted
from remesh.sim.objects import (
    Obj,
    cluster_ip,
    copy,
    generated_name,
    is_finished,
    is_terminating,
    meta,
    new_uid,
    now,
    uid_of,
)
from remesh.sim.patches import apply_patch
from remesh.sim.resources import Resource
from remesh.sim.selectors import LabelTest, ObjectTest
from remesh.sim.store import Store, Stored, VersionMismatch

# kube-apiserver gives a write this long at most, webhooks included (apiserver handlers, requestTimeoutUpperBound).
REQUEST_SECONDS = 34.0
_KEPT_SNAPSHOTS = 32  # lists that can be continued at the same time
_GENERATE_NAME_TRIES = 8
# Managers of fields whose writer is none of the API's clients: who set up the cluster, and who works in it.
_INSTALLER, _CONTROLLER = "installer", "controller"

Change = Callable[[Obj], Obj]


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list: the items with the version they were read at."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or a watch narrows down to."""

    namespace: str = ""
    labels: LabelTest | None = None
    fields: ObjectTest | None = None

    def wants(self, obj: Obj) -> bool:
        """Whether an object is selected."""
        metadata = meta(obj)
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self.labels is not None and not self.labels(metadata.get("labels") or {}):
            return False
        return self.fields is None or self.fields(obj)

    @property
    def is_narrow(self) -> bool:
        """Whether not everything (of a namespace) is selected."""
        return self.labels is not None or self.fields is not None


@dataclass
class ApiServer:
    """Reads and writes with admission, defaults, validation, versions and preconditions. Thread-safe."""

    store: Store
    admission: Admission
    _snapshots: OrderedDict[str, list[Stored]] = field(default_factory=OrderedDict)
    _snapshot_lock: threading.Lock = field(default_factory=threading.Lock)

    # Reading

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Raises StatusError (404)."""
        stored = self.store.get(resource, namespace, name)
        if stored is None:
            raise status.not_found(resource, name)
        return stored

    def page(self, resource: Resource, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        """One page. All pages of one list show the objects as they were when its first page was read."""
        if token:
            version, start, items = self._continued(token)
        else:
            version, items = self.store.snapshot(resource, selection.namespace)
            start = 0
            if selection.is_narrow:
                items = [item for item in items if selection.wants(item.obj)]
        if not limit or len(items) - start <= limit:
            return Page(items[start:], version)
        end = start + limit
        remaining = None if selection.is_narrow else len(items) - end
        return Page(items[start:end], version, self._token(resource, version, end, items), remaining)

    def _token(self, resource: Resource, version: int, start: int, items: list[Stored]) -> str:
        name = f"{resource.qualified}/{version}/{id(items)}"
        with self._snapshot_lock:
            self._snapshots[name] = items
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start, "list": name})
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def _continued(self, token: str) -> tuple[int, int, list[Stored]]:
        try:
            raw = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            version, start, name = int(raw["rv"]), int(raw["start"]), str(raw["list"])
        except (ValueError, KeyError, TypeError, msgspec.DecodeError):
            raise status.bad_request("invalid continue token: continue key is not valid") from None
        with self._snapshot_lock:
            items = self._snapshots.get(name)
        if items is None:
            message = (
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
            raise status.expired(message)
        return version, start, items

    # Creating

    def create(
        self,
        resource: Resource,
        namespace: str,
        obj: Obj,
        *,
        dry_run: bool = False,
        deadline: float | None = None,
        user: str = "",
        manager: str = _INSTALLER,
    ) -> Stored:
        """Admit and store a new object; with `dry_run` all but the storing is done. `manager` is of managed fields.

        `deadline` is on the monotonic clock, in seconds. Raises StatusError.
        """
        obj = self._prepared(resource, namespace, copy(obj))
        deadline = deadline if deadline is not None else time.monotonic() + REQUEST_SECONDS
        attributes = Attributes(resource, "CREATE", namespace, dry_run, deadline, user)
        self._require_namespace(resource, namespace, obj)
        if resource is res.PODS:
            podadmission.add_defaults(self.store, namespace, obj)
        obj = self.admission.mutate(attributes, obj)
        for _ in range(_GENERATE_NAME_TRIES):
            candidate = self._named(resource, obj)
            self.admission.validate(attributes, candidate)
            managed.note(resource, None, candidate, manager)
            if dry_run:
                return self._rehearsed(resource, namespace, candidate)
            try:
                return self.store.insert(resource, candidate)
            except VersionMismatch:
                if meta(obj).get("name"):
                    break
        raise status.already_exists(resource, meta(candidate)["name"])

    def _prepared(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        kind, version = obj.pop("kind", resource.kind), obj.pop("apiVersion", resource.api_version)
        if (kind, version) != (resource.kind, resource.api_version):
            message = (
                f'{kind} in version "{version.rpartition("/")[2]}" cannot be handled as a {resource.kind}: '
                f"converting ({version}.{kind}) to ({resource.kind}): unknown conversion"
            )
            raise status.bad_request(message)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name") and not metadata.get("generateName"):
            why = "Required value: name or generateName is required"
            raise status.invalid(resource, "", "metadata.name", why, "FieldValueRequired")
        if resource.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        for field_name in ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "managedFields"):
            metadata.pop(field_name, None)
        defaults.drop_empty(metadata)
        metadata.pop("generation", None)
        if resource.has_status and resource is not res.NODES:
            obj.pop("status", None)
        defaults.fill(resource, obj)
        return obj

    def _require_namespace(self, resource: Resource, namespace: str, obj: Obj) -> None:
        if not resource.namespaced:
            return
        found = self.get(res.NAMESPACES, "", namespace)
        if is_terminating(found.obj):
            name = meta(obj).get("name") or meta(obj).get("generateName", "")
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise status.forbidden(resource, name, why, [cause])

    def _named(self, resource: Resource, admitted: Obj) -> Obj:
        obj = copy(admitted)
        if resource is res.PODS:
            podadmission.mount_token(obj)
        metadata = meta(obj)
        if not metadata.get("name"):
            metadata["name"] = generated_name(metadata["generateName"])
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = now()
        if resource.has_generation:
            metadata["generation"] = 1
        defaults.fill(resource, obj)
        defaults.validate(resource, obj)
        if resource is res.PODS:
            obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        elif resource.has_status and resource is not res.NODES:
            obj.setdefault("status", {}).update(defaults.FIRST_STATUS.get(resource, {}))
        if resource is res.SERVICES and not obj["spec"].get("clusterIP"):
            obj["spec"]["clusterIP"] = cluster_ip(metadata["uid"])
            obj["spec"]["clusterIPs"] = [obj["spec"]["clusterIP"]]
        return obj

    def _rehearsed(self, resource: Resource, namespace: str, obj: Obj) -> Stored:
        if self.store.get(resource, namespace if resource.namespaced else "", meta(obj)["name"]) is not None:
            raise status.already_exists(resource, meta(obj)["name"])
        return Stored(obj, msgspec.json.encode(obj), 0)

    # Changing

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        obj: Obj,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = _CONTROLLER,
    ) -> Stored:
        """Replace an object (or its status). Raises StatusError: 404, 409, 422."""
        given = copy(obj)
        given.pop("kind", None)
        given.pop("apiVersion", None)
        stored = self.get(resource, namespace, name)
        uid = given.get("metadata", {}).get("uid")
        if uid and uid != uid_of(stored.obj):
            raise status.conflict(resource, name, _uid_mismatch(uid, uid_of(stored.obj)))
        how = {"subresource": subresource, "manager": manager}
        return self.change(resource, namespace, name, lambda _old: copy(given), dry_run=dry_run, **how)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        media_type: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = _CONTROLLER,
    ) -> Stored:
        """Patch an object (or its status). Raises StatusError: 400, 404, 409, 422."""

        def patched(old: Obj) -> Obj:
            named = {"kind": resource.kind, "apiVersion": resource.api_version, **old}
            new = apply_patch(media_type, named, patch)
            new.pop("kind", None)
            new.pop("apiVersion", None)
            return copy(new)

        how = {"subresource": subresource, "manager": manager}
        return self.change(resource, namespace, name, patched, dry_run=dry_run, **how)

    def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Change,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = _CONTROLLER,
    ) -> Stored:
        """Apply `change` to a copy of the object as it is now, again when somebody else was quicker."""
        while True:
            old = self.get(resource, namespace, name)
            new = self._merged(resource, old, change(copy(old.obj)), subresource)
            if new == old.obj:
                return old
            if not subresource:
                defaults.validate(resource, new)
                managed.note(resource, old.obj, new, manager)
            if dry_run:
                return Stored(new, msgspec.json.encode(new), old.version)
            try:
                return self._commit(resource, old, new)
            except VersionMismatch:
                continue

    def _merged(self, resource: Resource, old: Stored, new: Obj, subresource: str) -> Obj:
        metadata = new.setdefault("metadata", {})
        name = meta(old.obj)["name"]
        version = metadata.get("resourceVersion")
        if version and version != meta(old.obj)["resourceVersion"]:
            raise status.modified_conflict(resource, name)
        _require_immutable(resource, meta(old.obj), metadata)
        if subresource == "status":
            return {**old.obj, "status": new.get("status") or {}}
        if subresource == "binding":
            return {**old.obj, "spec": new["spec"], "status": new["status"]}
        merged = {**new, "metadata": _kept_metadata(meta(old.obj), metadata)}
        if resource.has_status and subresource != "finalize":
            merged.pop("status", None)
            if "status" in old.obj:
                merged["status"] = old.obj["status"]
        defaults.fill(resource, merged)
        if resource.has_generation and _content(merged) != _content(old.obj):
            merged["metadata"]["generation"] = meta(old.obj).get("generation", 1) + 1
        return merged

    def _commit(self, resource: Resource, old: Stored, new: Obj) -> Stored:
        if is_terminating(new) and not _holds(new):
            return self.store.remove(resource, self.store.replace(resource, old, new))
        return self.store.replace(resource, old, new)

    # Deleting

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> Stored | None:
        """Delete an object, gracefully where its kind asks for it.

        Returns the object when it is still there (terminating) or was a pod, None when it is simply gone.
        Raises StatusError: 404, and 409 when a precondition does not hold.
        """
        while True:
            old = self.get(resource, namespace, name)
            check_preconditions(resource, old.obj, options)
            new = terminating(resource, old.obj, options)
            if new == old.obj:
                return old
            if options.dry_run:
                return old if new is not None or resource is res.PODS else None
            try:
                if new is not None:
                    return self.store.replace(resource, old, new)
                gone = self.store.remove(resource, old)
            except VersionMismatch:
                continue
            return gone if resource is res.PODS else None

    def evict(self, namespace: str, name: str, eviction: Obj) -> Obj:
        """The eviction subresource: deletes the pod if its disruption budget allows it.

        Raises StatusError: 404, 409 (precondition), 429 (budget), 500 (several budgets).
        """
        if meta(eviction).get("name", name) != name:
            raise status.bad_request("name in URL does not match name in Eviction object")
        options = DeleteOptions.read(eviction.get("deleteOptions"))
        pod = self.get(res.PODS, namespace, name).obj
        if not is_finished(pod) and pod["status"].get("phase") != "Pending" and not is_terminating(pod):
            claim_disruption(self, pod, dry_run=options.dry_run)
        if not options.dry_run:
            mark_disrupted(self, namespace, name, options)
        self.delete(res.PODS, namespace, name, options)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _content(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _holds(obj: Obj) -> bool:
    """Whether a terminating object must stay for now."""
    metadata = meta(obj)
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return True
    return bool((obj.get("spec") or {}).get("finalizers"))  # a namespace's own


def _require_immutable(resource: Resource, old: Obj, new: Obj) -> None:
    for field_name in ("name", "namespace", "uid"):
        value = new.get(field_name)
        if not value or value == old.get(field_name):
            continue
        if field_name == "uid":
            why = f'Invalid value: "{value}": field is immutable'
            raise status.invalid(resource, old["name"], "metadata.uid", why)
        raise status.bad_request(
            f"the {field_name} of the object ({value}) does not match the {field_name} on the URL"
            f" ({old.get(field_name)})"
        )


_SERVER_OWNED = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "managedFields",
)


def _kept_metadata(old: Obj, new: Obj) -> Obj:
    kept = {key: value for key, value in new.items() if key not in _SERVER_OWNED and value not in ({}, [], None)}
    return {**kept, **{key: old[key] for key in _SERVER_OWNED if key in old}}


def _uid_mismatch(wanted: str, present: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {present}"
