"""The work queue of Kubernetes' controllers: one worker per key at a time, delays, and exponential back-off.

The figures are those of client-go's DefaultControllerRateLimiter, because the back-off is the very trouble that is
simulated: 5 ms doubling to 1000 s per key, and at most 10 retries a second (burst 100) over all keys.
"""

import heapq
import threading
import time
from collections import deque
from dataclasses import dataclass, field

Key = tuple[str, str]

_BUCKET_PER_SECOND = 10.0
_BUCKET_BURST = 100.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """Seconds of the first retry and of the longest one. `bucket`: whether all keys share a rate, too."""

    first: float = 0.005
    longest: float = 1000.0
    bucket: bool = True


@dataclass
class WorkQueue:
    """Thread-safe; `get` blocks until there is a key, and returns None once the queue is shut down."""

    back_off: BackOff = BackOff()
    _cond: threading.Condition = field(default_factory=threading.Condition)
    _ready: deque[Key] = field(default_factory=deque)
    _dirty: set[Key] = field(default_factory=set)
    _processing: set[Key] = field(default_factory=set)
    _delayed: list[tuple[float, Key]] = field(default_factory=list)  # a heap; one that is not in `_due` is outdated
    _due: dict[Key, float] = field(default_factory=dict)
    _failures: dict[Key, int] = field(default_factory=dict)
    _tokens: float = _BUCKET_BURST
    _tokens_at: float = field(default_factory=time.monotonic)
    _closed: bool = False

    def add(self, key: Key) -> None:
        """Add a key at once, past its back-off; once, however often it is added."""
        with self._cond:
            self._add(key)

    def _add(self, key: Key) -> None:
        if key in self._dirty or self._closed:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.append(key)
            self._cond.notify()

    def add_after(self, key: Key, seconds: float) -> None:
        """Add a key later."""
        with self._cond:
            self._wait(key, seconds)

    def _wait(self, key: Key, seconds: float) -> None:
        """A key waits once, for the earliest of its times, as in client-go's delaying queue."""
        at = time.monotonic() + seconds
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._delayed, (at, key))
            self._cond.notify()

    def retry(self, key: Key) -> None:
        """Add the key after its back-off, which doubles each time until `forget`."""
        with self._cond:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            wait = min(self.back_off.first * 2 ** min(failures, 60), self.back_off.longest)
            if self.back_off.bucket:
                wait = max(wait, self._reserve())
            self._wait(key, wait)

    def _reserve(self) -> float:
        now = time.monotonic()
        refilled = self._tokens + (now - self._tokens_at) * _BUCKET_PER_SECOND
        self._tokens = min(_BUCKET_BURST, refilled) - 1.0
        self._tokens_at = now
        return max(0.0, -self._tokens / _BUCKET_PER_SECOND)

    def waiting_seconds(self, key: Key) -> float:
        """How long the back-off of a key still lasts; 0 when it is not waiting."""
        with self._cond:
            return self._due[key] - time.monotonic() if key in self._due else 0.0

    def forget(self, key: Key) -> None:
        """The key has succeeded: its next failure is its first."""
        with self._cond:
            self._failures.pop(key, None)

    def get(self) -> Key | None:
        """The next key; it is not given out again before `done`."""
        with self._cond:
            while True:
                self._promote()
                if self._closed:
                    return None
                if self._ready:
                    key = self._ready.popleft()
                    self._dirty.discard(key)
                    self._processing.add(key)
                    return key
                self._cond.wait(self._until_next())

    def _promote(self) -> None:
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            at, key = heapq.heappop(self._delayed)
            if self._due.get(key) == at:
                del self._due[key]
                self._add(key)

    def _until_next(self) -> float | None:
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None

    def done(self, key: Key) -> None:
        """The key's work has ended."""
        with self._cond:
            self._processing.discard(key)
            if key in self._dirty:
                self._ready.append(key)
                self._cond.notify()

    def close(self) -> None:
        """Give out no more keys."""
        with self._cond:
            self._closed = True
            self._cond.notify_all()
