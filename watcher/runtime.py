"""The watcher's own thread: looks at what changed, keeps the gates, releases findings, takes in outcomes.

One thread owns the book and the gates; reflectors, dry runs and the trail's tail run beside it and hand their
results over through queues and the store's wake-up. Nothing here writes to the cluster.
"""

import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from pydantic import ValidationError

from remesh import logs
from remesh.errors import BrokerError
from remesh.models import DRY_RUN_NEW, REVOKED, AuditRecord, Outcome, RecordType, Result
from watcher import gate as gates
from watcher.desk import RETRY_SECONDS, Desk
from watcher.findings import State, Tracked, to_cooling, to_refused, to_waiting
from watcher.gatekeeper import Gatekeeper, Prober
from watcher.look import Looker
from watcher.release import Releaser, Sender

log = logs.get("watcher")

# A round looks at everything that waits, and whatever changes asks for one: so it rests for eight times as long as
# it took, 0.1 s at most, which leaves others time, and a thousand changes of the same moment are one round.
RESTS = 8.0
LONGEST_REST_SECONDS = 0.1
SETTLE_SECONDS = 2.0  # after a repair the watches may still be behind what the worker saw
ASK_SECONDS = 5.0  # a watcher with nothing to do says within this time, too, that Redis is away
SWEEP_SECONDS = 60.0  # how often findings without an owner in this watcher are looked for
QUICK_RETURNS = 3  # times that a finding goes straight back behind the gate: a flapping injector, not an odd object
LONGEST_PAUSE_SECONDS = 600.0
SKIPPED_SECONDS = 5.0  # another worker holds the object; its lease is about as long as a repair


class Watcher:
    """The parts, and the loop that drives them."""

    def __init__(self, desk: Desk, send: Sender, probe: Prober, on_tick: Callable[[], None] = lambda: None) -> None:
        self._desk = desk
        self._on_tick = on_tick
        self._next_sweep = 0.0
        self._next_ask = 0.0
        self.followed = ""  # position in the trail up to which outcomes were taken in
        self._outcomes: SimpleQueue[AuditRecord] = SimpleQueue()
        self.releaser = Releaser(desk, send)
        self.gatekeeper = Gatekeeper(desk, probe)
        self.looker = Looker(desk, self.releaser, self._restored)

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Failures of Redis are waited out; nothing is lost, because state decides."""
        threading.Thread(target=self._tail, args=(stop,), name="trail-tail", daemon=True).start()
        broken = False
        while not stop.is_set():
            self._desk.store.wait(self._pause())
            self._on_tick()
            if stop.is_set():
                break
            began = time.monotonic()
            try:
                self.tick()
                if broken:
                    log.info("redis answers again")
                broken = False
                stop.wait(min(LONGEST_REST_SECONDS, RESTS * (time.monotonic() - began)))
            except BrokerError as error:
                if not broken:
                    log.warning("redis failed; nothing is released until it answers", error=str(error))
                broken = True
                stop.wait(RETRY_SECONDS)
        self.gatekeeper.close()

    def tick(self) -> None:
        """One round: outcomes, changed objects, expiries, gates, release."""
        if time.monotonic() >= self._next_ask:
            self._desk.ledger.ask()
            self._next_ask = time.monotonic() + ASK_SECONDS
        self._take_outcomes()
        self.looker.look_at_changes()
        self._expire()
        self.gatekeeper.take_results()
        self.gatekeeper.keep()
        self.releaser.release(keeper.gate for keeper in self.gatekeeper.keepers.values())
        self._desk.note()
        if time.monotonic() >= self._next_sweep:
            self.looker.close_orphans()
            self._desk.forget_noted()
            self._next_sweep = time.monotonic() + SWEEP_SECONDS

    def _pause(self) -> float:
        now = time.monotonic()
        times = [due - now for due in self._desk.due.values()]
        probe = self.gatekeeper.next_probe()
        if probe is not None:
            times.append(probe - now)
        turn = self.releaser.next_turn()
        if turn is not None:
            times.append(turn - now)
        expiry = self._desk.book.next_expiry()
        if expiry is not None:
            times.append((expiry - self._desk.steady()).total_seconds())
        return min(max(min(times, default=1.0), 0.01), 1.0)

    def _tail(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.followed = self.followed or self._desk.trail.last_position()
                for record in self._desk.trail.tail(self.followed, 1.0):
                    self.followed = record.position
                    if record.type is RecordType.OUTCOME or (
                        record.type is RecordType.INTENT and record.details.get(DRY_RUN_NEW)
                    ):
                        self._outcomes.put(record)
                        self._desk.store.wake()
            except BrokerError as error:
                log.debug("the trail's tail failed", error=str(error))
                stop.wait(RETRY_SECONDS)

    def _restored(self, finding_id: str, task_id: str) -> None:
        """A release from before a restart: its outcome may have been written while nobody was following the trail."""
        found = self._desk.trail.read(finding_id=finding_id, types=[RecordType.OUTCOME])
        for record in (each for each in found if each.task_id == task_id):
            self._outcomes.put(record)
            self._desk.store.wake()

    def _take_outcomes(self) -> None:
        while True:
            try:
                record = self._outcomes.get_nowait()
            except Empty:
                return
            if record.type is RecordType.INTENT:
                self._heard(record.details)
                continue
            tracked = self._desk.book.by_id(record.finding_id)
            if tracked is None or not record.task_id:  # without a task it is one of this watcher's own
                continue
            outcome = _outcome_of(record)
            if outcome is not None:
                self._ended(tracked, outcome)

    def _heard(self, intent: Mapping[str, Any]) -> None:
        """How long a worker's own dry run took, as its intent tells."""
        took = intent.get("dry_run_ms")
        if isinstance(took, int) and took >= 0:
            self.gatekeeper.heard(str(intent.get("injector", "")), took / 1000)

    def _ended(self, tracked: Tracked, outcome: Outcome) -> None:
        uid = tracked.finding.ref.uid
        log.info(
            "repair ended",
            finding=tracked.finding.id,
            object=str(tracked.finding.ref),
            result=outcome.result.value,
            code=outcome.code,
        )
        self.gatekeeper.tell(tracked, outcome)
        self._desk.ledger.clear_released(tracked.finding.id)
        self._desk.ledger.release_reservation(tracked.gate, tracked.finding.id)
        if outcome.result in (Result.HEALED, Result.INJECTED, Result.ALREADY_HEALTHY, Result.OBSOLETE):
            self._desk.over(tracked, outcome.result)
            self._desk.settling[uid] = time.monotonic() + SETTLE_SECONDS
        else:
            self._not_healed(tracked, outcome)
        self._desk.due[uid] = time.monotonic()

    def _not_healed(self, tracked: Tracked, outcome: Outcome) -> None:
        """Back behind the gate, or left alone for a while: ever longer, so that nothing is tried in a tight loop."""
        tracked.failures += 1
        if outcome.result is Result.WAITING and tracked.failures <= QUICK_RETURNS:
            to_waiting(tracked)
            tracked.suspect = outcome.code == gates.NO_SIDECAR
        elif outcome.code == REVOKED:
            to_cooling(tracked, self._desk.steady(), LONGEST_PAUSE_SECONDS)
        elif outcome.result is Result.REPORTED:
            to_refused(tracked, self._desk.steady())
        else:
            lasting = outcome.result in (Result.FAILED, Result.QUARANTINED) or outcome.code == "not_allowed"
            first = self._desk.policy.repair.cooldown_seconds if lasting else SKIPPED_SECONDS
            seconds = max(SKIPPED_SECONDS, first) * 2 ** min(tracked.failures - 1, 10)
            to_cooling(tracked, self._desk.steady(), min(seconds, LONGEST_PAUSE_SECONDS))

    def _expire(self) -> None:
        for tracked in self._desk.book.expired(self._desk.steady()):
            uid = tracked.finding.ref.uid
            if tracked.state is State.RELEASED:
                self._overdue(tracked)
            to_waiting(tracked)
            self._desk.due[uid] = time.monotonic()

    def _overdue(self, tracked: Tracked) -> None:
        """No outcome by the deadline: the queue may have lost the task, or its worker hangs."""
        self._desk.ledger.clear_released(tracked.finding.id)
        self._desk.ledger.release_reservation(tracked.gate, tracked.finding.id)
        self._desk.record.note(tracked, "no_outcome", "no outcome by the deadline; released again")
        log.warning("no outcome by the deadline", finding=tracked.finding.id, object=str(tracked.finding.ref))


def _outcome_of(record: AuditRecord) -> Outcome | None:
    """What a worker wrote; None if it cannot be read: the finding is then released again after its deadline."""
    try:
        return Outcome.model_validate(record.details)
    except ValidationError as error:
        why = error.errors(include_input=False, include_url=False)[0]["msg"]
        log.warning("an outcome cannot be read", finding=record.finding_id, position=record.position, why=why)
        return None
