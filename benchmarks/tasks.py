"""From finding to started task, a thousand at once: `python -m benchmarks.tasks [--count 1000] [--workers 1]`.

remesh: the releaser of the watcher takes findings that wait behind an open gate: window, attempt, release mark, a
record in the trail (AOF on), then Celery. A worker as shipped starts the tasks. Plain Celery: the same payload to a
task that does nothing, same Redis, same pool, nothing else. When a task started is told by the workers' own events.

remesh's workers do their work meanwhile: each reads its object (here: gone), and writes the outcome to the trail.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.field import field
from benchmarks.report import print_table, write
from benchmarks.served import ROOT, Served, percentile, wait
from remesh import queue
from remesh.broker_urls import endpoint
from remesh.meshes import load_profiles
from remesh.models import Action, FailureClass, Finding, InjectorRef, ObjectRef, RecordType
from remesh.policy import Policy, WindowPolicy, load_policy
from tests.stack import Stack
from watcher.desk import Desk
from watcher.findings import to_waiting
from watcher.gate import Gate, GateStatus
from watcher.release import Releaser
from watcher.store import Store

POOL = 64  # threads of a worker, as shipped
INJECTOR = InjectorRef(
    mesh="linkerd",
    configuration="linkerd-proxy-injector-webhook-config",
    webhook="linkerd-proxy-injector.linkerd.io",
    service_namespace="linkerd",
    service_name="linkerd-proxy-injector",
)


def finding(number: int, cluster: str) -> Finding:
    """A refused ReplicaSet that does not exist on the API server."""
    ref = ObjectRef(
        api_version="apps/v1", kind="ReplicaSet", namespace="team-0", name=f"gone-{number}", uid=f"g-{number}"
    )
    return Finding(
        id=f"f-{number:012x}",
        cluster=cluster,
        ref=ref,
        mesh="linkerd",
        injector=INJECTOR,
        failure_class=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.WAIT_FOR_INJECTOR,
        after_recovery=Action.NUDGE_OWNER,
        code="injector_not_ready",
        reason="The injector did not answer in time.",
        missing=1,
        desired=1,
        template_hash="t",
        first_seen=datetime.now(UTC),
    )


class Started:
    """When each task started, by the events of the workers."""

    def __init__(self, app: Any) -> None:
        self.at: dict[str, float] = {}
        self._app = app
        self._receiver: Any = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Started":
        self._thread.start()
        time.sleep(1.0)  # a subscription says nothing when it stands
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.should_stop = True
        self._thread.join(5)

    def _follow(self) -> None:
        def note(event: dict[str, Any]) -> None:
            self.at[event["uuid"]] = event["timestamp"]

        with self._app.connection_for_read() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"task-started": note})
            self._receiver.capture(limit=None, timeout=None, wakeup=False)


def by_remesh(stack: Stack, options: argparse.Namespace, policy: Policy) -> dict[str, Any]:
    """Release findings, and see their tasks start."""
    app = queue.make_app(stack.settings, consumes=False)
    desk = Desk(stack.cluster, policy, load_profiles(None), Store(), stack.trail, stack.ledger)
    releaser = Releaser(desk, lambda request: queue.send(app, request))
    for _ in range(options.workers):
        stack.start_worker()
    with Started(app) as started:

        def run(first: int, count: int) -> float:
            for number in range(first, first + count):
                to_waiting(desk.book.add(finding(number, stack.cluster)))
            gate = Gate(INJECTOR.key, status=GateStatus.OPEN)
            began = time.time()
            releaser.release([gate])
            return began

        figures = _take(run, started, options.count)
        wait(lambda: len(stack.records(types=[RecordType.OUTCOME])) >= options.count, "outcomes", 120)
    last = max(each.at.timestamp() for each in stack.records(types=[RecordType.OUTCOME]))
    return figures | {"done_seconds": last - figures["began"]}


def by_plain(stack: Stack, options: argparse.Namespace) -> dict[str, Any]:
    """The same payload to a task that does nothing."""
    broker = endpoint(stack.redis_url, "REMESH_REDIS_URL").url
    os.environ["BENCH_BROKER"] = broker
    from benchmarks.tasks_plain import app, nothing

    app.conf.broker_url = broker
    payload = finding(0, stack.cluster).model_dump(mode="json")
    with _plain_workers(options.workers), Started(app) as started:

        def run(first: int, count: int) -> float:
            began = time.time()
            for _ in range(first, first + count):
                nothing.apply_async(args=[payload])
            return began

        return _take(run, started, options.count)


def _take(run: Callable[[int, int], float], started: Started, count: int) -> dict[str, Any]:
    """A few to warm up, then all at once."""
    warm = 20
    run(0, warm)
    wait(lambda: len(started.at) >= warm, "the first tasks to start", 60)
    time.sleep(1.0)
    known = set(started.at)
    began = run(warm, count)
    sent = time.time() - began
    wait(lambda: len(started.at) >= warm + count, f"{count} tasks to start", 120)
    times = [at - began for uuid, at in started.at.items() if uuid not in known]
    parts = {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "all": max(times)}
    return {"began": began, "send": sent / count, "each": max(times) / count, **parts}


@contextmanager
def _plain_workers(count: int) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.tasks_plain", "worker", "--pool", "threads", "-E"]
    command += ["--concurrency", str(POOL), "--loglevel", "ERROR"]
    workers = [
        subprocess.Popen(
            [*command, "-n", f"plain-{number}@%h"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for number in range(count)
    ]
    try:
        yield
    finally:
        for each in workers:
            each.terminate()
        for each in workers:
            each.wait(30)


def main() -> None:
    """Measure both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    room = options.count + 100
    window = WindowPolicy(initial=room, maximum=room)
    policy = load_policy().model_copy(update={"window": window})
    text = f"[window]\ninitial = {room}\nmaximum = {room}\n"
    with Served(10) as served, field(served, text) as stack:
        plain = by_plain(stack, options)
    with Served(10) as served, field(served, text) as stack:
        ours = by_remesh(stack, options, policy)
    rows = [
        [
            name,
            f"{row['each'] / plain['each']:.1f}",
            f"{row['send'] * 1000:.2f} ms",
            f"{row['each'] * 1000:.2f} ms",
            *(f"{row[part]:.2f} s" for part in ("p50", "p99", "all")),
        ]
        for name, row in (("plain Celery, nothing done", plain), ("remesh, trail and ledger on", ours))
    ]
    title = f"finding → task started, {options.count} at once, {options.workers} worker(s) of {POOL} threads"
    print_table(title, ["way", "× plain", "to send one", "each", "p50", "p99", "all started"], rows)
    overhead = ours["each"] - plain["each"]
    print(
        f"overhead: {overhead * 1000:.2f} ms a task until started; "
        f"all outcomes in the trail after {ours['done_seconds']:.2f} s"
    )
    figures = {"plain": plain, "remesh": ours, "overhead_seconds": overhead}
    write(options.json, "tasks", figures, count=options.count, workers=options.workers)


if __name__ == "__main__":
    main()
