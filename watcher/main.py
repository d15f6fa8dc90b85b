"""`python -m watcher`: settings, connections, reflectors, and the watcher's own thread until SIGTERM or SIGINT."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable

import watcher
from remesh import __version__, logs, queue, redisdb
from remesh.audit import Trail
from remesh.errors import RemeshError
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.probe import AnyPod, ProbeResult, probe
from remesh.kube.resources import resource_of
from remesh.kube.transport import KubeClient
from remesh.ledger import Ledger
from remesh.meshes import Profiles, load_profiles
from remesh.models import Finding
from remesh.policy import Mode, Policy, load_policy
from remesh.presence import Presence, now_seen
from remesh.settings import Settings, get_settings
from watcher.desk import Desk
from watcher.gatekeeper import Prober
from watcher.health import Heartbeat, beat_file
from watcher.reflect import KINDS, Reflectors
from watcher.runtime import Watcher
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
    access = load_access(settings.kubeconfig, settings.context)
    redis = redisdb.connect(settings)
    redisdb.require_safe(redisdb.check_broker(redis), allow_unsafe=settings.allow_unsafe_broker)
    client = KubeClient(access)
    cluster = Cluster(client)
    stop = threading.Event()
    store = Store()
    reflectors = Reflectors(client, store, profiles, stop)
    app = queue.make_app(settings, consumes=False)
    desk = Desk(
        cluster=settings.cluster,
        policy=policy,
        profiles=profiles,
        store=store,
        trail=Trail(redis, settings.cluster, settings.key_prefix),
        ledger=Ledger(redis, settings.cluster, settings.key_prefix),
    )
    heartbeat = Heartbeat(beat_file())
    presence = Presence(redis, settings.cluster, settings.key_prefix)
    alive = now_seen(policy.mode.value, __version__, policy.scope.namespaces)

    def beat() -> None:
        heartbeat.beat(synced=reflectors.synced)
        presence.beat(alive.model_copy(update={"synced": True}))

    main_loop = Watcher(
        desk,
        send=lambda request: queue.send(app, request),
        probe=_prober(cluster, profiles, policy),
        on_tick=beat,
    )
    _require_rights(client)
    scope = ",".join(policy.scope.namespaces) or "every namespace"
    log.info("watcher starts", version=__version__, cluster=settings.cluster, mode=policy.mode.value, scope=scope)
    heartbeat.beat(synced=False)
    presence.beat(alive)

    def work() -> None:
        began = time.monotonic()
        reflectors.start()
        if reflectors.wait_synced():
            log.info("synced", seconds=round(time.monotonic() - began, 2), **store.counts())
            main_loop.run(stop)
        reflectors.join()
        if reflectors.failure is not None:
            raise reflectors.failure

    code = _until_signal(work, stop)
    heartbeat.remove()
    presence.end()
    log.info("watcher stopped")
    return code


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
