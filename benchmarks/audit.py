"""How fast the audit trail takes records, beside SQLite doing the same: `python -m benchmarks.audit [RECORDS]`.

All in one run on one machine, so that the ratios mean something where the absolute figures do not. Every way writes
the same records, looks each record's id up first, and keeps the indexes by object and finding. Redis runs with AOF
everysec, as remesh asks for; SQLite in WAL mode with synchronous=NORMAL loses about as much when the power goes.
"""

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from remesh.audit import Trail, record_of_finding, to_json_line
from remesh.embedded import EmbeddedRedis
from remesh.models import Action, AuditRecord, FailureClass, Finding, ObjectRef, RecordType
from remesh.redisdb import connect_url

THREADS = 8
CHAIN = (RecordType.FINDING, RecordType.WAIT, RecordType.RELEASE, RecordType.INTENT, RecordType.OUTCOME)


def records(count: int) -> list[AuditRecord]:
    """Chains of five records, each about one ReplicaSet of one of a hundred Deployments."""
    return [_record(number // len(CHAIN), CHAIN[number % len(CHAIN)]) for number in range(count)]


def _record(number: int, kind: RecordType) -> AuditRecord:
    finding = Finding(
        id=f"f-{number:012x}",
        cluster="bench",
        ref=_ref("ReplicaSet", f"web-{number}"),
        owner=_ref("Deployment", f"web-{number % 100}"),
        mesh="istio",
        failure_class=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.NUDGE_OWNER,
        code="injector_ready",
        reason="The injector answers again and a dry run came back with the sidecar.",
        first_seen=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return record_of_finding(finding, kind, at=datetime.now(UTC), attempt=1, details={"probe_ms": 12.5, "missing": 3})


def _ref(kind: str, name: str) -> ObjectRef:
    return ObjectRef(api_version="apps/v1", kind=kind, namespace="shop", name=name, uid=f"0d9f7a1e-{name}")


def one_by_one(trail: Trail, written: Iterable[AuditRecord]) -> None:
    for record in written:
        trail.append(record)


def by_threads(trail: Trail, written: Sequence[AuditRecord]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(trail.append, written))


def pipelined(trail: Trail, written: Iterable[AuditRecord]) -> None:
    trail.append_many(written)


def into_sqlite(file: Path, written: Iterable[AuditRecord], batch: int) -> None:
    """The same promises: the first record of an id stays, and there are indexes by finding, object and owner."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript(
        """
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = NORMAL;
        CREATE TABLE trail (
            position INTEGER PRIMARY KEY, id TEXT UNIQUE, finding TEXT, object TEXT, owner TEXT, r TEXT
        );
        CREATE INDEX by_finding ON trail (finding);
        CREATE INDEX by_object ON trail (object);
        CREATE INDEX by_owner ON trail (owner);
        """
    )
    for number, record in enumerate(written):
        if number % batch == 0:
            connection.execute("BEGIN")
        connection.execute(
            "INSERT OR IGNORE INTO trail (id, finding, object, owner, r) VALUES (?, ?, ?, ?, ?)",
            (record.record_id, record.finding_id, str(record.ref), str(record.owner), to_json_line(record)),
        )
        if number % batch == batch - 1:
            connection.execute("COMMIT")
    if connection.in_transaction:
        connection.execute("COMMIT")
    connection.close()


def rate(work: Callable[[], object], count: int) -> float:
    """Records per second."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def main(count: int = 20_000) -> None:
    """Print one line per way: records a second, and how that compares to a single client."""
    written = records(count)
    few = written[: count // 4]
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis() as server, connect_url(server.url) as client:
        rates["Redis, one record at a time"] = rate(lambda: one_by_one(Trail(client, "one"), few), len(few))
        rates[f"Redis, {THREADS} threads"] = rate(lambda: by_threads(Trail(client, "threads"), few), len(few))
        rates["Redis, pipelined"] = rate(lambda: pipelined(Trail(client, "pipe"), written), count)
        rates["Redis, the same again"] = rate(lambda: pipelined(Trail(client, "pipe"), written), count)
        rates["SQLite WAL, one at a time"] = rate(lambda: into_sqlite(Path(folder, "one.db"), few, 1), len(few))
        rates["SQLite WAL, 1000 at a time"] = rate(lambda: into_sqlite(Path(folder, "many.db"), written, 1000), count)
        trail = Trail(client, "pipe")
        rates["Redis, read all"] = rate(lambda: sum(1 for _ in trail.read()), count)
        history = rate(lambda: [trail.history(f"f-{number:012x}") for number in range(200)], 200)
        size = _bytes_per_record(client, count)
    base = rates["Redis, one record at a time"]
    for name, value in rates.items():
        print(f"{name:30} {value:10,.0f} records/s {value / base:7.2f}")
    print(f"{'Redis, history of a finding':30} {history:10,.0f} histories/s of {len(CHAIN)} records")
    print(f"memory per record: {size['stream']:.0f} bytes in the stream, {size['all']:.0f} with indexes and ids")


def _bytes_per_record(client: object, count: int) -> dict[str, float]:
    from redis import Redis

    assert isinstance(client, Redis)
    keys = list(client.scan_iter("remesh:{pipe}:*", count=1000))
    sizes = {key: int(client.memory_usage(key) or 0) for key in keys}
    stream = sizes["remesh:{pipe}:trail"]
    return {"stream": stream / count, "all": sum(sizes.values()) / count}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
