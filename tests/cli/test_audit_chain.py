"""`remesh audit verify` and `remesh audit prune` as a person meets them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remesh import retention
from remesh.audit import Trail, record
from remesh.models import AuditRecord, ObjectRef, RecordType
from remesh.redisdb import RedisClient, connect_url
from tests.cli.conftest import Remesh, kubeconfig

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
KEY = "remesh:{chained}:trail"
POD = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="web-5d8-x", uid="u1")


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


def test_a_pruning_that_finds_nothing_says_so(remesh: Remesh, positions: list[str], tmp_path: Path) -> None:
    arguments = ("audit", "prune", "--older-than", "1d", "--export", tmp_path / "old.jsonl")
    why = "no record is older, or more, than what is kept; the last minute always is"
    assert remesh(*arguments).out == f"trail   nothing was removed: {why}\n"
    assert remesh(*arguments, "--dry-run").out == f"trail   nothing would be removed: {why}\n"
    document = json.loads(remesh(*arguments, "-o", "json").out)
    assert (document["removed"], document["would_remove"]) == (0, 0)


@pytest.mark.usefixtures("nothing_is_new", "positions")
def test_a_pruning_that_is_held_back_says_by_what(remesh: Remesh, redis: RedisClient, tmp_path: Path) -> None:
    begun = record(RecordType.INTENT, cluster="chained", at=AT, finding_id="f-1", ref=POD)
    position = Trail(redis, "chained").append(begun)
    Trail(redis, "chained").append(record(RecordType.NOTE, cluster="chained", at=AT))
    answer = remesh("audit", "prune", "--keep", "0", "--export", tmp_path / "old.jsonl")
    assert "trail   10 records removed" in answer.out
    why = f"finding f-1, whose chain begins at {position}, has an intent without its outcome"
    assert f"held    more stays: {why}" in answer.out
    again = remesh("audit", "prune", "--keep", "0", "--export", tmp_path / "more.jsonl")
    assert again.out == f"trail   nothing was removed\nheld    all of it stays: {why}\n"


def about_a_pod(kind: RecordType, **more: object) -> AuditRecord:
    rs = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-5d8", uid="u2")
    deploy = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web", uid="u3")
    known: dict[str, Any] = {"finding_id": "f-1", "ref": POD, "owner": rs, "above": deploy, "actor": "watcher"}
    return record(kind, cluster="chained", at=AT, **(known | more))


def test_a_deployments_audit_shows_its_pods_chains(remesh: Remesh, redis: RedisClient, tmp_path: Path) -> None:
    remesh.set(REMESH_KUBECONFIG=kubeconfig(tmp_path))
    kinds = [RecordType.FINDING, RecordType.INTENT, RecordType.ACTION, RecordType.OUTCOME]
    Trail(redis, "chained").append_many([about_a_pod(kind) for kind in kinds])
    header, *rows = remesh("audit", "deploy/web", "-n", "shop").out.splitlines()
    assert "ASKED BY" in header
    assert [(row.split()[2], row.split()[4]) for row in rows] == [(kind.value, "po/web-5d8-x") for kind in kinds]
    items = json.loads(remesh("audit", "deploy/web", "-n", "shop", "-o", "json").out)["items"]
    assert [each["above"]["name"] for each in items] == ["web"] * 4
    assert len(remesh("audit", "deploy/web", "-n", "shop", "-o", "jsonl").out.splitlines()) == 4
    assert remesh("audit", "deploy/web", "-n", "bank").out == ""


def test_what_nothing_is_known_of_is_told_from_what_only_the_filters_leave_out(
    remesh: Remesh, redis: RedisClient, tmp_path: Path
) -> None:
    remesh.set(REMESH_KUBECONFIG=kubeconfig(tmp_path))
    Trail(redis, "chained").append(about_a_pod(RecordType.FINDING))
    where = "in the trail of cluster 'chained'.\n"
    for arguments, said in (
        (("rs/nope", "-n", "shop"), "Nothing is known of ReplicaSet/nope -n shop"),
        (("--finding", "f-nope"), "Nothing is known of finding f-nope"),
        (("-n", "nope"), "Nothing is known of namespace nope"),
        (("--type", "wait"), "No records of this kind"),
        (("--finding", "f-1", "--type", "wait"), "There are records of finding f-1, but none of this kind,"),
        (
            ("rs/web-5d8", "-n", "shop", "--type", "wait"),
            "There are records of ReplicaSet/web-5d8 -n shop, but none of this kind,",
        ),
    ):
        for form in ("table", "jsonl", "json"):
            answer = remesh("audit", *arguments, "-o", form)
            assert (answer.code, answer.err) == (0, f"{said} {where}"), arguments
            assert (answer.out == "") == (form != "json")


def test_status_shows_the_head_and_a_loss(remesh: Remesh, redis: RedisClient, positions: list[str]) -> None:
    trail = Trail(redis, "chained")
    trail.say_lost("everything before this record is gone", trail.head(), AT)
    out = remesh("status").out
    assert "head 11/" in out
    assert "TRAIL LOST   2026-03-04T05:06:07+00:00 everything before this record is gone" in out
