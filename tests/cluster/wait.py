"""Poll for a state of the world."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from tests.cluster.errors import NotInTime

T = TypeVar("T")

POLL_SECONDS = 0.05


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
