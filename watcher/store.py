"""What the watches have brought: slim objects by kind and UID, and which workloads need another look.

Level-triggered: only state is kept, and a relist replaces it. Reflector threads write, the watcher's own thread
reads. Implements `remesh.observe.View`, so that `decide()` sees the cluster as it was last heard of.
"""

import threading
from collections.abc import Iterable
from typing import Any

from remesh.kube.api import ReadyEndpoints, count_endpoints
from remesh.objects import EndpointSlice, Namespace, Pod, Webhook, WebhookConfiguration, Workload

WORKLOAD_KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
SERVICE_LABEL = "kubernetes.io/service-name"  # label that ties an EndpointSlice to its Service


class Store:
    """Thread-safe projections of one cluster."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._objects: dict[str, dict[str, Any]] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._webhooks: list[tuple[str, Webhook]] = []
        self._slices: dict[tuple[str, str], dict[str, EndpointSlice]] = {}
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

    # --- read by the watcher's thread ---

    def wait(self, timeout: float) -> None:
        """Return when a workload needs a look, something woke the store, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._dirty or self._woken, timeout)
            self._woken = False

    def take_dirty(self) -> list[str]:
        """UIDs of the workloads that changed since the last call."""
        with self._changed:
            uids = list(self._dirty)
            self._dirty.clear()
            return uids

    def workload(self, uid: str) -> Workload | None:
        """The workload with this UID, or None."""
        with self._changed:
            for kind in WORKLOAD_KINDS:
                found: Workload | None = self._objects.get(kind, {}).get(uid)
                if found is not None:
                    return found
            return None

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

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        """Ready endpoints of an injector's Service."""
        with self._changed:
            return count_endpoints(self._slices.get((namespace, service), {}).values())

    def pods_of(self, uid: str) -> list[Pod]:
        """Pods whose controller has this UID."""
        with self._changed:
            pods = self._objects.get("Pod", {})
            return [pods[pod] for pod in self._pods_of.get(uid, ()) if pod in pods]

    # --- inside the lock ---

    def _put(self, kind: str, uid: str, item: Any) -> None:
        known = self._objects.setdefault(kind, {})
        before = known.get(uid)
        known[uid] = item
        if kind in WORKLOAD_KINDS:
            self._dirty[uid] = None
        elif kind == "Pod":
            self._index_pod(uid, before, item)
        elif before is None or before.metadata.resource_version != item.metadata.resource_version:
            self._surroundings_changed(kind, item, gone=False)

    def _remove(self, kind: str, uid: str) -> None:
        item = self._objects.get(kind, {}).pop(uid, None)
        if item is None:
            return
        if kind in WORKLOAD_KINDS:
            self._dirty[uid] = None
        elif kind == "Pod":
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

    def _surroundings_changed(self, kind: str, item: Any, *, gone: bool) -> None:
        if kind == "Namespace":
            self._namespace_changed(item, gone=gone)
        elif kind == "MutatingWebhookConfiguration":
            configurations = self._objects.get(kind, {}).values()
            self._webhooks = [pair for configuration in configurations for pair in _webhooks_of(configuration)]
            self.webhooks_version += 1
            self._look_again(None)

    def _namespace_changed(self, item: Namespace, *, gone: bool) -> None:
        name = item.metadata.name
        before = self._namespaces.get(name)
        if gone:
            if before is not None and before.metadata.uid == item.metadata.uid:
                del self._namespaces[name]
        else:
            self._namespaces[name] = item
        if before is not None or gone:  # a new namespace is empty
            self._look_again(name)

    def _look_again(self, namespace: str | None) -> None:
        for kind in WORKLOAD_KINDS:
            for uid, workload in self._objects.get(kind, {}).items():
                if namespace is None or workload.metadata.namespace == namespace:
                    self._dirty[uid] = None
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify_all()


def _webhooks_of(configuration: WebhookConfiguration) -> list[tuple[str, Webhook]]:
    return [(configuration.metadata.name, webhook) for webhook in configuration.webhooks or ()]
