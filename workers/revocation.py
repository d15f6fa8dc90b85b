"""Celery's request as the workers have it: revoked gently, and never put off for long.

Revocation is what Flower's buttons "Revoke" and "Terminate" do to a repair.

A task that still waits is dropped by Celery. One under way is a thread, which nobody can kill without leaving half a
repair behind: it looks for itself right before it writes its intent, and ends there. After that it goes on to its end.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery.worker import state
from celery.worker.request import Request

from remesh import crash, logs
from workers.tasks import LONGEST_COUNTDOWN_SECONDS

log = logs.get("worker.revocation")


def is_revoked(task_id: str) -> bool:
    """Celery's own list, which its remote control keeps in each worker."""
    return task_id in state.revoked


class GentleRequest(Request):
    """Celery's request, which is not terminated: Celery (seen in 5.6.3) would take the task's message off the queue and
    call it revoked, while the thread goes on.

    A task that is tried again carries a time of day by its sender's clock. Where that clock is ahead of this host's, or
    this one's went back, it would be held here for as long; so the longest pause that there is bounds it.
    """

    def __init__(self, *args: Any, **known: Any) -> None:
        super().__init__(*args, **known)
        eta: datetime | None = self.eta
        if eta is not None:
            self._eta = min(eta, datetime.now(UTC) + timedelta(seconds=LONGEST_COUNTDOWN_SECONDS))

    def terminate(self, pool: Any, signal: Any = None) -> None:  # noqa: ARG002  Celery's signature
        """Leave it to the repair: the task's id is on the list of revoked ones by now."""
        log.info("asked to stop; a repair that has written no intent ends there", task=self.id)

    def acknowledge(self) -> None:
        """Take the message off the queue."""
        with crash.around("broker.ack"):
            super().acknowledge()
