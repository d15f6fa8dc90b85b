"""Which waiting findings go to the workers now, and sending them.

The window is counted in pods about to be created: a nudge costs as many as are missing, because the controller then
creates them all (in batches of 1, 2, 4 … up to 500).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from remesh import logs, tracing
from remesh.disruption import forbids, share, unsettled
from remesh.errors import BrokerError
from remesh.models import Action, Finding, RepairRequest
from remesh.policy import Mode
from watcher.desk import Desk
from watcher.findings import State, Tracked, repair_of, to_released, to_waiting
from watcher.gate import Gate, GateStatus
from watcher.turns import Turns, in_turn

log = logs.get("watcher.release")


class Sender(Protocol):
    """Hands a request to the workers."""

    def __call__(self, request: RepairRequest) -> str:
        """Send it; returns the task id. Raises BrokerError."""


def cost(tracked: Tracked) -> int:
    """Pods that a repair of this finding makes the controller create."""
    return max(1, tracked.finding.missing)


def evicts(tracked: Tracked) -> bool:
    """True if its repair takes a running pod away."""
    return repair_of(tracked.finding) is Action.RECREATE_POD


def candidates(gate: Gate, waiting: Sequence[Tracked], released: int) -> list[Tracked]:
    """What may go through a gate, in order; the window still has to have room for each.

    `released` counts the repairs under way through this gate: behind a canary only one may be.
    """
    if not gate.releases:
        return []
    ready = [each for each in waiting if not each.suspect] or list(waiting)
    if gate.status is GateStatus.CANARY:
        return ready[:1] if released == 0 else []
    return ready


def probe_candidate(waiting: list[Tracked], turn: int) -> Tracked | None:
    """Whose template the next dry run takes: in turn, those first whose own template is not under suspicion."""
    trusted = [each for each in waiting if not each.suspect] or waiting
    return in_turn(trusted, turn)


class Releaser:
    """Marks findings as released, records it, and sends them."""

    def __init__(self, desk: Desk, send: Sender) -> None:
        self._desk = desk
        self._send = send
        self._turns: dict[str, Turns] = {}  # by gate

    def release(self, gates: Iterable[Gate]) -> None:
        """Release through every open gate what the window has room for."""
        known = {gate.key: gate for gate in gates}
        self._turns = {key: self._turns.get(key) or Turns(cost) for key in known}
        for key, gate in known.items():
            waiting = self._desk.book.waiting(key)
            if not waiting or not gate.releases:
                continue
            waiting = self._turns[key].arrange(waiting)
            if self._desk.policy.mode is Mode.OBSERVE:
                self._observe_only(waiting)
                continue
            under_way = [each for each in self._desk.book if each.gate == key and each.state is State.RELEASED]
            busy = Counter(each.owner_uid for each in under_way)
            evicting = sum(map(evicts, under_way))
            one_at_a_time = any(map(evicts, waiting)) and not self._desk.ledger.brakes.proven(key)
            for tracked in candidates(gate, waiting, len(under_way)):
                if evicts(tracked) and one_at_a_time and evicting:
                    continue  # the brake would send it back, and it would cool down for that
                if not self._owner_allows(tracked, busy):
                    continue
                if not self.release_one(tracked, key):
                    break
                self._turns[key].served(tracked)
                busy[tracked.owner_uid] += 1
                evicting += evicts(tracked)

    def _owner_allows(self, tracked: Tracked, busy: "Counter[str]") -> bool:
        """A bare pod goes only while its owner is settled and has another pod to spare; the worker counts again."""
        if not evicts(tracked):
            return True
        owner = self._desk.store.workload(tracked.owner_uid)
        if owner is None:
            return True  # without a controller, or of a kind that is not watched: the worker looks
        above = self._desk.store.above(owner)
        reason = unsettled(owner, above)
        if reason:
            self._desk.record.waits(tracked, "owner_unsettled", reason)
            return False
        reason = forbids(owner, above, self._desk.policy.repair)
        if reason:
            self._desk.record.waits(tracked, "none_to_spare", reason)
            return False
        return busy[tracked.owner_uid] < share(owner, above, self._desk.policy.repair)

    def _observe_only(self, waiting: list[Tracked]) -> None:
        for tracked in waiting:
            self._desk.record.refusal(tracked, "observe_mode", "the policy's mode is observe: it would be repaired now")

    def release_one(self, tracked: Tracked, key: str | None) -> bool:
        """Hand one finding to the workers; False if none can go now: no room in the window, or not leading any more."""
        if not self._desk.leads():
            return False
        finding, repair = tracked.finding, self._desk.policy.repair
        if key is not None:
            limit = self._desk.ledger.window_size(key, self._desk.policy.window)
            room = self._desk.ledger.reserve(key, finding.id, cost(tracked), limit, repair.release_deadline_seconds)
            if not room:
                return False
        attempt = self._desk.ledger.next_attempt(finding.id)
        request = self._request(finding, attempt)
        if not self._desk.ledger.mark_released(finding.id, attempt, request.task_id, repair.release_deadline_seconds):
            self._already_released(tracked)
            return True
        deadline = self._desk.steady() + timedelta(seconds=repair.release_deadline_seconds)
        to_released(tracked, attempt, deadline)
        try:
            with tracing.span("release", tracing.of_request(request), kind="producer"):
                self._desk.record.release(tracked, request)
                if not self._desk.leads():  # Redis took its time, and the lease ended meanwhile
                    self._unrelease(tracked, key)
                    return False
                self._send(request)
        except BrokerError:
            self._unrelease(tracked, key)
            raise
        self._desk.meter.released(request.action)
        log.info("released", finding=finding.id, object=str(finding.ref), task=request.task_id)
        return True

    def _already_released(self, tracked: Tracked) -> None:
        """By another watcher, or on demand from the command line: its outcome counts for this finding too."""
        released = self._desk.ledger.released(tracked.finding.id)
        if released is not None:
            to_released(tracked, released.attempt, self._desk.steady() + timedelta(seconds=released.left))

    def _unrelease(self, tracked: Tracked, key: str | None) -> None:
        """Undo a release that could not be sent. If Redis is away for this too, the deadline undoes it."""
        to_waiting(tracked)
        try:
            self._desk.ledger.clear_released(tracked.finding.id)
            if key is not None:
                self._desk.ledger.release_reservation(key, tracked.finding.id)
        except BrokerError as error:
            log.warning(
                "a release could not be undone, its deadline will", finding=tracked.finding.id, error=str(error)
            )

    def _request(self, finding: Finding, attempt: int) -> RepairRequest:
        return RepairRequest(
            cluster=self._desk.cluster,
            finding_id=finding.id,
            ref=finding.ref,
            mesh=finding.mesh,
            cause=finding.failure_class,
            action=repair_of(finding) or Action.NUDGE_OWNER,  # whatever it says, the worker decides again
            attempt=attempt,
            requested_at=self._desk.now(),
        )
