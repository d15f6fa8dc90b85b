"""What can be seen of a worker from outside: metrics, liveness, readiness. Used by `workers.app`.

Tasks are counted in the process that runs them, so the pool has to be `threads`, as everywhere in remesh. Redis and
the broker are tried by a thread of this module, so that neither holds up a scrape or a probe.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from remesh import __version__, logs, redisdb
from remesh.errors import RemeshError
from remesh.metrics import Metrics
from remesh.metrics_http import MetricsServer
from remesh.metrics_table import WORKER
from remesh.settings import Settings

log = logs.get("worker.seeing")

TRY_SECONDS: Final = 5.0
BROKER_SECONDS: Final = 3.0  # for one try to reach the broker
# Heartbeats come every 2 s; after an outage of the broker Celery may pause for half a minute.
STUCK_SECONDS: Final = 120.0

Samples = dict[str, list[tuple[tuple[str, ...], float]]]


class BrokerPort:
    """Tries to reach Celery's broker, whichever it is, over a connection of its own."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self) -> bool:
        """True if it answers now."""
        connection = self._app.connection_for_read(connect_timeout=BROKER_SECONDS)
        try:
            connection.ensure_connection(max_retries=1, timeout=BROKER_SECONDS, interval_start=0)
            connection.default_channel  # noqa: B018  # with Redis only a channel talks to the server
        except Exception as error:  # whatever a broker's client raises, it cannot be reached
            log.debug("the broker cannot be reached", error=type(error).__name__)
            return False
        finally:
            connection.release()
        return True


class Consumer:
    """Whether Celery's consumer runs, told by its heartbeats. It cannot be judged while the broker is away."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat: float | None = None
        self._reachable_since: float | None = None

    def beat(self) -> None:
        """It sends a heartbeat."""
        self._beat = self._clock()

    def broker(self, reachable: bool) -> None:
        """What the last try to reach the broker showed."""
        if not reachable:
            self._reachable_since = None
        elif self._reachable_since is None:
            self._reachable_since = self._clock()

    def stuck(self) -> str | None:
        """Why the worker should be restarted, or None."""
        beat, since = self._beat, self._reachable_since
        if beat is None or since is None:
            return None
        silent = self._clock() - max(beat, since)
        if silent <= STUCK_SECONDS:
            return None
        return f"the consumer has sent no heartbeat for {silent:.0f} s, and the broker answers"


class Seeing:
    """One worker, as others see it."""

    def __init__(
        self, settings: Settings, metrics: Metrics, mode: Callable[[], str], broker: Callable[[], bool]
    ) -> None:
        self.consumer = Consumer()
        self._settings = settings
        self._metrics = metrics
        self._mode = mode
        self._broker = broker
        self._redis = redisdb.connect(settings)
        self._up = {"redis": False, "broker": False}
        self._ready = False
        self._stop = threading.Event()
        self._server = MetricsServer(metrics, live=self.consumer.stuck, ready=self.unready)
        metrics.add(self._samples)

    def start(self) -> None:
        """Serve, if the settings name a port, and try Redis and broker from now on."""
        if self._settings.metrics_port == 0:
            return
        self._server.start(self._settings.metrics_host, self._settings.metrics_port)
        threading.Thread(target=self._try, name="seeing", daemon=True).start()

    def takes_tasks(self, ready: bool) -> None:
        """It consumes from the queues from now on, or not any more."""
        self._ready = ready

    def close(self) -> None:
        """Stop serving."""
        self._stop.set()
        self._server.close()

    def unready(self) -> str | None:
        """Why it cannot repair anything now, or None."""
        if not self._ready:
            return "it takes no tasks: it starts, or is about to end"
        away = [name for name, up in self._up.items() if not up]
        return f"not reachable: {', '.join(away)}" if away else None

    def _try(self) -> None:
        while not self._stop.is_set():
            broker = self._broker()
            self.consumer.broker(broker)
            self._up = {"redis": self._pings(), "broker": broker}
            self._stop.wait(TRY_SECONDS)

    def _pings(self) -> bool:
        try:
            with redisdb.translated(self._redis, "cannot ask Redis"):
                self._redis.ping()
        except RemeshError as error:
            log.debug("redis cannot be reached", error=str(error))
            return False
        return True

    def _samples(self) -> Samples:
        return {
            "remesh_build_info": [((__version__, WORKER, self._mode()), 1.0)],
            "remesh_running_tasks": [((), self._metrics.running)],
            "remesh_redis_up": [((), float(self._up["redis"]))],
            "remesh_broker_up": [((), float(self._up["broker"]))],
        }
