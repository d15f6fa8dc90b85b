"""The API server as the cluster's own components use it: at a bounded rate of writes, as they are configured.

kube-controller-manager gives each of its controllers 20 requests a second with a burst of 30 (`--kube-api-qps`,
`--kube-api-burst`), Kubernetes Events included, and kube-scheduler has 50 and 100. It is a large part of how long a
cluster takes to recover.
"""

import threading
import time
from dataclasses import dataclass, field

from remesh.sim.api import ApiServer, Change
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import Obj
from remesh.sim.resources import Resource
from remesh.sim.store import Store


@dataclass
class Throttle:
    """A token bucket: `per_second` on average, `burst` at once. No limit when `per_second` is 0. Thread-safe."""

    per_second: float = 0.0
    burst: float = 0.0
    _closed: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tokens: float | None = None
    _filled_at: float = 0.0

    def wait(self) -> None:
        """Return when it is this caller's turn; at once after `close`."""
        if self.per_second > 0:
            delay = self._reserve()
            if delay > 0:
                self._closed.wait(delay)

    def close(self) -> None:
        """Let everybody pass from now on."""
        self._closed.set()

    def _reserve(self) -> float:
        with self._lock:
            present = time.monotonic()
            tokens = self.burst if self._tokens is None else self._tokens
            tokens += (present - self._filled_at) * self.per_second if self._filled_at else 0.0
            self._tokens = min(self.burst, tokens) - 1.0
            self._filled_at = present
            return max(0.0, -self._tokens / self.per_second)


@dataclass(frozen=True, slots=True)
class Client:
    """The writes of one component. Reads go to the store directly, as controllers read their caches."""

    api: ApiServer
    throttle: Throttle = field(default_factory=Throttle)

    @property
    def store(self) -> Store:
        """What a controller's cache holds."""
        return self.api.store

    def create(self, resource: Resource, namespace: str, obj: Obj) -> Obj:
        """Raises StatusError."""
        self.throttle.wait()
        return self.api.create(resource, namespace, obj).obj

    def change(self, resource: Resource, namespace: str, name: str, change: Change, *, subresource: str = "") -> Obj:
        """Raises StatusError."""
        self.throttle.wait()
        return self.api.change(resource, namespace, name, change, subresource=subresource).obj

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> None:
        """Raises StatusError."""
        self.throttle.wait()
        self.api.delete(resource, namespace, name, options)
