"""One time for all processes of one cluster: the API server's, as each of its answers tells it.

Used by `KubeClient`, which lets it hear every `Date` header, and by watcher and workers for ages and for the times in
the trail. A host whose clock agrees within a second or two uses it, for it is finer than a header. Where it does not
agree, or is set while we run, time is counted by the steady clock from what the headers say.

A header has whole seconds, so each bounds the difference between both clocks, and several bound it closely.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from remesh import logs

AGREE_SECONDS: Final = 1.0
"""Farther than this from what the headers allow, a host's clock is wrong: time services keep within milliseconds."""
JUMP_SECONDS: Final = 2.0
"""More than two headers can differ by through drift alone."""
QUIET_SECONDS: Final = 60.0
"""After a jump was logged: several API servers behind one address may disagree, and answer in turn."""

log = logs.get("kube.clock")


class ClusterClock:
    """Thread-safe. `now` never goes back, unless the API server's own clock did by more than JUMP_SECONDS."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._lock = threading.Lock()
        self._bounds: tuple[float, float] | None = None  # of what the API server's clock is ahead of the steady one
        self._last = 0.0
        self._said = False  # that the host's clock differs; once in a process's life
        self._quiet = 0.0  # monotonic time until which no jump is logged

    def hear(self, header: str | None, sent: float) -> None:
        """An answer's `Date`, to a request that was sent at the monotonic time `sent`. What is no date is left out."""
        try:
            second = parsedate_to_datetime(header or "").timestamp()
        except ValueError:
            return
        with self._lock:
            jump = self._take(second - self._monotonic(), second + 1.0 - sent)
        if jump > JUMP_SECONDS and sent >= self._quiet:
            self._quiet = sent + QUIET_SECONDS
            log.warning("the API server's clock jumped, or another answers that disagrees", seconds=round(jump))

    def _take(self, low: float, high: float) -> float:
        """Narrow the bounds; begin anew, and return by how much, where the new ones do not fit those before."""
        if self._bounds is None:
            self._bounds, self._last = (low, high), 0.0
            return 0.0
        jump = max(low - self._bounds[1], self._bounds[0] - high, 0.0)
        self._bounds = (low, high) if jump else (max(low, self._bounds[0]), min(high, self._bounds[1]))
        if jump > JUMP_SECONDS:
            self._last = 0.0
        return jump

    def now(self) -> datetime:
        """Aware UTC."""
        with self._lock:
            self._last = max(self._last, self._read())
            return datetime.fromtimestamp(self._last, UTC)

    def _read(self) -> float:
        wall, steady = self._wall(), self._monotonic()
        if self._bounds is None:
            return wall
        low, high = self._bounds
        agrees = low - AGREE_SECONDS <= wall - steady <= high + AGREE_SECONDS
        if not agrees and not self._said:
            self._said = True
            log.warning(
                "this host's clock differs from the API server's", ahead=round(wall - steady - (low + high) / 2)
            )
        return wall if agrees else steady + (low + high) / 2
