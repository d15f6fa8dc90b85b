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
from watcher.shard import Shard, parse_shard
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
        return _run(settings, policy, load_profiles(settings.meshes))
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


def _run(settings: Settings, policy: Policy, profiles: Profiles) -> int:
    shard = parse_shard(settings.shard)
    client = KubeClient(load_access(settings.kubeconfig, settings.context))
    leader = leadership(settings, client, shard)
    redis = redisdb.connect(settings)
    brokers.require_safe(settings)
    stop = threading.Event()
    store = Store()
    reflectors = Reflectors(client, store, profiles, stop, shard)
    app = queue.make_app(settings, consumes=False)
    tracing.start(settings, "watcher")
    seeing = Seeing(settings, policy)
    seeing.leading(leader.leads, "" if shard.is_whole else str(shard))
    seeing.reflectors(reflectors, store)
    trail = MeteredTrail(redis, settings.cluster, settings.key_prefix, seeing.meter)
    ledger = Ledger(redis, settings.cluster, settings.key_prefix, shard=str(shard))
    alive = now_seen(policy.mode.value, __version__, policy.scope.namespaces, leader.identity, str(shard))
    signs = _Signs(Heartbeat(beat_file()), Presence(redis, settings.cluster, settings.key_prefix), alive, reflectors)

    def begin() -> Watcher:
        desk = Desk(
            cluster=settings.cluster,
            policy=policy,
            profiles=profiles,
            store=store,
            trail=trail,
            ledger=ledger,
            leads=leader.leads,
            shard=shard,
            meter=seeing.meter,
        )
        prober = _prober(Cluster(client), profiles, policy)
        return seeing.term(desk, Watcher(desk, lambda request: queue.send(app, request), prober, on_tick))

    def on_tick() -> None:
        terms.look()
        seeing.tick()
        signs.beat(Role.LEADER)

    def on_standby() -> None:
        seeing.standby()
        signs.beat(Role.STANDBY)

    terms = Terms(leader, store, begin, on_standby)
    _require_rights(client)
    _say_start(settings, policy, shard)
    signs.starting()
    seeing.start()
    seeing.redis(trail, ledger, lambda: queue.queue_lengths(redis, settings))
    trailkeeper.keep(settings, policy, redis, stop, leads=lambda: shard.index == 0 and leader.leads())

    def work() -> None:
        began = time.monotonic()
        reflectors.start()
        if reflectors.wait_synced():
            log.info("synced", seconds=round(time.monotonic() - began, 2), **store.counts())
            leader.start()  # not before: who leads has to be able to
            terms.run(stop)
        leader.stop()  # nor before the loop has ended
        reflectors.join()
        if reflectors.failure is not None:
            raise reflectors.failure

    code = _until_signal(work, stop)
    seeing.close()
    tracing.stop()
    signs.end()
    log.info("watcher stopped")
    return code


def _say_start(settings: Settings, policy: Policy, shard: Shard) -> None:
    scope = ",".join(policy.scope.namespaces) or "every namespace"
    pairs = {"version": __version__, "cluster": settings.cluster, "mode": policy.mode.value, "scope": scope}
    log.info("watcher starts", **pairs, shard=str(shard))


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
