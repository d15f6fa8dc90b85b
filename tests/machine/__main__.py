"""`python -m tests.machine --examples 10000 --seed 1`: many examples, with figures."""

import argparse
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import Machine, given
from tests.machine.world import World, silence

CHUNK = 20


@dataclass
class Figures:
    """What the examples amounted to."""

    examples: int = 0
    seconds: float = 0.0  # simulated
    steps: int = 0
    records: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    dry_runs: int = 0
    found: list[str] = field(default_factory=list)

    def add(self, world: World) -> None:
        self.examples += 1
        self.seconds += world.clock.passed
        self.steps += world.steps
        self.records += len(world.judge.records)
        self.dry_runs += len(world.cluster.dry_runs)
        self.happened.update(world.judge.found)
        self.deaths.update(world.deaths)

    def __str__(self) -> str:
        lines = [
            f"{self.examples} examples, {self.seconds / 3600:.0f} simulated hours, {self.records} records,"
            f" {self.dry_runs} dry runs, {self.steps} steps of repairs, {sum(self.deaths.values())} deaths of workers",
            "  " + ", ".join(f"{what} {times}" for what, times in self.happened.most_common()),
            "  died at: " + ", ".join(f"{what} {times}" for what, times in self.deaths.most_common()),
        ]
        return "\n".join(lines)


def run(examples: int, first: int, steps: int, *, shrink: bool, seconds: float = 0.0) -> Figures:
    """Run in chunks, each with a seed of its own; a failure is told and the next chunk begins.

    After `seconds`, unless they are 0, no further chunk begins.
    """
    figures = Figures()
    began = time.monotonic()
    for chunk in range(-(-examples // CHUNK)):
        if seconds and time.monotonic() - began > seconds:
            break
        number = first * 100_000 + chunk
        machine = seed(number)(type("Seeded", (Machine,), {"tell": staticmethod(figures.add)}))
        settings_ = given(min(CHUNK, examples - chunk * CHUNK), steps, shrink=shrink)
        try:
            run_state_machine_as_test(machine, settings=settings_)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)) + "\n".join(getattr(error, "__notes__", ()))
            figures.found.append(text)
            print(f"seed {number}:\n{text}", flush=True)
        passed = time.monotonic() - began
        if chunk % 10 == 9 or figures.found:
            print(f"{passed:.0f} s: {figures.examples} examples, {len(figures.found)} failures", flush=True)
        if chunk % 20 == 19:
            print(figures, flush=True)
    return figures


def main() -> int:
    """Returns 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=25, help="rules of one example at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink", action="store_true", help="look for the smallest example of each failure")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing after that time; 0: all examples")
    given_ = parser.parse_args()
    silence()
    figures = run(given_.examples, given_.seed, given_.steps, shrink=given_.shrink, seconds=given_.minutes * 60)
    print(figures)
    return 1 if figures.found else 0


if __name__ == "__main__":
    raise SystemExit(main())
