"""From finding to started task, a thousand at once: `python -m benchmarks.tasks [--count 1000] [--workers 1]`.

remesh: the releaser of the watcher takes findings that wait behind an open gate: window, attempt, release mark, a
record in the trail (AOF on), then Celery. A worker as shipped starts the tasks. Plain Celery: the same payload to a
task that does nothing, same Redis, same pool, nothing else. When a task started is told by the workers' own events.

Of remesh there are two rows. In the first the tasks do nothing, so that it is the path alone. In the second the worker
is the shipped one, and its tasks wait behind those before them: each takes a lease, reads its object (here: gone), and
writes the outcome to the trail. CPU is per task, of the sender and of the workers.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.field import field
from benchmarks.report import print_table, write
from benchmarks.served import ROOT, Served, cpu_seconds, percentile, wait
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


class Sender:
    """The watcher's releaser, with findings that wait behind an open gate."""

    def __init__(self, stack: Stack, policy: Policy) -> None:
        self.app = queue.make_app(stack.settings, consumes=False)
        self._desk = Desk(stack.cluster, policy, load_profiles(None), Store(), stack.trail, stack.ledger)
        self._releaser = Releaser(self._desk, lambda request: queue.send(self.app, request))

    def send(self, first: int, count: int) -> float:
        """Release so many at once, from that number on; when it began, in seconds since the epoch."""
        for number in range(first, first + count):
            to_waiting(self._desk.book.add(finding(number, self._desk.cluster)))
        began = time.time()
        self._releaser.release([Gate(INJECTOR.key, status=GateStatus.OPEN)])
        return began


def roomy(count: int) -> tuple[Policy, str]:
    """A policy whose window takes so many findings and a few more: as an object, and as a policy file's text."""
    room = count + 100
    policy = load_policy().model_copy(update={"window": WindowPolicy(initial=room, maximum=room)})
    return policy, f"[window]\ninitial = {room}\nmaximum = {room}\n"


def by_remesh(stack: Stack, options: argparse.Namespace, policy: Policy, *, work: bool) -> dict[str, Any]:
    """Release findings, and see their tasks start. Without `work` the tasks do nothing."""
    sender = Sender(stack, policy)
    if work:
        pids = [stack.start_worker().popen.pid for _ in range(options.workers)]
        workers: AbstractContextManager[list[int]] = nullcontext(pids)
    else:
        workers = _workers("benchmarks.tasks_path", options.workers, stack.env)
    with workers as pids, Started(sender.app) as started:
        figures = _take(sender.send, started, options.count, pids)
        if not work:
            return figures
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
    environment = {**os.environ, "BENCH_BROKER": broker}
    with _workers("benchmarks.tasks_plain", options.workers, environment) as pids, Started(app) as started:

        def run(first: int, count: int) -> float:
            began = time.time()
            for _ in range(first, first + count):
                nothing.apply_async(args=[payload])
            return began

        return _take(run, started, options.count, pids)


def _take(run: Callable[[int, int], float], started: Started, count: int, pids: list[int]) -> dict[str, Any]:
    """A few to warm up, then all at once."""
    warm = 20
    run(0, warm)
    wait(lambda: len(started.at) >= warm, "the first tasks to start", 60)
    time.sleep(1.0)
    known = set(started.at)
    before, own = sum(map(cpu_seconds, pids)), time.thread_time()
    began = run(warm, count)
    sent, own = time.time() - began, time.thread_time() - own
    wait(lambda: len(started.at) >= warm + count, f"{count} tasks to start", 120)
    times = [at - began for uuid, at in started.at.items() if uuid not in known]
    parts = {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "all": max(times)}
    cpu = {"send_cpu": own / count, "worker_cpu": (sum(map(cpu_seconds, pids)) - before) / count}
    return {"began": began, "send": sent / count, "each": max(times) / count, **parts, **cpu}


@contextmanager
def _workers(module: str, count: int, environment: dict[str, str]) -> Iterator[list[int]]:
    """Workers of that module; their process ids."""
    command = [sys.executable, "-m", "celery", "-A", module, "worker", "--pool", "threads", "-E"]
    command += ["--concurrency", str(POOL), "--loglevel", "ERROR"]
    quiet, workers = subprocess.DEVNULL, []
    for number in range(count):
        name = ["-n", f"bench-{number}@%h"]
        workers.append(subprocess.Popen([*command, *name], cwd=ROOT, env=environment, stdout=quiet, stderr=quiet))
    try:
        yield [each.pid for each in workers]
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
    policy, text = roomy(options.count)
    ways: dict[str, dict[str, Any]] = {}
    with Served(10) as served, field(served, text) as stack:
        ways["plain Celery, nothing done"] = by_plain(stack, options)
    with Served(10) as served, field(served, text) as stack:
        ways["remesh's path, nothing done"] = by_remesh(stack, options, policy, work=False)
    with Served(10) as served, field(served, text) as stack:
        ways["remesh, each task done"] = by_remesh(stack, options, policy, work=True)
    plain, path, done = ways.values()
    rows = [
        [
            name,
            f"{row['each'] / plain['each']:.1f}",
            f"{row['send'] * 1000:.2f} ms",
            f"{row['each'] * 1000:.2f} ms",
            f"{(row['each'] - plain['each']) * 1000:.2f} ms",
            *(f"{row[part]:.2f} s" for part in ("p50", "p99", "all")),
            *(f"{row[part] * 1000:.2f} ms" for part in ("send_cpu", "worker_cpu")),
        ]
        for name, row in ways.items()
    ]
    title = f"finding → task started, {options.count} at once, {options.workers} worker(s) of {POOL} threads"
    heads = ["way", "× plain", "to send one", "each", "more than plain", "p50", "p99", "all started"]
    print_table(title, [*heads, "sender's CPU", "worker's CPU"], rows)
    print(f"all outcomes in the trail after {done['done_seconds']:.2f} s")
    figures = {"plain": plain, "path": path, "done": done}
    write(options.json, "tasks", figures, count=options.count, workers=options.workers)


if __name__ == "__main__":
    main()
