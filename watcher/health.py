"""Liveness and readiness: the main loop's pulse, for /livez, and the same without a port.

Without one, the watcher beats into a small file, and `python -m watcher.health` reads it.

Exit code 0: the loop runs and every kind has been listed. 1: it is stuck, not synced yet, or not running; one line
says which.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STALE_SECONDS = 30.0  # the loop beats at least once a second; longer means that it hangs
STUCK_SECONDS = 60.0  # a round can wait for a frozen Redis a few times 5 s; being restarted must not come of that


def beat_file() -> Path:
    """The heartbeat's file: REMESH_HEARTBEAT, else one in the temporary folder for each cluster's name."""
    given = os.environ.get("REMESH_HEARTBEAT")
    name = f"remesh-watcher-{os.environ.get('REMESH_CLUSTER', 'default')}.json"
    return Path(given) if given else Path(tempfile.gettempdir()) / name


class Heartbeat:
    """Written by the watcher's loop, at most once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0

    def beat(self, *, synced: bool) -> None:
        """Say that the loop runs. A full disk must not stop repairs, so a failed write is left to the reader."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1.0
        text = json.dumps({"at": time.time(), "synced": synced, "pid": os.getpid()})
        staged = self._path.with_suffix(f".{os.getpid()}")
        try:
            staged.write_text(text, encoding="utf-8")
            staged.replace(self._path)
        except OSError:
            return

    def remove(self) -> None:
        """The watcher ends in good order."""
        self._path.unlink(missing_ok=True)


class Pulse:
    """Of the main loop, for /livez: when it last went round. Written by the loop, read by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def beat(self) -> None:
        """It goes round."""
        self._last = self._clock()

    def rest(self) -> None:
        """It is not to run now: the first lists are still coming in, or another watcher leads."""
        self._last = None

    def age(self) -> float | None:
        """Seconds since it last went round; None if it is not to run."""
        last = self._last
        return None if last is None else self._clock() - last

    def stuck(self) -> str | None:
        """One line if it hangs."""
        age = self.age()
        if age is None or age <= STUCK_SECONDS:
            return None
        return f"the main loop has not gone round for {age:.0f} s"


def problem(path: Path, now: float) -> str | None:
    """What is wrong with the watcher that beats into `path`, or None."""
    try:
        beat = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"no heartbeat at {path}: the watcher does not run here"
    except (OSError, ValueError) as error:
        return f"heartbeat {path} cannot be read: {error}"
    age = now - float(beat["at"])
    if age < -STALE_SECONDS:  # a beat is written every second, whatever the clock says
        return "the last heartbeat is from before the clock went back: the watcher hangs or has ended"
    if age > STALE_SECONDS:
        return f"the last heartbeat is {age:.0f} s old: the watcher hangs or has ended"
    if not beat["synced"]:
        return "not synced yet: the first lists are still coming in"
    return None


def main() -> int:
    """Exit code for a container's health check."""
    wrong = problem(beat_file(), time.time())
    print(f"watcher: {wrong}" if wrong else "watcher: healthy", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
