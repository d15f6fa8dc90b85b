"""How fast the audit trail takes records, beside SQLite and Kubernetes Events doing the same.

`python -m benchmarks.audit [--records 20000] [--among 200000] [--no-events] [--json FILE]`

All in one run on one machine, so that the ratios mean something where the absolute figures do not. Every way writes
the same records, looks each record's id up first, and keeps the indexes by object and finding. Redis runs with AOF
everysec, as remesh asks for, and with AOF always; SQLite in WAL mode with synchronous=NORMAL and FULL loses about as
much, or as little, when the power goes. Events are created on a real API server (etcd without fsync, in its favour);
they vanish after an hour, and one object's are found by a field selector that reads all of the namespace's.

`--among` is the number of records among which one object's history is asked for.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import print_table, write
from benchmarks.served import percentile
from remesh.audit import Trail, record_of_finding, to_json_line
from remesh.embedded import EmbeddedRedis
from remesh.models import Action, AuditRecord, FailureClass, Finding, ObjectRef, RecordType
from remesh.redisdb import RedisClient, connect_url
from remesh.testbed import InjectorWear
from tests.cluster.build import unavailable_reason

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


def into_sqlite(file: Path, written: Iterable[AuditRecord], batch: int, synchronous: str = "NORMAL") -> None:
    """The same promises: the first record of an id stays, and there are indexes by finding, object and owner."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.executescript(
        """
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


def into_events(written: Sequence[AuditRecord]) -> dict[str, float]:
    """Records a second as Events, by as many threads; and the milliseconds that one object's Events take."""
    from contextlib import closing

    from tests.client import Client
    from tests.cluster import RealCluster

    bed = RealCluster.start(InjectorWear())
    try:
        with closing(Client(bed.kubeconfig)) as client:
            client.create_namespace({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench-events"}})
            bodies = [_event(number, record) for number, record in enumerate(written)]

            def post(body: dict[str, Any]) -> None:
                client.api.post("/api/v1/namespaces/bench-events/events", body)

            with ThreadPoolExecutor(THREADS) as pool:
                created = rate(lambda: list(pool.map(post, bodies)), len(bodies))
            ref = written[0].ref
            path = "/api/v1/namespaces/bench-events/events?fieldSelector=involvedObject.name=" + (
                ref.name if ref else ""
            )
            return {"rate": created, "history": 1000 / rate(lambda: [client.api.get(path) for _ in range(10)], 10)}
    finally:
        bed.stop()


def _event(number: int, record: AuditRecord) -> dict[str, Any]:
    at = record.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    ref = record.ref
    about = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid} if ref else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"bench-{number}", "namespace": "bench-events"},
        "involvedObject": {**about, "namespace": "bench-events"},
        "reason": record.type.value,
        "message": to_json_line(record)[:1000],
        "type": "Normal",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "bench"},
    }


def of_redis(client: RedisClient, written: list[AuditRecord]) -> dict[str, float]:
    """Records a second in each way, with AOF everysec and always."""
    few, rates = written[: len(written) // 4], {}
    for policy in ("everysec", "always"):
        client.config_set("appendfsync", policy)
        one, many, pipe = (Trail(client, f"{way}-{policy}") for way in ("one", "by", "pipe"))
        rates[f"Redis, AOF {policy}, one at a time"] = rate(partial(one_by_one, one, few), len(few))
        rates[f"… {policy}, {THREADS} threads"] = rate(partial(by_threads, many, few), len(few))
        rates[f"… {policy}, pipelined"] = rate(partial(pipelined, pipe, written), len(written))
    client.config_set("appendfsync", "everysec")
    rates["… the same records again"] = rate(lambda: pipelined(Trail(client, "pipe-everysec"), written), len(written))
    rates["… read all"] = rate(lambda: sum(1 for _ in Trail(client, "pipe-everysec").read()), len(written))
    return rates


def of_sqlite(folder: Path, written: list[AuditRecord]) -> dict[str, float]:
    """The same into SQLite."""
    few, rates = written[: len(written) // 4], {}
    for mode in ("NORMAL", "FULL"):
        one, many = folder / f"one-{mode}.db", folder / f"many-{mode}.db"
        rates[f"SQLite WAL {mode}, one at a time"] = rate(partial(into_sqlite, one, few, 1, mode), len(few))
        rates[f"… {mode}, 1000 at a time"] = rate(partial(into_sqlite, many, written, 1000, mode), len(written))
    return rates


def history_among(client: RedisClient, count: int) -> dict[str, float]:
    """Milliseconds for one object's and one finding's history among so many records."""
    trail = Trail(client, "among")
    for first in range(0, count, 50_000):
        trail.append_many(
            _record(n // len(CHAIN), CHAIN[n % len(CHAIN)]) for n in range(first, min(first + 50_000, count))
        )
    chains = range(0, count // len(CHAIN), max(1, count // len(CHAIN) // 200))
    found: dict[str, float] = {}
    for what, subject in (("object", lambda n: _ref("ReplicaSet", f"web-{n}")), ("finding", lambda n: f"f-{n:012x}")):
        times = []
        for number in chains:
            began = time.perf_counter()
            assert len(trail.history(subject(number))) == len(CHAIN)
            times.append((time.perf_counter() - began) * 1000)
        found |= {f"{what}_p50": percentile(times, 0.5), f"{what}_p99": percentile(times, 0.99)}
    return found


def main() -> None:
    """Print one line per way: records a second, and how that compares to the trail as it is shipped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--among", type=int, default=200_000)
    parser.add_argument("--no-events", action="store_true", help="without a real API server")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    written, events = records(options.records), {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis() as server, connect_url(server.url) as client:
        rates = of_redis(client, written) | of_sqlite(Path(folder), written)
        size = _bytes_per_record(client, options.records)
        among = history_among(client, options.among)
    if not options.no_events and unavailable_reason() is None:
        events = into_events(written[: min(2000, options.records)])
        rates[f"Kubernetes Events, {THREADS} threads"] = events["rate"]
    base = rates["Redis, AOF everysec, one at a time"]
    rows = [[name, f"{value / base:.2f}", f"{value:,.0f}"] for name, value in rates.items()]
    print_table(f"{options.records} records", ["way", "ratio", "records/s"], rows)
    print(f"bytes per record: {size['stream']:.0f} in the stream, {size['all']:.0f} with indexes and ids")
    for what in ("object", "finding"):
        took = f"p50 {among[f'{what}_p50']:.1f} ms, p99 {among[f'{what}_p99']:.1f} ms"
        print(f"history of one {what} ({len(CHAIN)} records) among {options.among:,}: {took}")
    if events:
        print(f"an object's Events among {min(2000, options.records)}: {events['history']:.1f} ms")
    figures = {"rates": rates, "bytes": size, "among": among, "events": events}
    write(options.json, "audit", figures, records=options.records, among=options.among)


def _bytes_per_record(client: RedisClient, count: int) -> dict[str, float]:
    keys = list(client.scan_iter("remesh:{pipe-everysec}:*", count=1000))
    sizes = {key: int(client.memory_usage(key) or 0) for key in keys}
    stream = sizes["remesh:{pipe-everysec}:trail"]
    return {"stream": stream / count, "all": sum(sizes.values()) / count}


if __name__ == "__main__":
    main()
