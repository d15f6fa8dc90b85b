"""A call that is made while its caller does something else: the next page, while this one is decoded."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")

LEAVE_SECONDS = 1.0
"""How long `leave` waits for the call's end; one that hangs is left to end by its own time-out."""


class Ahead(Generic[T]):
    """One call in a thread of its own, begun at once. `result` or `leave` has to follow."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done: list[T] = []
        self._error: BaseException | None = None
        run = copy_context().run  # a span of a trace, if there is one
        self._thread = threading.Thread(target=run, args=(self._work,), name="ahead", daemon=True)
        self._thread.start()

    def result(self) -> T:
        """What the call returns. Waits for it, and raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done.pop()

    def leave(self) -> None:
        """Wait until the call has ended, but not for long: nobody wants its result any more."""
        self._thread.join(LEAVE_SECONDS)

    def _work(self) -> None:
        try:
            self._done.append(self._call())
        except BaseException as error:  # for whoever asks for the result
            self._error = error
