"""What a watcher costs while nothing is wrong: CPU, memory, and no dry runs.

`python -m benchmarks.idle [--pods 10000] [--minutes 3] [--churn 500] [--churn-minutes 2] [--json FILE]`

First nothing changes. Then `--churn` pods a second change, appear and go, with their number about the same, to see
whether memory grows with what has been. The whole watcher is measured, from outside.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.field import field
from benchmarks.report import print_table, write
from benchmarks.served import Served, cpu_seconds, peak, resident

SAMPLE_SECONDS = 10.0
SETTLE_SECONDS = 15.0
"""After the first list: the look at all objects, and what the allocator gives back."""


def watch_it(pid: int, seconds: float) -> dict[str, Any]:
    """CPU and resident memory over a time."""
    before, began, samples = cpu_seconds(pid), time.monotonic(), [resident(pid)]
    while (left := seconds - (time.monotonic() - began)) > 0:
        time.sleep(min(SAMPLE_SECONDS, left))
        samples.append(resident(pid))
    passed = time.monotonic() - began
    cpu = (cpu_seconds(pid) - before) / passed
    # Halves are compared, not ends: one sample may have caught a collector at work.
    half = len(samples) // 2
    late, early = samples[half:], samples[:half] or samples
    growth = sum(late) / len(late) - sum(early) / len(early)
    return {"seconds": passed, "cpu": cpu, "first": samples[0], "last": samples[-1], "growth": growth, "all": samples}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--churn", type=float, default=500.0, help="changes a second in the second part")
    parser.add_argument("--churn-minutes", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with Served(options.pods) as served, field(served) as stack:
        pid = stack.start_watcher().popen.pid
        time.sleep(SETTLE_SECONDS)
        phases = {"nothing changes": watch_it(pid, options.minutes * 60)}
        phases["nothing changes"]["dry_runs"] = served.ask("state")["requests"].get("dry run", 0)
        if options.churn_minutes:
            print("   now with changes", file=sys.stderr, flush=True)
            served.begin(options.churn_minutes * 60, options.churn)
            phases[f"{options.churn:g} changes/s"] = row = watch_it(pid, options.churn_minutes * 60)
            row["dry_runs"] = served.ask("state")["requests"].get("dry run", 0)
        requests, records = served.ask("state")["requests"], len(stack.records())
        highest = peak(pid)
    rows = [
        [
            name,
            f"{row['cpu'] * 100:.2f} %",
            f"{row['growth'] / 1e6:+.1f} MB",
            f"{row['first'] / 1e6:.0f} MB",
            f"{row['last'] / 1e6:.0f} MB",
            f"{row['seconds']:.0f} s",
            str(row["dry_runs"]),
        ]
        for name, row in phases.items()
    ]
    heads = ["while", "CPU of a core", "later half − earlier", "memory, first", "last", "for", "dry runs"]
    print_table(f"a watcher of {options.pods} pods, nothing wrong", heads, rows)
    print(f"writes: {requests.get('PATCH', 0) + requests.get('POST', 0)}")
    print(f"records in the trail: {records}; highest memory: {highest / 1e6:.0f} MB")
    figures = {"phases": phases, "requests": requests, "records": records, "peak": highest}
    write(options.json, "idle", figures, pods=options.pods, churn=options.churn)


if __name__ == "__main__":
    main()
