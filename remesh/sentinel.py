"""A Redis behind Sentinel: its URL, and a client that follows the primary.

    sentinel://[user:password@]host[:26379][,host…][/database]?master=NAME

User and password are the Redis server's; the sentinels' own are `sentinel_username` and `sentinel_password`. With
`sentinels://` both are reached over TLS, with the parameters `ssl_ca_certs`, `ssl_certfile` and so on of `rediss://`.
Used by `remesh.redisdb` and, for Celery's form of it, by `remesh.broker_urls`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.sentinel import Sentinel

from remesh.errors import ConfigError
from remesh.tls_parameters import tls_parameters

SCHEMES = ("sentinel", "sentinels")
PORT = 26379
SENTINEL_SECONDS = 1.0  # one that does not answer is passed over: there are others, who know as much
EXAMPLE = "such as sentinel://:password@host-a:26379,host-b:26379/0?master=mymaster"
_PARAMETERS = ("master", "sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """What such a URL says."""

    sentinels: tuple[tuple[str, int], ...]
    master: str
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: dict[str, Any] | None = None  # by redis-py's names; None: no TLS

    @property
    def place(self) -> str:
        """For messages."""
        hosts = ", ".join(f"{host}:{port}" for host, port in self.sentinels)
        return f"Redis {self.master!r} behind the sentinels {hosts}"

    @property
    def login(self) -> dict[str, str]:
        """User and password of the Redis server, by redis-py's names."""
        return _given(username=self.username, password=self.password)

    @property
    def sentinel_options(self) -> dict[str, Any]:
        """Parameters of the connections to the sentinels themselves, by redis-py's names."""
        login = _given(username=self.sentinel_username, password=self.sentinel_password)
        times = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS, "retry": None}
        return {**times, **login, **({"ssl": True, **self.tls} if self.tls is not None else {})}


def is_sentinel(url: str) -> bool:
    """True for a URL of this form."""
    return url.partition("://")[0] in SCHEMES


def parse(url: str, variable: str) -> SentinelUrl:
    """Read such a URL. `variable` is the setting that an error names. Raises ConfigError, without the URL in it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{variable}: a host is not possible; give a URL {EXAMPLE}") from error
    query = dict(parse_qsl(parts.query))
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    unknown = [key for key in query if key not in _PARAMETERS and not key.startswith("ssl_")]
    if unknown:
        raise ConfigError(f"{variable}: parameter {unknown[0][:30]!r} is not known; known are {', '.join(_PARAMETERS)}")
    if not query.get("master"):
        raise ConfigError(f"{variable}: no name of the primary; add ?master=NAME, {EXAMPLE}")
    return SentinelUrl(
        sentinels=tuple(_host(each, variable) for each in hosts.split(",")),
        master=query["master"],
        database=_database(parts, variable),
        username=unquote(username),
        password=unquote(password),
        sentinel_username=query.get("sentinel_username", ""),
        sentinel_password=query.get("sentinel_password", ""),
        tls=tls_parameters(query, variable) if parts.scheme == "sentinels" else _no_tls(query, variable),
    )


def client(url: SentinelUrl, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the primary, whoever it is just now. `options` are redis-py's, for either connection."""
    untyped: Any = Sentinel  # redis-py's own types end here
    sentinel = untyped(
        list(url.sentinels),
        sentinel_kwargs=url.sentinel_options,
        **{**options, **url.login, "db": url.database},
        **({"ssl": True, **url.tls} if url.tls is not None else {}),
    )
    found: redis.Redis = sentinel.master_for(url.master, redis_class=redis.Redis)
    return found


def _host(text: str, variable: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise ConfigError(f"{variable}: a port is not a number from 1 to 65535; give a URL {EXAMPLE}") from error
    if not host:
        raise ConfigError(f"{variable}: a sentinel without a host; give a URL {EXAMPLE}")
    return host, port


def _database(parts: SplitResult, variable: str) -> int:
    text = parts.path.strip("/") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{variable}: database must be a number; give a URL {EXAMPLE}")
    return int(text)


def _no_tls(query: Mapping[str, str], variable: str) -> dict[str, Any] | None:
    if any(key.startswith("ssl_") for key in query):
        raise ConfigError(f"{variable}: ssl_ parameters mean nothing without TLS; give sentinels://…")
    return None


def _given(**pairs: str) -> dict[str, str]:
    return {key: value for key, value in pairs.items() if value}
