"""The surroundings of an object, read from the API server when asked for, and believed for a short while.

For workers and the command line, which look at one object at a time; the watcher has a store instead.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from remesh.errors import NotFound
from remesh.kube.api import Cluster, ReadyEndpoints, Webhooks, webhooks_of
from remesh.objects import Namespace, WebhookConfiguration
from remesh.since import configured_times

T = TypeVar("T")


class LiveView:
    """Implements `remesh.observe.View`. Thread-safe: repairs come in bursts, and many share one read."""

    def __init__(self, cluster: Cluster, *, ttl: float = 2.0) -> None:
        self._cluster = cluster
        self._ttl = ttl  # seconds
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[float, object]] = {}

    def namespace(self, name: str) -> Namespace | None:
        """The namespace, or None if it is not there. Raises ClusterError."""
        return self._read(("namespace", name), lambda: self._namespace(name))

    def webhooks(self) -> Webhooks:
        """Every live mutating webhook with the name of its configuration. Raises ClusterError."""
        return self._read(("webhooks",), lambda: webhooks_of(self._configurations()))

    def configured(self) -> dict[str, datetime]:
        """Since when each live webhook configuration sees what it does. Raises ClusterError."""
        return self._read(("configured",), lambda: configured_times(self._configurations()))

    def _configurations(self) -> list[WebhookConfiguration]:
        return self._read(("configurations",), lambda: self._cluster.list("MutatingWebhookConfiguration"))

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        """Ready endpoints of a Service. Raises ClusterError."""
        return self._read(("endpoints", namespace, service), lambda: self._cluster.endpoints(namespace, service))

    def _namespace(self, name: str) -> Namespace | None:
        try:
            return self._cluster.namespace(name)
        except NotFound:
            return None

    def _read(self, key: tuple[str, ...], read: Callable[[], T]) -> T:
        now = time.monotonic()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known[0] < self._ttl:
            return known[1]  # type: ignore[return-value]  # the key says of which type it is
        value = read()
        with self._lock:
            self._known = {each: held for each, held in self._known.items() if now - held[0] < self._ttl}
            self._known[key] = (now, value)
        return value
