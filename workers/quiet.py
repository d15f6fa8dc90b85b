"""Nothing but log lines: what Celery's worker prints besides, made a log line or left out. Used by `workers.app`.

For REMESH_LOG_FORMAT=json, where each line has to be an object: Celery prints a banner at its start, and a few words
when a signal ends it, past all logging.
"""

import os
import sys
from typing import Any

from celery.apps import worker as celery_worker

from remesh import logs

log = logs.get("worker.celery")


def only_log_lines(worker: Any) -> None:
    """From now on, for this worker."""
    worker.quiet = True  # no banner; what it tells stands in our own first lines
    celery_worker.safe_say = say


def say(message: str, stream: Any = sys.stderr) -> None:
    """As Celery's `safe_say`, which signal handlers call: one system call, and no lock that a log line may hold."""
    descriptor = stream.fileno() if hasattr(stream, "fileno") else 2
    os.write(descriptor, f"{logs.json_line('celery.apps.worker', message)}\n".encode())
