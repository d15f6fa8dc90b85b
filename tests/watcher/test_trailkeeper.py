"""The watcher notices when the trail that it knew is not there any more, says so, seals, and prunes only if asked."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fakeredis
import pytest

from remesh import chain, retention
from remesh.audit import Trail, record
from remesh.chain import START, Report, Verifier
from remesh.models import AuditRecord, RecordType
from remesh.policy import TrailPolicy
from remesh.redisdb import RedisClient
from remesh.retention import Retention
from watcher.trailkeeper import TrailKeeper

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
KEY = "remesh:{test}:trail"
SECRET = b"0123456789abcdef"


@pytest.fixture
def redis() -> Iterator[RedisClient]:
    with fakeredis.FakeRedis(decode_responses=True) as client:
        yield client


@pytest.fixture
def trail(redis: RedisClient) -> Trail:
    return Trail(redis, "test")


@pytest.fixture
def keeper(trail: Trail) -> TrailKeeper:
    return TrailKeeper(trail, "test", now=lambda: AT)


def note(number: int) -> AuditRecord:
    return record(RecordType.NOTE, cluster="test", at=AT, record_id=f"n{number}", reason=f"note {number}")


def written(trail: Trail, first: int = 1, count: int = 5) -> None:
    trail.append_many([note(number) for number in range(first, first + count)])


def verified(trail: Trail) -> Report:
    verifier = Verifier(head=trail.head(), cluster="test", key=SECRET)
    for entry in trail.entries():
        verifier.take(entry)
    return verifier.end()


def codes(trail: Trail) -> list[str]:
    return [each.code for each in trail.read()]


def test_a_trail_that_grows_is_the_one_that_was(trail: Trail, keeper: TrailKeeper) -> None:
    for number in range(5):
        assert keeper.check() == ""
        written(trail, number)
    assert keeper.check() == ""
    assert trail.lost() == ""


def test_a_wiped_redis_is_noticed_and_said(redis: RedisClient, trail: Trail, keeper: TrailKeeper) -> None:
    written(trail)
    known = trail.head()
    keeper.check()
    redis.flushall()
    gone = keeper.check()
    assert f"record number 5 at {known.position}, and Redis has none of it" in gone
    lost = next(trail.read())
    assert (lost.code, lost.actor, lost.reason) == (chain.LOST, "watcher", gone)
    assert lost.details == chain.details_of(known)
    assert trail.lost() == f"2026-03-04T05:06:07+00:00 {gone}"
    assert keeper.check() == ""
    report = verified(trail)
    assert (report.wrong, report.whole) == (0, False)
    assert "the trail says itself" in str(report.losses[0])


def test_a_wiped_redis_that_others_have_written_to_since_is_noticed(
    redis: RedisClient, trail: Trail, keeper: TrailKeeper
) -> None:
    written(trail)
    keeper.check()
    redis.flushall()
    written(trail, 100, 9)
    assert "that record is gone or another" in keeper.check()
    assert codes(trail)[-1] == chain.LOST


def test_a_trail_that_fell_back_is_noticed(redis: RedisClient, trail: Trail, keeper: TrailKeeper) -> None:
    written(trail)
    saved = {name: redis.dump(name) for name in (KEY, f"{KEY}:head")}
    written(trail, 10)
    keeper.check()
    for name, value in saved.items():
        redis.restore(name, 0, value, replace=True)  # type: ignore[arg-type]
    assert "up to number 5 only: what came after is gone" in keeper.check()


def test_the_same_loss_is_written_once_whoever_notices(redis: RedisClient, trail: Trail, keeper: TrailKeeper) -> None:
    other = TrailKeeper(trail, "test", now=lambda: AT)
    written(trail)
    keeper.check()
    other.check()
    redis.delete(KEY, f"{KEY}:head")
    assert keeper.check()
    assert other.check()
    assert codes(trail) == [chain.LOST]


def test_with_a_key_the_head_is_sealed_each_hour_if_it_moved(trail: Trail) -> None:
    keeper = TrailKeeper(trail, "test", key=SECRET, now=lambda: AT)
    written(trail)
    head = trail.head()
    keeper.check()
    keeper.hourly()
    keeper.check()
    keeper.hourly()
    assert codes(trail).count(chain.SEALED) == 1
    report = verified(trail)
    assert (report.whole, report.sealed) == (True, head)


def test_without_a_key_and_without_the_lead_nothing_is_sealed(trail: Trail) -> None:
    written(trail)
    for keeper in (TrailKeeper(trail, "test"), TrailKeeper(trail, "test", key=SECRET, leads=lambda: False)):
        keeper.check()
        keeper.hourly()
    assert trail.length() == 5


def test_an_empty_trail_is_not_sealed(trail: Trail) -> None:
    keeper = TrailKeeper(trail, "test", key=SECRET)
    keeper.check()
    keeper.hourly()
    assert trail.head() == START


def test_the_watcher_prunes_only_where_the_policy_says_so(
    monkeypatch: pytest.MonkeyPatch, redis: RedisClient, trail: Trail, tmp_path: Path
) -> None:
    monkeypatch.setattr(retention, "NEWEST_SECONDS", -60.0)
    written(trail, count=1200)
    for policy in (TrailPolicy(), TrailPolicy(keep_records=1000, export_folder=str(tmp_path))):
        keeper = TrailKeeper(trail, "test", retention=Retention(redis, trail, "test"), policy=policy, now=lambda: AT)
        keeper.check()
        keeper.hourly()
        assert keeper.check() == ""
        assert trail.length() == (1001 if policy.asks else 1200)
    assert verified(trail).whole
    exported = tmp_path / "trail-test-20260304T050607Z.jsonl"
    assert len(exported.read_text().splitlines()) == 200
