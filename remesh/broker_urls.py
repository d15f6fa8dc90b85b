"""remesh's URLs in the form that Celery and kombu take. Used by `remesh.queue` and `remesh.amqp`.

| ours | Celery's |
|---|---|
| `redis://`, `rediss://`, `unix://` | `redis://`, `rediss://`, `redis+socket://` |
| `sentinel://`, `sentinels://` | `sentinel://…;sentinel://…` and transport options |
| `amqp://`, `amqps://` | the same; RabbitMQ, as broker only |
"""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

from remesh import sentinel
from remesh.errors import ConfigError
from remesh.redisdb import check_url
from remesh.tls_parameters import check_tls, tls_parameters

AMQP_SCHEMES = ("amqp", "amqps")
AMQP_EXAMPLE = "such as amqp://user:password@host:5672/vhost, or amqps://…"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL as Celery understands it, and what does not fit into it."""

    url: str
    tls: dict[str, Any] | None
    options: dict[str, Any] = field(default_factory=dict)  # transport options

    @property
    def is_socket(self) -> bool:
        """True for a unix socket, which knows no keep-alive."""
        return self.url.startswith("redis+socket://")


def is_amqp(url: str) -> bool:
    """True if the URL names a RabbitMQ."""
    return url.partition("://")[0] in AMQP_SCHEMES


def endpoint(url: str, variable: str) -> Endpoint:
    """Turn one of our URLs into Celery's form. `variable` is the setting that an error names. Raises ConfigError."""
    if is_amqp(url):
        return _amqp(url, variable)
    if sentinel.is_sentinel(url):
        return _sentinel(sentinel.parse(url, variable))
    check_url(url, variable)
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Endpoint(_socket_url(parts), None)
    return Endpoint(_plain_url(parts), tls_parameters(_query(parts), variable) if parts.scheme == "rediss" else None)


def _query(parts: SplitResult) -> dict[str, str]:
    return dict(parse_qsl(parts.query))


def _plain_url(parts: SplitResult) -> str:
    """A URL without parameters, none of which Celery understands. As for redis-py, `db` goes before the path."""
    if not parts.query:
        return urlunsplit(parts)
    hosts = parts.netloc.rpartition("@")[2]
    path = f"/{_query(parts)['db']}" if "db" in _query(parts) else parts.path
    return urlunsplit(parts._replace(netloc=_login_of(parts) + hosts, path=path, query=""))


def _socket_url(parts: SplitResult) -> str:
    return f"redis+socket://{_login_of(parts)}{parts.path}?virtual_host={_query(parts).get('db', '0')}"


def _login_of(parts: SplitResult) -> str:
    query = _query(parts)
    user = unquote(parts.username or "") or query.get("username", "")
    secret = unquote(parts.password or "") or query.get("password", "")
    return _login(user, secret)


def _login(user: str, secret: str) -> str:
    return f"{quote(user, safe='')}:{quote(secret, safe='')}@" if user or secret else ""


def _sentinel(known: sentinel.SentinelUrl) -> Endpoint:
    login = _login(known.username, known.password)
    urls = [f"sentinel://{login}{host}:{port}/{known.database}" for host, port in known.sentinels]
    options = {"master_name": known.master, "sentinel_kwargs": known.sentinel_options}
    return Endpoint(";".join(urls), known.tls, options)


def _amqp(url: str, variable: str) -> Endpoint:
    if variable != "REMESH_BROKER_URL":
        raise ConfigError(f"{variable}: trail and ledger need a Redis; RabbitMQ goes into REMESH_BROKER_URL")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{variable}: port is not a number from 0 to 65535; give a URL {AMQP_EXAMPLE}") from error
    if not parts.hostname or port == 0:
        raise ConfigError(f"{variable}: no host; give a URL {AMQP_EXAMPLE}")
    bare, query = urlunsplit(parts._replace(query="")), _query(parts)
    unknown = next((key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if not key.startswith("ssl_")), "")
    if unknown:
        raise ConfigError(f"{variable}: parameter {unknown[:30]!r} is not known; known are those of TLS, ssl_…")
    if parts.scheme == "amqp":
        if any(key.startswith("ssl_") for key in query):
            raise ConfigError(f"{variable}: ssl_ parameters mean nothing without TLS; give amqps://…")
        return Endpoint(bare, None)
    return Endpoint(bare, _amqp_tls(tls_parameters(query, variable), parts.hostname, variable))


def _amqp_tls(found: dict[str, Any], host: str, variable: str) -> dict[str, Any]:
    """By the names of py-amqp, which checks the server's name only if it is told it."""
    check_tls(found, variable)
    tls = {key.removeprefix("ssl_"): value for key, value in found.items() if key != "ssl_check_hostname"}
    return tls if found.get("ssl_check_hostname") is False else {**tls, "server_hostname": host}
