"""List and hold pods, then follow changes: remesh's store beside every client that a user would pick instead.

`python -m benchmarks.watch [--on served|real] [--pods 10000] [--rate 500] [--ways remesh,client-go] [--json FILE]`

served: a generated cluster (benchmarks/apiserver.py) serves pods of 6.6 KB over HTTP on the loopback, to each client
one of its own. real: pods of a real control plane (benchmarks/real.py), one for all; client-go gets protobuf there,
too. Each client runs alone, and is measured from outside: from its start until it says that it has synced; resident
memory then and at the end; CPU time. After the changes all that it holds is compared with the server, object by
object.

The other clients' packages are installed once, into an environment of its own; client-go's informer is built by Go.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from benchmarks.others import informer, python_with_clients
from benchmarks.report import print_table, write
from benchmarks.served import ROOT, Served, cpu_seconds, peak, resident

PROTOBUF = "client-go protobuf"
WAYS = ("remesh", "client-go", "client-go trimmed", "lightkube", "official", "kopf", "kr8s")
TITLES = {
    "remesh": "remesh (Reflector, Store)",
    "client-go": "client-go (shared informer, JSON)",
    "client-go trimmed": "… without managedFields",
    PROTOBUF: "client-go (shared informer, protobuf)",
    "official": "official (SharedInformer)",
    "kopf": "kopf (index)",
    "kr8s": "kr8s (list, watch, dict)",
    "lightkube": "lightkube (list, watch, dict)",
}
CATCH_UP_SECONDS = 60.0
PATIENCE_SECONDS = 240.0


class Source(Protocol):
    """Pods on an API server."""

    def kubeconfig(self, folder: Path) -> Path:
        """How to reach it; that folder may be written to."""

    def ask(self, what: str) -> Any:
        """`pods`: UID → resourceVersion. `state`: how many `changes` there were."""

    def change(self, seconds: float, rate: float) -> None:
        """Let pods change for so long, and return when they have."""


@contextmanager
def sources(options: argparse.Namespace) -> Iterator[Callable[[], AbstractContextManager[Source]]]:
    """For each client a source: one of its own, or the real one that all share."""
    if options.on == "served":
        yield lambda: Served(options.pods)
        return
    from benchmarks.real import real_pods

    print(f"   {options.pods} pods are created on a real control plane", file=sys.stderr, flush=True)
    with real_pods(options.pods) as real:
        yield lambda: nullcontext(real)


def command(way: str, kubeconfig: Path) -> Sequence[str]:
    """What runs this client."""
    if way.startswith("client-go"):
        return [str(informer()), str(kubeconfig), *way.split()[1:]]
    python = sys.executable if way == "remesh" else str(python_with_clients())
    return [python, "-m", "benchmarks.watch_clients", way, str(kubeconfig)]


def measure(
    way: str, options: argparse.Namespace, source: Callable[[], AbstractContextManager[Source]]
) -> dict[str, Any]:
    """One client, from its start to its end."""
    with source() as served, tempfile.TemporaryDirectory() as folder:
        line = command(way, served.kubeconfig(Path(folder)))
        began = time.monotonic()
        client = subprocess.Popen(
            line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            patience = threading.Timer(PATIENCE_SECONDS, client.kill)
            patience.start()
            synced = client.stdout.readline().strip() == "synced"
            patience.cancel()
            if not synced:
                return {"way": way, "failed": f"had not synced after {time.monotonic() - began:.0f} s"}
            found: dict[str, Any] = {"way": way, "synced_seconds": time.monotonic() - began}
            found |= {"synced_cpu": cpu_seconds(client.pid), "synced_bytes": resident(client.pid)}
            time.sleep(1.0)  # what is left to do after the list is not the changes' cost
            before = cpu_seconds(client.pid)
            served.change(options.seconds, options.rate)
            found["change_cpu"] = (cpu_seconds(client.pid) - before) / options.seconds
            found |= _compare(client, served)
            return found | {"end_bytes": resident(client.pid), "peak_bytes": peak(client.pid)}
        finally:
            client.kill()
            client.wait()


def _compare(client: "subprocess.Popen[str]", served: Source) -> dict[str, Any]:
    """What the client holds against what the server has, until they are the same or time is up."""
    assert client.stdin is not None
    assert client.stdout is not None
    wanted, ended = served.ask("pods"), time.monotonic()
    while True:
        client.stdin.write("held\n")
        client.stdin.flush()
        held = json.loads(client.stdout.readline())
        wrong = sum(1 for uid, version in wanted.items() if held.get(uid) != version) + len(set(held) - set(wanted))
        behind = time.monotonic() - ended
        if not wrong or behind > CATCH_UP_SECONDS:
            return {"missed": wrong, "changes": served.ask("state")["changes"], "behind_seconds": behind}
        time.sleep(0.2)


def main() -> None:
    """Measure each and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=500.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long pods change")
    parser.add_argument("--rounds", type=int, default=1, help="of each; the median is shown")
    parser.add_argument("--ways", default="", help="all unless named")
    parser.add_argument("--on", choices=["served", "real"], default="served")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    ways = options.ways.split(",") if options.ways else [*WAYS, *([PROTOBUF] if options.on == "real" else [])]
    with sources(options) as source:
        for way in ways:
            try:
                rows.append(_median([measure(way, options, source) for _ in range(options.rounds)]))
            except FileNotFoundError as error:
                rows.append({"way": way, "failed": str(error)})
            print(f"   {way}: {rows[-1]}", file=sys.stderr, flush=True)
    show(rows, options)
    write(options.json, "watch", rows, pods=options.pods, rate=options.rate, seconds=options.seconds, on=options.on)


def _median(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    failed = next((each for each in rounds if "failed" in each), None)
    if failed:
        return failed
    taken = {name: statistics.median(each[name] for each in rounds) for name in rounds[0] if name != "way"}
    return {"way": rounds[0]["way"], **taken, "missed": max(each["missed"] for each in rounds)}


def show(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Ratios first: how many times as long, as much memory and as much CPU as remesh's."""
    best = next((row for row in rows if row["way"] == "remesh" and "failed" not in row), rows[0])
    base = _base(options)
    table = []
    for row in rows:
        if "failed" in row:
            table.append([TITLES[row["way"]], row["failed"]])
            continue
        ratios = [f"{row[key] / max(best[key], 1e-9):.1f}" for key in ("synced_seconds", "end_bytes", "change_cpu")]
        table.append(
            [
                TITLES[row["way"]],
                *ratios,
                f"{row['synced_seconds']:.2f} s",
                f"{row['synced_cpu']:.2f} s",
                f"{row['end_bytes'] / 1e6:.0f} MB",
                f"{row['peak_bytes'] / 1e6:.0f} MB",
                f"{row['change_cpu'] * 100:.0f} %",
                f"{row['missed']:.0f} of {row['changes']:.0f}",
                f"{row['behind_seconds']:.1f} s",
            ]
        )
    heads = [
        "client",
        "× time",
        "× memory",
        "× CPU",
        "synced",
        "CPU of it",
        "memory",
        "peak",
        "CPU of a core",
        "missed",
        "behind",
    ]
    print_table(
        f"{options.pods} pods ({options.on}) held, then {options.rate:g} changes/s for {options.seconds:g} s",
        heads,
        table,
    )
    print(f"a Python process that imports remesh's parts and holds nothing: {base / 1e6:.0f} MB")


def _base(options: argparse.Namespace) -> int:
    """Resident memory of remesh's process with one pod in it."""
    with Served(1) as served, tempfile.TemporaryDirectory() as folder:
        client = subprocess.Popen(
            command("remesh", served.kubeconfig(Path(folder))),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert client.stdout is not None
            client.stdout.readline()
            return resident(client.pid)
        finally:
            client.kill()
            client.wait()


if __name__ == "__main__":
    main()
