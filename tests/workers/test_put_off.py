"""A task that is tried again says when, by its sender's clock; this host's may say otherwise."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from kombu.message import Message

from workers.revocation import GentleRequest
from workers.tasks import LONGEST_COUNTDOWN_SECONDS


def repair() -> None:
    """Stands for the task."""


def request_for(eta: datetime | None) -> Any:
    app = Celery("test", set_as_current=False)
    app.task(repair, name="repair")
    headers = {"id": "t", "task": "repair", "eta": eta.isoformat() if eta else None, "argsrepr": "", "kwargsrepr": ""}
    message: Any = Message(body="[[], {}, {}]", content_type="application/json")  # type: ignore[no-untyped-call]
    return GentleRequest(message, app=app, headers=headers, decoded=True, body=([], {}, {}), utc=True)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=1)])
def test_a_sender_whose_clock_is_ahead_puts_nothing_off_for_longer_than_the_longest_pause(ahead: timedelta) -> None:
    latest = datetime.now(UTC) + timedelta(seconds=LONGEST_COUNTDOWN_SECONDS + 5)
    assert request_for(datetime.now(UTC) + ahead).eta <= latest


def test_an_ordinary_pause_stays_as_it_is() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=8)
    assert request_for(soon).eta == soon
    assert request_for(None).eta is None
