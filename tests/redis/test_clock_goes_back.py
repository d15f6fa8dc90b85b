"""The clock of Redis' host is set back by a day: what was to last seconds lasts seconds, and not a day longer."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remesh.ledger import Ledger
from remesh.policy import WindowPolicy
from remesh.presence import Presence, now_seen
from remesh.redisdb import RedisClient, connect
from tests.needs import need
from tests.redis.conftest import settings_for, until
from tests.reliability.clocks import DAY, WallClock, built, server

KEY = "linkerd/linkerd-proxy-injector"

Back = Callable[[], None]

WHILE = 4.0  # seconds: on a busy machine some pass before the clock is set, and after


@pytest.fixture
def set_back(tmp_path: Path) -> Iterator[tuple[RedisClient, Back]]:
    need(shutil.which("cc"), "a C compiler (Debian: gcc libc6-dev)")
    with server(built(tmp_path), tmp_path) as (redis, clock), connect(settings_for(redis)) as client:
        yield client, lambda: _set(clock, client)


def _set(clock: WallClock, client: RedisClient) -> None:
    """The server looks at its host's clock a few times a second only."""
    before = _time(client)
    clock.set(-DAY)
    until(lambda: _time(client) < before - DAY / 2)


def _time(client: RedisClient) -> int:
    answer: Any = client.eval("return redis.call('TIME')[1]", 0)
    return int(answer)


def test_every_while_of_the_ledger_begins_anew(set_back: tuple[RedisClient, Back]) -> None:
    redis, back = set_back
    ledger = Ledger(redis, "test")
    ledger.mark_released("f-1", 1, "task", WHILE)
    ledger.record_failure("uid", "hash", "why", cooldown_seconds=WHILE)
    assert ledger.lease("uid", WHILE)
    assert ledger.take_slot("owner", "pod-1", 1, WHILE) == []
    back()

    assert not ledger.mark_released("f-1", 2, "task-2", 60)
    assert ledger.lease("uid", WHILE) is None
    assert ledger.take_slot("owner", "pod-2", 1, WHILE) is None
    released = ledger.released("f-1")
    assert released is not None
    assert released.left <= WHILE
    assert ledger.cooldown_left("uid", "hash") <= WHILE

    until(lambda: ledger.cooldown_left("uid", "hash") == 0)
    until(lambda: ledger.mark_released("f-1", 2, "task-2", 60))
    until(lambda: ledger.lease("uid", WHILE) is not None)
    until(lambda: ledger.take_slot("owner", "pod-2", 1, WHILE) == [])


def test_a_window_that_was_halved_before_is_halved_again(set_back: tuple[RedisClient, Back]) -> None:
    redis, back = set_back
    ledger, window = Ledger(redis, "test"), WindowPolicy(initial=16, minimum=1, maximum=32)
    assert ledger.window_feedback(KEY, False, window) == 8
    back()
    assert ledger.window_feedback(KEY, False, window) == 4


def test_a_shut_brake_is_shut_for_its_pause_and_no_longer(set_back: tuple[RedisClient, Back]) -> None:
    redis, back = set_back
    brakes = Ledger(redis, "test").brakes
    for holder in ("a", "b"):
        brakes.take(KEY, holder, 60)
        brakes.tell(KEY, holder, False, 60)
    back()
    assert 0 < brakes.shut_for(KEY) <= 60
    assert 0 < brakes.take(KEY, "c", 60).number <= 60


def test_a_watcher_that_is_gone_is_not_alive_for_a_day(set_back: tuple[RedisClient, Back]) -> None:
    redis, back = set_back
    presence = Presence(redis, "test")
    presence.beat(now_seen("repair", "1", (), "watcher-1"))
    assert presence.seen() is not None
    back()
    assert presence.seen() is None
