"""What can be seen of a watcher from outside: metrics, liveness, readiness. Used by `watcher.main`.

The watcher's own thread only leaves a snapshot and a beat; what has to be asked of Redis is asked by a thread of this
module, every few seconds, so that a frozen Redis holds up neither a scrape nor the watcher.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from remesh import __version__, logs
from remesh.audit import Trail, order
from remesh.errors import RemeshError
from remesh.ledger import Ledger
from remesh.metrics import Metrics
from remesh.metrics_http import MetricsServer
from remesh.metrics_table import WATCHER
from remesh.policy import Policy
from remesh.settings import Settings
from watcher.desk import Desk
from watcher.health import Pulse
from watcher.reflect import Reflectors
from watcher.runtime import Watcher
from watcher.snapshot import Samples, Snapshot, samples, take
from watcher.store import Store

log = logs.get("watcher.seeing")

ASK_SECONDS: Final = 5.0  # half of the scrape interval that is common
SNAPSHOT_SECONDS: Final = 1.0
MOST_BEHIND: Final = 1000  # records of the trail that are counted

Queues = Callable[[], dict[str, int]]


class Seeing:
    """One watcher, as others see it. The metrics are complete once `reflectors` and `redis` were called."""

    def __init__(self, settings: Settings, policy: Policy) -> None:
        self.meter = Metrics(settings.cluster, WATCHER)
        self.pulse = Pulse()
        self._settings = settings
        self._policy = policy
        self._leads: Callable[[], bool] = lambda: True
        self._shard = ""
        self._watcher: Watcher | None = None
        self._desk: Desk | None = None
        self._snapshot = Snapshot()
        self._next_snapshot = 0.0
        self._webhooks_version = -1
        self._reflectors: Reflectors | None = None
        self._asked: dict[str, Samples] = {}
        self._stop = threading.Event()
        self._server = MetricsServer(self.meter, live=self.stuck, ready=self.unready)
        self.meter.add(self._of_process)
        self.meter.add(lambda: samples(self._snapshot, datetime.now(UTC)))

    def start(self) -> None:
        """Serve, if the settings name a port."""
        self._server.start(self._settings.metrics_host, self._settings.metrics_port)

    def close(self) -> None:
        """Stop serving and asking."""
        self._stop.set()
        self._server.close()

    def leading(self, leads: Callable[[], bool], shard: str = "") -> None:
        """Say from now on whether this watcher leads, and for which shard."""
        self._leads, self._shard = leads, shard

    def reflectors(self, reflectors: Reflectors, store: Store) -> None:
        """Show how fresh the watches are, and judge by them."""
        self._reflectors = reflectors
        self.meter.add(lambda: _of_watches(reflectors, store))

    def redis(self, trail: Trail, ledger: Ledger, queues: Queues) -> None:
        """Ask these every few seconds, in a thread."""
        self.meter.add(lambda: self._asked)
        threading.Thread(target=self._ask, args=(trail, ledger, queues), name="seeing", daemon=True).start()

    # Told by the watcher's own thread

    def term(self, desk: Desk, watcher: Watcher) -> Watcher:
        """A main loop is about to begin, with this desk; returns it."""
        self._desk, self._watcher = desk, watcher
        return watcher

    def tick(self) -> None:
        """The main loop goes round."""
        self.pulse.beat()
        now = time.monotonic()
        if self._desk is not None and self._watcher is not None and now >= self._next_snapshot:
            self._next_snapshot = now + SNAPSHOT_SECONDS
            gates = (keeper.gate for keeper in self._watcher.gatekeeper.keepers.values())
            self._snapshot = take(self._desk.book, gates)
            self._expect(self._desk)

    def _expect(self, desk: Desk) -> None:
        """Count from zero on what may happen with the meshes whose webhooks are there."""
        if desk.store.webhooks_version == self._webhooks_version:
            return
        self._webhooks_version = desk.store.webhooks_version
        for configuration, webhook in desk.store.webhooks():
            profile = desk.profiles.for_webhook(configuration, webhook)
            if profile is not None:
                self.meter.expect(profile.name)

    def standby(self) -> None:
        """Another watcher leads: this one holds no findings and follows no trail."""
        self.pulse.rest()
        self._snapshot, self._desk, self._watcher = Snapshot(), None, None

    # Health

    def stuck(self) -> str | None:
        """Why it should be restarted, or None."""
        return self.pulse.stuck() or (self._reflectors.stuck() if self._reflectors is not None else None)

    def unready(self) -> str | None:
        """Why it does not see the cluster as it is, or None."""
        if self._reflectors is None or not self._reflectors.synced:
            return "not synced: a first list is still coming in, or a watch has been silent for too long"
        return None

    # Sources

    def _of_process(self) -> dict[str, Samples]:
        synced = self._reflectors is not None and self._reflectors.synced
        age = self.pulse.age()
        return {
            "remesh_build_info": [((__version__, WATCHER, self._policy.mode.value), 1.0)],
            "remesh_leader": [((self._shard,), float(self._leads()))],
            "remesh_synced": [((), float(synced))],
            "remesh_loop_staleness_seconds": [((), age)] if age is not None else [],
        }

    def _ask(self, trail: Trail, ledger: Ledger, queues: Queues) -> None:
        while not self._stop.is_set():
            try:
                self._asked = self._answers(trail, ledger, queues) | {"remesh_redis_up": [((), 1.0)]}
            except RemeshError as error:
                log.debug("redis could not be asked for metrics", error=str(error))
                self._asked = {"remesh_redis_up": [((), 0.0)]}  # what was true a while ago is not shown
            except Exception:  # the edge of this thread: metrics must not end for one odd value
                log.exception("metrics could not be asked for")
            self._stop.wait(ASK_SECONDS)

    def _answers(self, trail: Trail, ledger: Ledger, queues: Queues) -> dict[str, Samples]:
        injectors = sorted({each.injector for each in self._snapshot.gates})
        window = self._policy.window
        watcher = self._watcher
        records, seconds = behind(trail, watcher.followed if watcher is not None else "")
        return {
            "remesh_window_size_pods": [((key,), ledger.window_size(key, window)) for key in injectors],
            "remesh_window_in_use_pods": [((key,), ledger.in_flight(key)) for key in injectors],
            "remesh_brake_engaged": [((key,), float(ledger.brakes.shut_for(key) > 0)) for key in injectors],
            "remesh_quarantined_owners": [((), len(ledger.quarantines()))],
            "remesh_trail_records": [((), trail.length())],
            "remesh_trail_tail_behind_records": [((), records)],
            "remesh_trail_tail_behind_seconds": [((), seconds)],
            "remesh_queued_tasks": [((queue,), number) for queue, number in queues().items()],
        }


def behind(trail: Trail, followed: str) -> tuple[int, float]:
    """Records after a position, `MOST_BEHIND` at most, and the age of the first of them in seconds.

    An empty position follows nothing and is behind nothing. Raises TrailUnavailable.
    """
    if not followed or order(trail.last_position()) <= order(followed):
        return 0, 0.0
    unread = list(trail.read(after=followed, limit=MOST_BEHIND))
    if not unread:
        return 0, 0.0
    return len(unread), max(0.0, time.time() - order(unread[0].position)[0] / 1000)


def _of_watches(reflectors: Reflectors, store: Store) -> dict[str, Samples]:
    return {
        "remesh_watch_staleness_seconds": [((kind,), age) for kind, age in reflectors.staleness().items()],
        "remesh_watch_lists_total": [((kind,), lists) for kind, lists in reflectors.lists().items()],
        "remesh_objects": [((kind,), number) for kind, number in store.counts().items()],
    }
