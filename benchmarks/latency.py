"""How soon a failure is known: from the commit on the API server to the finding in the audit trail.

`python -m benchmarks.latency [--pods 10000] [--rate 500] [--failing 5] [--seconds 30] [--json FILE]`

While `--rate` pods a second change, `--failing` ReplicaSets a second appear whose pods the injector's webhook refused.
The watcher that is shipped finds them; when a finding is known is told by Redis, which stamps each record. Beside it,
in a run of its own: a loop that lists all pods and ReplicaSets every 10 s, with remesh's own fast decoder.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.field import field, place_seconds
from benchmarks.report import print_table, write
from benchmarks.served import ROOT, Served, cpu_seconds, percentile, wait
from remesh.models import RecordType

POLL_SECONDS = 10.0


def by_watcher(options: argparse.Namespace) -> dict[str, Any]:
    """Latencies of the watcher."""
    with Served(options.pods) as served, field(served) as stack:
        watcher = stack.start_watcher()
        time.sleep(2.0)  # what it found when it started is looked at first
        before = cpu_seconds(watcher.popen.pid)
        served.change(options.seconds, options.rate, options.failing)
        cpu = (cpu_seconds(watcher.popen.pid) - before) / options.seconds
        changes = served.ask("state")["changes"]
        committed: dict[str, float] = served.ask("failures")

        def known() -> dict[str, float]:
            records = stack.records(types=[RecordType.FINDING])
            return {each.ref.name: place_seconds(each.position) for each in records if each.ref}

        wait(lambda: set(committed) <= set(known()), "all findings", 60)
        found = known()
        figures = _summary([found[name] - at for name, at in committed.items()], len(committed), cpu)
        return figures | {"changes": changes / options.seconds}


def by_polling(options: argparse.Namespace) -> dict[str, Any]:
    """Latencies of a loop that lists every 10 s."""
    with Served(options.pods) as served:
        command = [sys.executable, "-m", "benchmarks.latency", "--poll", served.url]
        poller = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert poller.stdout is not None
        try:
            poller.stdout.readline()
            before = cpu_seconds(poller.pid)
            served.change(options.seconds, options.rate, options.failing)
            cpu = (cpu_seconds(poller.pid) - before) / options.seconds
            committed: dict[str, float] = served.ask("failures")
            found: dict[str, float] = {}
            while not set(committed) <= set(found):
                found |= json.loads(poller.stdout.readline())
            return _summary([found[name] - at for name, at in committed.items()], len(committed), cpu)
        finally:
            poller.kill()
            poller.wait()


def _summary(latencies: list[float], failures: int, cpu: float) -> dict[str, Any]:
    # Redis stamps whole milliseconds, so a difference may come out a millisecond below nothing.
    taken = [max(0.0, each) for each in latencies]
    parts = {"p50": 0.5, "p99": 0.99, "most": 1.0}
    return {name: percentile(taken, part) for name, part in parts.items()} | {"failures": failures, "cpu": cpu}


def poll(url: str) -> None:
    """The loop; prints when it saw which ReplicaSet fail for the first time."""
    from remesh.kube.api import list_all
    from remesh.kube.config import Access
    from remesh.kube.transport import KubeClient

    client, seen = KubeClient(Access(url, "generated")), set()
    while True:
        began = time.monotonic()
        list_all(client, "Pod")
        fresh = {}
        for each in list_all(client, "ReplicaSet").items:
            name = each.metadata.name
            if name not in seen and any(one.type == "ReplicaFailure" for one in each.status.conditions or ()):
                seen.add(name)
                fresh[name] = time.time()
        print(json.dumps(fresh), flush=True)
        time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - began)))


def main() -> None:
    """Measure both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=500.0, help="pods that change a second")
    parser.add_argument("--failing", type=float, default=5.0, help="ReplicaSets that fail a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-polling", action="store_true", help="the watcher alone")
    parser.add_argument("--poll", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.poll:
        poll(options.poll)
        return
    ways = {"remesh (watcher)": by_watcher(options)}
    if not options.no_polling:
        ways[f"polling every {POLL_SECONDS:.0f} s"] = by_polling(options)
    best = ways["remesh (watcher)"]
    rows = [
        [
            name,
            *(f"{row[part] / max(best[part], 0.001):.0f}" for part in ("p50", "p99")),
            *(f"{row[part] * 1000:.0f} ms" for part in ("p50", "p99", "most")),
            f"{row['cpu'] * 100:.0f} %",
            f"{row['failures']}",
        ]
        for name, row in ways.items()
    ]
    title = f"commit → finding known, {options.pods} pods, {options.rate:g} changes/s"
    print_table(title, ["way", "× p50", "× p99", "p50", "p99", "most", "CPU of a core", "failures"], rows)
    print(f"changes that the server made: {best['changes']:.0f}/s")
    write(options.json, "latency", ways, pods=options.pods, rate=options.rate, seconds=options.seconds)


if __name__ == "__main__":
    main()
