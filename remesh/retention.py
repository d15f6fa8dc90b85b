"""Retention of the audit trail: what is older or more than wanted is exported, proven to be on the disk, then removed.

Called by `remesh audit prune`, and by the watcher where the policy says so. The order is what makes it safe:

1. the cut is chosen, and moved back so that no chain that is still open loses its beginning;
2. everything before it goes to a new file, which is synced to the disk and read back: every hash must fit;
3. a record in the trail says what is removed, where it is, and the hash from which the chain goes on;
4. only then is anything removed. Whatever ends the process before that has removed nothing.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from remesh import chain, logs
from remesh.audit import Trail, record
from remesh.chain import START, Entry, Link, Report, Verifier
from remesh.errors import UsageError
from remesh.models import AuditRecord, RecordType, Result
from remesh.redisdb import RedisClient, key_base, translated

log = logs.get("retention")

# Writers that were held up, and a watcher that compares the head every few seconds, need the newest records.
NEWEST_SECONDS = 60.0
# A chain without an end whose finding the ledger has forgotten, such as one of a watcher that was taken away. The
# ledger forgets its last traces of a finding, a quarantine, after as long.
ABANDONED_SECONDS = 30 * 24 * 3600.0
ENDINGS = frozenset(each.value for each in (Result.HEALED, Result.INJECTED, Result.ALREADY_HEALTHY, Result.OBSOLETE))

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """What would be removed: `count` records, up to and with the position `last`."""

    count: int = 0
    first: str = ""
    last: str = ""
    held_by: str = ""  # finding whose open chain keeps more from being removed
    held_at: str = ""  # position at which that chain begins


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


@dataclass(slots=True)
class _Chain:
    """A finding's records as far as they were read."""

    first: str
    before: int  # records of the trail before its first
    uid: str
    ended: bool = False


class Retention:
    """Prunes the trail of one cluster. Every method raises TrailUnavailable or BrokerError."""

    def __init__(self, redis: RedisClient, trail: Trail, cluster: str, prefix: str = "remesh:") -> None:
        self._redis = redis
        self._trail = trail
        self._cluster = cluster
        self._base = key_base(prefix, cluster)

    def cut(self, *, older_than: timedelta | None = None, keep: int | None = None) -> Cut:
        """What is older than a span, or more than `keep` records; with both, what is either. Nothing is changed.

        The last minute always stays, and so does an open chain with everything after its beginning.
        """
        bound = self._bound(older_than, keep)
        if not bound.count:
            return bound
        chains, positions = self._chains(bound)
        for name, begin in chains.items():  # in the order of their beginnings
            if self._is_open(name, begin):
                first = bound.first if begin.before else ""
                return Cut(begin.before, first, positions[begin.first], held_by=name, held_at=begin.first)
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

        Raises UsageError, with nothing removed, if the file is there, cannot be written, does not hold what it should,
        or shows that the chain is broken and not `although_broken`.
        """
        if not cut.count:
            return Pruned(cut)
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
                _follow(chains[name], fields)
            last = entry.position
        return chains, positions

    def _is_open(self, name: str, found: _Chain) -> bool:
        if found.ended:
            return False
        history = self._trail.history(name)
        if self._has_ended(found, history):
            return False
        young = timedelta(seconds=ABANDONED_SECONDS)
        if history and self._now() - _time_of(history[-1].position) < young:
            return True
        return self._is_known(name, found.uid)

    @staticmethod
    def _has_ended(found: _Chain, history: list[AuditRecord]) -> bool:
        for each in history:
            _follow(found, {"type": each.type.value, "details": each.details})
        return found.ended

    def _is_known(self, name: str, uid: str) -> bool:
        """True if the ledger still counts the finding as open, or owes its pod."""
        with translated(self._redis, "cannot ask the ledger for open findings"), self._redis.pipeline() as pipe:
            pipe.get(f"{self._base}finding:{uid}")
            pipe.hexists(f"{self._base}owed", uid)
            open_now, owed = pipe.execute()
        return open_now == name or bool(owed)

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
                    if number % 10_000 == 0:
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
            seconds, micros = self._redis.time()
        return datetime.fromtimestamp(seconds + micros / 1e6, UTC)


def _follow(found: _Chain, fields: dict[str, Any]) -> None:
    """A chain ends with an outcome after which nothing is left to do, and goes on if it is taken up again."""
    kind, details = fields.get("type"), fields.get("details")
    if kind == RecordType.OUTCOME.value:
        found.ended = isinstance(details, dict) and details.get("result") in ENDINGS
    elif kind in (RecordType.RELEASE.value, RecordType.INTENT.value):
        found.ended = False


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
