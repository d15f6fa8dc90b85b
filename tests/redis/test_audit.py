"""The audit trail keeps everything, once, in order, and says so when it cannot."""

import json
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from remesh.audit import (
    DEDUPE_SECONDS,
    Trail,
    order,
    record,
    record_of_finding,
    record_of_request,
    to_json_line,
)
from remesh.errors import TrailUnavailable, UsageError
from remesh.models import AuditRecord, ObjectRef, RecordType
from remesh.redisdb import RedisClient, connect_url
from tests.redis.conftest import AT, deployment, finding, replica_set, request_for

KEY = "remesh:{test}:trail"


def note(number: int, **more: object) -> AuditRecord:
    return record(RecordType.NOTE, cluster="test", at=AT, record_id=f"n{number}", reason=f"note {number}", **more)


def ids(records: list[AuditRecord]) -> list[str]:
    return [entry.record_id for entry in records]


def test_a_record_comes_back_whole_and_with_its_position(trail: Trail) -> None:
    written = record_of_request(
        request_for(actor="alice", on_demand=True),
        RecordType.INTENT,
        at=AT,
        owner=deployment(),
        code="nudge",
        reason='Ünïcode → and "quotes"\nand a line',
        details={"before": {"replicas": 3}, "list": [1, None, "x"]},
    )
    position = trail.append(written)
    assert list(trail.read()) == [written.model_copy(update={"position": position})]
    assert trail.last_position() == position
    assert trail.length() == 1


def test_an_empty_trail_has_no_records_and_the_first_position(trail: Trail) -> None:
    assert list(trail.read()) == []
    assert (trail.last_position(), trail.length()) == ("0-0", 0)
    assert trail.append_many([]) == []


def test_the_first_record_of_an_id_stays_and_its_position_is_returned_again(trail: Trail) -> None:
    first = trail.append(note(1))
    trail.append(note(2))
    assert trail.append(note(1, code="another text")) == first
    assert [(entry.record_id, entry.code) for entry in trail.read()] == [("n1", ""), ("n2", "")]


def test_a_repeat_does_not_grow_the_indexes(trail: Trail) -> None:
    entry = record_of_finding(finding(), RecordType.FINDING, at=AT)
    trail.append(entry)
    trail.append(entry)
    assert ids(trail.history(finding())) == ["f-0001:finding:0"]
    assert ids(trail.history(deployment())) == ["f-0001:finding:0"]


def test_many_records_keep_their_order_and_repeats_inside_a_batch_collapse(trail: Trail) -> None:
    positions = trail.append_many([note(number % 2000) for number in range(2500)])
    assert ids(list(trail.read())) == [f"n{number}" for number in range(2000)]
    assert positions[2000:] == positions[:500]
    assert sorted(positions[:2000], key=order) == positions[:2000]


def test_a_batch_repeated_after_a_half_done_one_completes_it(trail: Trail) -> None:
    batch = [note(number) for number in range(10)]
    trail.append_many(batch[:4])
    trail.append_many(batch)
    assert ids(list(trail.read())) == [f"n{number}" for number in range(10)]


def test_writers_at_the_same_time_lose_nothing(real: RedisClient) -> None:
    trail = Trail(real, "test")
    writers = [
        Thread(target=trail.append_many, args=([note(100 * writer + number) for number in range(100)],))
        for writer in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(ids(list(trail.read())), key=lambda name: int(name[1:])) == [f"n{number}" for number in range(800)]


def test_history_of_a_finding_is_its_chain_in_order(trail: Trail) -> None:
    chain = [RecordType.FINDING, RecordType.WAIT, RecordType.RELEASE, RecordType.INTENT, RecordType.OUTCOME]
    for kind in chain:
        for number in range(3):
            trail.append(record_of_finding(finding(number), kind, at=AT))
    assert [entry.type for entry in trail.history("f-0001")] == chain
    assert {entry.finding_id for entry in trail.history(finding(2))} == {"f-0002"}


def test_an_objects_history_is_found_without_knowing_its_uid(trail: Trail) -> None:
    trail.append(note(1, ref=replica_set(uid="old")))
    trail.append(note(2, ref=replica_set(uid="new")))
    trail.append(note(3, ref=replica_set("other")))
    by_name = ObjectRef(api_version="", kind="replicaset", namespace="shop", name="web-5d8")
    assert ids(trail.history(by_name)) == ["n1", "n2"]
    assert ids(trail.history(replica_set(uid="new"))) == ["n2"]


def test_an_owners_history_holds_what_is_about_its_objects(trail: Trail) -> None:
    trail.append(record_of_finding(finding(1), RecordType.FINDING, at=AT))
    trail.append(record_of_finding(finding(2, owner=deployment("api")), RecordType.FINDING, at=AT))
    assert ids(trail.history(deployment("web"))) == ["f-0001:finding:0"]


def test_what_is_above_the_owner_finds_a_pods_records_too(redis: RedisClient, trail: Trail) -> None:
    pod = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="web-5d8-x", uid="uid-x")
    bare = finding(1, ref=pod, owner=replica_set(), above=deployment())
    trail.append(record_of_finding(bare, RecordType.FINDING, at=AT))
    for subject in (pod, replica_set(), deployment()):
        (found,) = trail.history(subject)
        assert found.above == deployment()
    trail.trim_before(f"{trail.last_position().split('-')[0]}-99999")
    assert redis.keys(f"{KEY}:o:*") == []


def test_a_record_from_before_owners_owners_were_written_is_read(redis: RedisClient, trail: Trail) -> None:
    redis.xadd(KEY, {"r": to_json_line(record_of_finding(finding(1), RecordType.FINDING, at=AT))})
    (found,) = trail.read()
    assert (found.owner, found.above) == (deployment(), None)


def test_cluster_wide_objects_and_the_same_name_elsewhere_are_told_apart(trail: Trail) -> None:
    trail.append(note(1, ref=ObjectRef(api_version="v1", kind="Namespace", name="shop")))
    trail.append(note(2, ref=replica_set().model_copy(update={"namespace": "other"})))
    assert ids(trail.history(ObjectRef(api_version="v1", kind="Namespace", name="shop"))) == ["n1"]
    assert trail.history(replica_set()) == []


def test_filters_add_up(trail: Trail) -> None:
    for number in (1, 2):
        for kind in (RecordType.FINDING, RecordType.OUTCOME):
            trail.append(record_of_finding(finding(number), kind, at=AT))
    found = trail.read(ref=deployment(), finding_id="f-0002", types={RecordType.OUTCOME})
    assert ids(list(found)) == ["f-0002:outcome:0"]
    assert ids(list(trail.read(types=[RecordType.OUTCOME]))) == ["f-0001:outcome:0", "f-0002:outcome:0"]


def test_limit_counts_what_passed_the_filters(trail: Trail) -> None:
    trail.append_many([note(number, mesh="") for number in range(1200)])
    assert len(list(trail.read(limit=700))) == 700
    assert list(trail.read(limit=0)) == []


def test_reading_after_a_position_starts_behind_it(trail: Trail) -> None:
    positions = trail.append_many([note(number, ref=replica_set()) for number in range(30)])
    assert ids(list(trail.read(after=positions[27]))) == ["n28", "n29"]
    assert ids(list(trail.read(after=positions[27], ref=replica_set()))) == ["n28", "n29"]


def test_since_counts_by_the_servers_clock_whatever_the_records_say(redis: RedisClient, trail: Trail) -> None:
    redis.xadd(KEY, {"r": to_json_line(note(1, ref=replica_set()))}, id="1000-0")
    trail.append(note(2, ref=replica_set()))
    assert ids(list(trail.read(since=timedelta(hours=1)))) == ["n2"]
    assert ids(list(trail.read(since=datetime(2020, 1, 1, tzinfo=UTC)))) == ["n2"]
    assert ids(list(trail.read(since=datetime(1970, 1, 1, tzinfo=UTC)))) == ["n1", "n2"]
    assert ids(list(trail.read(since=timedelta(hours=1), ref=replica_set()))) == ["n2"]
    assert ids(list(trail.read(since=timedelta(hours=1), after="1000-0"))) == ["n2"]
    assert list(trail.read(since=timedelta(hours=1), after=trail.last_position())) == []


def test_index_order_inside_one_millisecond_is_by_number(redis: RedisClient, trail: Trail) -> None:
    for number in range(1, 13):
        position = f"1000-{number}"
        redis.xadd(KEY, {"r": to_json_line(note(number, ref=replica_set()))}, id=position)
        redis.zadd(f"{KEY}:o:replicaset/shop/web-5d8", {position: 1000})
    assert ids(trail.history(replica_set())) == [f"n{number}" for number in range(1, 13)]


def test_the_newest_records_come_oldest_first(trail: Trail) -> None:
    trail.append_many([note(number) for number in range(10)])
    assert ids(trail.newest(3)) == ["n7", "n8", "n9"]


def test_the_tail_waits_for_the_next_record(trail: Trail) -> None:
    last = trail.append(note(1))
    assert trail.tail(last) == []
    assert trail.tail(last, block_seconds=0.05) == []
    writer = Thread(target=trail.append_many, args=([note(2)],))
    writer.start()
    assert ids(trail.tail(last, block_seconds=30)) == ["n2"]
    writer.join()
    assert ids(trail.tail("0-0")) == ["n1", "n2"]


def test_following_reads_every_record_once(trail: Trail) -> None:
    trail.append_many([note(number) for number in range(1300)])
    seen: list[str] = []
    position = "0-0"
    while page := trail.tail(position):
        seen += ids(page)
        position = page[-1].position
    assert seen == [f"n{number}" for number in range(1300)]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("other", "field"),
        ("r", "no json"),
        ("r", '{"version":1}'),
        ("r", '{"version":2,"record_id":"x","type":"note","at":"2026-01-01T00:00:00Z","cluster":"test"}'),
    ],
    ids=["foreign", "broken", "incomplete", "newer"],
)
def test_an_entry_that_is_no_record_is_shown_and_reading_goes_on(
    redis: RedisClient, trail: Trail, field: str, text: str
) -> None:
    trail.append(note(1))
    position = str(redis.xadd(KEY, {field: text}))
    trail.append(note(2))
    found = list(trail.read())
    assert [(entry.code, entry.position == position) for entry in found] == [
        ("", False),
        ("unreadable", True),
        ("", False),
    ]
    assert position in found[1].reason
    assert len(trail.tail("0-0")) == 3


def test_bytes_that_are_no_text_are_shown_too(real: RedisClient) -> None:
    real.xadd(KEY, {"r": b"\xff\xfe"})
    assert [entry.code for entry in Trail(real, "test").read()] == ["unreadable"]


def test_a_field_of_a_later_version_is_ignored(redis: RedisClient, trail: Trail) -> None:
    redis.xadd(KEY, {"r": to_json_line(note(1))[:-1] + ',"later":true}'})
    assert ids(list(trail.read())) == ["n1"]


@pytest.mark.parametrize("position", ["", "now", "1-", "1-2-3", "-1", "$", "1 OR 1"])
def test_a_malformed_position_is_named(trail: Trail, position: str) -> None:
    with pytest.raises(UsageError, match="position"):
        list(trail.read(after=position))
    with pytest.raises(UsageError, match="position"):
        trail.tail(position)


def test_clusters_share_a_server_and_nothing_else(redis: RedisClient) -> None:
    one, two = Trail(redis, "one"), Trail(redis, "two")
    one.append(note(1))
    assert two.length() == 0
    two.append(note(1))
    assert (one.length(), two.length()) == (1, 1)


def test_ids_are_remembered_for_a_week(redis: RedisClient, trail: Trail) -> None:
    trail.append(note(1))
    assert 0 < int(redis.ttl(f"{KEY}:id:n1")) <= DEDUPE_SECONDS


def test_trimming_drops_what_is_before_the_position_and_its_index_entries(redis: RedisClient, trail: Trail) -> None:
    positions = trail.append_many([note(number, ref=replica_set(), finding_id="f-1") for number in range(1100)])
    assert trail.trim_before(positions[1098]) == 1098
    assert ids(list(trail.read())) == ["n1098", "n1099"]
    assert ids(trail.history(replica_set())) == ["n1098", "n1099"]
    assert redis.zcard(f"{KEY}:f:f-1") == 2
    assert trail.trim_before(positions[1098]) == 0


def test_a_record_written_before_trimming_is_not_written_again_after_it(trail: Trail) -> None:
    first = trail.append(note(1))
    last = trail.append(note(2))
    trail.trim_before(last)
    assert trail.append(note(1)) == first
    assert ids(list(trail.read())) == ["n2"]


def test_an_export_line_is_one_line_of_json_that_reads_back(trail: Trail) -> None:
    written = record_of_finding(finding(), RecordType.FINDING, at=AT, details={"text": "two\nlines"})
    trail.append(written)
    line = to_json_line(next(trail.read()))
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["version"], fields["type"], fields["ref"]["name"]) == (1, "finding", "web-1")
    assert "task_id" not in fields
    assert AuditRecord.model_validate_json(line) == next(trail.read())


def test_record_ids_name_the_step_of_the_attempt() -> None:
    request = request_for(attempt=2)
    assert record_of_request(request, RecordType.ACTION, at=AT, step="on").record_id == "f-0001:action:2:on"
    assert record_of_request(request, RecordType.OUTCOME, at=AT).record_id == "f-0001:outcome:2"
    assert record(RecordType.NOTE, cluster="c", at=AT) != record(RecordType.NOTE, cluster="c", at=AT)


def test_what_is_given_goes_before_what_the_finding_says() -> None:
    entry = record_of_finding(finding(), RecordType.REFUSAL, at=AT, code="protected", reason="Protected.")
    assert (entry.code, entry.reason, entry.mesh) == ("protected", "Protected.", "istio")


def test_a_restarted_server_that_knows_no_script_is_taught_again(redis: RedisClient, trail: Trail) -> None:
    trail.append(note(1))
    redis.script_flush()
    trail.append(note(2))
    redis.script_flush()
    trail.append_many([note(3), note(4)])
    assert ids(list(trail.read())) == ["n1", "n2", "n3", "n4"]


def test_a_full_server_refuses_whole_records_and_says_what_to_do(real: RedisClient) -> None:
    trail = Trail(real, "test")
    trail.append(note(1, ref=replica_set()))
    real.config_set("maxmemory", "1mb")
    try:
        for call in (lambda: trail.append(note(2, ref=replica_set())), lambda: trail.append_many([note(2)])):
            with pytest.raises(TrailUnavailable, match=r"Redis is full \(maxmemory, noeviction\): raise maxmemory"):
                call()
        assert ids(list(trail.read())) == ["n1"]
    finally:
        real.config_set("maxmemory", "0")
    trail.append(note(2, ref=replica_set()))
    assert ids(trail.history(replica_set())) == ["n1", "n2"]


def test_no_server_means_no_record_and_no_half_answer() -> None:
    with connect_url("redis://:hunter2@127.0.0.1:1/0") as client:
        trail = Trail(client, "test")
        for call in (
            lambda: trail.append(note(1)),
            lambda: trail.append_many([note(1)]),
            lambda: list(trail.read()),
            lambda: trail.tail("0-0"),
            trail.length,
            lambda: trail.trim_before("1-0"),
        ):
            with pytest.raises(TrailUnavailable, match=r"127\.0\.0\.1:1: connection refused$") as caught:
                call()
            assert "hunter2" not in str(caught.value)


def test_the_trail_offers_nothing_that_changes_or_deletes_a_record() -> None:
    offered = {name for name in vars(Trail) if not name.startswith("_")}
    assert offered == {
        "append", "append_many", "read", "history", "newest", "tail", "last_position", "length", "trim_before", "now",
        "entries", "entry", "head", "lost", "say_lost",
    }  # fmt: skip
