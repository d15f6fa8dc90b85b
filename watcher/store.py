"""What the watches have brought: slim objects by kind and UID, and which workloads need another look.

Level-triggered: only state is kept, and a relist replaces it. Reflector threads write, the watcher's own thread
reads. Implements `remesh.observe.View`, so that `decide()` sees the cluster as it was last heard of.
"""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from remesh.kube.api import ReadyEndpoints, count_endpoints
from remesh.objects import EndpointSlice, Namespace, Node, Pod, Webhook, WebhookConfiguration, Workload
from remesh.since import REMOVED, configured_times, left_behind

WORKLOAD_KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
LOOKED_AT = ("Pod", *WORKLOAD_KINDS)
SERVICE_LABEL = "kubernetes.io/service-name"  # label that ties an EndpointSlice to its Service


class Store:
    """Thread-safe projections of one cluster."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._objects: dict[str, dict[str, Any]] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._webhooks: list[tuple[str, Webhook]] = []
        self._configured: dict[str, datetime] = {}
        self._slices: dict[tuple[str, str], dict[str, EndpointSlice]] = {}
        self._ready_nodes: set[str] = set()
        self._in_namespace: dict[str, set[str]] = {}  # namespace → UIDs of pods and workloads
        self._pods_of: dict[str, set[str]] = {}
        self._dirty: dict[str, None] = {}  # UIDs of workloads to look at, in order of arrival
        self._woken = False
        self.webhooks_version = 0  # grows whenever a MutatingWebhookConfiguration changes

    # --- written by the reflectors ---

    def replace(self, kind: str, items: Iterable[Any]) -> None:
        """A complete list has arrived: what is not in it is gone."""
        fresh = {item.metadata.uid: item for item in items}
        with self._changed:
            for uid in set(self._objects.get(kind, {})) - set(fresh):
                self._remove(kind, uid)
            for uid, item in fresh.items():
                self._put(kind, uid, item)
            self._changed.notify_all()

    def apply(self, kind: str, event: str, item: Any) -> None:
        """One watch event has arrived: ADDED, MODIFIED or DELETED."""
        with self._changed:
            if event == "DELETED":
                self._remove(kind, item.metadata.uid)
            else:
                self._put(kind, item.metadata.uid, item)
            self._changed.notify_all()

    def replace_slices(self, namespace: str, service: str, items: Iterable[EndpointSlice]) -> None:
        """All EndpointSlices of one injector's Service."""
        with self._changed:
            self._slices[(namespace, service)] = {item.metadata.uid: item for item in items}
            self._wake()

    def apply_slice(self, namespace: str, service: str, event: str, item: EndpointSlice) -> None:
        """One EndpointSlice of an injector's Service has changed."""
        with self._changed:
            slices = self._slices.setdefault((namespace, service), {})
            if event == "DELETED":
                slices.pop(item.metadata.uid, None)
            else:
                slices[item.metadata.uid] = item
            self._wake()

    def wake(self) -> None:
        """Let `wait` return: something outside the store happened."""
        with self._changed:
            self._wake()

    def look_at_all(self) -> None:
        """Whatever is held needs a look: a term of leading begins."""
        with self._changed:
            self._dirty.clear()
            self._look_again(uid for kind in LOOKED_AT for uid in self._objects.get(kind, {}))

    def forget_changes(self) -> None:
        """Nobody looks at changes now: a standby keeps objects and no list of changes."""
        with self._changed:
            self._dirty.clear()

    # --- read by the watcher's thread ---

    def wait(self, timeout: float) -> None:
        """Return when a workload needs a look, something woke the store, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._dirty or self._woken, timeout)
            self._woken = False

    def take_dirty(self, limit: int) -> list[str]:
        """UIDs of at most `limit` objects that changed and were not taken yet, the earliest first."""
        with self._changed:
            uids = list(islice(self._dirty, limit))
            for uid in uids:
                del self._dirty[uid]
            return uids

    def object(self, uid: str) -> Workload | Pod | None:
        """The pod or workload with this UID, or None."""
        found: Workload | Pod | None = self._first(LOOKED_AT, uid)
        return found

    def workload(self, uid: str) -> Workload | None:
        """The workload with this UID, or None."""
        found: Workload | None = self._first(WORKLOAD_KINDS, uid)
        return found

    def above(self, workload: Workload) -> Workload | None:
        """The Deployment over a ReplicaSet; None where there is none."""
        controller = workload.metadata.controller
        found: Workload | None = self._first(("Deployment",), controller.uid) if controller else None
        return found

    def _first(self, kinds: tuple[str, ...], uid: str) -> Any:
        with self._changed:
            return next((found for kind in kinds if (found := self._objects.get(kind, {}).get(uid))), None)

    def counts(self) -> dict[str, int]:
        """Number of objects held, by kind."""
        with self._changed:
            return {kind: len(items) for kind, items in self._objects.items()}

    def namespace(self, name: str) -> Namespace | None:
        """See `View`."""
        with self._changed:
            return self._namespaces.get(name)

    def webhooks(self) -> list[tuple[str, Webhook]]:
        """See `View`."""
        with self._changed:
            return self._webhooks

    def configured(self) -> dict[str, datetime]:
        """See `View`."""
        with self._changed:
            return self._configured

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints | None:
        """Ready endpoints of an injector's Service; those on a node that is not Ready do not count.

        None: they have not been listed yet, so nothing is known.
        """
        with self._changed:
            slices = self._slices.get((namespace, service))
            if slices is None:
                return None
            named = {endpoint.node_name for each in slices.values() for endpoint in each.endpoints or ()}
            lost = {node for node in named if node and node not in self._ready_nodes}
            return count_endpoints(slices.values(), lost)

    def drop_slices(self, namespace: str, service: str) -> None:
        """The Service is no injector's any more, and nobody follows its endpoints."""
        with self._changed:
            self._slices.pop((namespace, service), None)

    def pods_of(self, owner: Workload) -> list[Pod]:
        """Pods that name it as their controller. A reference from another namespace is a forger's."""
        with self._changed:
            pods = self._objects.get("Pod", {})
            found = [pods[pod] for pod in self._pods_of.get(owner.metadata.uid, ()) if pod in pods]
            return [pod for pod in found if pod.metadata.namespace == owner.metadata.namespace]

    # --- inside the lock ---

    def _put(self, kind: str, uid: str, item: Any) -> None:
        known = self._objects.setdefault(kind, {})
        before = known.get(uid)
        known[uid] = item
        if kind in LOOKED_AT:
            self._dirty[uid] = None
            self._in_namespace.setdefault(item.metadata.namespace, set()).add(uid)
            if kind == "Pod":
                self._index_pod(uid, before, item)
        elif before is None or before.metadata.resource_version != item.metadata.resource_version:
            self._surroundings_changed(kind, item, gone=False)

    def _remove(self, kind: str, uid: str) -> None:
        item = self._objects.get(kind, {}).pop(uid, None)
        if item is None:
            return
        if kind in LOOKED_AT:
            self._dirty[uid] = None
            self._leave_namespace(item.metadata.namespace, uid)
            if kind == "Pod":
                self._index_pod(uid, item, None)
        else:
            self._surroundings_changed(kind, item, gone=True)

    def _index_pod(self, uid: str, before: Pod | None, after: Pod | None) -> None:
        old = before.metadata.controller.uid if before and before.metadata.controller else None
        new = after.metadata.controller.uid if after and after.metadata.controller else None
        if old != new and old is not None:
            siblings = self._pods_of.get(old, set())
            siblings.discard(uid)
            if not siblings:
                self._pods_of.pop(old, None)
        if new is not None:
            self._pods_of.setdefault(new, set()).add(uid)
        for owner in {old, new} if old != new else ():
            if owner is not None:  # it has a pod more, or less, than before; its status will say so only later
                self._dirty[owner] = None

    def _leave_namespace(self, namespace: str, uid: str) -> None:
        members = self._in_namespace.get(namespace, set())
        members.discard(uid)
        if not members:
            self._in_namespace.pop(namespace, None)

    def _surroundings_changed(self, kind: str, item: Any, *, gone: bool) -> None:
        if kind == "Namespace":
            self._namespace_changed(item, gone=gone)
        elif kind == "MutatingWebhookConfiguration":
            configurations = list(self._objects.get(kind, {}).values())
            self._webhooks = [pair for configuration in configurations for pair in _webhooks_of(configuration)]
            self._configured = configured_times(configurations)
            self.webhooks_version += 1
            self._look_again(uid for kind in LOOKED_AT for uid in self._objects.get(kind, {}))
        elif kind == "Node":
            self._node_changed(item, gone=gone)

    def _namespace_changed(self, item: Namespace, *, gone: bool) -> None:
        name = item.metadata.name
        before = self._namespaces.get(name)
        if gone:
            if before is not None and before.metadata.uid == item.metadata.uid:
                del self._namespaces[name]
        else:
            if before is not None and before.metadata.uid == item.metadata.uid:
                self._note_removals(before, item)
            self._namespaces[name] = item
        self._look_again(self._in_namespace.get(name, ()))

    def _note_removals(self, before: Namespace, item: Namespace) -> None:
        """What is taken away from a namespace leaves no managed field: it is noted as if it did."""
        noted = [each for each in before.metadata.managed_fields or () if each.operation == REMOVED]
        noted += left_behind(before, item, datetime.now(UTC))
        if noted:
            item.metadata.managed_fields = [*(item.metadata.managed_fields or ()), *noted]

    def _node_changed(self, node: Node, *, gone: bool) -> None:
        name, was_ready = node.metadata.name, node.metadata.name in self._ready_nodes
        if gone or not node.ready:
            self._ready_nodes.discard(name)
        else:
            self._ready_nodes.add(name)
        if was_ready != (name in self._ready_nodes):
            self._wake()

    def _look_again(self, uids: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(uids))
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify_all()


def _webhooks_of(configuration: WebhookConfiguration) -> list[tuple[str, Webhook]]:
    return [(configuration.metadata.name, webhook) for webhook in configuration.webhooks or ()]
