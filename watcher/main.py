"""`python -m watcher`: settings, connections, reflectors, and the watcher's own thread until SIGTERM or SIGINT."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable

import watcher
from remesh import __version__, brokers, logs, queue, redisdb, tracing
from remesh.errors import RemeshError
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.probe import AnyPod, ProbeResult, probe
from remesh.kube.resources import resource_of
from remesh.kube.transport import KubeClient
from remesh.ledger import Ledger
from remesh.meshes import Profiles, load_profiles
from remesh.metered import MeteredTrail
from remesh.models import Finding
from remesh.policy import Mode, Policy, load_policy
from remesh.presence import Presence, Role, WatcherSeen, now_seen
from remesh.settings import Settings, get_settings
from watcher import trailkeeper
from watcher.desk import Desk
from watcher.gatekeeper import Prober
from watcher.health import Heartbeat, beat_file
from watcher.leader import Terms, leadership
from watcher.reflect import KINDS, Reflectors
from watcher.runtime import Watcher
from watcher.seeing import Seeing
from watcher.shard import parse_shard
from watcher.store import Store

log = logs.get("watcher")

POLL_SECONDS = 0.2  # how soon a signal is acted upon
STOP_SECONDS = 20.0  # below the 30 s that Kubernetes gives a pod to end


def main(arguments: list[str] | None = None) -> int:
    """Run the watcher; returns the exit code. Known errors end it with one line and no traceback."""
    options = _parse(arguments)
    try:
        settings = get_settings()
        logs.configure(style=settings.log_format, level=settings.log_level)
        logs.take_over(settings.log_format)
        policy = load_policy(settings.policy)
        if options.observe:
            policy = policy.model_copy(update={"mode": Mode.OBSERVE})
        return _Process(settings, policy, load_profiles(settings.meshes)).run()
    except RemeshError as error:
        print(f"watcher: {error}", file=sys.stderr)
        return error.exit_code


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m watcher",
        description=(watcher.__doc__ or "").strip(),
        epilog="Settings come from REMESH_… variables; see the README. Exit codes as of `remesh --help`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--observe", action="store_true", help="find, prove and record, but release nothing")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(arguments)


class _Process:
    """One watcher: its connections and parts, and what it does in each round."""

    def __init__(self, settings: Settings, policy: Policy, profiles: Profiles) -> None:
        self._settings, self._policy, self._profiles = settings, policy, profiles
        self._shard = parse_shard(settings.shard)
        self._client = KubeClient(load_access(settings.kubeconfig, settings.context))
        self._leader = leadership(settings, self._client, self._shard)
        self._redis = redisdb.connect(settings)
        brokers.require_safe_in_time(settings)
        self._stop = threading.Event()
        self._store = Store()
        self._reflectors = Reflectors(self._client, self._store, profiles, self._stop, self._shard)
        self._app = queue.make_app(settings, consumes=False)
        self._seeing = Seeing(settings, policy)
        where = (self._redis, settings.cluster, settings.key_prefix)
        self._trail = MeteredTrail(*where, self._seeing.meter)
        self._ledger = Ledger(*where, shard=str(self._shard))
        alive = now_seen(
            policy.mode.value, __version__, policy.scope.namespaces, self._leader.identity, str(self._shard)
        )
        self._signs = _Signs(Heartbeat(beat_file()), Presence(*where), alive, self._reflectors)
        self._terms = Terms(self._leader, self._store, self._begin, self._on_standby)

    def run(self) -> int:
        """Work until a signal or a defect ends it; returns the exit code."""
        _require_rights(self._client)
        self._leader.check()
        self._say_start()
        self._signs.starting()
        self._see()
        leads = self._leader.leads
        trailkeeper.keep(
            self._settings,
            self._policy,
            self._redis,
            self._stop,
            now=self._client.clock.now,
            leads=lambda: self._shard.index == 0 and leads(),
            on_lost=self._terms.anew,
        )
        code = _until_signal(self._work, self._stop)
        self._seeing.close()
        tracing.stop()
        self._signs.end()
        log.info("watcher stopped")
        return code

    def _see(self) -> None:
        tracing.start(self._settings, "watcher")
        self._seeing.leading(self._leader.leads, str(self._shard))
        self._seeing.reflectors(self._reflectors, self._store)
        self._seeing.start()
        self._seeing.redis(self._trail, self._ledger, lambda: queue.queue_lengths(self._redis, self._settings))

    def _work(self) -> None:
        began = time.monotonic()
        self._reflectors.start()
        if self._reflectors.wait_synced():
            log.info("synced", seconds=round(time.monotonic() - began, 2), **self._store.counts())
            self._leader.start()  # not before: who leads has to be able to
            try:
                self._terms.run(self._stop)
            finally:
                self._leader.stop()  # nor before the loop has ended
        self._reflectors.join()
        if self._reflectors.failure is not None:
            raise self._reflectors.failure

    def _begin(self) -> Watcher:
        """The parts of one term."""
        desk = Desk(
            cluster=self._settings.cluster,
            policy=self._policy,
            profiles=self._profiles,
            store=self._store,
            trail=self._trail,
            ledger=self._ledger,
            now=self._client.clock.now,
            leads=self._leader.leads,
            shard=self._shard,
            meter=self._seeing.meter,
        )
        prober = _prober(Cluster(self._client), self._profiles, self._policy)
        main_loop = Watcher(desk, lambda request: queue.send(self._app, request), prober, self._on_tick)
        return self._seeing.term(desk, main_loop)

    def _on_tick(self) -> None:
        self._terms.look()
        self._seeing.tick()
        self._signs.beat(Role.LEADER)

    def _on_standby(self) -> None:
        self._seeing.standby()
        self._signs.beat(Role.STANDBY)

    def _say_start(self) -> None:
        scope = ",".join(self._policy.scope.namespaces) or "every namespace"
        log.info(
            "watcher starts",
            version=__version__,
            cluster=self._settings.cluster,
            mode=self._policy.mode.value,
            scope=scope,
            shard=str(self._shard),
        )


class _Signs:
    """Signs of life: the heartbeat for a probe, the presence for `remesh status`."""

    def __init__(self, heartbeat: Heartbeat, presence: Presence, alive: WatcherSeen, reflectors: Reflectors) -> None:
        self._heartbeat = heartbeat
        self._presence = presence
        self._alive = alive
        self._reflectors = reflectors

    def starting(self) -> None:
        self._heartbeat.beat(synced=False)
        self._presence.beat(self._alive)

    def beat(self, role: Role) -> None:
        self._heartbeat.beat(synced=self._reflectors.synced)
        self._presence.beat(self._alive.model_copy(update={"synced": True, "role": role}))

    def end(self) -> None:
        self._heartbeat.remove()
        self._presence.end()


def _require_rights(client: KubeClient) -> None:
    """One short list of each kind: an unreachable cluster or a missing right ends the start with one line."""
    for kind in (*KINDS, "EndpointSlice"):
        client.get(resource_of(kind).path(), {"limit": 1})


def _prober(cluster: Cluster, profiles: Profiles, policy: Policy) -> Prober:
    def dry_run(finding: Finding) -> ProbeResult:
        expected = finding.sidecar_expected and finding.mesh
        proof = profiles.by_name(finding.mesh) if expected else AnyPod()
        # A pod's replacement comes from its owner's template, which may have changed since.
        owned = finding.ref.kind == "Pod" and finding.owner is not None
        ref = finding.owner if owned and finding.owner else finding.ref
        return probe(cluster, ref, proof, policy.gate, impersonate=policy.repair.impersonate_controller)

    return dry_run


def _until_signal(work: Callable[[], None], stop: threading.Event) -> int:
    """Run `work` in a thread until it ends or SIGTERM or SIGINT asks; returns the exit code.

    The handler only takes a note. Setting the event in it could wait for ever on the event's own lock, which the
    interrupted thread may hold.
    """
    asked: list[int] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the edge of the thread: handed to the main one
            failed.append(error)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: asked.append(got))
    worker = threading.Thread(target=run, name="watcher", daemon=True)
    worker.start()
    while worker.is_alive() and not asked:
        worker.join(POLL_SECONDS)
    stop.set()
    worker.join(STOP_SECONDS)
    if failed:
        raise failed[0]
    return 0
