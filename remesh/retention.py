"""Retention of the audit trail: what is older or more than wanted is exported, proven to be on the disk, then removed.

Called by `remesh audit prune`, and by the watcher where the policy says so. The order is what makes it safe:

1. the cut is chosen, and moved back so that no repair that is begun, or waited for, loses its chain's beginning;
2. everything before it goes to a new file, which is synced to the disk and read back: every hash must fit;
3. a record in the trail says what is removed, where it is, and the hash from which the chain goes on;
4. only then is anything removed. Whatever ends the process before that has removed nothing.

Two at once would each write down what only one removes, so the second is refused.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from redis.exceptions import LockError, RedisError

from remesh import chain, logs
from remesh.audit import Trail, record
from remesh.chain import START, Entry, Link, Report, Verifier
from remesh.errors import UsageError
from remesh.models import Action, RecordType, Result
from remesh.redisdb import RedisClient, key_base, server_time, translated

log = logs.get("retention")

# Writers that were held up, and a watcher that compares the head every few seconds, need the newest records.
NEWEST_SECONDS = 60.0
# How long what is begun may hold the cut, counted from its intent: what is owed, and the manifest that it would be
# created from, are kept no longer.
BEGUN_SECONDS = 30 * 24 * 3600.0
# How long what waits for its repair may, counted from its first record: the ledger forgets an open finding after it.
WAITING_SECONDS = 7 * 24 * 3600.0
# After so long without a sign of life a pruning counts as dead. It gives one at every TOLD_EVERY records.
LOCK_SECONDS = 300.0
TOLD_EVERY = 10_000
# Nothing more is done about these: it is fine, it is gone, or it was reported.
RESTING = frozenset(
    each.value
    for each in (
        Result.HEALED,
        Result.INJECTED,
        Result.ALREADY_HEALTHY,
        Result.OBSOLETE,
        Result.REPORTED,
        Result.QUARANTINED,
    )
)
ONLY_REPORTED = frozenset(each.value for each in (Action.REPORT_ONLY, Action.NEVER_TOUCH, Action.NONE))

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """What would be removed: `count` records, up to and with the position `last`."""

    count: int = 0
    first: str = ""
    last: str = ""
    held_by: str = ""  # finding whose chain keeps more from being removed
    held_at: str = ""  # position at which that chain begins
    held_because: str = ""  # why it does


@dataclass(frozen=True, slots=True)
class Export:
    """A file that holds part of a trail, proven."""

    path: Path
    count: int
    size: int  # bytes
    sha256: str
    report: Report


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning did."""

    cut: Cut
    export: Export | None = None
    link: Link | None = None  # of the last record removed: the chain goes on from it
    position: str = ""  # of the record that says so


class _Standing(StrEnum):
    """What is to come of a finding."""

    RESTS = "rests"  # nothing: it ended, or is only reported
    WAITS = "waits"  # its repair
    BEGUN = "begun"  # the outcome of what was intended


@dataclass(slots=True)
class _Chain:
    """A finding's records as far as they were read."""

    first: str
    before: int  # records of the trail before its first
    uid: str
    standing: _Standing = _Standing.RESTS
    intent: str = ""  # position of the last intent
    recreates: bool = False  # True once a pod was to be taken away that remesh itself has to bring back


class Retention:
    """Prunes the trail of one cluster. Every method raises TrailUnavailable or BrokerError."""

    def __init__(self, redis: RedisClient, trail: Trail, cluster: str, prefix: str = "remesh:") -> None:
        self._redis = redis
        self._trail = trail
        self._cluster = cluster
        self._base = key_base(prefix, cluster)

    def cut(self, *, older_than: timedelta | None = None, keep: int | None = None) -> Cut:
        """What is older than a span, or more than `keep` records; with both, what is either. Nothing is changed.

        The last minute always stays, and so does, for a time, a chain whose repair is begun or waited for, with
        everything after its beginning.
        """
        bound = self._bound(older_than, keep)
        if not bound.count:
            return bound
        chains, positions = self._chains(bound)
        for name, begin in chains.items():  # in the order of their beginnings
            because = self._held_because(name, begin)
            if because:
                first = bound.first if begin.before else ""
                return Cut(begin.before, first, positions[begin.first], name, begin.first, because)
        return bound

    def prune(
        self,
        cut: Cut,
        file: Path,
        *,
        actor: str,
        although_broken: bool = False,
        progress: Progress = lambda _: None,
    ) -> Pruned:
        """Export what the cut names to a new file, write it down, remove it.

        Raises UsageError, with nothing removed, if another prune is running or was faster, if the file is there, cannot
        be written, does not hold what it should, or shows that the chain is broken and not `although_broken`.
        """
        if not cut.count:
            return Pruned(cut)
        with self._alone(progress) as alive:
            self._refuse_stale(cut)
            return self._prune(cut, file, actor, although_broken, alive)

    def _prune(self, cut: Cut, file: Path, actor: str, although_broken: bool, progress: Progress) -> Pruned:
        export = self._export(cut, file, progress)
        if export.report.wrong and not although_broken:
            raise UsageError(
                f"the chain is broken in what would be removed ({export.report.problems[0]}); nothing was removed, and "
                f"{file} holds it: look into it, then prune with --although-broken into another file"
            )
        link = export.report.head or START
        position = self._write_down(cut, export, link, actor)
        ms, sequence = chain.order(cut.last)
        self._trail.trim_before(f"{ms}-{sequence + 1}")
        log.info("trail pruned", records=cut.count, last=cut.last, export=str(file), head=str(link))
        return Pruned(cut, export, link, position)

    @contextmanager
    def _alone(self, progress: Progress) -> Iterator[Progress]:
        """Keep others from pruning this trail. What is given is `progress`, which keeps the lock alive, too."""
        key = f"{self._base}pruning"
        lock = self._redis.lock(key, timeout=LOCK_SECONDS, blocking=False, thread_local=False)
        with translated(self._redis, "cannot keep others from pruning the trail"):
            if not lock.acquire():
                left = max(1, self._redis.pttl(key) // 1000)
                raise UsageError(
                    "another prune is running on this trail; nothing was removed; wait for its end "
                    f"(one that was killed counts as gone in {left} s)"
                )

        def alive(done: int) -> None:
            with translated(self._redis, "cannot keep others from pruning the trail"):
                lock.reacquire()
            progress(done)

        try:
            yield alive
        finally:
            with suppress(LockError, RedisError):  # gone already, or it goes by itself
                lock.release()

    def _refuse_stale(self, cut: Cut) -> None:
        """A cut that was chosen before another prune ended."""
        first = next(self._trail.entries(), None)
        if first is None or first.position != cut.first:
            raise UsageError("another prune has just removed records from this trail; nothing was removed; try again")

    def _bound(self, older_than: timedelta | None, keep: int | None) -> Cut:
        """The cut by age and number alone."""
        now = self._now()
        newest = now - timedelta(seconds=NEWEST_SECONDS)
        more = max(0, self._trail.length() - keep) if keep is not None else 0
        count, first, last = 0, "", ""
        for entry in self._before(newest):
            old = older_than is not None and _time_of(entry.position) < now - older_than
            if not old and count >= more:
                break
            count, first, last = count + 1, first or entry.position, entry.position
        return Cut(count, first, last)

    def _before(self, moment: datetime) -> Iterator[Entry]:
        ms = int(moment.timestamp() * 1000)
        return self._trail.entries(until=f"{ms - 1}-{2**63 - 1}")

    def _chains(self, bound: Cut) -> tuple[dict[str, _Chain], dict[str, str]]:
        """The findings of a part of the trail, and for each beginning the position before it."""
        chains: dict[str, _Chain] = {}
        positions: dict[str, str] = {}
        last = ""
        for number, entry in enumerate(self._trail.entries(until=bound.last)):
            fields = _fields(entry)
            name = fields.get("finding_id")
            if isinstance(name, str) and name:
                if name not in chains:
                    chains[name] = _Chain(entry.position, number, _uid(fields))
                    positions[entry.position] = last
                _follow(chains[name], fields, entry.position)
            last = entry.position
        return chains, positions

    def _held_because(self, name: str, found: _Chain) -> str:
        """Why a finding's chain must stay for now; empty if it need not."""
        if found.standing is _Standing.RESTS and not found.recreates:
            return ""
        whole = _Chain(found.first, found.before, found.uid)
        for each in self._trail.history(name):
            _follow(whole, each.model_dump(mode="json", include={"type", "action", "code", "details"}), each.position)
        waits, owed = self._asked(name, found.uid)
        recent = self._is_younger(whole.intent or found.first, BEGUN_SECONDS)
        if owed and recent:
            return "has to bring back a pod that was evicted"
        if whole.standing is _Standing.BEGUN and recent:
            return "has an intent without its outcome"
        if whole.standing is _Standing.WAITS and waits and self._is_younger(found.first, WAITING_SECONDS):
            return "waits for its repair"
        return ""

    def _is_younger(self, position: str, seconds: float) -> bool:
        return self._now() - _time_of(position) < timedelta(seconds=seconds)

    def _asked(self, name: str, uid: str) -> tuple[bool, bool]:
        """Whether the ledger counts the finding as open now, and whether it owes the pod."""
        with translated(self._redis, "cannot ask the ledger for open findings"), self._redis.pipeline() as pipe:
            pipe.get(f"{self._base}finding:{uid}")
            pipe.hexists(f"{self._base}owed", uid)
            open_now, owed = pipe.execute()
        return open_now == name, bool(owed)

    def _export(self, cut: Cut, file: Path, progress: Progress) -> Export:
        written = sha256()
        last = START
        try:
            with _created(file) as handle:
                for number, entry in enumerate(islice(self._trail.entries(until=cut.last), cut.count), 1):
                    line = f"{chain.to_line(entry)}\n".encode("utf-8", "backslashreplace")
                    handle.write(line)
                    written.update(line)
                    last = entry.link if entry.hash else last
                    if number % TOLD_EVERY == 0:
                        progress(number)
                handle.flush()
                os.fsync(handle.fileno())
            _sync_folder(file.parent)
            return self._proven(cut, file, written.hexdigest(), last)
        except OSError as error:
            raise UsageError(f"export {file}: {error.strerror or error}; nothing was removed") from error

    def _proven(self, cut: Cut, file: Path, expected: str, last: Link) -> Export:
        """Read the file back: the same bytes, as many records, and the chain of the trail."""
        read = sha256()
        verifier = Verifier(whole=False, cluster=self._cluster)
        with file.open("rb") as handle:
            for number, line in enumerate(handle, 1):
                read.update(line)
                chain.check_lines([line.decode("utf-8", "replace")], verifier, number)
        report = verifier.end()
        if read.hexdigest() != expected or report.count != cut.count or (report.head or START) != last:
            raise UsageError(f"export {file}: what was read back is not what was written; nothing was removed")
        return Export(file, report.count, file.stat().st_size, expected, report)

    def _write_down(self, cut: Cut, export: Export, link: Link, actor: str) -> str:
        details: dict[str, Any] = {
            **chain.details_of(link),
            "removed": cut.count,
            "first": cut.first,
            "last": cut.last,
            "export": str(export.path)[:1000],
            "sha256": export.sha256,
            "broken": export.report.wrong,
        }
        said = record(
            RecordType.NOTE,
            cluster=self._cluster,
            at=self._now(),
            record_id=f"trail:pruned:{cut.last}",
            actor=actor,
            code=chain.PRUNED,
            reason=f"{cut.count} records up to {cut.last} were exported to {export.path} and removed"[:500],
            details=details,
        )
        return self._trail.append(said)

    def _now(self) -> datetime:
        with translated(self._redis, "cannot ask for the time"):
            return server_time(self._redis)


def _follow(found: _Chain, fields: dict[str, Any], position: str) -> None:
    """What a chain's next record makes of it."""
    kind, details = fields.get("type"), fields.get("details")
    if kind == RecordType.INTENT.value:
        found.standing, found.intent = _Standing.BEGUN, position
        found.recreates = found.recreates or fields.get("code") == "recreate"
    elif kind == RecordType.OUTCOME.value:
        found.standing = _after(found.standing, details.get("result") if isinstance(details, dict) else None)
    elif found.standing is _Standing.BEGUN:
        return
    elif kind == RecordType.FINDING.value:
        reported = fields.get("action") in ONLY_REPORTED
        found.standing = _Standing.RESTS if reported else _Standing.WAITS
    elif kind in (RecordType.WAIT.value, RecordType.RELEASE.value):
        found.standing = _Standing.WAITS
    elif kind == RecordType.REFUSAL.value:
        found.standing = _Standing.RESTS


def _after(standing: _Standing, result: Any) -> _Standing:
    """An error of API server or Redis ends nothing; after a failure or a skip it is tried again."""
    if result in RESTING:
        return _Standing.RESTS
    return standing if result == Result.ERROR.value and standing is _Standing.BEGUN else _Standing.WAITS


def _fields(entry: Entry) -> dict[str, Any]:
    try:
        found = json.loads(entry.text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _uid(fields: dict[str, Any]) -> str:
    ref = fields.get("ref")
    return str(ref.get("uid", "")) if isinstance(ref, dict) else ""


def _time_of(position: str) -> datetime:
    return datetime.fromtimestamp(chain.order(position)[0] / 1000, UTC)


def _created(file: Path) -> Any:
    """A new file for its owner alone; what is there is never written over."""
    try:
        return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except FileExistsError as error:
        raise UsageError(f"export {file}: it is there already, and is not written over; name a new file") from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
