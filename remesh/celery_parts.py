"""Two of Celery's parts, changed where remesh needs it. Used by `remesh.queue` alone."""

from typing import Any

from celery.app.events import Events
from celery.backends.redis import RedisBackend
from celery.events.dispatcher import EventDispatcher


class QuietResults(RedisBackend):  # type: ignore[misc]
    """Celery's Redis backend, without a subscription to the result of each task that is sent.

    Nobody waits that way; outcomes are in ledger and trail. It would cost a connection, two commands more per task, and
    five seconds at the first send while Redis is away.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Do nothing."""


class CompleteDispatcher(EventDispatcher):  # type: ignore[misc]
    """Celery's event dispatcher, which loses no task event.

    With the threads pool, tasks add events while the main thread publishes the buffer; Celery (seen in 5.6.3) empties
    the whole buffer afterwards, and what was added meanwhile is gone: Flower then shows a finished task as running for
    ever. Here the events leave the buffer first.
    """

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """Publish what is buffered."""
        super().flush(errors=errors, groups=False)
        if not groups:
            return
        with self.mutex:
            for group, events in list(self._group_buffer.items()):
                taken = events[:]
                del events[: len(taken)]
                if taken:
                    self._publish(taken, self.producer, f"{group}.multi")


class CompleteEvents(Events):  # type: ignore[misc]
    """Celery's `app.events` with that dispatcher."""

    dispatcher_cls = CompleteDispatcher
