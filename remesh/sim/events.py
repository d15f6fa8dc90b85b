"""Kubernetes Events as controllers record them, through client-go's correlator: most of them are never seen.

Figures of client-go's EventCorrelator: more than 10 similar events within 10 minutes become one, and per source and
object 25 pass at once, then one every 5 minutes.
"""

import threading
import time
from dataclasses import dataclass, field

from remesh.sim import resources as res
from remesh.sim.api import ApiServer
from remesh.sim.objects import Obj, name_of, namespace_of, now, uid_of
from remesh.sim.resources import Resource
from remesh.sim.status import StatusError

_SIMILAR = 10
_SIMILAR_SECONDS = 600.0
_BURST = 25.0
_PER_SECOND = 1 / 300


@dataclass
class _Similar:
    messages: set[str]
    seen_at: float


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


@dataclass
class _Noted:
    name: str
    count: int
    first: str


@dataclass
class Recorder:
    """Records the Events of one source (`replicaset-controller` and so on). Thread-safe."""

    api: ApiServer
    source: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _similar: dict[tuple[str, ...], _Similar] = field(default_factory=dict)
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _noted: dict[tuple[str, ...], _Noted] = field(default_factory=dict)

    def record(self, resource: Resource, obj: Obj, kind: str, reason: str, message: str) -> None:
        """Write a Kubernetes Event about `obj`, or add to the count of one, or drop it."""
        with self._lock:
            key, message = self._aggregated(uid_of(obj), kind, reason, message)
            noted = self._count(key, obj)
            if not self._may_pass(uid_of(obj)):
                return
        self._write(resource, obj, kind, reason, message, noted)

    def _aggregated(self, uid: str, kind: str, reason: str, message: str) -> tuple[tuple[str, ...], str]:
        group = (uid, kind, reason)
        similar = self._similar.get(group)
        present = time.monotonic()
        if similar is None or present - similar.seen_at > _SIMILAR_SECONDS:
            similar = self._similar[group] = _Similar(set(), present)
        similar.seen_at = present
        similar.messages.add(message)
        if len(similar.messages) < _SIMILAR:
            return (*group, message), message
        similar.messages.pop()
        return group, f"(combined from similar events): {message}"

    def _count(self, key: tuple[str, ...], obj: Obj) -> _Noted:
        noted = self._noted.get(key)
        if noted is None:
            noted = self._noted[key] = _Noted(f"{name_of(obj)}.{time.time_ns():x}", 0, now())
        noted.count += 1
        return _Noted(noted.name, noted.count, noted.first)

    def _may_pass(self, uid: str) -> bool:
        present = time.monotonic()
        bucket = self._buckets.setdefault(uid, _Bucket(_BURST, present))
        bucket.tokens = min(_BURST, bucket.tokens + (present - bucket.filled_at) * _PER_SECOND)
        bucket.filled_at = present
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _write(self, resource: Resource, obj: Obj, kind: str, reason: str, message: str, noted: _Noted) -> None:
        namespace = namespace_of(obj) or "default"
        try:
            if noted.count > 1 and self._recount(namespace, noted, message):
                return
            event = self._event(resource, obj, kind, reason, message, noted)
            self.api.create(res.EVENTS, namespace, event)
        except StatusError:
            return  # an Event that cannot be written is dropped, as client-go drops it

    def _recount(self, namespace: str, noted: _Noted, message: str) -> bool:
        def counted(event: Obj) -> Obj:
            event.update(count=noted.count, lastTimestamp=now(), message=message)
            return event

        try:
            self.api.change(res.EVENTS, namespace, noted.name, counted)
        except StatusError:
            return False
        return True

    def _event(self, resource: Resource, obj: Obj, kind: str, reason: str, message: str, noted: _Noted) -> Obj:
        return {
            "metadata": {"name": noted.name, "namespace": namespace_of(obj) or "default"},
            "involvedObject": {
                "kind": resource.kind,
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
                "apiVersion": resource.api_version,
                "resourceVersion": obj["metadata"]["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": self.source},
            "firstTimestamp": noted.first,
            "lastTimestamp": now(),
            "count": noted.count,
            "type": kind,
            "eventTime": None,
            "reportingComponent": self.source,
            "reportingInstance": "",
        }
