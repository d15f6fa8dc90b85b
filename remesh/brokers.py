"""The servers that hold trail, ledger and tasks, judged before anything is begun.

Trail and ledger are in REMESH_REDIS_URL; the tasks are there, too, unless REMESH_BROKER_URL names another Redis or a
RabbitMQ. Used by watcher, workers and command line at their start.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, Protocol

from remesh import amqp, logs, redisdb
from remesh.broker_urls import endpoint, is_amqp
from remesh.errors import BrokerUnreachable, BrokerUnsafe
from remesh.queue import queue_names
from remesh.settings import Settings

log = logs.get("brokers")

START_PAUSE_SECONDS: Final = 1.0  # between two tries to reach them at the start


class Report(Protocol):
    """What a server says of itself: `remesh.redisdb.BrokerReport` or `remesh.amqp.AmqpReport`."""

    @property
    def place(self) -> str:
        """For messages."""

    @property
    def server(self) -> str:
        """Its kind: "redis", "valkey" or "rabbitmq"."""

    @property
    def version(self) -> str:
        """As it says."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why something could be lost."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be looked at."""


def reports(settings: Settings) -> list[Report]:
    """Of the Redis of trail and ledger, and of the broker where it is another server.

    Raises ConfigError, BrokerUnreachable or BrokerError.
    """
    with redisdb.connect(settings) as client:
        found: list[Report] = [redisdb.check_broker(client)]
    if settings.broker == settings.redis_url.get_secret_value():
        return found
    return [*found, broker_report(settings)]


def broker_report(settings: Settings) -> Report:
    """Of the broker alone."""
    if is_amqp(settings.broker):
        return amqp.check(endpoint(settings.broker, "REMESH_BROKER_URL"), queue_names(settings))
    variable = "REMESH_BROKER_URL" if settings.broker_url is not None else "REMESH_REDIS_URL"
    with redisdb.connect_url(settings.broker, variable) as client:
        return redisdb.check_broker(client)


def require_safe_in_time(settings: Settings) -> list[Report]:
    """`require_safe` for processes that may be there before their servers: waits for `start_seconds` at most.

    For what does not answer or is not ready yet; a wrong password is one at the first try. SIGTERM ends the wait and
    the process. Call it in the main thread. Raises what `require_safe` does.
    """
    if not settings.start_seconds:
        return require_safe(settings)
    end = time.monotonic() + settings.start_seconds
    said = False
    with _ended_by_sigterm():
        while True:
            try:
                return require_safe(settings)
            except BrokerUnreachable as error:
                if time.monotonic() >= end:
                    raise
                if not said:
                    log.warning("waiting for redis and broker", seconds=settings.start_seconds, error=str(error))
                said = True
            time.sleep(START_PAUSE_SECONDS)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """The first process of a container ignores a signal for which it has no handler."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def require_safe(settings: Settings) -> list[Report]:
    """Refuse servers that could lose tasks or trail, unless overridden by name; then the log says what.

    Raises BrokerUnsafe naming settings, cures and the override, and what `reports` raises.
    """
    found = reports(settings)
    for report in found:
        if report.problems and not settings.allow_unsafe_broker:
            raise BrokerUnsafe(
                f"{report.place} is not safe: {'; '.join(report.problems)}; "
                "or start anyway with REMESH_ALLOW_UNSAFE_BROKER=true"
            )
        for problem in report.problems:
            log.warning("unsafe broker allowed", problem=problem)
    return found
