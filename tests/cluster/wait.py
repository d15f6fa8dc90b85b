"""Poll for a state of the world, and read what is still being written."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from tests.cluster.errors import NotInTime

T = TypeVar("T")

POLL_SECONDS = 0.05


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that is being written; without the last one where it is not whole yet."""
    *lines, _ = path.read_text().split("\n")
    return lines


def wait_for(
    look: Callable[[], T | Literal[False] | None], what: str | Callable[[], str], *, timeout: float = 30.0
) -> T:
    """Call `look` until it returns something other than None and False, and return that.

    Raises `NotInTime` after `timeout` seconds; `what` names the state, as text or as a function called then.
    """
    deadline = time.monotonic() + timeout
    while True:
        seen = look()
        if seen is not None and seen is not False:
            return seen
        if time.monotonic() > deadline:
            raise NotInTime(f"waited {timeout:g} s in vain for {what if isinstance(what, str) else what()}")
        time.sleep(POLL_SECONDS)
