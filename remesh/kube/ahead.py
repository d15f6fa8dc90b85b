"""An iterator that is run one item ahead of its user: the next page comes while this one is decoded."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import copy_context
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

LEAVE_SECONDS = 1.0
"""How long the thread is waited for at the end; a request that hangs is left to end by its own time-out."""


class _End:
    """After the last item, or in place of the one that could not be made."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Ahead(AbstractContextManager["Ahead[T]"], Generic[T]):
    """The items of `source`, made by a thread of its own, which rests while there is one that nobody has taken.

    What `source` raises is raised where its item would have come. The thread ends with the `with` block.
    """

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._made: SimpleQueue[T | _End] = SimpleQueue()
        self._room = threading.Semaphore(1)
        self._left = False
        run = copy_context().run  # a span of a trace, if there is one
        self._thread = threading.Thread(target=run, args=(self._work,), name="ahead", daemon=True)

    def __enter__(self) -> "Ahead[T]":
        """Begin with the first item at once."""
        self._thread.start()
        return self

    def __iter__(self) -> Iterator[T]:
        """For one thread, once."""
        while True:
            self._room.release()  # before it is there: its thread then goes on without waiting for this one
            item = self._made.get()
            if isinstance(item, _End):
                break
            yield item
        if item.error is not None:
            raise item.error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave, with or without having seen all."""
        self._left = True
        self._room.release()
        self._thread.join(LEAVE_SECONDS)

    def _work(self) -> None:
        try:
            self._room.acquire()
            for item in self._source:
                self._made.put(item)
                self._room.acquire()
                if self._left:
                    break
            self._made.put(_End())
        except BaseException as error:  # the user's, not this thread's
            self._made.put(_End(error))
