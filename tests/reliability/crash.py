"""Kill a process at any of its points, let everything recover by itself, and see that the invariants hold.

    python -m tests.reliability crash --runs 500 --lanes 3 --seed 1 --out runs.jsonl

The first run kills nobody and learns the points. Then each run kills watcher or worker at one of them (or one after the
other at two), starts it again as a supervisor would, and shortens only Celery's five minutes of waiting for a lost
worker's message. A seed gives the same points again.
"""

import json
import random
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from remesh import crash
from remesh.testbed import TestBed
from tests.reliability.story import BudgetWatch, Story, told
from tests.stack import Process

RECOVERY_SECONDS = 150.0
# An eviction whose connection dies half way may leave the pod counted as disrupted, and so its budget used up, until
# the disruption controller forgets it after two minutes (its DeletionTimeout); the pauses between tries grow meanwhile.
BUDGET_SECONDS = 150.0
PROCESSES = ("watcher", "worker")


@dataclass(frozen=True, slots=True)
class Kill:
    """Which process dies, and at which of its points."""

    process: str
    point: str

    def __str__(self) -> str:
        return f"{self.process}@{self.point}"


@dataclass
class Run:
    """What came of one run."""

    number: int
    kills: list[str]
    died: list[str] = field(default_factory=list)
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)  # of the trail, where something does not hold

    @property
    def ok(self) -> bool:
        return not self.violations

    def line(self) -> str:
        return json.dumps(asdict(self))


class Supervisor:
    """Starts watcher and worker, and starts again what died, with the next point at which it is to die."""

    def __init__(self, story: Story, kills: list[Kill], learn: Path | None = None) -> None:
        self._story, self._learn = story, learn
        self._left: dict[str, list[Kill]] = {
            name: [kill for kill in kills if kill.process == name] for name in PROCESSES
        }
        self._running: dict[str, Process] = {}
        self.died: list[str] = []
        self._holds_messages = False  # a worker died, and its successor has not been given what it held

    def start(self, name: str) -> None:
        """Start one of them; it may die before it says that it is there."""
        env: dict[str, str] = {}
        if self._left[name]:
            env[crash.VARIABLE] = self._left[name][0].point
        if self._learn is not None:
            env[crash.LOG_VARIABLE] = str(self._learn / name)
        more = ["--hostname=worker-0@%h"] if name == "worker" else []
        self._running[name] = self._story.stack.start(name, *more, env=env)

    def look(self) -> None:
        """Take note of who died, and start it again. Raises AssertionError if one died of something else."""
        for name, process in list(self._running.items()):
            code = process.popen.poll()
            if code is None:
                continue
            if code != -signal.SIGKILL or not self._left[name]:
                raise AssertionError(f"{name} ended with {code}: {process.text()[-2000:]}")
            self.died.append(str(self._left[name].pop(0)))
            self._holds_messages |= name == "worker"
            self.start(name)
        if self._holds_messages and "ready." in self._running["worker"].text():
            self._holds_messages = False
            self._story.stack.expire_visibility()


def play(bed: TestBed, folder: Path, number: int, kills: list[Kill], learn: Path | None = None) -> Run:
    """One run from beginning to end."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(number, [str(kill) for kill in kills])
    began = time.monotonic()
    with told(bed, folder) as story:
        story.begin()
        supervisor = Supervisor(story, kills, learn)
        try:
            with BudgetWatch(story):
                for name in PROCESSES:
                    supervisor.start(name)
                story.heal()
                if not _until_healed(story, supervisor):
                    run.violations.append(f"not healed in time: open {story.open_findings()}")
        except AssertionError as error:
            run.violations.append(str(error))
        run.died = supervisor.died
        run.violations += story.violations()
        if run.violations:
            chains = story.chains().values()
            run.tail = [
                f"{r.at.isoformat()} {r.type.value} {r.code} {r.ref} {r.reason}" for chain in chains for r in chain
            ][-120:]
    run.seconds = round(time.monotonic() - began, 1)
    return run


def _until_healed(story: Story, supervisor: Supervisor) -> bool:
    end = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < end or (time.monotonic() < end + BUDGET_SECONDS and story.budget_in_the_way()):
        supervisor.look()
        if story.healed():
            return True
        time.sleep(0.4)
    return False


def learn_points(bed: TestBed, folder: Path) -> tuple[Run, dict[str, list[str]]]:
    """A run that kills nobody, and the points of each process in the order in which they were reached."""
    where = folder / "points"
    where.mkdir(parents=True)
    run = play(bed, folder / "learn", 0, [], where)
    points = {name: (where / name).read_text(encoding="utf-8").split() for name in PROCESSES}
    return run, points


def chosen(points: Mapping[str, list[str]], seed: int) -> Iterator[list[Kill]]:
    """First every point by name, at its first time; then, without end, any time of any point, and pairs of them."""
    dice = random.Random(seed)
    first = [Kill(name, point) for name, all_of in points.items() for point in all_of if point.endswith("#1")]
    dice.shuffle(first)
    yield from ([kill] for kill in first)
    every = [Kill(name, point) for name, all_of in points.items() for point in all_of]
    while True:
        yield dice.sample(every, 1 if dice.random() < 0.5 else 2)
