"""The plain Celery to compare with: one task that does nothing. Its broker is in `BENCH_BROKER`.

Only its events are remesh's: with threads, Celery's own dispatcher loses some, and then nobody knows what has started.
"""

import os

from celery import Celery

from remesh.celery_parts import CompleteEvents

app = Celery("plain", broker=os.environ.get("BENCH_BROKER", "memory://"), events=CompleteEvents)
app.conf.update(task_ignore_result=True, worker_send_task_events=True)


@app.task(name="nothing")  # type: ignore[untyped-decorator]
def nothing(payload: dict[str, object]) -> None:
    """Nothing."""
