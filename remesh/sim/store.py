"""The objects, their resource versions, and the history that watches are served from: the part that is etcd.

Objects in the store are never changed in place; whoever wants a change copies, changes and replaces. Each object
is serialised once, when it is stored, and every list and every watch sends those bytes.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from remesh.sim.objects import Obj, meta
from remesh.sim.resources import STORED, Resource

Key = tuple[str, str]  # namespace (empty for what has none) and name
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

DEFAULT_HISTORY = 10_000  # changes kept per resource for watches that start in the past


class VersionMismatch(Exception):
    """The object is no longer what the writer has read (or is there, or gone)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it is at one resource version."""

    obj: Obj  # without kind and apiVersion, as items of a list are
    body: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """One write. For a deletion `new` is the last state, under the resource version of the deletion."""

    type: ChangeType
    resource: Resource
    key: Key
    new: Stored
    old: Stored | None


def full_body(resource: Resource, stored: Stored) -> bytes:
    """The JSON of one object with its kind and apiVersion."""
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    return head.encode() + stored.body[1:]


class _Table:
    """All that is kept of one resource."""

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.history: deque[Change] = deque(maxlen=history)
        self.forgotten = 0  # the version of the newest change that fell out of the history
        self.listeners: list[Callable[[Change], None]] = []

    def remember(self, change: Change) -> None:
        if len(self.history) == self.history.maxlen:
            self.forgotten = self.history[0].new.version
        self.history.append(change)


class Store:
    """Thread-safe. Listeners run under the lock, in the order of versions: they may only take a note."""

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        self._lock = threading.RLock()
        self._version = 1
        self._tables = {resource: _Table(history) for resource in STORED}
        self._dependents: dict[str, set[tuple[Resource, Key]]] = {}
        self._uids: set[str] = set()
        self._encode = msgspec.json.Encoder().encode

    @property
    def version(self) -> int:
        """The version of the newest write."""
        with self._lock:
            return self._version

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """An object, if it is there."""
        return self._tables[resource].objects.get((namespace, name))

    def objects(self, resource: Resource, namespace: str = "") -> list[Stored]:
        """The objects (of one namespace, or all), sorted by key."""
        return self.snapshot(resource, namespace)[1]

    def snapshot(self, resource: Resource, namespace: str = "") -> tuple[int, list[Stored]]:
        """The present version, and the objects (of one namespace, or all) sorted by key."""
        with self._lock:
            version = self._version
            items = list(self._tables[resource].objects.items())
        if namespace:
            items = [item for item in items if item[0][0] == namespace]
        items.sort(key=lambda item: item[0])
        return version, [stored for _, stored in items]

    def insert(self, resource: Resource, obj: Obj) -> Stored:
        """Raises VersionMismatch when an object of that name is there."""
        key = _key(obj)
        with self._lock:
            table = self._tables[resource]
            if key in table.objects:
                raise VersionMismatch
            stored = self._next(obj)
            table.objects[key] = stored
            self._index(resource, key, None, stored)
            self._publish(table, Change("ADDED", resource, key, stored, None))
        return stored

    def replace(self, resource: Resource, old: Stored, obj: Obj) -> Stored:
        """Raises VersionMismatch when the object is no longer at `old`."""
        key = _key(obj)
        with self._lock:
            table = self._tables[resource]
            if table.objects.get(key) is not old:
                raise VersionMismatch
            stored = self._next(obj)
            table.objects[key] = stored
            self._index(resource, key, old, stored)
            self._publish(table, Change("MODIFIED", resource, key, stored, old))
        return stored

    def remove(self, resource: Resource, old: Stored) -> Stored:
        """The last state under the version of the deletion. Raises VersionMismatch as `replace` does."""
        key = _key(old.obj)
        with self._lock:
            table = self._tables[resource]
            if table.objects.get(key) is not old:
                raise VersionMismatch
            del table.objects[key]
            stored = self._next(old.obj)
            self._index(resource, key, old, None)
            self._publish(table, Change("DELETED", resource, key, stored, old))
        return stored

    def dependents(self, owner_uid: str) -> list[tuple[Resource, Key]]:
        """All objects that name this owner."""
        with self._lock:
            return sorted(self._dependents.get(owner_uid, ()), key=lambda entry: (entry[0].plural, entry[1]))

    def owned(self, resource: Resource, owner_uid: str) -> list[Obj]:
        """The objects of one resource that name this owner."""
        with self._lock:
            found = [
                self._tables[kind].objects[key].obj
                for kind, key in self._dependents.get(owner_uid, ())
                if kind is resource
            ]
        return sorted(found, key=lambda obj: (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]))

    def is_live(self, uid: str) -> bool:
        """Whether an object of this UID is there."""
        return uid in self._uids

    def listen(self, resource: Resource, listener: Callable[[Change], None]) -> None:
        """Call `listener` for every later change of the resource."""
        with self._lock:
            self._tables[resource].listeners.append(listener)

    def follow(
        self, resource: Resource, since: int | None, listener: Callable[[Change], None]
    ) -> tuple[int, list[Stored]] | None:
        """Start a watch: replay what came after `since`, then go on with every later change.

        Without `since` nothing is replayed, and the present objects are returned with their version. None is
        returned when `since` is older than the history: the watcher has to list again.
        """
        with self._lock:
            table = self._tables[resource]
            if since is None:
                table.listeners.append(listener)
                return self._version, [table.objects[key] for key in sorted(table.objects)]
            if since < table.forgotten:
                return None
            for change in table.history:
                if change.new.version > since:
                    listener(change)
            table.listeners.append(listener)
            return self._version, []

    def unfollow(self, resource: Resource, listener: Callable[[Change], None]) -> None:
        """End a watch."""
        with self._lock:
            self._tables[resource].listeners.remove(listener)

    def forgotten(self, resource: Resource) -> int:
        """The newest version that a watch can no longer start behind."""
        return self._tables[resource].forgotten

    def _next(self, obj: Obj) -> Stored:
        self._version += 1
        obj = {**obj, "metadata": {**meta(obj), "resourceVersion": str(self._version)}}
        return Stored(obj, self._encode(obj), self._version)

    def _publish(self, table: _Table, change: Change) -> None:
        table.remember(change)
        for listener in table.listeners:
            listener(change)

    def _index(self, resource: Resource, key: Key, old: Stored | None, new: Stored | None) -> None:
        for uid in _owner_uids(old) - _owner_uids(new):
            self._dependents[uid].discard((resource, key))
        for uid in _owner_uids(new) - _owner_uids(old):
            self._dependents.setdefault(uid, set()).add((resource, key))
        if old is not None and new is None:
            self._uids.discard(old.obj["metadata"]["uid"])
        elif new is not None:
            self._uids.add(new.obj["metadata"]["uid"])


def _key(obj: Obj) -> Key:
    return meta(obj).get("namespace", ""), meta(obj)["name"]


def _owner_uids(stored: Stored | None) -> set[str]:
    if stored is None:
        return set()
    return {reference["uid"] for reference in meta(stored.obj).get("ownerReferences") or ()}
