"""Kubernetes Events as controllers record them, through client-go's correlator: most of them are never seen.

Figures of client-go's EventCorrelator: more than 10 similar events within 10 minutes become one, and per source and
object 25 pass at once, then one every 5 minutes.
"""

import queue
import threading
import time
from dataclasses import dataclass, field

from remesh.sim import resources as res
from remesh.sim.client import Client
from remesh.sim.objects import Obj, name_of, namespace_of, now, now_micro, uid_of
from remesh.sim.resources import Resource
from remesh.sim.status import StatusError

_SIMILAR = 10
_SIMILAR_SECONDS = 600.0
_BURST = 25.0
_PER_SECOND = 1 / 300
_WAITING = 1000  # events that may wait to be written; more are dropped


@dataclass(frozen=True, slots=True)
class _Occurrence:
    resource: Resource
    obj: Obj
    kind: str
    reason: str
    message: str

    @property
    def uid(self) -> str:
        return uid_of(self.obj)

    @property
    def namespace(self) -> str:
        return namespace_of(self.obj) or "default"


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
    """Records the Events of one source (`replicaset-controller` and so on), from a thread of its own.

    The older sources count (core/v1); those of events.k8s.io/v1 leave `count` and `source` out.
    """

    client: Client
    source: str
    counts: bool = True
    _waiting: "queue.Queue[_Occurrence | None]" = field(default_factory=lambda: queue.Queue(_WAITING))
    _thread: threading.Thread | None = None
    _similar: dict[tuple[str, ...], _Similar] = field(default_factory=dict)
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _noted: dict[tuple[str, ...], _Noted] = field(default_factory=dict)

    def record(self, resource: Resource, obj: Obj, kind: str, reason: str, message: str) -> None:
        """Have a Kubernetes Event about `obj` written, or counted, or dropped. Returns at once. Thread-safe."""
        try:
            self._waiting.put_nowait(_Occurrence(resource, obj, kind, reason, message))
        except queue.Full:
            return  # client-go's broadcaster drops, too

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._work, name=f"{self.source}-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Drop what still waits, and end."""
        while not self._waiting.empty():
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                break
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _work(self) -> None:
        while (occurrence := self._waiting.get()) is not None:
            key, message = self._aggregated(occurrence)
            noted = self._count(key, occurrence.obj)
            if self._may_pass(occurrence.uid):
                self._write(occurrence, message, noted)

    def _aggregated(self, occurrence: _Occurrence) -> tuple[tuple[str, ...], str]:
        message = occurrence.message
        group = (occurrence.uid, occurrence.kind, occurrence.reason)
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
        return noted

    def _may_pass(self, uid: str) -> bool:
        present = time.monotonic()
        bucket = self._buckets.setdefault(uid, _Bucket(_BURST, present))
        bucket.tokens = min(_BURST, bucket.tokens + (present - bucket.filled_at) * _PER_SECOND)
        bucket.filled_at = present
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _write(self, occurrence: _Occurrence, message: str, noted: _Noted) -> None:
        try:
            if noted.count > 1 and self._recount(occurrence, message, noted):
                return
            self.client.create(res.EVENTS, occurrence.namespace, self._event(occurrence, message, noted))
        except StatusError:
            return  # an Event that cannot be written is dropped, as client-go drops it

    def _recount(self, occurrence: _Occurrence, message: str, noted: _Noted) -> bool:
        def counted(event: Obj) -> Obj:
            event.update(count=noted.count, lastTimestamp=now(), message=message)
            return event

        try:
            self.client.change(res.EVENTS, occurrence.namespace, noted.name, counted)
        except StatusError:
            return False
        return True

    def _event(self, occurrence: _Occurrence, message: str, noted: _Noted) -> Obj:
        obj = occurrence.obj
        event = {
            "metadata": {"name": noted.name, "namespace": occurrence.namespace},
            "involvedObject": {
                "kind": occurrence.resource.kind,
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
                "apiVersion": occurrence.resource.api_version,
                "resourceVersion": obj["metadata"]["resourceVersion"],
            },
            "reason": occurrence.reason,
            "message": message,
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "type": occurrence.kind,
            "eventTime": None,
            "reportingComponent": self.source,
            "reportingInstance": "",
        }
        if not self.counts:
            return {**event, "eventTime": now_micro(), "reportingInstance": f"{self.source}-sim"}
        source = {"component": self.source}
        times = {"firstTimestamp": noted.first, "lastTimestamp": now()}
        return {**event, "source": source, **times, "count": noted.count}
