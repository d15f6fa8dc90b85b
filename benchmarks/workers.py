"""How repairs a second grow with workers: `python -m benchmarks.workers [--workers 1,2,4] [--count 400]`.

The watcher's releaser sends so many findings at once, and the shipped worker takes them: lease, object read,
decision, outcome in the trail (AOF on). What a repair mostly does is wait for the API server, so this one takes
`--answer-ms` to answer each read; and each worker has `--concurrency` threads, few, so that one worker is full of
waiting before this machine is full of work. With the 64 threads of a shipped worker and no wait (`--concurrency 64
--answer-ms 0`) it is the machine's cores that end it.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.field import field
from benchmarks.report import print_table, write
from benchmarks.served import Served, cpu_seconds, wait
from benchmarks.tasks import Sender, roomy
from remesh.models import RecordType
from tests.stack import Stack


def measure(workers: int, options: argparse.Namespace) -> dict[str, float]:
    """Outcomes a second of so many workers, and the CPU of one outcome."""
    policy, text = roomy(options.count)
    with Served(10, answer_ms=options.answer_ms) as served, field(served, text) as stack:
        threads = ["--concurrency", str(options.concurrency)]
        started = [stack.start("worker", *threads, f"--hostname=worker-{number}@%h") for number in range(workers)]
        for each in started:
            each.wait_for("ready.")
        pids = [each.popen.pid for each in started]
        before, sender = sum(map(cpu_seconds, pids)), Sender(stack, policy)
        began = sender.send(0, options.count)
        wait(lambda: ended(stack) >= options.count, f"{options.count} outcomes", 600)
        cpu = sum(map(cpu_seconds, pids)) - before
        last = max(each.at.timestamp() for each in stack.records(types=[RecordType.OUTCOME]))
    return {"workers": workers, "rate": options.count / (last - began), "cpu_ms": 1000 * cpu / options.count}


def ended(stack: Stack) -> int:
    """Outcomes so far."""
    return len(stack.records(types=[RecordType.OUTCOME]))


def main() -> None:
    """Measure each number of workers, and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=4, help="threads of each worker")
    parser.add_argument("--answer-ms", type=float, default=100.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = [measure(int(each), options) for each in options.workers.split(",")]
    print_table(
        f"{options.count} tasks, {options.concurrency} threads a worker, {options.answer_ms:g} ms for each read",
        ["workers", "× one", "tasks/s", "worker's CPU of one"],
        [row(each, found[0]) for each in found],
    )
    settings: dict[str, Any] = {"count": options.count, "concurrency": options.concurrency}
    write(options.json, "workers", found, **settings, answer_ms=options.answer_ms)


def row(found: dict[str, float], first: dict[str, float]) -> list[str]:
    """One line of the table."""
    ratio = found["rate"] / first["rate"]
    return [f"{found['workers']:.0f}", f"{ratio:.2f}", f"{found['rate']:.1f}", f"{found['cpu_ms']:.1f} ms"]


if __name__ == "__main__":
    main()
