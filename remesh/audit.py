"""The audit trail: one Redis stream per cluster that only grows.

Watcher, workers and command line append; `remesh audit` reads. It guarantees:

- append-only: nothing here changes or deletes a record, except `trim_before`, for `remesh.retention` after an export;
- chained: each record carries the hash of the one before it, made in the same script (`remesh.chain`);
- a repeat is harmless: the first record of a `record_id` stays, and its position is returned again;
- all or nothing: stream, indexes and memory of ids change in one script, so a reader never sees half a record;
- order is the server's: positions are stream ids that the server gives, so clocks of writers do not matter;
- it fails closed: whatever goes wrong is TrailUnavailable, and the caller then touches nothing.

Keys, all beginning with `{prefix}{{cluster}}:`

    trail              the stream; per entry `r`, the record as compact JSON, `n`, its number, and `h`, its hash
    trail:head         number, hash and position of the last record
    trail:lost         what the watcher last noticed to be gone, for 30 days
    trail:id:<id>      position of the record of that id
    trail:f:<finding>  index: positions of one finding's records
    trail:o:<object>   index: positions of one object's records and of what it owns, also through
                       a ReplicaSet or Job, by kind, namespace and name

An index is a sorted set (score: milliseconds, member: position). A stream would do as well, but an almost empty one
takes 4 KiB, because the server allocates a whole node at once; there are two or three of them per finding.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias
from uuid import uuid4

from pydantic import ValidationError

from remesh import logs
from remesh.audit_lua import APPEND
from remesh.chain import LOST, START, Entry, Link, details_of, digest, order
from remesh.errors import UsageError
from remesh.models import AuditRecord, Finding, ObjectRef, RecordType, RepairRequest, shortened
from remesh.redisdb import RedisClient, key_base, server_time, trail_translated

__all__ = [
    "Trail",
    "about",
    "check_position",
    "entry_of",
    "order",
    "record",
    "record_id",
    "record_of_finding",
    "record_of_request",
    "to_json_line",
]

# How long a record's id is remembered. Repeats come from redelivered tasks (minutes), from findings released again
# (minutes) and from watchers and brokers back after an outage (a long weekend). A later one costs a second line.
DEDUPE_SECONDS = 7 * 24 * 3600
LOST_SECONDS = 30 * 24 * 3600  # as long as the ledger remembers anything
PAGE = 500  # entries per read: about 300 kB
BATCH = 1000  # records per pipeline, so that memory stays small
CALL = 20  # records per script call: half the work per record, and the server is held for under a millisecond
# Below redisdb.ANSWER_SECONDS, or the client would take a quiet stream for a dead server.
LONGEST_BLOCK_SECONDS = 2.0

_Call: TypeAlias = tuple[list[str], list[str]]  # keys and arguments of the script

log = logs.get("audit")


class Trail:
    """The audit trail of one cluster. Thread-safe, as its client is."""

    def __init__(self, redis: RedisClient, cluster: str, prefix: str = "remesh:") -> None:
        self._redis = redis
        self._cluster = cluster
        self._key = key_base(prefix, cluster) + "trail"
        self._append = redis.register_script(APPEND)

    def append(self, record: AuditRecord) -> str:
        """Write one record and return its position; a known `record_id` returns the first one's position.

        On return the server has it in its append-only file's buffer, which is on disk within a second (everysec).
        Raises TrailUnavailable.
        """
        keys, args = self._call([record])
        with trail_translated(self._redis, _CANNOT_WRITE):
            return str(self._append(keys=keys, args=args)[0])

    def append_many(self, records: Iterable[AuditRecord]) -> list[str]:
        """Write many records in their order, a thousand per round trip; positions in the same order.

        Raises TrailUnavailable; an unknown part is then written, and calling it again completes the rest.
        """
        source = iter(records)
        first, second = (list(islice(source, BATCH)) for _ in range(2))
        if not second:
            return self._send(self._calls(first)) if first else []
        positions: list[str] = []
        with ThreadPoolExecutor(1, "trail") as sender:  # the server works on one batch while the next is encoded
            sent = sender.submit(self._send, self._calls(first))
            while second:
                calls = self._calls(second)
                positions += sent.result()
                sent = sender.submit(self._send, calls)
                second = list(islice(source, BATCH))
            return positions + sent.result()

    def _calls(self, batch: Sequence[AuditRecord]) -> list[_Call]:
        return [self._call(batch[first : first + CALL]) for first in range(0, len(batch), CALL)]

    def _send(self, calls: Sequence[_Call]) -> list[str]:
        with trail_translated(self._redis, _CANNOT_WRITE), self._redis.pipeline(transaction=False) as pipe:
            pipe.script_load(APPEND)  # in the same round trip: a restarted server knows no scripts
            for keys, args in calls:
                pipe.evalsha(self._append.sha, len(keys), *keys, *args)
            return [str(position) for positions in pipe.execute()[1:] for position in positions]

    def _call(self, records: Sequence[AuditRecord]) -> _Call:
        """Keys and arguments of the script for some records."""
        keys, args = [self._key, f"{self._key}:head"], [str(DEDUPE_SECONDS)]
        for record in records:
            indexes = self._indexes(record)
            keys += [f"{self._key}:id:{record.record_id}", *indexes]
            text = _encode(_bounded(record))
            args += [text, digest(text), str(len(indexes))]
        return keys, args

    def read(
        self,
        *,
        since: datetime | timedelta | None = None,
        after: str | None = None,
        ref: ObjectRef | None = None,
        finding_id: str | None = None,
        types: Collection[RecordType] | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditRecord]:
        """Records in the order in which they were written, page by page; filters add up.

        `since` is a point in time or a duration back from the server's now, by the time of writing; `after` is a
        position. `ref` finds what is about the object or about what it owns, also through a ReplicaSet or Job; a `uid`
        in it must fit, `api_version` does not matter. An entry that is no record comes as a NOTE with code
        `unreadable`. Raises TrailUnavailable, and UsageError for a malformed position.
        """
        start = self._start(since, after)
        found = self._indexed(start, ref, finding_id) if ref or finding_id else self._scan(start)
        wanted = (record for record in found if _fits(record, ref, finding_id, types))
        return islice(wanted, limit)

    def entries(
        self,
        after: str | None = None,
        *,
        until: str | None = None,
        since: datetime | timedelta | None = None,
    ) -> Iterator[Entry]:
        """Every entry as it is, with number and hash, in order; `until` is the last position, included.

        Raises TrailUnavailable, and UsageError for a malformed position.
        """
        if until is not None:
            check_position(until)
        for page in self._pages(self._start(since, after), until or "+"):
            yield from (entry_of(position, fields) for position, fields in page)

    def entry(self, position: str) -> Entry | None:
        """The entry at a position; None if there is none. Raises TrailUnavailable."""
        check_position(position)
        with trail_translated(self._redis, _CANNOT_READ):
            found: Any = self._redis.xrange(self._key, min=position, max=position)
        return entry_of(*found[0]) if found else None

    def head(self) -> Link:
        """How far the chain has come; `chain.START` if Redis knows of none. Raises TrailUnavailable."""
        with trail_translated(self._redis, _CANNOT_READ):
            row: Any = self._redis.hmget(f"{self._key}:head", "n", "p", "h")
        number, position, own = row
        return Link(int(number), position, own) if number and number.isdigit() and position and own else START

    def say_lost(self, reason: str, last: Link, at: datetime) -> None:
        """Write down that the trail up to `last` is not there any more, and keep it for `remesh status`, 30 days.

        Raises TrailUnavailable.
        """
        said = f"trail:lost:{last.number}:{last.hash}"
        lost = record(
            RecordType.NOTE,
            cluster=self._cluster,
            at=at,
            record_id=said,
            actor="watcher",
            code=LOST,
            reason=reason,
            details=details_of(last),
        )
        self.append(lost)
        with trail_translated(self._redis, _CANNOT_WRITE):
            self._redis.set(f"{self._key}:lost", f"{at.isoformat(timespec='seconds')} {reason}"[:1000], ex=LOST_SECONDS)

    def lost(self) -> str:
        """When and how records were lost in the last 30 days; empty if none were noticed. Raises TrailUnavailable."""
        with trail_translated(self._redis, _CANNOT_READ):
            return str(self._redis.get(f"{self._key}:lost") or "")

    def history(self, subject: ObjectRef | Finding | str) -> list[AuditRecord]:
        """All records about one object (ObjectRef) or one finding (the Finding or its id)."""
        if isinstance(subject, ObjectRef):
            return list(self.read(ref=subject))
        return list(self.read(finding_id=subject.id if isinstance(subject, Finding) else subject))

    def newest(self, count: int) -> list[AuditRecord]:
        """The last `count` records, oldest of them first."""
        with trail_translated(self._redis, _CANNOT_READ):
            entries: Any = self._redis.xrevrange(self._key, count=count)
        return [_decode(position, fields, self._cluster) for position, fields in reversed(entries)]

    def tail(self, after: str, block_seconds: float = 0.0) -> list[AuditRecord]:
        """Records after a position, waiting up to `block_seconds` for the first; empty if none came.

        Follow the trail by giving the last record's position next time. Raises TrailUnavailable.
        """
        check_position(after)
        left = block_seconds
        while True:
            block = min(left, LONGEST_BLOCK_SECONDS)
            with trail_translated(self._redis, _CANNOT_READ):
                answer: Any = self._redis.xread(
                    {self._key: after}, count=PAGE, block=max(1, int(block * 1000)) if block > 0 else None
                )
            left -= block
            if answer or left <= 0:
                entries = _only_stream(answer)
                return [_decode(position, fields, self._cluster) for position, fields in entries]

    def last_position(self) -> str:
        """Position of the newest record, `0-0` if there is none. Raises TrailUnavailable."""
        with trail_translated(self._redis, _CANNOT_READ):
            entries: Any = self._redis.xrevrange(self._key, count=1)
        return str(entries[0][0]) if entries else "0-0"

    def length(self) -> int:
        """Number of records. Raises TrailUnavailable."""
        with trail_translated(self._redis, _CANNOT_READ):
            return int(self._redis.xlen(self._key))

    def trim_before(self, position: str) -> int:
        """Drop all records before a position; returns how many. Only `remesh.retention` calls it, after its export.

        Raises TrailUnavailable; calling it again completes the rest.
        """
        check_position(position)
        for page in self._pages("-", f"({position}"):
            self._forget(page)
        with trail_translated(self._redis, "the audit trail cannot be trimmed"):
            return int(self._redis.xtrim(self._key, minid=position, approximate=False))

    def _forget(self, page: list[tuple[str, dict[str, str]]]) -> None:
        with (
            trail_translated(self._redis, "the audit trail cannot be trimmed"),
            self._redis.pipeline(transaction=False) as pipe,
        ):
            for position, fields in page:
                for key in self._indexes(_decode(position, fields, self._cluster)):
                    pipe.zrem(key, position)
            pipe.execute()

    def _indexes(self, record: AuditRecord) -> list[str]:
        keys = {self._object_key(ref) for ref in about(record)}
        if record.finding_id:
            keys.add(self._finding_key(record.finding_id))
        return sorted(keys)

    def _finding_key(self, finding_id: str) -> str:
        return f"{self._key}:f:{finding_id}"

    def _object_key(self, ref: ObjectRef) -> str:
        return f"{self._key}:o:{ref.kind.lower()}/{ref.namespace}/{ref.name}"

    def _start(self, since: datetime | timedelta | None, after: str | None) -> str:
        """Lower bound for XRANGE, the later of both."""
        if after is not None:
            check_position(after)
        if isinstance(since, timedelta):
            since = self.now() - since
        if since is None:
            return f"({after}" if after else "-"
        first = f"{max(0, int(since.timestamp() * 1000))}-0"
        if after and order(after) >= order(first):
            return f"({after}"
        return first

    def now(self) -> datetime:
        """The server's time, which positions are made of. Raises TrailUnavailable."""
        with trail_translated(self._redis, _CANNOT_READ):
            return server_time(self._redis)

    def _scan(self, start: str) -> Iterator[AuditRecord]:
        for page in self._pages(start, "+"):
            for position, fields in page:
                yield _decode(position, fields, self._cluster)

    def _pages(self, start: str, end: str) -> Iterator[list[tuple[str, dict[str, str]]]]:
        while True:
            with trail_translated(self._redis, _CANNOT_READ):
                page: Any = self._redis.xrange(self._key, min=start, max=end, count=PAGE)
            if page:
                yield page
            if len(page) < PAGE:
                return
            start = f"({page[-1][0]}"

    def _indexed(self, start: str, ref: ObjectRef | None, finding_id: str | None) -> Iterator[AuditRecord]:
        key = self._finding_key(finding_id) if finding_id else self._object_key(ref) if ref else ""
        lowest = "-inf" if start == "-" else start.lstrip("(").split("-")[0]
        with trail_translated(self._redis, _CANNOT_READ):
            found: Any = self._redis.zrange(key, lowest, "+inf", byscore=True)
        # Inside one millisecond the set orders by text, where 10 comes before 9.
        positions = [position for position in sorted(found, key=order) if _from(position, start)]
        for first in range(0, len(positions), PAGE):
            yield from self._fetch(positions[first : first + PAGE])

    def _fetch(self, positions: Sequence[str]) -> Iterator[AuditRecord]:
        with trail_translated(self._redis, _CANNOT_READ), self._redis.pipeline(transaction=False) as pipe:
            for position in positions:
                pipe.xrange(self._key, min=position, max=position)
            answers = pipe.execute()
        for entries in answers:
            for position, fields in entries:
                yield _decode(position, fields, self._cluster)


_CANNOT_WRITE = "the audit trail cannot be written"
_CANNOT_READ = "the audit trail cannot be read"


def record(kind: RecordType, *, cluster: str, at: datetime, record_id: str | None = None, **fields: Any) -> AuditRecord:
    """A record about no finding, such as a gate's change. Without `record_id` it gets a random one: never a repeat."""
    return AuditRecord(type=kind, cluster=cluster, at=at, record_id=record_id or uuid4().hex, **fields)


def record_of_finding(
    finding: Finding, kind: RecordType, *, at: datetime, attempt: int = 0, step: str = "", **fields: Any
) -> AuditRecord:
    """A record of a finding's chain. Object, owners, mesh, cause, code and reason are the finding's unless given."""
    known: dict[str, Any] = {
        "finding_id": finding.id,
        "ref": finding.ref,
        "owner": finding.owner,
        "above": finding.above,
        "mesh": finding.mesh,
        "cause": finding.failure_class.value,
        "action": finding.action.value,
        "code": finding.code,
        "reason": finding.reason,
    }
    name = record_id(finding.id, kind, attempt, step)
    return record(kind, cluster=finding.cluster, at=at, record_id=name, **(known | fields))


def record_of_request(
    request: RepairRequest, kind: RecordType, *, at: datetime, step: str = "", **fields: Any
) -> AuditRecord:
    """A record of a repair. Object, mesh, cause, actor, task and action are the request's unless given."""
    known: dict[str, Any] = {
        "finding_id": request.finding_id,
        "ref": request.ref,
        "mesh": request.mesh,
        "cause": request.cause.value,
        "actor": request.actor,
        "task_id": request.task_id,
        "action": request.action.value,
    }
    name = record_id(request.finding_id, kind, request.attempt, step)
    return record(kind, cluster=request.cluster, at=at, record_id=name, **(known | fields))


def record_id(finding_id: str, kind: RecordType, attempt: int, step: str = "") -> str:
    """The same for the same step of the same attempt, so that doing it twice is written down once."""
    return f"{finding_id}:{kind.value}:{attempt}" + (f":{step}" if step else "")


def to_json_line(record: AuditRecord) -> str:
    """One line of an export, without its line break. Fields at their defaults are left out; `version` never is."""
    return '{"version":%d,%s' % (record.version, record.model_dump_json(exclude_defaults=True)[1:])  # noqa: UP031


def check_position(position: str) -> None:
    """Raise UsageError unless `position` is a stream id, such as `1764520000000-0`."""
    if not re.fullmatch(r"\d{1,19}(-\d{1,19})?", position):
        raise UsageError(
            f"position {position[:40]!r} is not one of the trail: give it as printed, such as 1764520000000-0"
        )


def entry_of(position: str, fields: dict[str, str]) -> Entry:
    """An entry of the stream; number and hash count only if both can be ours."""
    number, own = fields.get("n", ""), fields.get("h", "")
    if not (re.fullmatch(r"[0-9]{1,18}", number) and re.fullmatch(r"[0-9a-f]{40}", own)):
        number, own = "0", ""
    return Entry(position, fields.get("r"), int(number), own)


def about(record: AuditRecord) -> list[ObjectRef]:
    """The objects that a record is found by: its own, the owner, and the owner's owner."""
    return [ref for ref in (record.ref, record.owner, record.above) if ref is not None]


def _from(position: str, start: str) -> bool:
    if start == "-":
        return True
    bound = order(start.lstrip("("))
    return order(position) > bound if start.startswith("(") else order(position) >= bound


def _fits(
    record: AuditRecord, ref: ObjectRef | None, finding_id: str | None, types: Collection[RecordType] | None
) -> bool:
    if types is not None and record.type not in types:
        return False
    if finding_id is not None and record.finding_id != finding_id:
        return False
    return ref is None or any(_is_about(candidate, ref) for candidate in about(record))


def _is_about(candidate: ObjectRef, ref: ObjectRef) -> bool:
    if ref.uid and candidate.uid != ref.uid:
        return False
    return (candidate.kind.lower(), candidate.namespace, candidate.name) == (ref.kind.lower(), ref.namespace, ref.name)


def _bounded(record: AuditRecord) -> AuditRecord:
    """The record with its texts cut: they may quote what somebody else wrote."""
    details = {key: shortened(each) if isinstance(each, str) else each for key, each in record.details.items()}
    return record.model_copy(update={"reason": shortened(record.reason), "details": details})


def _encode(record: AuditRecord) -> str:
    return to_json_line(record if not record.position else record.model_copy(update={"position": ""}))


def _decode(position: str, fields: dict[str, str], cluster: str) -> AuditRecord:
    try:
        record = AuditRecord.model_validate_json(fields["r"])
    except KeyError:
        return _unreadable(position, "it has no field r", cluster)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        return _unreadable(position, f"{key}: {first['msg']}" if key else first["msg"], cluster)
    return record.model_copy(update={"position": position})


def _unreadable(position: str, why: str, cluster: str) -> AuditRecord:
    """Stands for an entry that somebody else wrote, or a newer remesh: it is shown, and reading goes on."""
    log.warning("entry of the trail is no audit record", position=position, why=why)
    written = datetime.fromtimestamp(order(position)[0] / 1000, UTC)
    return AuditRecord(
        record_id=f"unreadable:{position}",
        type=RecordType.NOTE,
        at=written,
        cluster=cluster,
        code="unreadable",
        reason=f"entry {position} is no audit record of this version: {why}"[:500],
        position=position,
    )


def _only_stream(answer: Any) -> list[tuple[str, dict[str, str]]]:
    """Entries of XREAD's answer for one stream, which RESP2 gives as a list and RESP3 as a mapping."""
    if not answer:
        return []
    if isinstance(answer, dict):
        entries = next(iter(answer.values()))
        return entries[0] if entries and isinstance(entries[0], list) else entries
    return list(answer[0][1])
