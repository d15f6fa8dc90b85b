"""Two of Celery's parts, changed where remesh needs it. Used by `remesh.queue` alone."""

from typing import Any

from celery.app.events import Events
from celery.backends.redis import RedisBackend
from celery.events.dispatcher import EventDispatcher

from remesh import logs

log = logs.get("queue")


class QuietResults(RedisBackend):  # type: ignore[misc]
    """Celery's Redis backend, without a subscription to the result of each task that is sent.

    Nobody waits that way; outcomes are in ledger and trail. It would cost a connection, two commands more per task, and
    five seconds at the first send while Redis is away.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Do nothing."""

    def store_result(self, task_id: str, result: Any, state: str, *more: Any, **known: Any) -> Any:
        """Keep state and result; a Redis that is full or away costs only these.

        Celery would leave the task unacknowledged instead, and its slot taken until the connection is made anew: after
        as many such tasks as it has threads, a worker takes none any more.
        """
        try:
            return super().store_result(task_id, result, state, *more, **known)
        except Exception as error:  # whatever the backend's own retries end with
            log.warning("a task's state could not be kept", task=task_id, state=state, error=str(error))
            return result


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
