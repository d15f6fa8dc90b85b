"""`remesh audit verify` and `remesh audit prune` as a person meets them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remesh import retention
from remesh.audit import Trail, record
from remesh.models import RecordType
from remesh.redisdb import RedisClient, connect_url
from tests.cli.conftest import Remesh

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
KEY = "remesh:{chained}:trail"


@pytest.fixture
def redis(redis_url: str, remesh: Remesh) -> Iterator[RedisClient]:
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_CLUSTER="chained")
    with connect_url(redis_url) as client:
        for key in client.scan_iter("remesh:{chained}:*"):
            client.delete(key)
        yield client


@pytest.fixture
def positions(redis: RedisClient) -> list[str]:
    notes = [
        record(RecordType.NOTE, cluster="chained", at=AT, record_id=f"n{number}", reason=f"note {number} \x9b31m →")
        for number in range(1, 11)
    ]
    return Trail(redis, "chained").append_many(notes)


@pytest.fixture
def nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "NEWEST_SECONDS", -60.0)


def test_a_whole_trail_ends_with_0_and_prints_its_head(remesh: Remesh, positions: list[str]) -> None:
    answer = remesh("audit", "verify")
    assert (answer.code, answer.err) == (0, "")
    assert f"head   10/{positions[-1]}/" in answer.out
    assert "whole  10 records in the trail of cluster 'chained'" in answer.out


def test_a_removed_record_ends_with_1_and_its_place(remesh: Remesh, redis: RedisClient, positions: list[str]) -> None:
    redis.xdel(KEY, positions[4])
    answer = remesh("audit", "verify")
    assert answer.code == 1
    assert f"WRONG  between {positions[3]} and position {positions[5]}: 1 record was removed, number 5" in answer.out
    assert "BROKEN 1 thing wrong among 9 records" in answer.out
    assert remesh("audit", "verify", "--after", positions[5]).code == 0
    document = json.loads(remesh("audit", "verify", "-o", "json").out)
    assert (document["whole"], document["wrong"], document["records"]) == (False, 1, 9)


def test_the_head_printed_before_is_an_anchor_later(remesh: Remesh, redis: RedisClient, positions: list[str]) -> None:
    head = json.loads(remesh("audit", "verify", "-o", "json").out)["head"]
    assert remesh("audit", "verify", "--anchor", head).code == 0
    redis.delete(KEY, f"{KEY}:head")
    assert remesh("audit", "verify", "--anchor", head).code == 1
    assert remesh("audit", "verify", "--anchor", "head").code == 2
    assert remesh("audit", "verify", "--after", "1-0").code == 6
    assert remesh("audit", "verify", "--after", "now").code == 2


def test_an_export_verifies_as_a_file_and_its_altered_line_is_named(
    remesh: Remesh, positions: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "trail.jsonl"
    file.write_text(remesh("audit", "export").out, encoding="utf-8")
    assert f"whole  10 records in {file}" in remesh("audit", "verify", file).out
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines[:4], lines[4].replace("note 5", "note 6"), *lines[5:]]), encoding="utf-8")
    answer = remesh("audit", "verify", file)
    assert answer.code == 1
    assert f"WRONG  line 5 (position {positions[4]}): record number 5 was altered" in answer.out


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfe\x00", b"{}", b"[" * 10_000, b'{"a":1}\n', b"\x1b[2J"])
def test_a_file_that_is_no_export_is_named_and_no_crash(
    remesh: Remesh, redis: RedisClient, tmp_path: Path, data: bytes
) -> None:
    file = tmp_path / "odd"
    file.write_bytes(data)
    answer = remesh("audit", "verify", file)
    assert answer.code == (1 if data.strip() else 0)
    assert "\x1b" not in answer.out
    assert remesh("audit", "verify", tmp_path / "none").code == 2
    assert remesh("audit", "verify", tmp_path).code == 2


@pytest.mark.usefixtures("nothing_is_new")
def test_pruning_exports_says_what_it_did_and_leaves_a_whole_trail(
    remesh: Remesh, positions: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "old.jsonl"
    assert "6 records would be removed" in remesh("audit", "prune", "--keep", "4", "--export", file, "--dry-run").out
    assert not file.exists()
    answer = remesh("audit", "prune", "--keep", "4", "--export", file)
    assert answer.code == 0
    assert f"trail   6 records removed, from {positions[0]} to {positions[5]}" in answer.out
    assert f"anchor  6/{positions[5]}/" in answer.out
    after = remesh("audit", "verify")
    assert after.code == 0
    assert f"records up to number 6 ({positions[5]}) were exported and pruned" in after.out
    assert remesh("audit", "verify", file).code == 0
    assert remesh("audit", "prune", "--keep", "4", "--export", file).code == 2  # it is there


def test_a_pruning_that_cannot_be_right_is_refused(remesh: Remesh, positions: list[str], tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    for arguments in (
        ("--export", file),
        ("--keep", "1"),
        ("--keep", "-1", "--export", file),
        ("--older-than", "soon", "--export", file),
    ):
        answer = remesh("audit", "prune", *arguments)
        assert (answer.code, answer.out) == (2, ""), arguments
        assert answer.line
    assert "0 records would be removed" in remesh("audit", "prune", "--older-than", "1d", "--export", file).out


def test_status_shows_the_head_and_a_loss(remesh: Remesh, redis: RedisClient, positions: list[str]) -> None:
    trail = Trail(redis, "chained")
    trail.say_lost("everything before this record is gone", trail.head(), AT)
    out = remesh("status").out
    assert "head 11/" in out
    assert "TRAIL LOST   2026-03-04T05:06:07+00:00 everything before this record is gone" in out
