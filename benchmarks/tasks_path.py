"""A worker with remesh's queues and settings, whose tasks do nothing: so that the path alone can be timed."""

from typing import Any

from remesh.queue import TASKS, make_app
from remesh.settings import read_settings

app = make_app(read_settings())


def nothing(payload: Any) -> None:
    """Nothing."""


for _name in TASKS.values():
    app.task(nothing, name=_name, acks_late=True)
