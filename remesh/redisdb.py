"""The connection to Redis or Valkey: made here, checked here, and its errors translated here.

Used by `remesh.audit`, `remesh.ledger` and `remesh.queue`. Every command has a time-out, and no message carries a
password: errors name the server by `place()`.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from remesh import crash, sentinel
from remesh.errors import BrokerError, BrokerUnreachable, BrokerUnsafe, ConfigError, TrailUnavailable
from remesh.settings import Settings
from remesh.tls_parameters import check_tls, tls_parameters

RedisClient: TypeAlias = redis.Redis

CONNECT_SECONDS = 3.0
# A command that got no answer for so long never will: a frozen server or a half-open connection.
ANSWER_SECONDS = 5.0
# Together well under a second. Longer outages are for the caller, who knows what to do meanwhile.
RETRIES = 2
# After so long without traffic a PING goes first, so that a half-open connection is noticed.
HEALTH_CHECK_SECONDS = 10
# Celery's redelivery after a lost worker; leases must end earlier. See `remesh.queue`.
VISIBILITY_TIMEOUT_SECONDS = 300
# Clocks further apart than this make `since` and ages misleading.
CLOCK_SKEW_SECONDS = 5.0

SCHEMES = ("redis", "rediss", "unix", *sentinel.SCHEMES)
PARAMETERS = ("db", "username", "password")  # of a URL's query, besides those of TLS


def connect(settings: Settings) -> RedisClient:
    """Client for `settings.redis_url`. Connects at the first command; thread-safe; answers are `str`.

    Raises ConfigError if the URL cannot be right.
    """
    return connect_url(settings.redis_url.get_secret_value(), "REMESH_REDIS_URL")


def connect_url(url: str, variable: str = "REMESH_REDIS_URL") -> RedisClient:
    """Client for one URL; `variable` is the setting that an error names."""
    check_url(url, variable)
    options: dict[str, Any] = {
        "decode_responses": True,
        "encoding_errors": "backslashreplace",  # somebody else's bytes in our keys are shown, not a crash
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry": Retry(ExponentialBackoff(cap=0.4, base=0.05), RETRIES),
        "client_name": "remesh",
    }
    if sentinel.is_sentinel(url):
        behind = sentinel.parse(url, variable)
        check_tls(behind.tls or {}, variable)
        return crash.on_redis(sentinel.client(behind, options))
    if url.startswith("rediss://"):
        check_tls(tls_parameters(dict(parse_qsl(urlsplit(url).query)), variable), variable)
    return crash.on_redis(redis.Redis.from_url(url, **options))


def check_url(url: str, variable: str) -> None:
    """Raise ConfigError naming `variable` if `url` is no Redis URL. The URL is not printed: it may hold a secret."""
    example = "such as redis://:password@host:6379/0, rediss://…, sentinel://… or unix:///path/to/redis.sock"
    if sentinel.is_sentinel(url):
        sentinel.parse(url, variable)
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{variable}: port is not a number from 0 to 65535; give a URL {example}") from error
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"{variable}: scheme {parts.scheme[:20]!r} is not known; give a URL {example}")
    check_parameters(parts, variable)
    if parts.scheme == "unix":
        if not parts.path or parts.path == "/":
            raise ConfigError(f"{variable}: no socket path; give a URL {example}")
        return
    if not parts.hostname or port == 0:
        raise ConfigError(f"{variable}: no host; give a URL {example}")
    if parts.path.strip("/") and not _is_number(parts.path.strip("/")):
        raise ConfigError(f"{variable}: database must be a number; give a URL {example}")


def check_parameters(parts: SplitResult, variable: str) -> None:
    """Raise ConfigError for a parameter in the URL's query that is not known, or not possible.

    redis-py and Celery know some more, but not the same ones, and time-outs are remesh's to set: see `connect_url`.
    """
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key.startswith("ssl_"):
            if parts.scheme != "rediss":
                raise ConfigError(f"{variable}: ssl_ parameters mean nothing without TLS; give rediss://…")
        elif key not in PARAMETERS:
            known = ", ".join((*PARAMETERS, *(("ssl_…",) if parts.scheme == "rediss" else ())))
            raise ConfigError(f"{variable}: parameter {key[:30]!r} is not known; known are {known}")
        elif key == "db" and not _is_number(value):
            raise ConfigError(f"{variable}: parameter 'db' must be a number, and is {value[:20]!r}")
    if parts.scheme == "rediss":
        tls_parameters(dict(parse_qsl(parts.query)), variable)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def place(client: RedisClient) -> str:
    """`host:port/db` or the socket's path, for messages. Never a user or a password."""
    pool = client.connection_pool
    known = pool.connection_kwargs
    db = known.get("db") or 0
    where = str(known["path"]) if "path" in known else f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    if isinstance(pool, SentinelConnectionPool):
        where = f"the primary {pool.service_name!r} behind Sentinel"
    return f"Redis at {where}" + (f", database {db}" if db else "")


def place_of(url: str) -> str:
    """The same for a URL, without connecting."""
    if sentinel.is_sentinel(url):
        return sentinel.parse(url, "REMESH_REDIS_URL").place
    parts = urlsplit(url)
    if not parts.hostname:
        return f"Redis at {unquote(parts.path)}"
    return f"Redis at {parts.hostname}:{parts.port or 6379}"


def translated(client: RedisClient, what: str) -> AbstractContextManager[None]:
    """Turn redis-py's errors into ours; `what` says what could not be done, such as "cannot take the lease of …".

    Raises BrokerUnreachable if there was no answer, and BrokerError if the server said no.
    """
    return _translated(client, what, lost=BrokerUnreachable, refused=BrokerError)


def trail_translated(client: RedisClient, what: str) -> AbstractContextManager[None]:
    """The same for the audit trail: whatever goes wrong is TrailUnavailable."""
    return _translated(client, what, lost=TrailUnavailable, refused=TrailUnavailable)


@contextmanager
def _translated(
    client: RedisClient, what: str, *, lost: type[BrokerError], refused: type[BrokerError]
) -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        kind = lost if _no_answer(error) else refused
        raise kind(f"{what}: {place(client)}: {problem(error, _password(client))}") from error


def problem(error: Exception, secret: str = "") -> str:
    """What is wrong and what to do, in one line. `secret` is blotted out, should a server repeat it."""
    text = str(error).split("\n", 1)[0]
    for code, kind, line in _REFUSALS:
        if (kind and isinstance(error, kind)) or (code and code in text):
            return line
    if isinstance(error, redis.TimeoutError) or "timed out" in text.lower():
        return f"no answer within {ANSWER_SECONDS:.0f} s"
    if secret:
        text = text.replace(secret, "***")
    return _reason(error) or text[:300]


# (Code or words of the error reply, redis-py class for it, our line.) Where redis-py has a class, it cuts the
# code off; a reply from inside a script carries the code in its text.
_REFUSALS: tuple[tuple[str, type[Exception] | None, str], ...] = (
    (
        "OOM command not allowed",
        redis.OutOfMemoryError,
        "Redis is full (maxmemory, noeviction): raise maxmemory, or export and trim the audit trail",
    ),
    ("READONLY", redis.ReadOnlyError, "it is a read-only replica: point the URL at the primary"),
    ("WRONGPASS", None, "wrong user name or password: correct the URL"),
    ("invalid username-password", None, "wrong user name or password: correct the URL"),
    ("invalid password", None, "wrong password: correct the URL"),
    ("Authentication required", None, "it wants a password: put it into the URL"),
    ("HELLO must be called with the client already authenticated", None, "it wants a password: put it into the URL"),
    ("NOAUTH", None, "it wants a password: put it into the URL"),
    ("", redis.exceptions.NoPermissionError, "the Redis user lacks a right: allow it all commands on remesh's keys"),
    ("NOPERM", None, "the Redis user lacks a right: allow it all commands on remesh's keys"),
    ("MISCONF", None, "it cannot write to its disk (MISCONF): free space there, or mend its persistence"),
    ("LOADING", redis.BusyLoadingError, "it is still loading its data: wait until it is done"),
    ("BUSY ", None, "it is busy with a script: wait, or end the script"),
    ("NOREPLICAS", None, "too few replicas are connected (min-replicas-to-write)"),
    ("MASTERDOWN", None, "it is a replica that lost its primary: point the URL at the primary"),
    ("DB index is out of range", None, "there is no database of that number: correct the URL"),
)


def _reason(error: BaseException) -> str:
    """The operating system's own word, such as "connection refused", from wherever in the chain it is."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.strerror:
            return link.strerror[0].lower() + link.strerror[1:]
        link = link.__cause__ or link.__context__
    return ""


def _no_answer(error: Exception) -> bool:
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return False
    return isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError))


def _password(client: RedisClient) -> str:
    return str(client.connection_pool.connection_kwargs.get("password") or "")


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """What a Redis says of itself, as far as it decides whether tasks and trail are safe in it."""

    place: str
    server: str  # "redis" or "valkey"
    version: str
    aof: bool
    aof_writable: bool  # the last write to the append-only file went well
    policy: str  # maxmemory-policy
    used_memory: int  # bytes
    max_memory: int  # bytes; 0: no limit
    clock_skew: float  # seconds by which the server's clock is ahead of ours

    @property
    def problems(self) -> tuple[str, ...]:
        """Why tasks or trail could be lost, each with its setting and its cure. Empty: safe."""
        found = []
        if not self.aof:
            found.append("appendonly is no, so a restart loses queued repairs and the trail: set `appendonly yes`")
        elif not self.aof_writable:
            found.append("the last write to the append-only file failed: free or mend its disk")
        if self.policy != "noeviction":
            found.append(f"maxmemory-policy is {self.policy}, so keys may vanish: set `maxmemory-policy noeviction`")
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be looked at, and stops nothing."""
        found = []
        if self.max_memory and self.used_memory > 0.9 * self.max_memory:
            used = 100 * self.used_memory // self.max_memory
            found.append(f"{used}% of maxmemory is used: raise it, or export and trim the audit trail")
        if abs(self.clock_skew) > CLOCK_SKEW_SECONDS:
            found.append(f"its clock differs from ours by {self.clock_skew:+.0f} s: run a time service on both")
        return tuple(found)


def server_time(client: RedisClient) -> datetime:
    """The server's own clock, aware UTC. Raises redis-py's errors: for use inside `translated`."""
    seconds, micros = client.time()
    return datetime.fromtimestamp(seconds + micros / 1e6, UTC)


def check_broker(client: RedisClient) -> BrokerReport:
    """Ask the server about itself. INFO and TIME are enough; no CONFIG right is needed.

    Raises BrokerUnreachable (also for a replica, and while it loads its data) or BrokerError.
    """
    with translated(client, "cannot check the broker"):
        info: dict[str, Any] = client.info("everything")
        before = time.time()
        seconds, micros = client.time()
        ours = (before + time.time()) / 2
    return report_of(info, place(client), clock_skew=seconds + micros / 1e6 - ours)


def report_of(info: dict[str, Any], where: str, clock_skew: float = 0.0) -> BrokerReport:
    """Judge the sections of INFO. Raises BrokerUnreachable if the server cannot be written to now."""
    if info.get("loading") == 1:
        raise BrokerUnreachable(f"{where}: it is still loading its data: wait until it is done")
    if info.get("role") in ("slave", "replica"):
        raise BrokerUnreachable(f"{where}: it is a read-only replica: point the URL at the primary")
    return BrokerReport(
        place=where,
        server=str(info.get("server_name") or "redis"),
        version=str(info.get("valkey_version") or info.get("redis_version", "")),
        aof=info.get("aof_enabled") == 1,
        aof_writable=info.get("aof_last_write_status", "ok") == "ok",
        policy=str(info.get("maxmemory_policy", "unknown")),
        used_memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clock_skew=clock_skew,
    )


def require_safe(report: BrokerReport, allow_unsafe: bool = False) -> tuple[str, ...]:
    """Refuse a server that could lose tasks or trail, unless overridden. Returns what was overridden, to be logged.

    Raises BrokerUnsafe naming settings, cures and the override.
    """
    if report.problems and not allow_unsafe:
        raise BrokerUnsafe(
            f"{report.place} is not safe: {'; '.join(report.problems)}; "
            "or start anyway with REMESH_ALLOW_UNSAFE_BROKER=true"
        )
    return report.problems


def key_base(prefix: str, cluster: str) -> str:
    """Beginning of every key of one cluster. The braces keep them in one slot of a Redis Cluster, for the scripts."""
    return f"{prefix}{{{cluster}}}:"
