"""Says on the owner how its repair ended, by a Kubernetes Event, where REMESH_KUBERNETES_EVENTS asks for it.

One thread writes them, one after the other, from a short queue: a repair never waits for it, and when there is too much
to say, or the API server does not take it, the rest goes unsaid and is counted. The trail has everything.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from remesh import logs
from remesh.errors import RemeshError
from remesh.kube.events import record
from remesh.kube.transport import KubeClient
from remesh.meter import Meter
from remesh.models import ObjectRef, Outcome, Result

log = logs.get("worker.announce")

# As client-go's: a burst, then a trickle.
BURST: Final = 25.0
PER_SECOND: Final = 1.0
WAITING: Final = 100  # Events that may wait to be written

TOLD: Final = {
    Result.HEALED: "RepairHealed",
    Result.INJECTED: "RepairInjected",
    Result.FAILED: "RepairFailed",
    Result.QUARANTINED: "RepairQuarantined",
    Result.REPORTED: "RepairRefused",
}
"""Reasons by result. What is tried again soon, and what was healthy all the while, is no news."""

Announce = Callable[[ObjectRef, ObjectRef, Outcome], None]
"""Told the owner, the object that was repaired, and how it ended."""


def say_nothing(_owner: ObjectRef, _ref: ObjectRef, _outcome: Outcome) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class _Told:
    owner: ObjectRef
    reason: str
    message: str
    warning: bool


class Bucket:
    """Tokens: `BURST` at once, then `PER_SECOND`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = BURST
        self._filled = clock()

    def take(self) -> bool:
        """True if one more may go."""
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Announcer:
    """Writes Events in a thread of its own, which begins with the first of them."""

    def __init__(self, client: KubeClient, meter: Meter) -> None:
        self._client = client
        self._meter = meter
        self._queue: queue.Queue[_Told] = queue.Queue(WAITING)
        self._bucket = Bucket()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, owner: ObjectRef, ref: ObjectRef, outcome: Outcome) -> None:
        """Say it soon. Returns at once and raises nothing."""
        reason = TOLD.get(outcome.result)
        if reason is None:
            return
        message = f"{ref.kind} {ref.name}: {outcome.reason} (finding {outcome.finding_id})"
        warning = outcome.result in (Result.FAILED, Result.QUARANTINED)
        with self._lock:
            if not self._bucket.take():
                self._meter.announced("dropped")
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="events", daemon=True)
                self._thread.start()
        try:
            self._queue.put_nowait(_Told(owner, reason, message, warning))
        except queue.Full:
            self._meter.announced("dropped")

    def _write(self) -> None:
        while True:
            told = self._queue.get()
            try:
                now = datetime.now(UTC)
                record(self._client, told.owner, told.reason, told.message, now, warning=told.warning)
                self._meter.announced("sent")
            except RemeshError as error:
                self._meter.announced("failed")
                log.warning("a Kubernetes Event could not be written", object=str(told.owner), error=str(error))
            except Exception:  # the edge of this thread: the next one may do better
                self._meter.announced("failed")
                log.exception("a Kubernetes Event could not be written", object=str(told.owner))
