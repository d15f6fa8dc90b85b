"""Keeps the gates: counts endpoints, runs the dry runs, takes in their answers and the outcomes of repairs.

Dry runs block for seconds when an injector hangs, so they run in a small pool, one at a time for each gate. A gate
exists only while findings wait behind it or are under way through it: an idle cluster costs nothing.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Protocol

from remesh import logs
from remesh.errors import RemeshError
from remesh.kube.probe import ProbeResult
from remesh.ledger import GateState
from remesh.models import FailureClass, Finding, Outcome, Probe, Result
from watcher import gate as gates
from watcher import pace as paces
from watcher.desk import Desk
from watcher.findings import State, Tracked, to_refused
from watcher.gate import Gate, Seen
from watcher.release import probe_candidate

log = logs.get("watcher.gate")

PARALLEL_PROBES = 8  # gates probed at the same time; each is one injector, and clusters have few


class Prober(Protocol):
    """Dry run of one finding's own template."""

    def __call__(self, finding: Finding) -> ProbeResult:
        """A failing injector is an answer; only a failing API server or broker raises RemeshError."""


@dataclass(slots=True)
class Keeper:
    """A gate and when its next dry run is due (monotonic seconds)."""

    gate: Gate
    next_probe: float = 0.0
    probing: bool = False
    wanted: bool = False  # something waits behind it, so dry runs are due
    turn: int = 0


class Gatekeeper:
    """Owns every gate."""

    def __init__(self, desk: Desk, probe: Prober) -> None:
        self._desk = desk
        self._probe = probe
        self.keepers: dict[str, Keeper] = {}
        self._results: SimpleQueue[tuple[str, str, ProbeResult]] = SimpleQueue()
        self._pool = ThreadPoolExecutor(max_workers=PARALLEL_PROBES, thread_name_prefix="probe")

    def close(self) -> None:
        """End the pool; a dry run under way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def next_probe(self) -> float | None:
        """Monotonic time of the next dry run that is due."""
        return min(
            (each.next_probe for each in self.keepers.values() if each.wanted and not each.probing), default=None
        )

    def keep(self) -> None:
        """One round: make and drop gates, count endpoints, say who waits for what, start the dry runs that are due."""
        wanted = self._desk.book.gates()
        for key in [key for key in self.keepers if key not in wanted]:
            del self.keepers[key]  # nothing waits: no probing; proven anew next time
            self._desk.ledger.drop_gate(key)
        now = time.monotonic()
        for key, finding in wanted.items():
            keeper = self.keepers.setdefault(key, Keeper(Gate(key)))
            waiting = self._desk.book.waiting(key)
            keeper.wanted = bool(waiting) and self._count_endpoints(keeper, finding)
            if not keeper.wanted:
                continue
            self._say_wait(keeper, waiting)
            if not keeper.probing and keeper.next_probe <= now:
                self._start_probe(keeper, waiting)

    def _count_endpoints(self, keeper: Keeper, finding: Finding) -> bool:
        """False while nothing is known of them: a gate is judged by what was seen, not by what was not."""
        injector = finding.injector
        if injector is None or not injector.service_name:
            return True
        found = self._desk.store.endpoints(injector.service_namespace, injector.service_name)
        if found is None:
            return False
        self._change(keeper, gates.after_endpoints(keeper.gate, found.ready, self._desk.policy.gate, found.lost))
        return True

    def _start_probe(self, keeper: Keeper, waiting: list[Tracked]) -> None:
        if gates.below_quorum(keeper.gate, self._desk.policy.gate):
            keeper.next_probe = time.monotonic() + self._desk.policy.gate.retry_seconds
            return
        chosen = probe_candidate(waiting, keeper.turn)
        if chosen is None:
            return
        keeper.probing = True
        keeper.turn += 1
        finding = chosen.finding
        future = self._pool.submit(self._probe, finding)
        future.add_done_callback(lambda done: self._probed(keeper.gate.key, finding.id, done))

    def _probed(self, key: str, of: str, done: "Future[ProbeResult]") -> None:
        try:
            result = done.result()
        except RemeshError as error:
            result = ProbeResult(Probe.UNKNOWN, 0.0, "probe_failed", str(error), "", FailureClass.UNKNOWN_API_ERROR)
        self._results.put((key, of, result))
        self._desk.store.wake()

    def take_results(self) -> None:
        """Take in the dry runs that have ended."""
        while True:
            try:
                key, of, result = self._results.get_nowait()
            except Empty:
                return
            keeper = self.keepers.get(key)
            if keeper is not None:
                self._take_probe(keeper, of, result)

    def _take_probe(self, keeper: Keeper, of: str, result: ProbeResult) -> None:
        keeper.probing = False
        self._desk.meter.dry_run(_mesh_of(self._desk.book.by_id(of)), result.probe.value, result.code, result.seconds)
        passed = result.probe is Probe.PASSES
        pause = self._desk.policy.gate.interval_seconds if passed else self._desk.policy.gate.retry_seconds
        if keeper.gate.releases and passed and not self._under_way(keeper.gate.key)[1]:
            pause = self._desk.policy.gate.retry_seconds
        keeper.next_probe = time.monotonic() + pause
        tracked = self._desk.book.by_id(of)
        if tracked is not None and tracked.state is State.WAITING and self._about_template(keeper, tracked, result):
            return
        if passed and tracked is not None:
            tracked.refusals = 0
            self._suspect(keeper, tracked, suspect=False)
        seen = Seen(result.probe, result.code, result.reason, result.seconds)
        self._change(keeper, gates.after_probe(keeper.gate, seen, self._desk.policy.gate))
        if passed:
            self._learn(keeper, result.seconds)

    def heard(self, key: str, seconds: float) -> None:
        """A worker's own dry run through this injector passed and took so long."""
        keeper = self.keepers.get(key)
        if keeper is not None:
            self._learn(keeper, seconds)

    def _learn(self, keeper: Keeper, seconds: float) -> None:
        released, evictions = self._under_way(keeper.gate.key)
        pace, window = keeper.gate.pace, self._desk.policy.window
        if not released:
            learnt = paces.at_rest(pace, seconds)
        else:
            learnt = paces.at_work(pace, seconds, under_way=evictions, window=window)
        if learnt.cuts != pace.cuts:
            usual = round((learnt.rest or 0.0) * 1000)
            took = round(seconds * 1000)
            log.info("slower", injector=keeper.gate.key, at_once=int(learnt.limit), ms=took, at_rest_ms=usual)
        keeper.gate = replace(keeper.gate, pace=learnt)

    def _under_way(self, key: str) -> tuple[int, int]:
        """Repairs that are under way through a gate, and how many of them are evictions."""
        released = [each for each in self._desk.book if each.state is State.RELEASED and each.gate == key]
        return len(released), sum(each.evicts for each in released)

    def _about_template(self, keeper: Keeper, tracked: Tracked, result: ProbeResult) -> bool:
        """True if the answer speaks of this template (denied, quota, not injected) and not of the injector."""
        if gates.speaks_of_template(result.failure_class):
            to_refused(tracked, self._desk.steady())
            log.info("template refused", finding=tracked.finding.id, code=result.code, reason=result.reason)
            self._desk.record.refusal(tracked, result.code, result.reason)
            return True
        if result.failure_class is not FailureClass.MISSING_SIDECAR or tracked.suspect:
            return False
        waiting = self._desk.book.waiting(keeper.gate.key)
        if all(each.suspect or each.template == tracked.template for each in waiting):
            return False
        self._suspect(keeper, tracked, suspect=True)
        keeper.next_probe = time.monotonic()
        return True

    def _suspect(self, keeper: Keeper, tracked: Tracked, *, suspect: bool) -> None:
        """What a dry run says of a template, it says of everything that waits for the same one."""
        tracked.suspect = suspect
        for each in self._desk.book.waiting(keeper.gate.key):
            if each.template == tracked.template:
                each.suspect = suspect

    def _change(self, keeper: Keeper, gate: Gate) -> None:
        before, keeper.gate = keeper.gate, gate
        if (before.status, before.code) == (gate.status, gate.code):
            return
        self._desk.ledger.set_gate(
            gate.key,
            GateState(
                open=gate.releases,
                since=self._desk.now(),
                reason=gate.reason,
                ready=gate.ready,
                probe_ms=round(gate.probe_seconds * 1000) if gate.probe_seconds is not None else None,
                waiting=len(self._desk.book.waiting(gate.key)),
            ),
        )
        if gate.code == "proving":
            return
        self._desk.record.gate(gate)
        log.info("gate", injector=gate.key, status=gate.status.value, code=gate.code, reason=gate.reason)

    def _say_wait(self, keeper: Keeper, waiting: list[Tracked]) -> None:
        if keeper.gate.releases:
            return
        for tracked in waiting:
            self._desk.record.wait(tracked, keeper.gate)

    def tell(self, tracked: Tracked, outcome: Outcome) -> None:
        """A repair through a gate ended: what does its outcome say of the injector?"""
        keeper = self.keepers.get(tracked.gate)
        if keeper is None:
            return
        failed = outcome.result is Result.WAITING and outcome.code != gates.NO_SIDECAR
        if failed or outcome.code == "came_back_bare":
            self._change(keeper, gates.after_outcome(keeper.gate, injector_worked=False))
        elif outcome.result in (Result.HEALED, Result.INJECTED):
            self._change(keeper, gates.after_outcome(keeper.gate, injector_worked=True))


def _mesh_of(tracked: Tracked | None) -> str:
    return tracked.finding.mesh if tracked is not None else ""
