"""The chain of the trail shows what was removed, altered, moved or put in, and where; writers cannot fork it."""

import hashlib
import json
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from remesh import chain
from remesh.audit import Trail, record, to_json_line
from remesh.chain import START, Link, Report, Verifier
from remesh.errors import UsageError
from remesh.models import AuditRecord, RecordType
from remesh.redisdb import RedisClient
from tests.redis.conftest import AT

KEY = "remesh:{test}:trail"
HEAD = f"{KEY}:head"


def note(number: int, **more: object) -> AuditRecord:
    return record(RecordType.NOTE, cluster="test", at=AT, record_id=f"n{number}", reason=f"note {number}", **more)


def written(trail: Trail, count: int = 10) -> list[str]:
    return trail.append_many([note(number) for number in range(1, count + 1)])


def verified(trail: Trail, **more: object) -> Report:
    verifier = Verifier(head=trail.head(), cluster="test", **more)  # type: ignore[arg-type]
    for entry in trail.entries():
        verifier.take(entry)
    return verifier.end()


def only_problem(report: Report) -> str:
    assert report.wrong == 1, report.problems
    return str(report.problems[0])


def rewrite(redis: RedisClient, position: str, **fields: str) -> None:
    """What somebody with write access would do: the stream anew, with one entry changed."""
    entries: Any = redis.xrange(KEY)
    redis.delete(KEY)
    for each, old in entries:
        redis.xadd(KEY, old | fields if each == position else old, id=each)


def test_what_was_written_is_whole(trail: Trail) -> None:
    positions = written(trail)
    report = verified(trail)
    assert (report.whole, report.count, report.unchained) == (True, 10, 0)
    assert report.head == trail.head()
    assert (trail.head().number, trail.head().position) == (10, positions[-1])


def test_an_empty_trail_is_whole_and_its_head_is_the_start(trail: Trail) -> None:
    assert trail.head() == START
    assert verified(trail).whole


def test_the_hash_is_of_what_the_page_says(trail: Trail) -> None:
    written(trail, 2)
    first, second = trail.entries()
    assert first.text is not None
    assert second.text is not None
    content = hashlib.sha256(second.text.encode()).hexdigest()
    expected = hashlib.sha1(f"{first.hash} 2 {first.position} {content}".encode()).hexdigest()
    assert second.hash == expected
    assert first.hash == chain.link_hash(START, 1, chain.digest(first.text))


def test_a_repeat_takes_no_number(trail: Trail) -> None:
    trail.append(note(1))
    trail.append(note(1))
    trail.append_many([note(1), note(2), note(2), note(3)])
    assert [entry.number for entry in trail.entries()] == [1, 2, 3]
    assert verified(trail).whole


def test_writers_at_the_same_time_make_one_chain(real: RedisClient) -> None:
    trail = Trail(real, "test")

    def write(first: int) -> None:
        trail.append_many([note(first + number) for number in range(100)])
        for number in range(100, 120):
            trail.append(note(first + number))

    writers = [Thread(target=write, args=(1000 * number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [entry.number for entry in trail.entries()] == list(range(1, 961))
    assert verified(trail).whole


def test_an_altered_record_is_named(redis: RedisClient, trail: Trail) -> None:
    positions = written(trail)
    rewrite(redis, positions[4], r=to_json_line(note(5, code="other")))
    assert only_problem(verified(trail)).startswith(f"position {positions[4]}: record number 5 was altered")


def test_a_record_altered_together_with_its_hash_shows_at_the_next(redis: RedisClient, trail: Trail) -> None:
    positions = written(trail)
    text = to_json_line(note(5, code="other"))
    before = list(trail.entries())[3]
    rewrite(redis, positions[4], r=text, h=chain.link_hash(before.link, 5, chain.digest(text)))
    assert only_problem(verified(trail)).startswith(
        f"position {positions[5]}: record number 6 was altered, or does not"
    )


def test_a_position_that_was_changed_shows_at_the_next(redis: RedisClient, trail: Trail) -> None:
    positions = written(trail, 3)
    entries: Any = redis.xrange(KEY)
    redis.delete(KEY)
    for (_, fields), position in zip(entries, ("1000-0", *positions[1:]), strict=True):
        redis.xadd(KEY, fields, id=position)
    assert f"position {positions[1]}" in only_problem(verified(trail))


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ([4], "1 record was removed, number 5"),
        ([4, 5, 6], "3 records were removed, of the numbers 5 to 7"),
        ([0], "1 record was removed, number 1"),
        ([0, 1], "2 records were removed, of the numbers 1 to 2"),
        ([9], "1 record was removed from the end"),
        ([7, 8, 9], "3 records were removed from the end"),
    ],
    ids=["one", "three", "the first", "the first two", "the last", "the last three"],
)
def test_removed_records_are_counted_and_placed(redis: RedisClient, trail: Trail, gone: list[int], said: str) -> None:
    positions = written(trail)
    redis.xdel(KEY, *[positions[number] for number in gone])
    problem = only_problem(verified(trail))
    assert said in problem
    neighbour = positions[gone[-1] + 1] if gone[-1] < 9 else positions[gone[0] - 1]
    assert neighbour in problem


def test_everything_removed_is_noticed(redis: RedisClient, trail: Trail) -> None:
    written(trail)
    redis.delete(KEY)
    assert "10 records were removed from the end" in only_problem(verified(trail))


def test_a_removed_head_is_noticed_and_the_next_record_begins_anew(redis: RedisClient, trail: Trail) -> None:
    written(trail, 3)
    redis.delete(HEAD)
    assert "Redis knows no head" in only_problem(verified(trail))
    position = trail.append(note(4))
    assert only_problem(verified(trail)).startswith(f"position {position}: the chain begins anew here")


def test_a_record_that_somebody_put_in_is_named(redis: RedisClient, trail: Trail) -> None:
    trail.append(note(1))
    position = str(redis.xadd(KEY, {"r": to_json_line(note(2))}))
    trail.append(note(3))
    assert only_problem(verified(trail)).startswith(f"position {position}: it carries no hash")


def test_a_record_repeated_under_its_old_hash_is_named(redis: RedisClient, trail: Trail) -> None:
    written(trail, 3)
    entries: Any = redis.xrange(KEY)
    fields = entries[1][1]
    position = str(redis.xadd(KEY, fields))
    assert only_problem(verified(trail)).startswith(f"position {position}: record number 2 stands here a second time")


def test_records_from_before_the_chain_are_accepted_up_to_the_first_hash_and_said(
    redis: RedisClient, trail: Trail
) -> None:
    for number in range(3):
        redis.xadd(KEY, {"r": to_json_line(note(100 + number))})
    written(trail, 2)
    report = verified(trail)
    assert (report.whole, report.count, report.unchained) == (True, 5, 3)
    assert report.notes[0].startswith("3 records stand before the first one with a hash: written before trails had")
    assert [entry.record_id for entry in trail.read()] == ["n100", "n101", "n102", "n1", "n2"]


def test_a_trail_written_anew_is_told_by_an_anchor_alone(redis: RedisClient, trail: Trail) -> None:
    written(trail)
    anchor = trail.head()
    redis.delete(KEY, HEAD, *redis.keys(f"{KEY}:id:*"))
    trail.append_many([note(number, code="forged") for number in range(1, 12)])
    assert verified(trail).whole
    problem = only_problem(verified(trail, anchors=[anchor]))
    assert "record number 10 is not the one that the anchor names: the chain was written anew" in problem


def test_an_anchor_that_still_holds_and_one_beyond_the_end(trail: Trail) -> None:
    written(trail, 5)
    anchor = trail.head()
    trail.append(note(6))
    assert verified(trail, anchors=[anchor]).whole
    beyond = Link(9, anchor.position, anchor.hash)
    assert "ends before record number 9" in only_problem(verified(trail, anchors=[beyond]))


@pytest.mark.parametrize("text", ["", "5", "5/1-0", "5/1-0/xyz", f"a/1-0/{'0' * 40}", f"5/1/{'0' * 40}"])
def test_a_malformed_anchor_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="anchor"):
        chain.parse_anchor(text)


def test_an_anchor_reads_back() -> None:
    link = Link(5, "1764520000000-3", "ab" * 20)
    assert chain.parse_anchor(f" {link}\n") == link


def lines_of(trail: Trail) -> list[str]:
    return [chain.to_line(entry) for entry in trail.entries()]


def verified_lines(lines: list[str], **more: object) -> Report:
    verifier = Verifier(whole=False, **more)  # type: ignore[arg-type]
    chain.check_lines(lines, verifier)
    return verifier.end()


def test_an_exports_lines_are_the_records_bytes_and_verify_by_themselves(trail: Trail) -> None:
    trail.append(note(1, details={"text": "two\nlines  Ünïcode \x1b[31m 1.0 1e5", "n": [1.5, None]}))
    written(trail)
    lines = lines_of(trail)
    assert [json.loads(line)["number"] for line in lines] == list(range(1, 11))
    assert AuditRecord.model_validate_json(lines[0]) == next(trail.read())
    report = verified_lines(lines)
    assert (report.whole, report.head) == (True, trail.head())


def test_a_part_of_an_export_verifies_and_says_where_it_begins(trail: Trail) -> None:
    written(trail)
    report = verified_lines(lines_of(trail)[4:])
    assert report.whole
    assert report.notes == ["it begins at record number 5: of those before nothing is said"]


def swap(lines: list[str]) -> None:
    lines[4], lines[5] = lines[5], lines[4]


def alter(lines: list[str]) -> None:
    lines[4] = lines[4].replace("note 5", "note X")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (alter, "line 5 (position {4}): record number 5 was altered"),
        (lambda lines: lines.pop(4), "line 5 (position {5}): 1 record was removed, number 5"),
        (lambda lines: lines.insert(4, "no record"), "line 5: it is no line of an export"),
        (lambda lines: lines.insert(4, lines[4][:-30]), "line 5: it is no line of an export"),
        (lambda lines: lines.insert(4, lines[0]), "line 5 (position {0})"),
    ],
    ids=["altered", "removed", "no record", "cut short", "repeated"],
)
def test_harm_to_a_file_is_named_by_its_line(trail: Trail, harm: Callable[[list[str]], None], said: str) -> None:
    positions = written(trail)
    lines = lines_of(trail)
    harm(lines)
    problems = [str(each) for each in verified_lines(lines).problems]
    assert any(said.format(*positions) in each for each in problems), problems


def test_two_lines_that_changed_places_are_called_moved(trail: Trail) -> None:
    written(trail)
    lines = lines_of(trail)
    swap(lines)
    problems = [str(each) for each in verified_lines(lines).problems]
    assert any("line 6" in each and "record number 5 was moved" in each for each in problems), problems
    assert not any("removed" in each for each in problems)


def test_an_entry_that_is_no_record_is_exported_as_it_is(redis: RedisClient, trail: Trail) -> None:
    texts = ["no json", "{}", "[1]", '{"a":1}\n{"b":2}', '{"raw":"x"}', '{"open":', ""]
    for text in texts:
        redis.xadd(KEY, {"r": text})
    redis.xadd(KEY, {"other": "field"})
    lines = lines_of(trail)
    assert all(isinstance(json.loads(line), dict) and "\n" not in line for line in lines)
    back = [chain.from_line(line, 1) for line in lines]
    assert [each.text for each in back if each] == [*texts, None]


def test_a_seal_by_the_key_passes_and_one_by_another_does_not(trail: Trail) -> None:
    written(trail, 3)
    head = trail.head()
    signed = chain.details_of(head) | {"seal": chain.seal(b"k" * 16, head, "test")}
    trail.append(note(4, details=signed).model_copy(update={"code": chain.SEALED}))
    report = verified(trail, key=b"k" * 16)
    assert (report.whole, report.sealed) == (True, head)
    assert "its seal is not by this key" in only_problem(verified(trail, key=b"other key" * 2))
    assert verified(trail).notes == ["1 seals were not checked: set REMESH_SIGNING_KEY to the key that the watcher has"]


def test_who_writes_the_chain_anew_cannot_keep_its_seals(redis: RedisClient, trail: Trail) -> None:
    key = b"k" * 16
    written(trail, 3)
    head = trail.head()
    signed = chain.details_of(head) | {"seal": chain.seal(key, head, "test")}
    sealed = note(4, details=signed).model_copy(update={"code": chain.SEALED})
    trail.append(sealed)
    redis.delete(KEY, HEAD, *redis.keys(f"{KEY}:id:*"))
    trail.append_many([note(1), note(2, code="forged"), note(3), sealed])
    assert verified(trail).whole
    assert "it seals another record number 3" in only_problem(verified(trail, key=key))


@pytest.mark.parametrize(
    "details",
    [{}, {"number": True}, {"number": "3"}, {"number": 3, "position": [], "hash": {}}, {"number": 10**30}, {"seal": 1}],
)
@pytest.mark.parametrize("code", [chain.PRUNED, chain.SEALED, chain.LOST])
def test_odd_records_about_the_trail_are_no_crash(trail: Trail, code: str, details: dict[str, object]) -> None:
    trail.append(note(1, details=details).model_copy(update={"code": code}))
    assert verified(trail, key=b"k" * 16).wrong == 0
