"""Looks after pods that were taken away and whose task may be lost: at a worker's start, and every half a minute.

Used by `workers.app`. A task is lost with a broker that was full or gone when it should have been sent again. What is
owed stands in the ledger, and is brought back here under the same lease and the same checks as by a task.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from remesh import logs
from remesh.errors import RemeshError
from remesh.models import Outcome, RepairRequest
from workers.chain import Chain
from workers.context import LeasePort, RepairContext
from workers.recreate import recreate
from workers.repair import LEASE_SECONDS, give_up, quiet
from workers.verdicts import leaves_for_another_try

log = logs.get("worker.owed")

SWEEP_SECONDS: Final = 30.0
# Longer than all tries of a task. From the first minute on the trail says that a person may be needed.
GIVE_UP_SECONDS: Final = 3 * 3600.0
# Of these, by the process's own steady clock: a clock that jumps ahead must not end the tries.
LEAST_SECONDS: Final = 600.0


def sweep(ctx: RepairContext) -> list[Outcome]:
    """Bring back what can be brought back now; returns how the tries ended. Raises BrokerError."""
    found = [_look_after(request, ctx) for request in ctx.ledger.owed.all() if request.cluster == ctx.cluster_name]
    return [outcome for outcome in found if outcome is not None]


def _look_after(request: RepairRequest, ctx: RepairContext) -> Outcome | None:
    try:
        lease = ctx.ledger.lease(request.ref.uid, LEASE_SECONDS)
        if lease is None:  # a task is at it
            return None
        try:
            return _restore(request, ctx, lease)
        finally:
            lease.release()
    except RemeshError as error:
        log.warning("could not look after an owed pod", finding=request.finding_id, error=str(error))
        return None


def _restore(request: RepairRequest, ctx: RepairContext, lease: LeasePort) -> Outcome | None:
    intent = Chain(ctx.trail, request, ctx.clock.now).unfinished_intent()
    if intent is None or intent.code != "recreate":  # its worker died before it did anything, or after all was done
        ctx.ledger.owed.settle(request.ref.uid)
        return None
    outcome = recreate(request, ctx, lease, "", quiet)
    if leaves_for_another_try(outcome) and _long_enough(ctx, request.ref.uid, intent.at):
        give_up(request, ctx, outcome)
    return outcome


def _long_enough(ctx: RepairContext, uid: str, since: datetime) -> bool:
    now = ctx.clock.monotonic()
    tried = now - ctx.memory.tried_since(uid, now)
    return tried > LEAST_SECONDS and (ctx.clock.now() - since).total_seconds() > GIVE_UP_SECONDS


class Sweeper:
    """A thread that sweeps until it is stopped."""

    def __init__(self, contexts: Callable[[], RepairContext], seconds: float = SWEEP_SECONDS) -> None:
        self._contexts = contexts
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owed", daemon=True)

    def start(self) -> None:
        """Sweep now, and again and again."""
        self._thread.start()

    def stop(self) -> None:
        """No further sweep. What is under way ends with the process, and its lease by itself."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                sweep(self._contexts())
            except RemeshError as error:
                log.warning("could not sweep", error=str(error))
            except Exception:  # the thread's edge: without it nobody would look after them any more
                log.exception("a sweep failed")
            self._over.wait(self._seconds)
