"""What remesh asks of a RabbitMQ besides Celery's own traffic: is it there and fit, and how long are the queues.

Used by `remesh.queue` and `remesh.brokers`. Only kombu's client is used, so any user of the vhost can ask.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from amqp import exceptions as refused  # type: ignore[import-untyped]
from kombu.connection import Connection

from remesh.broker_urls import Endpoint
from remesh.errors import BrokerError, BrokerUnreachable
from remesh.redisdb import ANSWER_SECONDS, CONNECT_SECONDS


@dataclass(frozen=True, slots=True)
class AmqpReport:
    """What a RabbitMQ says of itself, as far as it decides whether tasks are safe in it."""

    place: str
    server: str
    version: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def place_of(url: str) -> str:
    """`RabbitMQ at host:port, vhost …`, without user and password."""
    parts = urlsplit(url)
    vhost = unquote(parts.path.removeprefix("/")) or "/"
    port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
    return f"RabbitMQ at {parts.hostname}:{port}, vhost {vhost}"


def check(broker: Endpoint, queues: Mapping[str, str]) -> AmqpReport:
    """Ask the server about itself, and whether queues of ours that are there are durable.

    `queues` are their full names by their short ones. Raises BrokerUnreachable or BrokerError.
    """
    place = place_of(broker.url)
    with _connected(broker, "cannot check the broker") as connection:
        told = connection.connection.server_properties
        problems = tuple(
            f"queue {full} is there with other properties than a durable one's: delete it, it is made again"
            for full in queues.values()
            if not _fits(connection, full)
        )
    return AmqpReport(place, str(told.get("product", "")).lower(), str(told.get("version", "")), problems)


def lengths(broker: Endpoint, queues: Mapping[str, str]) -> dict[str, int]:
    """Messages that wait in each queue, by its short name; 0 for one that is not there yet."""
    with _connected(broker, "cannot read the queues") as connection:
        return {name: _length(connection, full) for name, full in queues.items()}


def _length(connection: Any, full: str) -> int:
    declared = _declare(connection, full, passive=True)
    return int(declared.message_count) if declared is not None else 0


def _fits(connection: Any, full: str) -> bool:
    if _declare(connection, full, passive=True) is None:
        return True  # not there yet
    try:
        return _declare(connection, full, passive=False) is not None
    except refused.PreconditionFailed:
        return False


def _declare(connection: Any, full: str, *, passive: bool) -> Any:
    """On a channel of its own, for a refusal ends the channel. None: there is no such queue."""
    channel = connection.channel()
    try:
        return channel.queue_declare(full, passive=passive, durable=True, auto_delete=False)
    except refused.NotFound:
        return None
    finally:
        if channel.is_open:
            channel.close()


@contextmanager
def _connected(broker: Endpoint, what: str) -> Iterator[Any]:
    untyped: Any = Connection  # kombu carries no types
    connection = untyped(
        broker.url,
        ssl=broker.tls,
        connect_timeout=CONNECT_SECONDS,
        transport_options={"read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS},
    )
    place = place_of(broker.url)
    try:
        connection.connect()
        yield connection
    except (refused.AccessRefused, refused.NotAllowed) as error:
        raise BrokerError(f"{what}: {place}: {_reason(error)}: correct user, password or vhost in the URL") from error
    except refused.AMQPError as error:
        raise BrokerError(f"{what}: {place}: {_reason(error)}") from error
    except OSError as error:
        raise BrokerUnreachable(f"{what}: {place}: {error.strerror or error}") from error
    finally:
        connection.release()


def _reason(error: Any) -> str:
    return str(getattr(error, "reply_text", "") or error).split("\n", 1)[0][:300]
