"""Checks of Redis, the trail, the watchers, the workers and their metrics. Used by `remesh.cli.checks`."""

import http.client
from collections.abc import Iterator
from typing import Final

from remesh.brokers import Report, broker_report
from remesh.cli.checks import Check, fail, guarded, ok, skip, warn
from remesh.cli.session import Session
from remesh.cli.text import count, one_line
from remesh.errors import BrokerUnreachable, ConfigError, RemeshError
from remesh.presence import Presence, Role, WatcherSeen
from remesh.redisdb import CLOCK_SKEW_SECONDS, BrokerReport, check_broker

WORKER_SECONDS: Final = 1.5  # a worker that is up answers a ping within milliseconds
OTHER_MODE: Final = "what is asked for here follows this policy: give --policy or REMESH_POLICY the watcher's file"
METRICS_SECONDS: Final = 2.0


def broker(session: Session) -> list[Check]:
    """The first one says whether anything more can be asked."""
    try:
        report = check_broker(session.redis)
    except RemeshError as error:
        if isinstance(error, BrokerUnreachable) and not session.names_redis:
            hint = "for one that stays, start it with AOF and noeviction, and set REMESH_REDIS_URL"
            return [warn("broker-access", "none yet; `remesh run` brings its own", hint=hint)]
        hint = "correct it; a trail goes by its cluster's name" if isinstance(error, ConfigError) else ""
        return [fail("broker-access", str(error), hint=hint, exit_code=error.exit_code)]
    allowed = session.settings.allow_unsafe_broker
    found = [ok("broker-access", f"{report.place}: {report.server} {report.version}")]
    found += report_checks(report, allow_unsafe=allowed)
    if session.settings.broker != session.settings.redis_url.get_secret_value():
        found += guarded("task-broker", lambda: [_task_broker(broker_report(session.settings), allow_unsafe=allowed)])
    return [*found, *guarded("audit-trail", lambda: [_trail(session)])]


def _task_broker(report: Report, *, allow_unsafe: bool) -> Check:
    """The broker of the tasks, where it is another server than the trail's."""
    where = f"tasks through {report.place}: {report.server} {report.version}"
    if report.problems:
        return _safe("task-broker", f"{where}: {'; '.join(report.problems)}", where, allow_unsafe)
    return warn("task-broker", f"{where}: {report.warnings[0]}") if report.warnings else ok("task-broker", where)


def report_checks(report: BrokerReport, *, allow_unsafe: bool = False) -> Iterator[Check]:
    """Judge what a server says of itself."""
    yield _safe("broker-persistence", _persistence(report), "append-only file on, and written", allow_unsafe)
    yield _safe("broker-eviction", _eviction(report), "no key is ever evicted (noeviction)", allow_unsafe)
    yield _memory(report)
    if abs(report.clock_skew) > CLOCK_SKEW_SECONDS:
        yield warn("broker-clock", f"its clock differs from ours by {report.clock_skew:+.0f} s: ages are misleading")
    else:
        yield ok("broker-clock", f"its clock agrees with ours within {CLOCK_SKEW_SECONDS:g} s")


def _safe(check: str, problem: str, fine: str, allow_unsafe: bool) -> Check:
    if not problem:
        return ok(check, fine)
    if allow_unsafe:
        return warn(check, f"{problem}; allowed by REMESH_ALLOW_UNSAFE_BROKER")
    return fail(check, problem, exit_code=5)


def _persistence(report: BrokerReport) -> str:
    if not report.aof:
        return "appendonly is no, so a restart loses queued repairs and the trail: set `appendonly yes`"
    return "" if report.aof_writable else "the last write to the append-only file failed: free or mend its disk"


def _eviction(report: BrokerReport) -> str:
    if report.policy == "noeviction":
        return ""
    return f"maxmemory-policy is {report.policy}, so keys may vanish: set `maxmemory-policy noeviction`"


def _memory(report: BrokerReport) -> Check:
    if not report.max_memory:
        return ok("broker-memory", f"{report.used_memory >> 20} MiB used, without a limit")
    percent = 100 * report.used_memory // report.max_memory
    text = f"{percent}% of maxmemory ({report.max_memory >> 20} MiB) used"
    return warn("broker-memory", text) if percent > 90 else ok("broker-memory", text)


def _trail(session: Session) -> Check:
    trail = session.trail
    if lost := trail.lost():
        return warn("audit-trail", f"audit trail: records were lost: {lost}", hint="see `remesh audit verify`")
    return ok("audit-trail", f"audit trail: {count(trail.length(), 'record')}")


def parts(session: Session) -> Iterator[Check]:
    """Who is at work."""
    yield from guarded("watcher", lambda: watchers(_everybody(session), session.policy.mode.value))
    yield _workers(session)
    yield _metrics(session)


def _everybody(session: Session) -> list[WatcherSeen]:
    settings = session.settings
    return Presence(session.redis, settings.cluster, settings.key_prefix).everybody()


def watchers(seen: list[WatcherSeen], mode: str = "") -> Iterator[Check]:
    """Judge those that are alive: somebody leads each shard, knows the cluster, and does what `mode` here says."""
    if not seen:
        yield warn("watcher", "nobody is watching")
        return
    standing_by = sum(1 for each in seen if each.role is Role.STANDBY)
    more = f", {standing_by} of them on standby" if standing_by else ""
    alive = f"{count(len(seen), 'watcher')} alive, mode {seen[0].mode}, version {seen[0].version}{more}"
    if mode in ("", seen[0].mode):
        yield ok("watcher", alive)
    else:
        yield warn("watcher", f"{alive}; the policy read here says {mode}", hint=OTHER_MODE)
    yield _leader(seen)
    late = [each for each in seen if not each.synced]
    if late:
        yield warn("watcher-synced", f"{_who(late[0])} has not read the cluster yet")
    else:
        yield ok("watcher-synced", "every watcher has read the cluster")


def _leader(seen: list[WatcherSeen]) -> Check:
    shards = sorted({each.shard for each in seen})
    leaders = {each.shard: each for each in seen if each.role is Role.LEADER}
    missing = [shard for shard in shards if shard not in leaders]
    if missing:
        where = f" of shard {', '.join(missing)}" if missing != [""] else ""
        return warn("watcher-leader", f"no watcher{where} leads now, so nothing is released")
    known = ", ".join(filter(None, (_who(each) for each in leaders.values())))
    return ok("watcher-leader", f"leading: {known}")


def _who(seen: WatcherSeen) -> str:
    return (seen.identity or "the watcher") + (f" (shard {seen.shard})" if seen.shard else "")


def _workers(session: Session) -> Check:
    from kombu.exceptions import KombuError
    from redis.exceptions import RedisError

    try:
        answers = session.app.control.ping(timeout=WORKER_SECONDS)
    except (KombuError, RedisError, OSError, RuntimeError) as error:
        return fail("workers", f"no ping: {error}", exit_code=5)
    if not answers:
        return warn("workers", "no worker answers, so nothing is repaired")
    names = sorted(name for answer in answers for name in answer)
    return ok("workers", f"{count(len(names), 'worker')}: {', '.join(names)}")


def _metrics(session: Session) -> Check:
    settings = session.settings
    if not settings.metrics_port:
        return skip("metrics", "metrics: off (REMESH_METRICS_PORT=0)")
    host = "127.0.0.1" if settings.metrics_host in ("0.0.0.0", "::", "") else settings.metrics_host  # noqa: S104
    where = f"http://{host}:{settings.metrics_port}/metrics"
    try:
        answer = _scraped(host, settings.metrics_port)
    except (OSError, http.client.HTTPException) as error:
        why = one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        return skip("metrics", f"metrics: not checked from here, {where} does not answer ({why.lower()})")
    if "remesh_" not in answer:
        return warn("metrics", f"{where} answers, and not with remesh's metrics: another program has the port")
    return ok("metrics", f"metrics at {where}")


def _scraped(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=METRICS_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(1 << 20).decode("utf-8", "replace")
    finally:
        connection.close()
