"""Stuck ReplicaSets after the injector works again: with remesh, and one left to Kubernetes alone beside them.

`python -m benchmarks.stuck [--count 85] [--outage 120] [--controller-qps 200] [--cluster real|sim] [--json FILE]`

One ReplicaSet (the veteran) and its twin in a namespace that remesh's policy leaves out (the control) fail from the
start, so that their back-off is over a minute. Then the injector hangs, and the others are created behind it. At the
end of the outage the injector answers again; what is timed starts there.

kube-controller-manager limits its own requests: 20 a second unless told otherwise, which alone takes 8 s for 170 pods.
`--controller-qps 20` shows that; the default here is what large clusters set, so that the limit is not the figure.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from remesh.models import AuditRecord, RecordType
from remesh.testbed import Fault, InjectorWear, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import Stack, wait_until

REPAIRED, LEFT = "bench-repaired", "bench-left-alone"
VETERAN = "veteran"
BACKOFF_SECONDS = 166.0  # after the retry at 164 s (5 ms doubling) the next is 164 s away
REPLICAS = 2


@dataclass
class Timeline:
    """Seconds since the injector answered again."""

    healed: dict[str, float] = field(default_factory=dict)  # ReplicaSet → all pods Ready with the sidecar
    control: float | None = None


def main() -> int:
    """Run it and print the figures; exit code 1 if something was not healed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=85, help="stuck ReplicaSets, the veteran included")
    parser.add_argument("--outage", type=float, default=120.0, help="seconds that the injector hangs")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds to wait for the control")
    parser.add_argument("--controller-qps", type=int, default=200, help="requests a second of the controllers")
    parser.add_argument("--cluster", choices=["real", "sim"], default="real")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="remesh-bench-") as folder,
        cluster(options.cluster, options.controller_qps) as bed,
    ):
        stack = Stack(bed, Path(folder))
        try:
            with closing(Client(bed.kubeconfig)) as client:
                figures = measure(bed, client, stack, options)
        finally:
            stack.stop()
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if figures["healed"] == options.count else 1


def cluster(kind: str, controller_qps: int) -> AbstractContextManager[TestBed]:
    """A cluster of its own, with the default webhook time-out of 10 s."""

    @contextmanager
    def opened() -> Iterator[TestBed]:
        bed: TestBed
        if kind == "real":
            from tests.cluster import RealCluster, Tuning

            bed = RealCluster.start(InjectorWear(), tuning=Tuning(controller_qps=controller_qps))
        else:
            from remesh.sim import SimCluster

            bed = SimCluster.start(InjectorWear(), controller_qps=controller_qps)
        try:
            yield bed
        finally:
            bed.stop()

    return opened()


def measure(bed: TestBed, client: Client, stack: Stack, options: argparse.Namespace) -> dict[str, Any]:
    """Play the outage; the figures."""
    for name in (REPAIRED, LEFT):
        client.create_meshed_namespace(name, bed.wear)
    say(f"{bed.kind} cluster is up; the veteran and the control fail for {BACKOFF_SECONDS:.0f} s")
    bed.inject_fault(Fault.ERROR_500)  # fails at once, so the pauses double quickly
    for namespace in (REPAIRED, LEFT):
        client.create(namespace, w.replica_set(VETERAN, REPLICAS))
    began = time.monotonic()
    stack.policy(f'[scope]\nnamespaces = ["{REPAIRED}"]\n')
    stack.start_worker()
    stack.start_watcher()
    wait_until(lambda: time.monotonic() - began > BACKOFF_SECONDS, "the veteran's back-off", BACKOFF_SECONDS + 60)
    say(f"the injector hangs; {options.count - 1} ReplicaSets are created behind it")
    bed.inject_fault(Fault.FROZEN)
    names = [f"web-{number:03d}" for number in range(options.count - 1)]
    for name in names:
        client.create(REPAIRED, w.replica_set(name, REPLICAS))
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() - frozen > options.outage, "the outage", options.outage + 60)
    say("the injector answers again")
    bed.heal()
    back = time.time()
    timeline = follow(bed, client, [VETERAN, *names], back, options.patience)
    wait_until(lambda: len({r.finding_id for r in stack.outcomes()}) >= len(findings(stack)), "outcomes", 60)
    return summary(bed, stack, timeline, back, options)


def follow(bed: TestBed, client: Client, names: list[str], back: float, patience: float) -> Timeline:
    """Poll until all are healed, and the control too or patience is over."""
    timeline = Timeline()
    while len(timeline.healed) < len(names) or timeline.control is None:
        now = time.time() - back
        for name, count in ready_by_owner(client, REPAIRED, bed.wear.sidecar).items():
            if count == REPLICAS:
                timeline.healed.setdefault(name, now)
        if ready_by_owner(client, LEFT, bed.wear.sidecar).get(VETERAN) == REPLICAS and timeline.control is None:
            timeline.control = now
        if now > patience:
            break
        time.sleep(0.1)
    return timeline


def ready_by_owner(client: Client, namespace: str, sidecar: str) -> dict[str, int]:
    """Pods Ready with the sidecar, counted by owner."""
    counts: dict[str, int] = {}
    for pod in client.pods(namespace):
        if w.has_container(pod, sidecar) and w.is_ready(pod):
            for owner in pod["metadata"].get("ownerReferences", []):
                counts[owner["name"]] = counts.get(owner["name"], 0) + 1
    return counts


def findings(stack: Stack) -> set[str]:
    """Ids of all findings in the repaired namespace."""
    records = stack.records(types=[RecordType.FINDING])
    return {record.finding_id for record in records if record.ref and record.ref.namespace == REPAIRED}


def summary(bed: TestBed, stack: Stack, timeline: Timeline, back: float, options: argparse.Namespace) -> dict[str, Any]:
    """The figures, in seconds since the injector answered again."""
    records = stack.records()
    opened = gate_opened(records, back)
    after_gate = sorted(seconds - (opened or 0.0) for seconds in timeline.healed.values())
    nudged = {record.ref.name for record in records if record.type is RecordType.INTENT and record.ref}
    return {
        "cluster": bed.kind,
        "stuck": options.count,
        "outage_seconds": options.outage,
        "controller_qps": options.controller_qps,
        "healed": len(timeline.healed),
        "nudged": len(nudged),
        "gate_open_after": opened,
        "veteran_ready_after": timeline.healed.get(VETERAN),
        "all_ready_after": max(timeline.healed.values(), default=None),
        "ready_after_gate_median": statistics.median(after_gate) if after_gate else None,
        "ready_after_gate_p99": after_gate[int(len(after_gate) * 0.99)] if after_gate else None,
        "control_ready_after": timeline.control,
        "patience": options.patience,
        "trail_records": len(records),
        "trail_objects": len({record.ref.uid for record in records if record.ref}),
    }


def gate_opened(records: list[AuditRecord], back: float) -> float | None:
    """When the gate opened, in seconds after the injector was back."""
    opened = [r.at.timestamp() for r in records if r.type is RecordType.GATE and r.details.get("status") == "open"]
    return next((at - back for at in opened if at > back - 5), None)


def show(figures: dict[str, Any]) -> None:
    """As a table."""
    limit = f"controllers at {figures['controller_qps']} requests/s"
    table = Table(title=f"{figures['stuck']} stuck ReplicaSets, {figures['cluster']} cluster, {limit}")
    table.add_column("since the injector answers again")
    table.add_column("seconds", justify="right")
    control = figures["control_ready_after"]
    rows = [
        ("gate open", figures["gate_open_after"]),
        ("veteran (back-off over a minute) Ready, with remesh", figures["veteran_ready_after"]),
        ("all Ready with the sidecar", figures["all_ready_after"]),
        ("Ready after the gate opened, median", figures["ready_after_gate_median"]),
        ("Ready after the gate opened, p99", figures["ready_after_gate_p99"]),
    ]
    for name, value in rows:
        table.add_row(name, "-" if value is None else f"{value:.2f}")
    alone = f"{control:.2f}" if control is not None else f"> {figures['patience']:.0f}, still stuck"
    table.add_row("the control, left to Kubernetes alone", alone)
    console = Console()
    console.print(table)
    if control is not None and figures["veteran_ready_after"]:
        console.print(f"Kubernetes alone took {control / figures['veteran_ready_after']:.0f} × as long.")
    console.print(
        f"healed {figures['healed']} of {figures['stuck']}, {figures['nudged']} by a nudge; "
        f"trail: {figures['trail_records']} records of {figures['trail_objects']} objects"
    )


def say(line: str) -> None:
    """Progress, on standard error."""
    print(f"   {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
