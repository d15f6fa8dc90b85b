"""HTTP to one API server: a thread-safe pool of connections, time-outs on everything, errors translated.

`KubeClient` is shared by all threads of a process. Errors are those of `remesh.errors`, made in
`remesh.kube.failures`. Only a GET is ever repeated here; a write is the caller's to repeat, because only the
caller knows whether it may have happened.
"""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from urllib3 import exceptions as broken

from remesh import __version__, crash, tracing
from remesh.errors import ClusterError, ClusterUnreachable
from remesh.kube import bounded
from remesh.kube.clock import ClusterClock
from remesh.kube.config import Access, proxy_from_environment
from remesh.kube.decode import decode_json
from remesh.kube.failures import Answer, answer_error, connection_error

Params = Mapping[str, str | int]

CONNECT_SECONDS = 5.0
"""For TCP and TLS: an API server that takes longer is as good as gone."""
READ_SECONDS = 35.0
"""Without an answer; a second more than the API server gives its own writes (34 s)."""
WHOLE_SECONDS = 60.0
"""For an answer from the request to its last byte, watches apart: as long as the API server gives any of its own."""
GET_TRIES = 3
"""A kept-alive connection may be closed under a request by a load balancer or a restart; a GET is then repeated."""
CHUNK_BYTES = 1 << 16
LINE_BYTES = 64 << 20
"""Longest line of a watch. etcd takes 1.5 MB an object, so a longer one is not the API server's."""

USER_AGENT = f"remesh/{__version__}"
STATUS = "http.response.status_code"  # as OpenTelemetry's conventions name it
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

# A peer that vanished without a word is noticed in a minute, even where no bookmark is due.
_KEEPALIVE: list[tuple[int, int, int]] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]


class Silent(ClusterUnreachable):
    """An open stream on which nothing came for the time that the caller set."""


class KubeClient:
    """One API server, for any number of threads.

    Every method raises ClusterError's children: ClusterUnreachable, Unauthorized, Forbidden, NotFound, Conflict,
    Gone, Throttled, Rejected.
    """

    def __init__(self, access: Access, *, connections: int = 64) -> None:
        self.access = access
        self._base = access.server.rstrip("/")
        self._pool = _pool(access, connections)
        self.clock = ClusterClock()
        """The API server's, as its answers tell it."""

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = JSON,
        timeout: float = READ_SECONDS,
        gzip: bool = False,
        accept: str = JSON,
        impersonate: str = "",
    ) -> bytes:
        """Body of the answer. `timeout` is in seconds, between any two bytes of the answer.

        The whole of it may take twice that, and WHOLE_SECONDS at most. `accept` are the media types that the caller
        understands; an error may come in any of them.
        `impersonate` is the user in whose name it is asked; the caller needs the right to impersonate that user.
        """
        headers = {"Accept": accept, "User-Agent": USER_AGENT}
        if impersonate:
            headers["Impersonate-User"] = impersonate
        if body is not None:
            headers["Content-Type"] = content_type
        if gzip:
            headers["Accept-Encoding"] = "gzip"
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        asked = _Asked(method, path, params, timeout, headers, data, tries=GET_TRIES if method == "GET" else 1)
        with tracing.inner(method, {"http.request.method": method, "url.path": path}, kind="client") as span:
            try:
                answer = self._ask(asked) if method == "GET" else self._write(asked)
            except ClusterError as error:
                span.set({STATUS: error.status})
                raise
            span.set({STATUS: answer.status})
        return answer.data

    def get(self, path: str, params: Params | None = None, *, timeout: float = READ_SECONDS) -> dict[str, Any]:
        """Answer to a GET, as plain JSON."""
        return decode_json(self.request("GET", path, params=params, timeout=timeout))

    def version(self) -> str:
        """The API server's version, such as "v1.36.3"."""
        return str(self.get("/version").get("gitVersion", ""))

    def date(self) -> datetime | None:
        """The API server's clock, to the second, by its answer's `Date` header; None if it sends none."""
        answer = self._ask(_Asked("GET", "/version", None, READ_SECONDS, {"Accept": JSON, "User-Agent": USER_AGENT}))
        try:
            return parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return None

    def stream(self, path: str, *, params: Params | None = None, silence: float) -> "Stream":
        """Open an endless answer, such as a watch. `silence` is how many seconds may pass in it without a byte.

        That it begins at all is waited for as long as for any answer.
        """
        headers = {"Accept": JSON, "User-Agent": USER_AGENT}
        answer = self._ask(_Asked("GET", path, params, READ_SECONDS, headers, whole=False))
        return Stream(answer, self._base, silence)

    def close(self) -> None:
        """Give up all idle connections."""
        self._pool.clear()

    def _write(self, asked: "_Asked") -> urllib3.BaseHTTPResponse:
        if (asked.params or {}).get("dryRun"):  # stores nothing
            return self._ask(asked)
        with crash.around(crash.kube_point(asked.method, asked.path)):
            return self._ask(asked)

    def _ask(self, asked: "_Asked") -> urllib3.BaseHTTPResponse:
        answer = self._send(asked)
        if answer.status == 401 and self.access.auth.renew():
            answer.drain_conn()  # refused before anything was done, so even a write may be sent again
            answer = self._send(asked)
        if answer.status >= 300:
            raise self._refusal(answer, asked)
        return answer

    def _send(self, asked: "_Asked") -> urllib3.BaseHTTPResponse:
        with bounded.answers(asked.seconds) as end:
            for left in reversed(range(asked.tries)):
                try:
                    return self._send_once(asked, end)
                except broken.ProtocolError as error:
                    if not left:
                        raise self._broken(error, asked) from error
                except broken.HTTPError as error:
                    raise self._broken(error, asked) from error
        raise AssertionError("the last try returns or raises")

    def _broken(self, error: Exception, asked: "_Asked") -> ClusterError:
        if bounded.is_too_slow(error):
            return ClusterUnreachable(
                f"the API server at {self._base} answers too slowly: its answer was not whole after "
                f"{asked.seconds:g} s; check network, proxy and its load"
            )
        return connection_error(self._base, error, asked.timeout)

    def _send_once(self, asked: "_Asked", end: bounded.End) -> urllib3.BaseHTTPResponse:
        sent = time.monotonic()
        answer = self._pool.request(
            asked.method,
            self._base + asked.path + (f"?{urlencode(asked.params)}" if asked.params else ""),
            body=asked.body,
            headers={**asked.headers, **self.access.headers()},
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, asked.timeout), read=asked.timeout),
            preload_content=asked.whole,
            retries=False,
            redirect=False,
        )
        self.clock.hear(answer.headers.get("Date"), sent)
        if not asked.whole and answer.status < 300:
            end.lift()
        return answer

    def _refusal(self, answer: urllib3.BaseHTTPResponse, asked: "_Asked") -> ClusterError:
        try:
            body = answer.data
        except broken.HTTPError as error:
            return self._broken(error, asked)
        finally:
            answer.release_conn()
        what, wait = f"{asked.method} {asked.path}", answer.headers.get("Retry-After")
        return answer_error(Answer(self._base, self.access.context, what, answer.status, body, wait))


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, ready to be sent (again)."""

    method: str
    path: str
    params: Params | None
    timeout: float
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    tries: int = 1
    whole: bool = True  # False: the answer is endless

    @property
    def seconds(self) -> float:
        """For all of the answer; of an endless one, for its head."""
        return min(WHOLE_SECONDS, 2 * self.timeout)


class Stream(AbstractContextManager["Stream"]):
    """The lines of an endless answer. `lines` for one thread; `abort` may come from any other."""

    def __init__(self, answer: urllib3.BaseHTTPResponse, server: str, silence: float) -> None:
        self._answer = answer
        self._server = server
        self._silence = silence
        self._socket = _plain_socket(answer.connection)
        outer = getattr(answer.connection, "sock", None)
        if outer is not None:
            outer.settimeout(silence)
        self._aborted = False

    def lines(self) -> Iterator[bytes]:
        """Whole lines until the server ends the answer; what follows the last line break is dropped.

        Raises Silent if nothing comes for too long, ClusterUnreachable if the connection breaks.
        """
        rest = bytearray()
        while chunk := self._read():
            rest += chunk
            if b"\n" in chunk:
                *whole, tail = rest.split(b"\n")
                rest = bytearray(tail)
                yield from (bytes(line) for line in whole if line)
            elif len(rest) > LINE_BYTES:
                raise ClusterUnreachable(f"{self._server} sent a line of over {LINE_BYTES} bytes; check for a proxy")

    def _read(self) -> bytes:
        try:
            return self._answer.read1(CHUNK_BYTES)
        except (broken.HTTPError, OSError, ValueError) as error:  # ValueError: closed by abort() meanwhile
            if self._aborted:
                return b""
            if isinstance(error, broken.ReadTimeoutError):
                raise Silent(f"nothing came from {self._server} for {self._silence:g} s") from error
            raise connection_error(self._server, error, self._silence) from error

    def abort(self) -> None:
        """End `lines` at once, from another thread."""
        self._aborted = True
        if self._socket is not None:
            with suppress(OSError):  # closed already
                # Not ssl's shutdown, which would take the TLS state away under the reading thread.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection: an endless answer cannot be given back to the pool."""
        self._answer.close()


def _plain_socket(connection: Any) -> socket.socket | None:
    """The kernel's socket below any TLS that runs inside TLS (an HTTPS proxy)."""
    found = getattr(connection, "sock", None)
    while found is not None and not isinstance(found, socket.socket):
        found = getattr(found, "socket", None)
    return found


def _pool(access: Access, connections: int) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "num_pools": 2,
        "maxsize": connections,
        "socket_options": [*urllib3.connection.HTTPConnection.default_socket_options, *_KEEPALIVE],
    }
    if access.tls is not None:
        options["ssl_context"] = access.tls
    if access.tls_server_name:
        options["server_hostname"] = access.tls_server_name
    proxy = access.proxy_url or proxy_from_environment(urlsplit(access.server))
    pool = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
    pool.pool_classes_by_scheme = bounded.POOLS
    return pool
