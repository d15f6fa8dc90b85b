"""Some of Celery's and kombu's parts, changed where remesh needs it. Used by `remesh.queue` alone."""

from typing import Any, Final

from celery import states
from celery.app.amqp import AMQP
from celery.app.events import Events
from celery.app.task import Task
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.events.dispatcher import EventDispatcher
from kombu import connection
from kombu.transport import redis as redis_transport
from kombu.transport import virtual
from kombu.utils.url import maybe_sanitize_url
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import DataError, OutOfMemoryError, ReadOnlyError, ResponseError

from remesh import logs

log = logs.get("queue")

_UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, DataError)
"""What kombu and Celery raise for something in the queue that is no message. An outage of Redis raises other errors."""

_NOT_NOW: Final = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "UNBLOCKED")
"""Replies of a Redis that serves nobody for a while: its disk is full, it lost its replicas, it changed its role."""


class _Quiet:
    """Part of a Redis backend: without a subscription to the result of each task that is sent.

    Nobody waits that way; outcomes are in ledger and trail. It would cost a connection, two commands more per task, and
    five seconds at the first send while Redis is away. For the same reason a state is written and no more: Celery would
    read what is there before, and publish it to nobody after.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Do nothing."""

    def store_result(self, task_id: str, result: Any, state: str, *more: Any, **known: Any) -> Any:
        """Keep state and result; a Redis that is full or away costs only these.

        Celery would leave the task unacknowledged instead, and its slot taken until the connection is made anew: after
        as many such tasks as it has threads, a worker takes none any more.
        """
        try:
            return super().store_result(task_id, result, state, *more, **known)  # type: ignore[misc]
        except Exception as error:  # whatever the backend's own retries end with
            log.warning("a task's state could not be kept", task=task_id, state=state, error=str(error))
            return result

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **_: Any
    ) -> Any:
        """One command. That a task began is noted only where nothing is known of it: a second delivery hides no end."""
        backend: Any = self
        meta = backend._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        value = backend.encode(meta | {"task_id": task_id})
        backend.ensure(self._keep, (backend.get_key_for_task(task_id), value, state == states.STARTED))
        return result

    def _keep(self, key: Any, value: Any, only_if_new: bool) -> None:
        backend: Any = self
        backend.client.set(key, value, ex=backend.expires or None, nx=only_if_new)


class QuietResults(_Quiet, RedisBackend):  # type: ignore[misc]
    """Celery's Redis backend."""


class QuietSentinelResults(_Quiet, SentinelBackend):  # type: ignore[misc]
    """The same for a Redis behind Sentinel."""


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

    def __init__(self, *args: Any, **known: Any) -> None:
        super().__init__(*args, **known)
        if self.buffer_group:
            self.app.events.buffered = self


class CompleteEvents(Events):  # type: ignore[misc]
    """Celery's `app.events` with that dispatcher."""

    dispatcher_cls = CompleteDispatcher
    buffered: CompleteDispatcher | None = None
    """The worker's own, which publishes many events at once. None outside a worker."""


class TellingTask(Task):  # type: ignore[misc]
    """Celery's task, whose own events go with the worker's: in order with them, and without a round trip for each.

    Celery publishes each at once over another connection, which made up an eighth of a repair's work.
    """

    def send_event(self, type_: str, retry: bool = True, retry_policy: Any = None, **fields: Any) -> Any:
        """Send an event of this task."""
        worker: CompleteDispatcher | None = getattr(self.app.events, "buffered", None)
        if worker is None or not worker.enabled:
            return super().send_event(type_, retry=retry, retry_policy=retry_policy, **fields)
        return worker.send(type_, uuid=self.request.id, **fields)


class CarefulQoS(redis_transport.QoS):
    """kombu's list of messages that are fetched and not yet done, which forgets what is no message."""

    def append(self, message: Any, delivery_tag: Any) -> None:
        """Note a message that has left its queue.

        A Redis that has just become full cannot keep the note. Of that kombu (seen in 5.7.0) would end the worker, and
        the message would be lost. It is done all the same: should this worker die, the watcher releases it again.
        """
        try:
            super().append(message, delivery_tag)  # type: ignore[no-untyped-call]
        except OutOfMemoryError:
            log.warning("redis is full: a task that was fetched is noted by this worker alone")
            virtual.QoS.append(self, message, delivery_tag)  # type: ignore[no-untyped-call]

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue."""
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]
        except _UNREADABLE as error:
            _dropped("unacked", error)
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]


def _waits(kind: type[Any]) -> type[Any]:
    """A class of connections to which a Redis that refuses to serve now counts as one that is away.

    Celery connects again and again to that. Of the refusal itself it (seen in 5.6.3) would end the worker.
    """

    class Waiting(kind):  # type: ignore[misc]
        def read_response(self, *args: Any, **known: Any) -> Any:
            try:
                return super().read_response(*args, **known)
            except ResponseError as error:
                if not (isinstance(error, ReadOnlyError) or str(error).startswith(_NOT_NOW)):
                    raise
                self.disconnect()  # of a pipeline more answers may be to come, and nobody will read them
                raise NotConnected(str(error)) from error

    return Waiting


class _Careful:
    """Part of a channel to Redis: drops an entry that is no JSON, and waits for a Redis that refuses to serve.

    kombu (seen in 5.7.0) would end the worker of either.

    And it keeps the client that it publishes with.
    """

    QoS = CarefulQoS
    _publisher: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        """One client for all that is published: kombu makes one for each message, which costs more than sending it."""
        channel: Any = self
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]
        if self._publisher is None or self._publisher.connection_pool is not channel.pool:
            self._publisher = super()._create_client()  # type: ignore[misc]
        return self._publisher

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return {**found, "connection_class": _waits(found["connection_class"])}

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except _UNREADABLE as error:
            _dropped("queue", error)
            return True  # as after any entry


class CarefulChannel(_Careful, redis_transport.Channel):
    """kombu's channel to Redis."""


class CarefulSentinelChannel(_Careful, redis_transport.SentinelChannel):
    """The same to a Redis behind Sentinel."""


class CarefulTransport(redis_transport.Transport):
    """kombu's transport over Redis, which drops JSON that is no message.

    Such an entry is not kept: nothing is lost with it, for a released finding without outcome is released again.
    """

    Channel: Any = CarefulChannel

    def _deliver(self, message: Any, queue: Any) -> None:
        try:
            super()._deliver(message, queue)  # type: ignore[no-untyped-call]
        except _UNREADABLE as error:
            _dropped(str(queue), error)
            self._forget(message)

    def _forget(self, message: Any) -> None:
        properties = message.get("properties") if isinstance(message, dict) else None
        tag = properties.get("delivery_tag") if isinstance(properties, dict) else None
        for channel in self.channels if isinstance(tag, str) else ():
            if tag in channel.qos._delivered:
                channel.basic_reject(tag, requeue=False)


class CarefulSentinelTransport(CarefulTransport):
    """The same for a Redis behind Sentinel."""

    default_port: Any = redis_transport.SentinelTransport.default_port
    Channel: Any = CarefulSentinelChannel


def _dropped(place: str, error: Exception) -> None:
    """Says what kind of error it was and nothing of the entry, which may hold anything."""
    log.warning("dropped an entry that is no task", place=place, error=type(error).__name__)


class CarefulConnection(connection.Connection):
    """kombu's connection over those transports. RabbitMQ needs none: AMQP knows what a message is, and Celery rejects
    what it cannot decode."""

    def get_transport_cls(self) -> Any:
        """The transport, by the scheme of the URL."""
        scheme = str(self.transport_cls)
        if scheme.startswith("sentinel"):
            return CarefulSentinelTransport
        if scheme.startswith(("amqp", "pyamqp")):
            return super().get_transport_cls()  # type: ignore[no-untyped-call]
        return CarefulTransport

    def info(self) -> dict[str, Any]:
        """What a worker tells of it to whoever asks, Flower among them: Celery leaves out `password` and nothing else.

        But a socket's password is in `hostname`, and those of several sentinels are in `alternates` and the options.
        `password` stays: kombu makes the whole URL of it where it is asked for.
        """
        found = super().info()  # type: ignore[no-untyped-call]
        return {key: value if key == "password" else _without_secrets(key, value) for key, value in found.items()}


def _without_secrets(key: str, value: Any) -> Any:
    """The same, with every password in it masked."""
    if "password" in key.lower():
        return "**" if value else value
    if isinstance(value, dict):
        return {name: _without_secrets(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(key, each) for each in value]
    return maybe_sanitize_url(value) if isinstance(value, str) else value


class CarefulAMQP(AMQP):  # type: ignore[misc]
    """Celery's `app.amqp` with such connections."""

    Connection = BrokerConnection = CarefulConnection
