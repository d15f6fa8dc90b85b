"""Reliability runs by hand: `python -m tests.reliability crash --help`."""

import argparse
import itertools
import json
import multiprocessing
import queue as queues
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear, TestBed
from tests.reliability import long
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
    one.add_argument("--minutes", type=float, default=0.0, help="begin no run after that time; 0: all of them")
    one.add_argument("--resume", action="store_true", help="leave out the runs of this seed that --out holds already")
    one.set_defaults(run=_crash)
    one = kinds.add_parser("long", help="hours of churn in minutes, with repair on")
    one.add_argument("--minutes", type=float, default=20.0, help="of churn; the beginning and the end take a few more")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--bed", choices=["sim", "real"], default="sim")
    one.add_argument("--owners", type=int, default=8, help="workloads in each of three namespaces")
    one.add_argument("--out", type=Path, help="the report as JSON, besides the table")
    one.set_defaults(run=_long)
    options = parser.parse_args()
    return int(options.run(options))


def _long(options: argparse.Namespace) -> int:
    with started(options.bed) as bed:
        return long.main(bed, Path(tempfile.mkdtemp(prefix="remesh-long-")), options)


def _crash(options: argparse.Namespace) -> int:
    todo = list(range(1, options.runs + 1))
    if options.resume and options.out.exists():
        todo = [number for number in todo if number not in _done(options.out)]
    return crash_runs(todo, options.lanes, options.seed, options.bed, options.out, options.minutes * 60)


def _done(out: Path) -> set[int]:
    return {int(json.loads(line)["number"]) for line in out.read_text(encoding="utf-8").splitlines()}


@contextmanager
def started(kind: str) -> Iterator[Any]:
    """A cluster of its own for one lane."""
    wear = InjectorWear(timeout_seconds=2)
    if kind == "sim":
        with SimCluster.start(wear, controller_qps=200) as simulated:
            yield simulated
        return
    from tests.cluster.cluster import RealCluster
    from tests.cluster.controlplane import Tuning

    real = RealCluster.start(wear, tuning=Tuning(controller_qps=200))
    try:
        yield real
    finally:
        real.stop()


def crash_runs(numbers: list[int], lanes: int, seed: int, kind: str, out: Path, seconds: float) -> int:
    """These runs of the seed; a line for each. Returns 1 if an invariant did not hold in any of them."""
    end = time.monotonic() + seconds if seconds else float("inf")
    with started(kind) as bed:
        folder = Path(tempfile.mkdtemp(prefix="remesh-learn-"))
        learned, points = learn_points(bed, folder)
    print(
        f"points: { ({name: len(found) for name, found in points.items()}) }; first run: {learned.line()}", flush=True
    )
    if not learned.ok:
        return 1
    every = list(itertools.islice(chosen(points, seed), max(numbers, default=0)))
    todo = [(number, every[number - 1]) for number in numbers]
    tasks: Any = multiprocessing.Queue()
    done: Any = multiprocessing.Queue()
    for each in todo:
        tasks.put(each)
    workers = [multiprocessing.Process(target=_lane, args=(kind, tasks, done, end)) for _ in range(lanes)]
    for worker in workers:
        worker.start()
    bad = count = 0
    with out.open("a", encoding="utf-8") as lines:
        while any(worker.is_alive() for worker in workers) or not done.empty():
            try:
                run: Run = done.get(timeout=1)
            except queues.Empty:
                continue
            count += 1
            bad += not run.ok
            lines.write(run.line() + "\n")
            lines.flush()
            sign = "ok" if run.ok else f"VIOLATED {run.violations}"
            print(f"{count}/{len(todo)} run {run.number} {run.kills} {run.seconds} s: {sign}", flush=True)
    for worker in workers:
        worker.join()
    tasks.cancel_join_thread()  # where the time was over before the runs were, nobody takes the rest
    print(f"{count} runs, {bad} with a violation")
    return 1 if bad else 0


def _lane(kind: str, tasks: Any, done: Any, end: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="remesh-crash-"))
    with started(kind) as bed:
        while time.monotonic() < end:
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
