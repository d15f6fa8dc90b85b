"""Time that passes only when the machine says so, for every module that looks at a clock."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from unittest.mock import patch

START: Final = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SECONDS_OF = (
    "remesh.kube.api",
    "remesh.kube.live",
    "remesh.sim.admission",
    "remesh.sim.api",
    "remesh.sim.client",
    "remesh.sim.routes",
    "remesh.sim.workqueue",
    "watcher.gatekeeper",
    "watcher.look",
    "watcher.runtime",
    "fakeredis._helpers",
    "fakeredis._socket._base",
    "fakeredis.commands_mixins.server_mixin",
    "fakeredis.model._stream",
)
"""Modules that use `time`."""
DATES_OF = ("remesh.sim.objects",)
"""Modules that use `datetime.now`."""


class Time:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return START.timestamp() + self.passed

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"somebody slept for {seconds} s by the wall's clock")

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)


def _dates(clock: Time) -> type[datetime]:
    class Dates(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now().astimezone(tz)

    return Dates


@contextmanager
def installed() -> Iterator[Time]:
    """From here to the end of the block that time is everybody's."""
    clock = Time()
    dates = _dates(clock)
    patches: list[Any] = [patch.object(importlib.import_module(name), "time", clock) for name in SECONDS_OF]
    patches += [patch.object(importlib.import_module(name), "datetime", dates) for name in DATES_OF]
    for each in patches:
        each.start()
    try:
        yield clock
    finally:
        for each in patches:
            each.stop()
