"""Which waiting findings go to the workers now, and sending them.

The window is counted in pods about to be created: a nudge costs as many as are missing, because the controller then
creates them all (in batches of 1, 2, 4 … up to 500).
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple, Protocol

from remesh import logs, tracing
from remesh.disruption import forbids, share, unsettled
from remesh.errors import BrokerError
from remesh.ledger_window import Asked
from remesh.models import Action, Finding, RepairRequest
from remesh.policy import Mode
from watcher.desk import Desk
from watcher.findings import State, Tracked, repair_of, to_released, to_waiting
from watcher.gate import Gate, GateStatus
from watcher.pace import Spread, spacing
from watcher.turns import Turns, in_turn

log = logs.get("watcher.release")

# Released in one step. A watcher that dies between the step's marks and its tasks leaves so many findings at most to
# wait for their release's deadline.
BATCH = 20


class Sender(Protocol):
    """Hands a request to the workers."""

    def __call__(self, request: RepairRequest) -> str:
        """Send it; returns the task id. Raises BrokerError."""


def cost(tracked: Tracked) -> int:
    """Pods that a repair of this finding makes the controller create."""
    return max(1, tracked.finding.missing)


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


class _Leave(NamedTuple):
    """What an owner says to evictions: none for a reason, or so many at once; None: it is not known."""

    code: str = ""
    reason: str = ""
    share: int | None = None


class Releaser:
    """Marks findings as released, records it, and sends them."""

    def __init__(self, desk: Desk, send: Sender) -> None:
        self._desk = desk
        self._send = send
        self._turns: dict[str, Turns] = {}  # by gate
        self.spread = Spread()

    def next_turn(self) -> float | None:
        """Monotonic time of the next eviction that waits for nothing but the one before it."""
        return self.spread.next_turn()

    def release(self, gates: Iterable[Gate]) -> None:
        """Release through every open gate what the window has room for."""
        known = {gate.key: gate for gate in gates}
        self._turns = {key: self._turns.get(key) or Turns(cost) for key in known}
        self.spread.begin(known, time.monotonic())
        for key, gate in known.items():
            waiting = self._desk.book.waiting(key)
            if not waiting or not gate.releases:
                continue
            waiting = self._turns[key].arrange(waiting)
            if self._desk.policy.mode is Mode.OBSERVE:
                self._observe_only(waiting)
                continue
            chosen = self._choose(gate, waiting)
            while batch := list(islice(chosen, BATCH)):
                if not self._release(batch, key):
                    break

    def _choose(self, gate: Gate, waiting: list[Tracked]) -> Iterator[Tracked]:
        """What may go now, in order, as long as there is room: what was chosen counts as under way."""
        under_way = [each for each in self._desk.book if each.gate == gate.key and each.state is State.RELEASED]
        busy, leaves = Counter(each.owner_uid for each in under_way), dict[str, _Leave]()
        evicting = sum(each.evicts for each in under_way)
        at_once = int(gate.pace.limit)
        if any(each.evicts for each in waiting) and not self._desk.ledger.brakes.proven(gate.key):
            at_once = 1  # the brake would send others back, and they would cool down for that
        for tracked in candidates(gate, waiting, len(under_way)):
            if tracked.evicts and (evicting >= at_once or not self.spread.free(gate.key)):
                continue
            if not self._owner_allows(tracked, busy, leaves):
                continue
            busy[tracked.owner_uid] += 1
            evicting += tracked.evicts
            if tracked.evicts:
                self.spread.took(gate.key, spacing(gate.pace))
            yield tracked

    def _owner_allows(self, tracked: Tracked, busy: "Counter[str]", leaves: "dict[str, _Leave]") -> bool:
        """A bare pod goes only while its owner is settled and has another pod to spare; the worker counts again.

        `leaves` are of this round: a thousand pods of one owner are one question.
        """
        if not tracked.evicts:
            return True
        uid = tracked.owner_uid
        leave = leaves.get(uid) or leaves.setdefault(uid, self._leave(uid))
        if leave.code:
            self._desk.record.waits(tracked, leave.code, leave.reason)
            return False
        return leave.share is None or busy[uid] < leave.share

    def _leave(self, owner_uid: str) -> "_Leave":
        owner = self._desk.store.workload(owner_uid)
        if owner is None:
            return _Leave()  # without a controller, or of a kind that is not watched: the worker looks
        above, repair = self._desk.store.above(owner), self._desk.policy.repair
        reason = unsettled(owner, above)
        if reason:
            return _Leave("owner_unsettled", reason)
        reason = forbids(owner, above, repair)
        return _Leave("none_to_spare", reason) if reason else _Leave(share=share(owner, above, repair))

    def _observe_only(self, waiting: list[Tracked]) -> None:
        for tracked in waiting:
            self._desk.record.refusal(tracked, "observe_mode", "the policy's mode is observe: it would be repaired now")

    def release_one(self, tracked: Tracked) -> None:
        """Hand one finding to the workers past gate and window, unless this watcher does not lead any more."""
        self._release([tracked], None)

    def _release(self, batch: Sequence[Tracked], key: str | None) -> bool:
        """Hand some to the workers; False if no more can go now: no room in the window, or not leading any more.

        The ledger marks all of them, then the trail records all of them, then they are sent: three steps whose order
        matters, and two of them are one round trip for all.
        """
        if not self._desk.leads():
            return False
        requests = self._admitted(batch, key)
        try:
            self._desk.record.releases(requests)
            for tracked, request in requests:
                if not self._desk.leads():  # Redis took its time, and the lease ended meanwhile
                    break
                self._send_one(tracked, request)
        finally:
            unsent = [tracked for tracked, _ in requests if tracked.state is not State.RELEASED]
            for tracked in unsent:
                self._unrelease(tracked, key)
        return not unsent and all(each.state is State.RELEASED for each in batch)

    def _admitted(self, batch: Sequence[Tracked], key: str | None) -> list[tuple[Tracked, RepairRequest]]:
        """Those that may be sent; what another one has released already is noted, for its outcome counts here, too."""
        desk, seconds = self._desk, self._desk.policy.repair.release_deadline_seconds
        asked = [(each, self._request(each.finding)) for each in batch]
        wanted = [
            Asked(request.finding_id, request.task_stem, cost(each) if key is not None else 0)
            for each, request in asked
        ]
        found = []
        answers = desk.ledger.admit(key or "", wanted, seconds, desk.policy.window)
        for (tracked, request), admitted in zip(asked, answers, strict=False):
            standing = admitted.standing
            if standing is None:
                found.append((tracked, request.model_copy(update={"attempt": admitted.attempt})))
            else:  # by another watcher, or on demand from the command line
                self._note(tracked, standing.attempt, standing.left)
        return found

    def _send_one(self, tracked: Tracked, request: RepairRequest) -> None:
        with tracing.span("release", tracing.of_request(request), kind="producer"):
            self._send(request)
        self._note(tracked, request.attempt, self._desk.policy.repair.release_deadline_seconds)
        self._desk.meter.released(request.action)
        log.info("released", finding=request.finding_id, object=str(request.ref), task=request.task_id)

    def _note(self, tracked: Tracked, attempt: int, seconds: float) -> None:
        to_released(tracked, attempt, self._desk.steady() + timedelta(seconds=seconds))
        if tracked.gate in self._turns:
            self._turns[tracked.gate].served(tracked)

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

    def _request(self, finding: Finding) -> RepairRequest:
        """The attempt's number is known once the ledger has given it."""
        return RepairRequest(
            cluster=self._desk.cluster,
            finding_id=finding.id,
            ref=finding.ref,
            mesh=finding.mesh,
            cause=finding.failure_class,
            action=repair_of(finding) or Action.NUDGE_OWNER,  # whatever it says, the worker decides again
            requested_at=self._desk.now(),
        )
