"""Reliability runs by hand: `python -m tests.reliability crash --help`."""

import argparse
import itertools
import multiprocessing
import queue as queues
import sys
import tempfile
from pathlib import Path
from typing import Any

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear, TestBed
from tests.reliability.crash import Kill, Run, chosen, learn_points, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability")
    kinds = parser.add_subparsers(required=True)
    one = kinds.add_parser("crash", help="kill watcher and worker at their points")
    one.add_argument("--runs", type=int, default=20)
    one.add_argument("--lanes", type=int, default=2, help="clusters side by side")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--bed", choices=["sim", "real"], default="sim")
    one.add_argument("--out", type=Path, default=Path("crash-runs.jsonl"))
    options = parser.parse_args()
    return crash_runs(options.runs, options.lanes, options.seed, options.bed, options.out)


def started(kind: str) -> Any:
    """A cluster of its own for one lane."""
    wear = InjectorWear(timeout_seconds=2)
    if kind == "sim":
        return SimCluster.start(wear, controller_qps=200)
    from tests.cluster.cluster import RealCluster
    from tests.cluster.controlplane import Tuning

    return RealCluster.start(wear, tuning=Tuning(controller_qps=200))


def crash_runs(runs: int, lanes: int, seed: int, kind: str, out: Path) -> int:
    """All runs; a line for each. Returns 1 if an invariant did not hold in any of them."""
    with started(kind) as bed:
        folder = Path(tempfile.mkdtemp(prefix="remesh-learn-"))
        learned, points = learn_points(bed, folder)
    print(
        f"points: { ({name: len(found) for name, found in points.items()}) }; first run: {learned.line()}", flush=True
    )
    if not learned.ok:
        return 1
    todo = list(enumerate(itertools.islice(chosen(points, seed), runs), start=1))
    tasks: Any = multiprocessing.Queue()
    done: Any = multiprocessing.Queue()
    for each in todo:
        tasks.put(each)
    workers = [multiprocessing.Process(target=_lane, args=(kind, tasks, done)) for _ in range(lanes)]
    for worker in workers:
        worker.start()
    bad = 0
    with out.open("a", encoding="utf-8") as lines:
        for count in range(len(todo)):
            run: Run = done.get()
            bad += not run.ok
            lines.write(run.line() + "\n")
            lines.flush()
            sign = "ok" if run.ok else f"VIOLATED {run.violations}"
            print(f"{count + 1}/{len(todo)} run {run.number} {run.kills} {run.seconds} s: {sign}", flush=True)
    for worker in workers:
        worker.join()
    print(f"{len(todo)} runs, {bad} with a violation")
    return 1 if bad else 0


def _lane(kind: str, tasks: Any, done: Any) -> None:
    folder = Path(tempfile.mkdtemp(prefix="remesh-crash-"))
    with started(kind) as bed:
        while True:
            try:
                number, kills = tasks.get(timeout=1)
            except queues.Empty:
                return
            done.put(_one(bed, folder, number, kills))


def _one(bed: TestBed, folder: Path, number: int, kills: list[Kill]) -> Run:
    try:
        return play(bed, folder / str(number), number, kills)
    except Exception as error:  # the edge of a run: it counts as one that failed
        return Run(number, [str(kill) for kill in kills], violations=[f"{type(error).__name__}: {error}"])


if __name__ == "__main__":
    sys.exit(main())
