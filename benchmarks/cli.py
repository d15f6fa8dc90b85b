"""How long a person waits for the command line: `python -m benchmarks.cli [--pods 10000] [--runs 10] [--json FILE]`.

`remesh --help` beside `kubectl --help`, and `remesh scan -A`, which reads and judges every pod and workload, beside
kubectl's list of the same pods, of a generated cluster. Each is a new process; the median of all runs is shown.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import print_table, write
from benchmarks.served import Served
from tests.cluster.build import DEPLOY_PROGRAMS, find

REMESH = str(Path(sys.executable).with_name("remesh"))


def run_times(command: Sequence[str], runs: int, environment: dict[str, str]) -> dict[str, Any]:
    """Seconds and peak memory of the process, medians."""
    seconds: list[float] = []
    cpu: list[float] = []
    memory: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds.append(time.perf_counter() - began)
        cpu.append(usage.ru_utime + usage.ru_stime)
        memory.append(usage.ru_maxrss * 1024)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said[-500:]!r}")
    medians: dict[str, list[float]] = {"seconds": seconds, "cpu": cpu, "peak_bytes": memory}
    return {name: statistics.median(values) for name, values in medians.items()} | {"least": min(seconds)}


def kubectl() -> str | None:
    """The test cluster's kubectl, or the one on PATH."""
    import shutil

    built = next((find(each) for each in DEPLOY_PROGRAMS if each.name == "kubectl"), None)
    return str(built) if built else shutil.which("kubectl")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program = kubectl()
    rows: list[dict[str, Any]] = []
    with Served(options.pods) as served, tempfile.TemporaryDirectory() as folder:
        config = str(served.kubeconfig(Path(folder)))
        environment = {**os.environ, "KUBECONFIG": config, "REMESH_KUBECONFIG": config, "HOME": folder}
        few = max(3, options.runs // 3)
        commands: list[tuple[str, list[str], int]] = [
            ("python -c pass", [sys.executable, "-c", "pass"], options.runs),
            ("remesh --help", [REMESH, "--help"], options.runs),
            ("import kubernetes", [sys.executable, "-c", "import kubernetes"], few),
            ("remesh scan -A", [REMESH, "scan", "-A"], few),
        ]
        if program:
            commands += [
                ("kubectl --help", [program, "--help"], options.runs),
                ("kubectl get pods -A", [program, "get", "pods", "-A"], 2),
                ("kubectl get pods -A -o json", [program, "get", "pods", "-A", "-o", "json"], 1),
            ]
        for name, line, runs in commands:
            rows.append({"command": name} | run_times(line, runs, environment))
            print(f"   {rows[-1]}", file=sys.stderr, flush=True)
    show(rows, options)
    write(options.json, "cli", rows, pods=options.pods, runs=options.runs)


def show(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Each beside its counterpart, which is 1."""
    by_name = {row["command"]: row for row in rows}
    table = []
    for row in rows:
        base = by_name["remesh scan -A" if " -A" in row["command"] else "remesh --help"]
        ratio = f"{row['seconds'] / base['seconds']:.1f}"
        own = f"{row['cpu'] * 1000:.0f} ms"  # what others on the machine do does not count
        memory = f"{row['peak_bytes'] / 1e6:.0f} MB"
        table.append(
            [row["command"], ratio, f"{row['seconds'] * 1000:.0f} ms", f"{row['least'] * 1000:.0f} ms", own, memory]
        )
    title = f"the command line, {options.pods} pods, median of {options.runs} runs (fewer of the long ones)"
    print_table(title, ["command", "× remesh's", "median", "least", "CPU time", "peak memory"], table)


if __name__ == "__main__":
    main()
