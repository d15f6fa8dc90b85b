"""Who leads: one watcher of several releases findings, the others keep their stores warm.

`watcher.main` makes a `Leadership` of the settings and works in terms: a standby's reflectors stay synced and nothing
else runs; a leader has the whole loop, anew in each term, so that nothing of an earlier term can be acted on. What the
terms have in common is in the trail and the ledger.

Two bounds hold apart from each other: a leader looks whether its Lease is fresh before each release (`leads`), and the
ledger takes each release once, whoever leads.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from remesh import logs
from remesh.errors import ConfigError
from remesh.kube.config import SERVICE_ACCOUNT, Access
from remesh.kube.transport import KubeClient
from remesh.settings import Settings
from watcher.shard import Shard
from watcher.store import Store

log = logs.get("watcher.leader")

LEASE_NAME = "remesh-watcher"
STANDBY_SECONDS = 0.1  # how soon a standby that was elected begins


class Leadership(Protocol):
    """Whether this watcher leads."""

    identity: str

    def check(self) -> None:
        """Raise Forbidden or Unauthorized if it may not take part."""

    def start(self) -> None:
        """Take part from now on."""

    def leads(self) -> bool:
        """True while nobody else can lead. Costs nothing: asked before each release."""

    def holder(self) -> str:
        """Who leads, as far as is known; "" for nobody."""

    def stop(self) -> None:
        """Give it up, so that another one need not wait. Nothing may be under way by now."""


class Alone:
    """No election: this watcher is meant to be the only one."""

    def __init__(self, identity: str) -> None:
        self.identity = identity

    def check(self) -> None:
        """Nothing to do."""

    def start(self) -> None:
        """Nothing to do."""

    def leads(self) -> bool:
        """Always."""
        return True

    def holder(self) -> str:
        """Nobody else."""
        return self.identity

    def stop(self) -> None:
        """Nothing to do."""


class Elected:
    """Leads while it holds a Lease."""

    def __init__(self, client: KubeClient, settings: Settings, lease: tuple[str, str], identity: str) -> None:
        from remesh.kube.election import Election, Terms  # late: it brings the official client

        _check_times(settings)
        self.identity = identity
        self._where = "/".join(lease)
        self._terms = Terms(
            *lease,
            identity,
            settings.lease_duration_seconds,
            settings.lease_renew_deadline_seconds,
            settings.lease_retry_seconds,
        )
        self._election = Election(client, self._terms)

    def check(self) -> None:
        """Read the Lease once."""
        self._election.check()

    def start(self) -> None:
        """Ask for the Lease."""
        log.info("asking for the lease", lease=self._where, identity=self.identity)
        self._election.start()

    def leads(self) -> bool:
        """True while the Lease is fresh, by monotonic time."""
        return self._election.leads()

    def holder(self) -> str:
        """Whom the Lease names."""
        return self._election.holder

    def stop(self) -> None:
        """Give the Lease back."""
        self._election.stop()


def _check_times(settings: Settings) -> None:
    """As client-go: the official client would end the process without a word of which setting is meant."""
    duration, deadline = settings.lease_duration_seconds, settings.lease_renew_deadline_seconds
    if not duration > deadline > 1.2 * settings.lease_retry_seconds:
        raise ConfigError(
            "REMESH_LEASE_DURATION_SECONDS must be more than REMESH_LEASE_RENEW_DEADLINE_SECONDS, and that more than "
            f"1.2 times REMESH_LEASE_RETRY_SECONDS; they are {duration}, {deadline} and {settings.lease_retry_seconds}"
        )


def leadership(settings: Settings, client: KubeClient, shard: Shard) -> Leadership:
    """As the settings say. Raises ConfigError where the Lease's namespace is not known."""
    if not settings.leader_election:
        return Alone(identity())
    name = LEASE_NAME if shard.is_whole else f"{LEASE_NAME}-{shard.index}"
    return Elected(client, settings, (lease_namespace(settings, client.access), name), identity())


def identity() -> str:
    """The pod's name, or host and process id; with a random end, for a pod of a StatefulSet may be there twice."""
    base = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    return f"{base}_{uuid4().hex[:8]}"


def lease_namespace(settings: Settings, access: Access) -> str:
    """REMESH_LEASE_NAMESPACE, or the namespace of this pod."""
    given = settings.lease_namespace or os.environ.get("POD_NAMESPACE")
    if given:
        return given
    if Path(SERVICE_ACCOUNT / "namespace").exists():
        return access.namespace
    raise ConfigError(
        "REMESH_LEASE_NAMESPACE is not set, and this is no pod with a namespace of its own: name the namespace of the "
        "lease, or turn REMESH_LEADER_ELECTION off"
    )


class Term(Protocol):
    """One term's loop, as `watcher.runtime.Watcher` has it."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""


class Terms:
    """Runs one loop for each term, and keeps still in between."""

    def __init__(
        self,
        leadership: Leadership,
        store: Store,
        begin: Callable[[], Term],
        on_standby: Callable[[], None],
    ) -> None:
        self._leadership = leadership
        self._store = store
        self._begin = begin
        self._on_standby = on_standby
        self._over = threading.Event()  # of the term that runs

    def look(self) -> None:
        """Called in each round of a term: a lease that is not fresh ends it."""
        if not self._leadership.leads() and not self._over.is_set():
            log.warning("the lease is lost; this watcher releases nothing more", holder=self._leadership.holder())
            self._over.set()

    def anew(self) -> None:
        """Begin the term anew, with every object: what it remembered of Redis is not there any more."""
        self._over.set()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        said = None
        while not stop.is_set():
            if self._leadership.leads():
                self._lead(stop)
                said = None
                continue
            holder = self._leadership.holder()
            if holder != said:
                log.info("standing by", leader=holder or "nobody yet", identity=self._leadership.identity)
                said = holder
            self._on_standby()
            self._store.forget_changes()  # a term begins with all objects
            stop.wait(STANDBY_SECONDS)

    def _lead(self, stop: threading.Event) -> None:
        log.info("leading", identity=self._leadership.identity)
        self._over = _Either(stop)
        self._store.look_at_all()
        began = time.monotonic()
        self._begin().run(self._over)
        log.info("term ends", seconds=round(time.monotonic() - began, 1), identity=self._leadership.identity)


class _Either(threading.Event):
    """Set when the term is over or the process is to end."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def is_set(self) -> bool:
        return super().is_set() or self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._stop.wait(timeout) or self.is_set()
