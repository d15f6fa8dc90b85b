"""`python -m watcher`: settings, connections, reflectors, and the watcher's own thread until SIGTERM or SIGINT."""

import argparse
import signal
import sys
import threading
import time

import watcher
from remesh import __version__, logs, queue, redisdb
from remesh.audit import Trail
from remesh.errors import RemeshError
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.probe import AnyPod, ProbeResult, probe
from remesh.kube.transport import KubeClient
from remesh.ledger import Ledger
from remesh.meshes import Profiles, load_profiles
from remesh.models import Finding
from remesh.policy import Mode, Policy, load_policy
from remesh.settings import Settings, get_settings
from watcher.desk import Desk
from watcher.gatekeeper import Prober
from watcher.health import Heartbeat, beat_file
from watcher.reflect import Reflectors
from watcher.runtime import Watcher
from watcher.store import Store

log = logs.get("watcher")


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
    stop = _stop_on_signals()
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
    main_loop = Watcher(
        desk,
        send=lambda request: queue.send(app, request),
        probe=_prober(cluster, profiles, policy),
        on_tick=lambda: heartbeat.beat(synced=reflectors.synced),
    )
    client.version()  # an unreachable cluster or refused credentials end the start, with one line
    began = time.monotonic()
    log.info("watcher starts", version=__version__, cluster=settings.cluster, mode=policy.mode.value)
    heartbeat.beat(synced=False)
    reflectors.start()
    if reflectors.wait_synced():
        log.info("synced", seconds=round(time.monotonic() - began, 2), **store.counts())
        main_loop.run(stop)
    reflectors.join()
    heartbeat.remove()
    log.info("watcher stopped")
    return 0


def _prober(cluster: Cluster, profiles: Profiles, policy: Policy) -> Prober:
    def dry_run(finding: Finding) -> ProbeResult:
        expected = finding.sidecar_expected and finding.mesh
        proof = profiles.by_name(finding.mesh) if expected else AnyPod()
        # A pod's replacement comes from its owner's template, which may have changed since.
        owned = finding.ref.kind == "Pod" and finding.owner is not None
        return probe(cluster, finding.owner if owned and finding.owner else finding.ref, proof, policy.gate)

    return dry_run


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(_number: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop
