"""Revocation: what Flower's buttons "Revoke" and "Terminate" do to a repair.

A task that still waits is dropped by Celery. One under way is a thread, which nobody can kill without leaving half a
repair behind: it looks for itself right before it writes its intent, and ends there. After that it goes on to its end.
"""

from typing import Any

from celery.worker import state
from celery.worker.request import Request

from remesh import crash, logs

log = logs.get("worker.revocation")


def is_revoked(task_id: str) -> bool:
    """Celery's own list, which its remote control keeps in each worker."""
    return task_id in state.revoked


class GentleRequest(Request):
    """Celery's request, which is not terminated: Celery (seen in 5.6.3) would take the task's message off the queue and
    call it revoked, while the thread goes on."""

    def terminate(self, pool: Any, signal: Any = None) -> None:  # noqa: ARG002  Celery's signature
        """Leave it to the repair: the task's id is on the list of revoked ones by now."""
        log.info("asked to stop; a repair that has written no intent ends there", task=self.id)

    def acknowledge(self) -> None:
        """Take the message off the queue."""
        with crash.around("broker.ack"):
            super().acknowledge()
