"""Retention: exported, proven, written down, then removed; never an open chain's beginning, never silently."""

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remesh import chain, retention
from remesh.audit import Trail, record, record_of_finding
from remesh.chain import Report, Verifier
from remesh.errors import TrailUnavailable, UsageError
from remesh.ledger import Ledger
from remesh.models import Action, AuditRecord, RecordType, Result
from remesh.redisdb import RedisClient
from remesh.retention import Retention
from tests.redis.conftest import AT, finding, replica_set, request_for

KEY = "remesh:{test}:trail"


@pytest.fixture(autouse=True)
def no_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last minute stays as a rule; a test's trail is younger than that."""
    monkeypatch.setattr(retention, "NEWEST_SECONDS", -60.0)


@pytest.fixture
def kept(redis: RedisClient, trail: Trail) -> Retention:
    return Retention(redis, trail, "test")


def note(number: int, **more: object) -> AuditRecord:
    return record(RecordType.NOTE, cluster="test", at=AT, record_id=f"n{number}", reason=f"note {number}", **more)


def written(trail: Trail, first: int = 1, count: int = 10) -> list[str]:
    return trail.append_many([note(number) for number in range(first, first + count)])


def verified(trail: Trail) -> Report:
    verifier = Verifier(head=trail.head(), cluster="test")
    for entry in trail.entries():
        verifier.take(entry)
    return verifier.end()


def verified_files(*files: Path) -> Report:
    verifier = Verifier(whole=False, cluster="test")
    for file in files:
        chain.check_lines(file.read_text().splitlines(), verifier)
    return verifier.end()


def ids(trail: Trail) -> list[str]:
    return [each.record_id for each in trail.read()]


def test_what_is_more_than_wanted_goes_to_a_file_and_the_chain_goes_on(
    trail: Trail, kept: Retention, folder: Path
) -> None:
    positions = written(trail)
    file = folder / "old.jsonl"
    pruned = kept.prune(kept.cut(keep=4), file, actor="alice@desk")
    assert (pruned.cut.count, pruned.cut.first, pruned.cut.last) == (6, positions[0], positions[5])
    assert ids(trail) == ["n7", "n8", "n9", "n10", f"trail:pruned:{positions[5]}"]
    report = verified(trail)
    assert report.whole, report.problems
    assert report.notes == [f"records up to number 6 ({positions[5]}) were exported and pruned"]
    said = list(trail.read())[-1]
    assert (said.actor, said.code) == ("alice@desk", chain.PRUNED)
    assert said.details["removed"] == 6
    assert said.details["export"] == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert verified_files(file).head == pruned.link


def test_pruning_again_and_again_leaves_files_that_follow_each_other(
    trail: Trail, kept: Retention, folder: Path
) -> None:
    files = [folder / f"{number}.jsonl" for number in range(3)]
    for number, file in enumerate(files):
        written(trail, 100 * number, 20)
        kept.prune(kept.cut(keep=5), file, actor="alice")
        assert verified(trail).whole
    report = verified_files(*files)
    assert (report.whole, report.notes) == (True, [])


def test_the_records_of_a_pruned_stretch_leave_no_index_behind(
    redis: RedisClient, trail: Trail, kept: Retention, folder: Path
) -> None:
    trail.append_many([note(number, ref=replica_set()) for number in range(10)])
    kept.prune(kept.cut(keep=2), folder / "old.jsonl", actor="alice")
    assert redis.zcard(f"{KEY}:o:replicaset/shop/web-5d8") == 2


def test_age_is_by_the_servers_clock(redis: RedisClient, trail: Trail, kept: Retention, folder: Path) -> None:
    redis.xadd(KEY, {"r": "{}"}, id="1000-0")
    written(trail, count=3)
    cut = kept.cut(older_than=timedelta(days=1))
    assert (cut.count, cut.last) == (1, "1000-0")
    kept.prune(cut, folder / "old.jsonl", actor="alice")
    assert verified(trail).whole
    assert kept.cut(older_than=timedelta(days=1)).count == 0


def test_with_both_bounds_what_breaks_either_goes(redis: RedisClient, trail: Trail, kept: Retention) -> None:
    redis.xadd(KEY, {"r": "{}"}, id="1000-0")
    written(trail)
    assert kept.cut(older_than=timedelta(days=1), keep=8).count == 3
    assert kept.cut(older_than=timedelta(days=1), keep=100).count == 1
    assert kept.cut().count == 0


def test_the_last_minute_always_stays(monkeypatch: pytest.MonkeyPatch, trail: Trail, kept: Retention) -> None:
    monkeypatch.setattr(retention, "NEWEST_SECONDS", 60.0)
    written(trail)
    assert kept.cut(keep=0).count == 0


def finding_chain(number: int, *ends: Result) -> Iterator[AuditRecord]:
    yield record_of_finding(finding(number), RecordType.FINDING, at=AT)
    for attempt, end in enumerate(ends):
        yield record_of_finding(finding(number), RecordType.INTENT, at=AT, attempt=attempt)
        details = {"result": end.value}
        yield record_of_finding(finding(number), RecordType.OUTCOME, at=AT, attempt=attempt, details=details)


WAITS = "waits for its repair"
BEGUN = "has an intent without its outcome"


@pytest.mark.parametrize(
    ("ends", "because"),
    [
        ((), WAITS),
        ((Result.FAILED,), WAITS),
        ((Result.SKIPPED,), WAITS),
        ((Result.ERROR,), BEGUN),
        ((Result.REPORTED,), ""),
        ((Result.QUARANTINED,), ""),
        ((Result.FAILED, Result.HEALED), ""),
        ((Result.OBSOLETE,), ""),
        ((Result.HEALED, Result.FAILED), WAITS),
    ],
)
def test_only_what_is_begun_or_waits_keeps_its_beginning_and_what_came_after(
    trail: Trail, kept: Retention, ledger: Ledger, ends: tuple[Result, ...], because: str
) -> None:
    ledger.open_finding("uid-1", "f-0001")
    written(trail, count=3)
    positions = trail.append_many(finding_chain(1, *ends))
    written(trail, 100, 5)
    cut = kept.cut(keep=1)
    if because:
        assert (cut.count, cut.held_by, cut.held_at, cut.held_because) == (3, "f-0001", positions[0], because)
    else:
        assert (cut.count, cut.held_by, cut.held_because) == (3 + len(positions) + 4, "", "")


@pytest.mark.parametrize("action", [Action.REPORT_ONLY, Action.NEVER_TOUCH])
def test_a_finding_that_is_only_reported_holds_nothing_back(
    trail: Trail, kept: Retention, ledger: Ledger, action: Action
) -> None:
    ledger.open_finding("uid-1", "f-0001")
    trail.append(record_of_finding(finding(1, action=action), RecordType.FINDING, at=AT))
    written(trail)
    assert (kept.cut(keep=1).count, kept.cut(keep=1).held_by) == (10, "")


def test_a_refused_finding_holds_nothing_back_until_it_is_released_again(
    trail: Trail, kept: Retention, ledger: Ledger
) -> None:
    ledger.open_finding("uid-1", "f-0001")
    for kind in (RecordType.FINDING, RecordType.WAIT, RecordType.REFUSAL):
        trail.append(record_of_finding(finding(1), kind, at=AT))
    written(trail)
    assert kept.cut(keep=1).held_by == ""
    trail.append(record_of_finding(finding(1), RecordType.RELEASE, at=AT))
    assert kept.cut(keep=0).held_because == WAITS


def test_an_intent_without_its_outcome_holds_even_if_the_ledger_has_forgotten(trail: Trail, kept: Retention) -> None:
    trail.append_many(list(finding_chain(1, Result.HEALED))[:2])
    trail.append(record_of_finding(finding(1), RecordType.REFUSAL, at=AT))
    written(trail)
    assert kept.cut(keep=1).held_because == BEGUN


def test_what_is_owed_holds_whatever_else_is_said_of_it(trail: Trail, kept: Retention, ledger: Ledger) -> None:
    trail.append(record_of_finding(finding(1), RecordType.FINDING, at=AT))
    trail.append(record_of_finding(finding(1), RecordType.INTENT, at=AT, code="recreate"))
    trail.append(record_of_finding(finding(1), RecordType.OUTCOME, at=AT, details={"result": "obsolete"}))
    written(trail)
    assert kept.cut(keep=1).held_by == ""
    ledger.owed.keep(request_for(1))
    assert kept.cut(keep=1).held_because == "has to bring back a pod that was evicted"


def test_a_chain_that_ended_after_the_cut_is_not_open(trail: Trail, kept: Retention) -> None:
    trail.append_many(finding_chain(1, Result.HEALED))
    assert kept.cut(keep=1).count == 2


def test_an_open_chain_at_the_very_beginning_keeps_everything(
    trail: Trail, kept: Retention, ledger: Ledger, folder: Path
) -> None:
    ledger.open_finding("uid-1", "f-0001")
    trail.append_many(finding_chain(1))
    written(trail)
    cut = kept.cut(keep=1)
    assert (cut.count, cut.held_by) == (0, "f-0001")
    assert kept.prune(cut, folder / "none.jsonl", actor="alice").export is None
    assert not (folder / "none.jsonl").exists()
    assert trail.length() == 11


def test_a_waiting_chain_holds_only_as_long_as_anybody_remembers_it(
    trail: Trail, kept: Retention, ledger: Ledger
) -> None:
    trail.append_many(finding_chain(1))
    written(trail)
    assert kept.cut(keep=1).count == 10
    ledger.open_finding("uid-1", "f-0001")
    assert kept.cut(keep=1).held_by == "f-0001"
    ledger.close_finding("uid-1", "f-0001")
    assert kept.cut(keep=1).held_by == ""
    ledger.owed.keep(request_for(1))
    assert kept.cut(keep=1).held_by == "f-0001"


def test_nothing_holds_the_cut_beyond_its_bound(
    monkeypatch: pytest.MonkeyPatch, trail: Trail, kept: Retention, ledger: Ledger
) -> None:
    for number, ends in ((1, ()), (2, (Result.ERROR,))):
        ledger.open_finding(f"uid-{number}", f"f-{number:04x}")
        ledger.owed.keep(request_for(number))
        trail.append_many(finding_chain(number, *ends))
    written(trail)
    assert kept.cut(keep=1).held_by == "f-0001"
    monkeypatch.setattr(retention, "BEGUN_SECONDS", -60.0)
    assert kept.cut(keep=1).held_because == WAITS
    monkeypatch.setattr(retention, "WAITING_SECONDS", -60.0)
    assert kept.cut(keep=1).held_by == ""


def test_a_file_that_is_there_is_not_written_over(trail: Trail, kept: Retention, folder: Path) -> None:
    written(trail)
    file = folder / "precious"
    file.write_text("mine")
    with pytest.raises(UsageError, match="is not written over"):
        kept.prune(kept.cut(keep=1), file, actor="alice")
    assert file.read_text() == "mine"
    assert trail.length() == 10


def test_a_folder_that_is_not_there_removes_nothing(trail: Trail, kept: Retention, folder: Path) -> None:
    written(trail)
    with pytest.raises(UsageError, match=r"no such file or directory|No such file or directory"):
        kept.prune(kept.cut(keep=1), folder / "none" / "old", actor="alice")
    assert trail.length() == 10


def test_a_disk_that_keeps_something_else_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, trail: Trail, kept: Retention, folder: Path
) -> None:
    written(trail)
    file = folder / "old.jsonl"
    sync = os.fsync

    def lose(handle: int) -> None:
        sync(handle)
        if file.exists() and file.stat().st_size > 100:
            os.truncate(file, 100)

    monkeypatch.setattr(os, "fsync", lose)
    with pytest.raises(UsageError, match="what was read back is not what was written; nothing was removed"):
        kept.prune(kept.cut(keep=1), file, actor="alice")
    assert trail.length() == 10


def test_a_full_disk_removes_nothing(
    monkeypatch: pytest.MonkeyPatch, trail: Trail, kept: Retention, folder: Path
) -> None:
    written(trail)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device; nothing was removed"):
        kept.prune(kept.cut(keep=1), folder / "old", actor="alice")
    assert trail.length() == 10


def test_a_broken_chain_is_evidence_and_stays_unless_a_person_insists(
    redis: RedisClient, trail: Trail, kept: Retention, folder: Path
) -> None:
    positions = written(trail)
    redis.xdel(KEY, positions[2])
    cut = kept.cut(keep=4)
    with pytest.raises(UsageError, match="the chain is broken in what would be removed"):
        kept.prune(cut, folder / "one", actor="alice")
    assert trail.length() == 9
    kept.prune(cut, folder / "two", actor="alice", although_broken=True)
    assert trail.length() == 5
    assert list(trail.read())[-1].details["broken"] == 1
    assert verified(trail).whole


def test_ended_before_the_removal_nothing_is_lost_and_the_next_pruning_completes_it(
    monkeypatch: pytest.MonkeyPatch, trail: Trail, kept: Retention, folder: Path
) -> None:
    positions = written(trail)

    def killed(position: str) -> int:
        raise TrailUnavailable("gone away")

    with monkeypatch.context() as patch:
        patch.setattr(trail, "trim_before", killed)
        with pytest.raises(TrailUnavailable):
            kept.prune(kept.cut(keep=4), folder / "one", actor="alice")
    assert trail.length() == 11
    assert verified(trail).whole
    kept.prune(kept.cut(keep=5), folder / "two", actor="alice")
    assert ids(trail)[0] == "n7"
    assert verified(trail).whole
    assert len([each for each in trail.read() if each.code == chain.PRUNED]) == 1
    assert positions[6] == next(trail.read()).position


def test_a_beginning_removed_without_a_pruning_is_not_excused_by_an_older_one(
    redis: RedisClient, trail: Trail, kept: Retention, folder: Path
) -> None:
    written(trail)
    kept.prune(kept.cut(keep=8), folder / "old", actor="alice")
    redis.xtrim(KEY, maxlen=6, approximate=False)
    assert "records were removed" in str(verified(trail).problems[0])


def test_a_pruning_that_names_another_hash_excuses_nothing(redis: RedisClient, trail: Trail) -> None:
    positions = written(trail)
    redis.xdel(KEY, *positions[:3])
    forged = {"number": 3, "position": positions[2], "hash": "0" * 40}
    trail.append(note(99, details=forged).model_copy(update={"code": chain.PRUNED}))
    assert verified(trail).wrong == 1


def test_times_are_aware() -> None:
    assert retention._time_of("1000-0") == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_while_one_prunes_another_is_refused_and_the_first_ends_well(
    redis: RedisClient, kept: Retention, trail: Trail, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TOLD_EVERY", 1)
    written(trail)
    other, refusals = Retention(redis, trail, "test"), []

    def meanwhile(_done: int) -> None:
        with pytest.raises(UsageError, match="another prune is running on this trail; nothing was removed") as refused:
            other.prune(other.cut(keep=4), folder / "two", actor="bob")
        refusals.append(str(refused.value))

    pruned = kept.prune(kept.cut(keep=4), folder / "one", actor="alice", progress=meanwhile)
    assert (pruned.cut.count, len(refusals)) == (6, 6)
    assert "one that was killed counts as gone in " in refusals[0]
    assert not (folder / "two").exists()
    assert verified(trail).wrong == 0
    assert redis.exists("remesh:{test}:pruning") == 0


def test_a_cut_that_another_prune_overtook_is_refused(kept: Retention, trail: Trail, folder: Path) -> None:
    written(trail)
    late = kept.cut(keep=4)
    kept.prune(kept.cut(keep=5), folder / "one", actor="alice")
    with pytest.raises(UsageError, match="another prune has just removed records"):
        kept.prune(late, folder / "two", actor="bob")
    assert not (folder / "two").exists()


def test_a_prune_that_failed_keeps_no_other_out(kept: Retention, trail: Trail, folder: Path) -> None:
    written(trail)
    with pytest.raises(UsageError):
        kept.prune(kept.cut(keep=4), folder / "none" / "old", actor="alice")
    assert kept.prune(kept.cut(keep=4), folder / "old", actor="alice").cut.count == 6
