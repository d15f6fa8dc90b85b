"""Nothing but log lines: what Celery's worker and Flower print besides, made a line or left out. Used by `workers.app`.

For REMESH_LOG_FORMAT=json, where each line has to be an object: Celery prints a banner at its start, and a few words
when a signal ends it, past all logging. Flower writes a traceback for each request whose arguments it does not like.
"""

import logging
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


def in_single_lines() -> None:
    """From now on, for all that this process logs by the root's handlers, as Flower does."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(to_single_line)


def to_single_line(record: logging.LogRecord) -> bool:
    """A filter that lets all through, and makes an error with its traceback one line."""
    text = record.getMessage().split("\n", 1)[0]
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        said = str(error).strip().split("\n", 1)[0]
        text = f"{text}: {type(error).__name__}: {said}"
    record.msg, record.args, record.exc_info, record.exc_text, record.stack_info = text, (), None, None, None
    return True
