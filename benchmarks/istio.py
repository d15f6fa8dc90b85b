"""A large Deployment whose pods came up bare, on the real Istio: remesh beside what people do by hand.

`python -m benchmarks.istio [--replicas 1000] [--shares 5,100] [--ways remesh,rollout,delete,drip] [--json FILE]`

istiod dies while `failurePolicy` is Ignore, pods are created bare, and istiod comes back: what is timed starts there,
and ends when every pod is Ready and injected. One after the other, on the same cluster and the same Deployment:

- remesh: watcher and worker as shipped, one of each, running since before istiod came back;
- rollout: `kubectl rollout restart`, which replaces every pod;
- rollout of as many: the same on a Deployment that has only as many pods as were bare;
- delete: all bare pods at once;
- drip: 20 a minute, as the Dapr watchdog does; measured for a minute, the rest computed.

Admission is the whole request of a pod's creation as the API server's audit log times it: every one of them, to the
microsecond. The API server's and istiod's own histograms have too few buckets for a p99. Idle is the same for single
pods, created ten a second while nothing else goes on. kwok's pods are Ready a moment after they are scheduled, or
`--ready-seconds` after; those of real clusters take seconds.

Read so far, on two cores that others used as well: a repair costs the worker about 40 ms of CPU and the watcher 25, and
nearly all of its time is waiting until the replacement is Ready, during which it holds one of the worker's threads. So
with pods that take long to start the pace is threads by that time (64 threads were 1.7 times as fast as 16 where pods
took 5 s and the share was 37), and only then the owner's share. What helped: one pod at a time until the first has come
back, instead of sending all others back to cool down; one list of an owner's pods for all that go at the same moment.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.istio_scene import BIG, NAMESPACE, Run, Scene
from benchmarks.istio_ways import delete_all, drip, rollout
from remesh.audit import to_json_line
from remesh.models import RecordType
from tests.client import Client
from tests.cluster import Tuning
from tests.cluster.istio import IstioCluster, istio_wear
from tests.stack import Stack, wait_until

REMESH, ROLLOUT, AS_MANY, DELETE, DRIP = "remesh", "rollout", "rollout of as many", "delete", "drip"
IDLE_SECONDS: Final = 30.0
TIME_LIMIT: Final = 1.2  # of the rollout's time for as many pods
ADMISSION_LIMIT: Final = 2.0  # of the idle p99


@dataclass(frozen=True)
class Target:
    """One thing to reach."""

    name: str
    figure: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether it was."""
        return self.figure <= self.limit


def main() -> int:
    """Run it and print the figures; exit code 1 if remesh left something bare or touched what was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000, help="pods of the Deployment")
    parser.add_argument("--shares", default="5,100", help="per cent of them that are bare")
    parser.add_argument("--ways", default="remesh,rollout,delete,drip", help="which ways to take")
    parser.add_argument("--ready-seconds", type=float, default=0.0, help="from a pod's scheduling until it is Ready")
    parser.add_argument("--concurrency", type=int, default=0, help="threads of the worker; 0: as shipped")
    parser.add_argument("--istiods", type=int, default=1, help="replicas of istiod; Istio's own default is one")
    parser.add_argument("--controller-qps", type=int, default=200, help="requests a second of the controllers")
    parser.add_argument("--trail", type=Path, help="write remesh's trail of each share to this folder")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    with cluster(options) as bed, closing(Client(bed.kubeconfig)) as client:
        figures = measure(Scene(bed, client, options.ready_seconds), options)
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    mine = [run for run in figures["runs"] if run["way"] == REMESH]
    return 0 if all(run["left_bare"] == 0 == run["touched_injected"] for run in mine) else 1


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[IstioCluster]:
    """A cluster of its own, with Istio's own time-out of 10 s."""
    tuning = Tuning(controller_qps=options.controller_qps)
    bed = IstioCluster.start(istio_wear(options.istiods), nodes=10, tuning=tuning)
    try:
        yield bed
    finally:
        bed.stop()


def measure(scene: Scene, options: argparse.Namespace) -> dict[str, Any]:
    """Every way for every share; the figures."""
    say("the cluster is up; the Deployment is created")
    scene.build(options.replicas)
    say(f"idle: single pods, {IDLE_SECONDS:.0f} s")
    figures: dict[str, Any] = {
        "replicas": options.replicas,
        "istiods": options.istiods,
        "controller_qps": options.controller_qps,
        "ready_seconds": options.ready_seconds,
        "load": os.getloadavg()[0],
        "idle": scene.idle(IDLE_SECONDS),
    }
    runs = [
        asdict(run) | {"share": share}
        for share in map(int, options.shares.split(","))
        for run in of_share(scene, share, options)
    ]
    return figures | {"runs": runs}


def of_share(scene: Scene, share: int, options: argparse.Namespace) -> Iterator[Run]:
    """Every way for one share."""
    replicas, bare = options.replicas, max(1, options.replicas * share // 100)
    for way in options.ways.split(","):
        say(f"{share} % bare: {way}")
        run = one(scene, way, replicas, bare, options)
        say(line(run))
        yield run
        if way == ROLLOUT and bare < replicas:
            say(f"{share} % bare: {AS_MANY}")
            run = scene.few(bare, AS_MANY)
            say(line(run))
            yield run


def one(scene: Scene, way: str, replicas: int, bare: int, options: argparse.Namespace) -> Run:
    """Bring the scene about, and let one way mend it."""
    scene.make_bare(replicas, bare)
    if way == REMESH:
        return by_remesh(scene, bare, options)
    by_hand: dict[str, Callable[[], float | None]] = {
        ROLLOUT: lambda: rollout(scene.client, NAMESPACE, BIG),
        DELETE: lambda: delete_all(scene.client, NAMESPACE, scene.bare),
        DRIP: lambda: drip(scene.client, NAMESPACE, scene.bare),
    }
    scene.bed.heal()
    return scene.run(way, by_hand[way])


def by_remesh(scene: Scene, bare: int, options: argparse.Namespace) -> Run:
    """Watcher and worker are there and know of every bare pod when istiod comes back."""
    concurrency = options.concurrency
    with tempfile.TemporaryDirectory(prefix="remesh-bench-") as folder:
        stack = Stack(scene.bed, Path(folder))
        try:
            stack.start("worker", *(("--concurrency", str(concurrency)) if concurrency else ())).wait_for("ready.")
            stack.start_watcher()
            wait_until(lambda: len(stack.records(types=[RecordType.FINDING])) >= bare, "a finding each", 120)
            scene.bed.heal()
            run = scene.run(REMESH, lambda: gate_opened(stack))
            run.notes, run.phases = outcomes(stack), phases(stack, run.began)
            if options.trail:
                lines = [to_json_line(record) + "\n" for record in stack.records()]
                (options.trail / f"trail-{bare}.jsonl").write_text("".join(lines), encoding="utf-8")
            return run
        finally:
            stack.stop()


def gate_opened(stack: Stack) -> float | None:
    """When remesh saw that istiod was back, if it has: it may be the first to know."""
    opened = [r.at.timestamp() for r in stack.records(types=[RecordType.GATE]) if r.details.get("status") == "open"]
    return opened[0] if opened else None


def outcomes(stack: Stack) -> dict[str, int]:
    """How the repairs ended, by code."""
    notes: dict[str, int] = {}
    for record in stack.outcomes():
        notes[record.code] = notes.get(record.code, 0) + 1
    return notes


def phases(stack: Stack, began: float) -> dict[str, float]:
    """When what happened, in seconds: the gate, the first pod that came back, the last one."""
    healed = [r.at.timestamp() for r in stack.outcomes() if r.code == "healed"]
    found = {
        "gate open": gate_opened(stack),
        "first back": min(healed, default=None),
        "last back": max(healed, default=None),
    }
    return {name: round(at - began, 2) for name, at in found.items() if at is not None}


def targets(figures: dict[str, Any]) -> Iterator[Target]:
    """What is to be reached, as far as the runs tell."""
    for run in figures["runs"]:
        if run["way"] != REMESH:
            continue
        share, idle = f"{run['share']} %", figures["idle"]["p99"]
        others = {each["way"]: each for each in figures["runs"] if each["share"] == run["share"]}
        yield Target(f"{share}: injected pods touched", run["touched_injected"], 0)
        yield Target(f"{share}: bare pods left, and new ones", run["left_bare"] + run["new_bare"], 0)
        rival = others.get(AS_MANY) or others.get(ROLLOUT)
        if rival:
            yield Target(f"{share}: time / {rival['way']}'s", run["seconds"] / rival["seconds"], TIME_LIMIT)
        yield Target(f"{share}: admission p99 / idle", run["admission_ms"]["p99"] / idle, ADMISSION_LIMIT)


def show(figures: dict[str, Any]) -> None:
    """As tables, ratios first."""
    console = Console(width=150)
    goals = Table(title="targets")
    for title in ("what", "ratio or count", "limit", "met"):
        goals.add_column(title, justify="left" if title == "what" else "right")
    for target in targets(figures):
        goals.add_row(target.name, f"{target.figure:.2f}", f"{target.limit:g}", "yes" if target.met else "no")
    console.print(goals)
    console.print(by_way(figures))
    for run in figures["runs"]:
        if run["notes"]:
            console.print(f"{run['share']} %, {run['way']}: {run['phases']} s; outcomes {run['notes']}")


def by_way(figures: dict[str, Any]) -> Table:
    """Every run in a line."""
    what = f"{figures['replicas']} pods, {figures['istiods']} istiod, Ready after {figures['ready_seconds']:g} s"
    limits = f"controllers at {figures['controller_qps']} requests/s, load {figures['load']:.1f}"
    table = Table(title=f"{what}, {limits}; idle admission {_milliseconds(figures['idle'])} ms")
    columns = ("bare", "way", "seconds", "touched", "of them injected", "left bare", "new bare", "fewest Ready")
    for title in (*columns, "admission ms p50 / p99 / most", "× idle p99"):
        table.add_column(title, justify="left" if title == "way" else "right")
    for run in figures["runs"]:
        table.add_row(
            f"{run['share']} %",
            run["way"],
            f"{run['seconds']:.1f}" + (" (computed)" if run["computed"] else ""),
            str(run["touched_bare"] + run["touched_injected"]),
            str(run["touched_injected"]),
            str(run["left_bare"]),
            str(run["new_bare"]),
            "-" if run["computed"] else str(run["fewest_ready"]),
            _milliseconds(run["admission_ms"]),
            f"{run['admission_ms']['p99'] / figures['idle']['p99']:.1f}",
        )
    return table


def _milliseconds(found: dict[str, float]) -> str:
    return f"{found['p50']:.0f} / {found['p99']:.0f} / {found['most']:.0f}"


def line(run: Run) -> str:
    """One run, for who waits."""
    touched, p99 = run.touched_bare + run.touched_injected, run.admission_ms["p99"]
    return f"{run.seconds:.1f} s, {touched} touched, admission p99 {p99:.0f} ms, fewest Ready {run.fewest_ready}"


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"   {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
