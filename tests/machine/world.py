"""One cluster with remesh at work in it, and the machine's hands on both.

`run` lets time pass: at each moment controllers, watcher and workers do what is due, and then the clock jumps to the
next moment at which somebody has something to do.
"""

import logging
from contextlib import ExitStack
from random import Random
from typing import Any, Final
from unittest.mock import patch

from remesh import crash
from remesh.ledger import Ledger
from remesh.models import RepairRequest
from remesh.policy import Policy
from remesh.sim import resources as res
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import Obj, is_active
from remesh.sim.status import StatusError
from remesh.testbed import Fault
from tests.machine.clock import installed
from tests.machine.cluster import BY_KIND, CRASHED_AT, MachineCluster
from tests.machine.judge import ASKS, FLAVOUR, Judge, bare
from tests.machine.processes import (
    NAME,
    THREADS,
    VISIBILITY_SECONDS,
    Broker,
    Dead,
    Message,
    Surroundings,
    WatcherProcess,
    WorkerProcess,
)
from watcher.findings import State
from watcher.release import cost

MESHES: Final = ("linkerd", "istio")
QUIET_SECONDS: Final = 3 * 3600.0
"""Within this time all must be over once the faults are: pauses double to ten minutes, and back-offs to seventeen."""
MOST_ROUNDS: Final = 20_000


class World:
    """Everything of one example."""

    def __init__(self, policy: Policy, *, seed: int = 0, failure_policy: str = "Fail") -> None:
        self._stack = ExitStack()
        self.clock = self._stack.enter_context(installed())
        self.random = Random(seed)
        self.policy = policy
        self.cluster = MachineCluster(self.clock)
        for name, meshes in ASKS.items():
            self.cluster.namespace(name, *sorted(meshes))
        self.failure_policy = dict.fromkeys(MESHES, failure_policy)
        for mesh in MESHES:
            self.cluster.install(mesh, failure_policy)
        self.broker = Broker(self.clock)
        self.around = Surroundings(self.clock, self.cluster, self.broker, policy, self._noted, self._wrote, self._sent)
        self.judge = Judge(self.cluster, policy, Ledger(self.around.bypass, NAME))
        self._stack.enter_context(patch.object(crash, "reached", self._reached))
        self.steps = 0
        self.deaths: dict[str, int] = {}
        self._active: WorkerProcess | None = None
        self.workers = [WorkerProcess(self.around, f"worker-{number}") for number in range(2)]
        self.watcher: WatcherProcess | None = None
        self._numbers = 0
        self.crashing: set[str] = set()  # names of workloads whose pods never become Ready, and hold up their owner
        self.settle()
        self.clock.passed += 5.0  # what comes from here on is younger than webhooks and namespaces
        self.watcher = WatcherProcess(self.around, self.judge.records)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self.watcher is not None:
            self.watcher.dead = True
        self._stack.close()

    # What the processes tell

    def _noted(self, record: Any) -> None:
        self.judge.noted(record)

    def _wrote(self, *told: Any) -> None:
        self.judge.wrote(*told)

    def _sent(self, request: RepairRequest) -> None:
        watcher = self.watcher
        assert watcher is not None
        tracked = watcher.desk.book.by_id(request.finding_id)
        assert tracked is not None
        gate = "" if tracked.finding.code == "nudge_left_behind" else tracked.gate
        window = Ledger(self.around.bypass, NAME).window_size(gate, self.policy.window)
        self.judge.sent(request, gate, cost(tracked), window, self.policy.repair.release_deadline_seconds)

    def _reached(self, step: str) -> None:
        self.steps += 1
        worker = self._active
        if worker is not None:
            worker.at(step)

    # Time

    def settle(self) -> None:
        """Let all that is due now be done."""
        for _ in range(200):
            did = self.cluster.pump()
            did |= self._watch()
            did |= self._work()
            if not did:
                return

    def _watch(self) -> bool:
        watcher = self.watcher
        if watcher is None or watcher.next_due() > self.clock.monotonic():
            return False
        try:
            watcher.tick()
        except Dead:
            self.restart_watcher()
        return True

    def _work(self) -> bool:
        did = False
        for index in self.random.sample(range(len(self.workers)), len(self.workers)):
            did |= self._work_of(index)
        return did

    def _work_of(self, index: int) -> bool:
        worker, now = self.workers[index], self.clock.monotonic()
        if self.policy.repair.bare_pods and worker.next_sweep <= now and len(worker.running) < THREADS + 1:
            worker.sweep()
        if len(worker.running) < THREADS:
            message = self.broker.take()
            if message is not None:
                worker.start(message)
        due = [each for each in worker.running if each.due <= now]
        if not due:
            return False
        coroutine = self.random.choice(due)
        self._active = worker
        try:
            worker.resume(coroutine)
        finally:
            self._active = None
        if worker.dead:
            self._bury(index)
        return True

    def _bury(self, index: int) -> None:
        worker = self.workers[index]
        self.deaths[worker.die_at or "asked"] = self.deaths.get(worker.die_at or "asked", 0) + 1
        self._active = worker
        held = worker.kill()
        self._active = None
        again = self.clock.monotonic() + VISIBILITY_SECONDS
        self.broker.messages += [Message(each.payload, each.task_id, again, each.retries) for each in held]
        name, _, life = worker.who.partition("#")
        self.workers[index] = WorkerProcess(self.around, f"{name}#{int(life or 0) + 1}")

    def next_due(self) -> float:
        times = [self.cluster.next_due(), *(each.due for each in self.broker.messages)]
        for worker in self.workers:
            times += [each.due for each in worker.running]
            if self.policy.repair.bare_pods:
                times.append(worker.next_sweep)
        if self.watcher is not None:
            times.append(self.watcher.next_due())
        return min(times)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.clock.monotonic() + seconds
        for _ in range(MOST_ROUNDS):
            self.settle()
            due = max(self.next_due(), self.clock.monotonic() + 0.01)
            if due >= end:
                break
            self.clock.passed += due - self.clock.monotonic()
        else:
            raise AssertionError("too much happens in too little time")
        self.clock.passed += max(0.0, end - self.clock.monotonic())
        self.settle()

    # The cluster's people

    def create(self, kind: str, namespace: str, replicas: int, flavour: str = "plain", *, parallel: bool = True) -> str:
        """A workload; returns its name."""
        self._numbers += 1
        name = f"app{self._numbers}"
        if flavour == "crashing":
            self.crashing.add(name)
        body = manifest(kind, name, replicas, flavour, parallel=parallel)
        resource = BY_KIND[kind]
        try:
            if flavour == "mirror":
                body["spec"]["nodeName"] = "sim-node-0"
                body["metadata"].setdefault("annotations", {})["kubernetes.io/config.mirror"] = "h"
            self.cluster.api.create(resource, namespace, body)
        except StatusError:
            return ""
        return name

    def budget(self, namespace: str, app: str, least: int) -> None:
        if self.cluster.store.get(res.DISRUPTION_BUDGETS, namespace, f"pdb-{app}") is not None:
            return
        spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
        self.cluster.api.create(res.DISRUPTION_BUDGETS, namespace, {"metadata": {"name": f"pdb-{app}"}, "spec": spec})

    def owners(self, *kinds: str) -> list[tuple[str, Obj]]:
        """Workloads that people made, by kind."""
        found = [(kind, each.obj) for kind in kinds for each in self.cluster.store.objects(BY_KIND[kind])]
        return [(kind, obj) for kind, obj in found if not obj["metadata"].get("ownerReferences")]

    def scale(self, kind: str, obj: Obj, replicas: int) -> None:
        def changed(found: Obj) -> Obj:
            found["spec"]["replicas"] = replicas
            return found

        self._change(kind, obj, changed)

    def roll_out(self, kind: str, obj: Obj) -> None:
        self._numbers += 1

        def changed(found: Obj) -> Obj:
            found["spec"]["template"]["spec"]["containers"][0]["image"] = f"app:{self._numbers}"
            return found

        self._change(kind, obj, changed)

    def _change(self, kind: str, obj: Obj, changed: Any) -> None:
        metadata = obj["metadata"]
        self.cluster.api.change(BY_KIND[kind], metadata["namespace"], metadata["name"], changed)

    def delete(self, kind: str, obj: Obj) -> None:
        metadata = obj["metadata"]
        options = DeleteOptions(propagation="Background")
        self.cluster.api.delete(BY_KIND[kind], metadata["namespace"], metadata["name"], options)

    # Faults

    def break_injector(self, mesh: str, fault: Fault) -> None:
        injector = self.cluster.injectors[mesh]
        if fault is Fault.NO_ENDPOINTS:
            self.cluster.endpoints(mesh, ready=False)
        elif fault is Fault.WRONG_CA:
            self.cluster.configure(mesh, failurePolicy=self.failure_policy[mesh], bundle="another")
        else:
            injector.break_by(fault, 3.0)
            self.cluster.admission.forget_connections()

    def heal_injector(self, mesh: str) -> None:
        self.cluster.injectors[mesh].heal()
        self.cluster.endpoints(mesh, ready=True)
        self.cluster.configure(mesh, failurePolicy=self.failure_policy[mesh])

    def restart_watcher(self) -> None:
        if self.watcher is not None:
            self.watcher.dead = True
        self.watcher = WatcherProcess(self.around, self.judge.records)

    def kill_worker(self, index: int) -> None:
        self.workers[index].die_at = ""
        self._bury(index)

    def faults_over(self) -> None:
        """Whatever the machine broke works again, and nothing stands in the way any longer."""
        self.around.redis_down = self.broker.down = False
        self.broker.next.clear()
        self.cluster.api_down = self.cluster.controllers_down = self.cluster.kubelets.broken = False
        for worker in self.workers:
            worker.die_at, worker.faults.api = "", []
            worker.faults.redis_in = worker.faults.dies_in = -1
        for mesh in MESHES:
            self.heal_injector(mesh)
        for item in self.cluster.store.objects(res.DISRUPTION_BUDGETS):
            self.cluster.store.remove(res.DISRUPTION_BUDGETS, item)
        if self.watcher is None:
            self.restart_watcher()
        watcher = self.watcher
        assert watcher is not None
        watcher.lagging, watcher.faults.api = False, []
        watcher.faults.redis_in = watcher.faults.dies_in = -1

    # The end

    def unrest(self) -> list[str]:
        """What is not over yet."""
        watcher = self.watcher
        assert watcher is not None
        rest = (State.REPORTED, State.QUARANTINED)
        open_ones = [
            f"{each.finding.ref} is {each.state.value} ({each.finding.code}, said {each.said!r})"
            for each in watcher.desk.book
            if each.state not in rest
            and not self._only_observed(each.said)
            and not self._crashes(each.finding.ref.name)
        ]
        tasks = [f"a task of {each.payload['ref']['name']} is in the queue" for each in self.broker.messages]
        runs = [f"{worker.who} is at work" for worker in self.workers for message in worker.running.values() if message]
        return open_ones + tasks + runs

    def _crashes(self, name: str) -> bool:
        """Where nothing becomes Ready, remesh takes away no more than a share, and goes on saying so."""
        return name.partition("-")[0] in self.crashing

    def _only_observed(self, said: str) -> bool:
        return self.policy.mode.value == "observe" and said == "observe_mode"

    def come_to_rest(self) -> None:
        """Faults are over; within bounded time nothing is open any more, or that is a violation."""
        self.faults_over()
        began = self.clock.passed
        pause = 30.0
        while self.clock.passed - began < QUIET_SECONDS:
            self.run(pause)
            if self.clock.passed - began > 300.0 and not self._open_ends():
                break
            pause = min(600.0, pause * 1.5)
        self.judge.violations += [f"in the end: {each}" for each in self._open_ends()]

    def _open_ends(self) -> list[str]:
        return self.unrest() + self.judge.ended(self._crashes) + self._not_healed()

    def _not_healed(self) -> list[str]:
        watcher = self.watcher
        assert watcher is not None
        book, found = watcher.desk.book, []
        for pod in self.cluster.pods():
            metadata = pod["metadata"]
            if bare(pod) and is_active(pod) and metadata["namespace"] != "kube-system":
                tracked = book.get(metadata["uid"])
                if tracked is None:
                    found.append(f"bare, and no finding says so: {metadata['namespace']}/{metadata['name']}")
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet"):
            for item in self.cluster.store.objects(BY_KIND[kind]):
                there = sum(1 for pod in self.cluster.pods_of(item.obj["metadata"]["uid"]) if is_active(pod))
                name = item.obj["metadata"]["name"]
                if there < item.obj["spec"]["replicas"] and not self._crashes(name):
                    found.append(f"{kind} {name} lacks pods in the end")
        return found


def manifest(kind: str, name: str, replicas: int, flavour: str, *, parallel: bool) -> Obj:
    """A workload, or a pod, that is what its flavour says."""
    labels = {"app": name}
    annotations = {FLAVOUR: flavour}
    spec: Obj = {"containers": [{"name": "app", "image": "app:test"}], "terminationGracePeriodSeconds": 1}
    if flavour == "out":
        annotations["linkerd.io/inject"] = "disabled"
        labels["sidecar.istio.io/inject"] = "false"
    if flavour == "host":
        spec["hostNetwork"] = True
    if flavour == "crashing":
        annotations[FLAVOUR] = "plain"
        annotations[CRASHED_AT] = "never"
    pod: Obj = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    if kind == "Pod":
        return {"metadata": {"name": name, **pod["metadata"]}, "spec": spec}
    body: Obj = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"template": pod}}
    match: Obj = {"matchLabels": {"app": name}}
    if kind == "Job":
        spec["restartPolicy"] = "Never"
        body["spec"] |= {"parallelism": replicas, "completions": replicas}
        return body
    body["spec"]["selector"] = {"app": name} if kind == "ReplicationController" else match
    if kind != "DaemonSet":
        body["spec"]["replicas"] = replicas
    if kind == "StatefulSet":
        body["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel" if parallel else "OrderedReady"}
    return body


def crashes(owner: Obj) -> bool:
    """True for a workload whose pods never become Ready."""
    return CRASHED_AT in owner["spec"]["template"]["metadata"].get("annotations", {})


def silence() -> None:
    """Warnings of thousands of faults are no news."""
    logging.disable(logging.CRITICAL)
