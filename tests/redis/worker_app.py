"""A worker whose tasks the tests can hold: `celery -A tests.redis.worker_app worker`.

Each task notes its start and its end as lines of files in REMESH_TEST_FOLDER, so that the notes outlive Redis.
In between it waits for the file `go`.
"""

import os
import time
from pathlib import Path
from typing import Any

from remesh.models import RepairRequest
from remesh.queue import TASK_NUDGE, TASK_RECREATE, make_app
from remesh.settings import read_settings

FOLDER = Path(os.environ["REMESH_TEST_FOLDER"])

app = make_app(read_settings())
if "visibility_timeout" in app.conf.broker_transport_options:  # RabbitMQ has none
    # Redelivery within seconds instead of five minutes.
    app.conf.broker_transport_options["visibility_timeout"] = 4
    app.conf.broker_transport_options["unacked_restore_interval"] = 1


def note(name: str, line: str) -> None:
    """Append one line; short appends of one write are whole."""
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def nudge(payload: dict[str, Any]) -> dict[str, str]:
    request = RepairRequest.model_validate(payload)
    note("started", request.finding_id)
    end = time.monotonic() + 60
    while not (FOLDER / "go").exists() and time.monotonic() < end:
        time.sleep(0.01)
    note("done", request.finding_id)
    return {"result": "healed"}


def recreate(payload: dict[str, Any]) -> None:
    raise ValueError(f"cannot recreate {payload['ref']['name']}")


app.task(name=TASK_NUDGE)(nudge)
app.task(name=TASK_RECREATE)(recreate)
