"""Hours of churn in minutes, with repair on: rollouts, scaling, lost nodes, and an injector that fails in every way.

    python -m tests.reliability long --minutes 20 --seed 1 --bed sim --out long.json

What must hold in the end: no bare pod that could be healed and no stuck workload, nobody evicted who was sound or opted
out, no disruption budget exceeded, and the processes' memory level.
"""

import json
import random
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from remesh.models import RecordType
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.errors import ApiError
from tests.reliability.herd import Herd
from tests.reliability.story import OPTED_OUT, POLICY
from tests.stack import Process, Stack

REST_SECONDS: Final = 240.0
SAMPLE_SECONDS: Final = 2.0
OUTAGES: Final = tuple(Fault)
REPLICAS: Final = (2, 3, 4, 6)
GROWTH_ALLOWED: Final = 1.15
"""Of the median of memory in the second half over the one of the first; allocators and caches breathe by less."""


@dataclass
class Report:
    """What a run was, and what came of it."""

    bed: str
    seed: int
    minutes: float
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)  # to the cluster
    outages: Counter[str] = field(default_factory=Counter)
    pods: int = 0  # different ones
    bare: int = 0  # of these, without the sidecar that they should have
    findings: int = 0
    evicted: int = 0
    nudged: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)  # what was not healed, with the reason that the trail gives
    memory: dict[str, list[float]] = field(default_factory=dict)  # MB by process, over time
    violations: list[str] = field(default_factory=list)

    def halves(self, name: str) -> tuple[float, float]:
        """Median megabytes in the first and in the second half, after the first tenth, in which caches fill."""
        seen = self.memory[name][len(self.memory[name]) // 10 :]
        half = len(seen) // 2
        return (statistics.median(seen[:half]), statistics.median(seen[half:])) if half else (0.0, 0.0)

    def table(self) -> str:
        """For people."""
        rows = [
            ("cluster, seed, seconds", f"{self.bed}, {self.seed}, {self.seconds:.0f}"),
            ("done to it", _counts(self.done)),
            ("outages", _counts(self.outages)),
            ("pods, of them bare", f"{self.pods}, {self.bare}"),
            ("findings", str(self.findings)),
            ("evicted, nudged", f"{self.evicted}, {self.nudged}"),
            ("outcomes", _counts(self.outcomes)),
            ("refused or waited", _counts(self.refused)),
            *((f"memory of {name}", "{:.1f} MB, then {:.1f} MB".format(*self.halves(name))) for name in self.memory),
            ("left alone", "; ".join(self.left) or "nothing"),
            ("violations", "; ".join(self.violations) or "none"),
        ]
        return "\n".join(f"{name:24} {text}" for name, text in rows)

    def write(self, path: Path) -> None:
        """All of it as JSON."""
        halves = {name: self.halves(name) for name in self.memory}
        path.write_text(json.dumps({**vars(self), "halves": halves}, indent=2) + "\n", encoding="utf-8")


def _counts(found: "Counter[str]") -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common()) or "none"


class Long:
    """One run."""

    def __init__(self, bed: TestBed, folder: Path, seed: int, minutes: float, owners: int) -> None:
        self.bed, self.client = bed, Client(bed.kubeconfig)
        self.stack = Stack(bed, folder)
        self.dice = random.Random(seed)
        self.report = Report(bed.kind, seed, minutes)
        self.namespaces = [f"long-{number}-{secrets.token_hex(3)}" for number in range(3)]
        self.owners: list[tuple[str, str, str]] = []  # kind, namespace, name
        self._owners_each = owners
        self.herd = Herd(bed, self.namespaces)
        self.steady: list[Process] = []
        self.other: Process | None = None  # a second worker, which dies now and then
        self._sampled = 0.0

    # Begin

    def begin(self) -> None:
        """Everything is well, and remesh runs."""
        self.bed.heal()
        self._webhook(self.bed.wear.failure_policy)
        for namespace in self.namespaces:
            self.client.create_meshed_namespace(namespace, self.bed.wear)
            for number in range(self._owners_each):
                self._create_owner(namespace, number)
            self.client.create(namespace, w.deployment("out", 2, annotations=OPTED_OUT))
        self.herd.start()
        names = '", "'.join(self.namespaces)
        self.stack.policy(POLICY.format(namespace=names))
        self.steady = [self.stack.start_worker(), self.stack.start_watcher()]
        self.other = self.stack.start_worker()

    def _create_owner(self, namespace: str, number: int) -> None:
        kind = ("Deployment", "Deployment", "StatefulSet", "ReplicaSet")[number % 4]
        name, replicas = f"{kind.lower()}-{number}", self.dice.choice(REPLICAS)
        bodies = {
            "Deployment": w.deployment(name, replicas),
            "StatefulSet": w.stateful_set(name, replicas, parallel=True),
            "ReplicaSet": w.replica_set(name, replicas),
        }
        self.client.create(namespace, bodies[kind])
        self.owners.append((kind, namespace, name))
        if number % 3 == 0:
            self.client.create(namespace, w.disruption_budget(f"{name}-stays", name, 1))
            self.herd.budgets[namespace, name] = 1

    # Churn

    def churn(self) -> None:
        """Until the time is over: outage after outage, and in each whatever happens in a cluster."""
        began = time.monotonic()
        while time.monotonic() < began + self.report.minutes * 60:
            self._outage()
            self._while(self.dice.uniform(3, 8), 0.7)
            self._tell(time.monotonic() - began)

    def _tell(self, seconds: float) -> None:
        """How far it is, for who waits."""
        pods, outages = len(self.herd.seen), self.report.outages.total()
        text = f"{seconds / 60:.1f} of {self.report.minutes:g} min: {pods} pods, {outages} outages"
        print(text, file=sys.stderr, flush=True)

    def _outage(self) -> None:
        fault, policy = self.dice.choice(OUTAGES), self.dice.choice(("Fail", "Ignore"))
        self.report.outages[f"{fault.value}/{policy}"] += 1
        self._webhook(policy)
        self.bed.inject_fault(fault, delay_ms=5000 if fault is Fault.SLOW else 0)
        if self.dice.random() < 0.2:  # it restarts at once
            self.report.done["injector restarted"] += 1
        else:
            longest = 25 if self.dice.random() < 0.2 else 8  # controllers' pauses grow, and a nudge is what ends them
            self._while(self.dice.uniform(2, longest), 0.4)
        self.bed.heal()

    def _while(self, seconds: float, pause: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            act = self.dice.choice(
                (self._roll, self._roll, self._scale, self._scale, self._lose, self._job, self._kill)
            )
            with suppress(ApiError):
                act()
            self._look()
            time.sleep(pause)

    def _roll(self) -> None:
        kind, namespace, name = self.dice.choice([each for each in self.owners if each[0] != "ReplicaSet"])
        marks = {"metadata": {"annotations": {"test.remesh.dev/rolled": str(self.dice.random())}}}
        self.client.api.patch(w.path(kind, namespace, name), {"spec": {"template": marks}})
        self.report.done["rollout"] += 1

    def _scale(self) -> None:
        kind, namespace, name = self.dice.choice(self.owners)
        self.client.scale(kind, namespace, name, self.dice.choice(REPLICAS))
        self.report.done["scaled"] += 1

    def _lose(self) -> None:
        """A node is lost with all that ran on it. Pods without the sidecar come in their place, or none do."""
        if self.dice.random() > 0.25:
            return
        pods = [pod for namespace in self.namespaces for pod in self.client.pods(namespace)]
        nodes = sorted({pod["spec"].get("nodeName", "") for pod in pods} - {""})
        node = self.dice.choice(nodes) if nodes else ""
        for pod in pods:
            if pod["spec"].get("nodeName") == node:
                place = w.path("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
                self.herd.ours.add(pod["metadata"]["uid"])
                with suppress(ApiError):
                    self.client.api.delete(place, {"gracePeriodSeconds": 0})
        self.report.done["node lost"] += 1

    def _job(self) -> None:
        name = f"job-{self.dice.randrange(10**9)}"
        self.client.create(self.dice.choice(self.namespaces), w.job(name, 2, completes=True))
        self.report.done["job"] += 1

    def _kill(self) -> None:
        """The second worker dies; its messages are another's at once, and not after Celery's five minutes."""
        if self.other is None or self.dice.random() > 0.15:
            return
        self.other.kill()
        self.other = self.stack.start_worker()
        self.stack.expire_visibility()
        self.report.done["worker killed"] += 1

    def _webhook(self, policy: str) -> None:
        self.client.change_webhooks(self.bed.wear.configuration, failurePolicy=policy)

    def _look(self) -> None:
        if time.monotonic() < self._sampled + SAMPLE_SECONDS:
            return
        self._sampled = time.monotonic()
        for process in self.steady:
            self.report.memory.setdefault(process.name, []).append(_resident(process.popen.pid))

    # The end

    def rest(self) -> None:
        """The injector works from now on: until all is well, or has been given up for a reason."""
        self.bed.heal()
        self._webhook(self.bed.wear.failure_policy)
        end = time.monotonic() + REST_SECONDS
        while self.unwell() and time.monotonic() < end:
            self._look()
            time.sleep(1)

    def unwell(self) -> dict[str, str]:
        """UID → what is not as it should be. Not of Jobs, whose pods are left to end."""
        found: dict[str, str] = {}
        for kind, namespace, name in self.owners:
            thing = self.client.get(kind, namespace, name)
            wanted, status = thing["spec"]["replicas"], thing.get("status", {})
            if not wanted == status.get("readyReplicas", 0) == status.get("replicas", 0):
                found[thing["metadata"]["uid"]] = f"{kind}/{name}: {status.get('readyReplicas', 0)} of {wanted} Ready"
        for pod in self.herd.live():
            if pod.should and not pod.injected:
                found[pod.uid] = f"Pod/{pod.name}: bare"
        for namespace in self.namespaces:
            found |= {each: f"{each}: nudge left on" for each in self.client.nudge_annotations(namespace)}
        return found

    def judge(self) -> None:
        """Fill the report."""
        report, herd = self.report, self.herd
        records = list(self.stack.trail.read())
        ended: dict[str, str] = {}  # UID → how its last finding ended
        for record in records:
            code, ref = f"{record.details.get('result', '')}/{record.code}", record.ref
            if record.type is RecordType.OUTCOME:
                report.outcomes[code] += 1
                if ref is not None:
                    ended[ref.uid] = f"{code}: {record.reason}"
            elif record.type in (RecordType.REFUSAL, RecordType.WAIT):
                report.refused[record.code] += 1
                if ref is not None and record.type is RecordType.REFUSAL:
                    ended[ref.uid] = f"refused {record.code}: {record.reason}"
            report.findings += record.type is RecordType.FINDING
            report.nudged += record.type is RecordType.ACTION and record.code == "nudge_on"
        evicted = [r.ref.uid for r in records if r.type is RecordType.ACTION and r.code == "evicted" and r.ref]
        report.evicted, report.pods, report.bare = len(evicted), len(herd.seen), herd.bare
        report.violations += [f"evicted twice: {uid}" for uid, times in Counter(evicted).items() if times > 1]
        report.violations += herd.wronged(set(evicted))
        self._judge_rest(ended)
        self._judge_processes()

    def _judge_rest(self, ended: dict[str, str]) -> None:
        for uid, what in self.unwell().items():
            why = ended.get(uid, "")
            given_up = why.startswith(("quarantined/", "refused quarantined", "reported/"))
            (self.report.left if given_up else self.report.violations).append(f"{what} ({why or 'no word of it'})")

    def _judge_processes(self) -> None:
        for process in self.steady:
            if process.popen.poll() is not None:
                self.report.violations.append(f"{process.name} ended with {process.popen.returncode}")
            before, after = self.report.halves(process.name)
            if before and self.report.minutes >= 5 and after > before * GROWTH_ALLOWED:
                self.report.violations.append(f"memory of {process.name} grew from {before:.1f} to {after:.1f} MB")

    def clean(self) -> None:
        """Leave nothing behind for others on the same cluster."""
        self.herd.stop()
        self.stack.stop()
        self.bed.heal()
        self._webhook(self.bed.wear.failure_policy)
        for namespace in self.namespaces:
            self.client.delete_workloads(namespace)
        self.client.close()


def _resident(pid: int) -> float:
    """Megabytes of a process in memory; 0.0 once it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def _cleaned(run: Long) -> Iterator[None]:
    try:
        yield
    finally:
        run.clean()


def play(bed: TestBed, folder: Path, *, seed: int, minutes: float, owners: int = 8) -> Report:
    """One run from beginning to end; `owners` is how many workloads each of the three namespaces has."""
    run = Long(bed, folder, seed, minutes, owners)
    began = time.monotonic()
    with _cleaned(run):
        run.begin()
        run.churn()
        run.rest()
        run.judge()
    run.report.seconds = round(time.monotonic() - began, 1)
    return run.report


def main(bed: Any, folder: Path, options: Any) -> int:
    """By hand. Returns 1 if anything did not hold."""
    report = play(bed, folder, seed=options.seed, minutes=options.minutes, owners=options.owners)
    print(report.table(), flush=True)
    if options.out:
        report.write(options.out)
    return 1 if report.violations else 0
