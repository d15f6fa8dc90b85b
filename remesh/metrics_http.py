"""/metrics, /livez and /readyz over HTTP, for watcher and worker. Reads only, and asks nobody who it is.

A port that cannot be had costs one warning and not the process: repairs matter more than being counted. For the same
reason no client costs more than a connection of few seconds and few bytes, and all of them no more than a few threads.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from remesh import logs
from remesh.metrics import Metrics

log = logs.get("metrics")

Check = Callable[[], str | None]
"""What is wrong, in one line, or None."""

CLIENT_SECONDS: Final = 5.0  # from being accepted to having the whole answer; whoever is slower is let go
CONNECTIONS: Final = 32  # one more, and the oldest is let go: a probe that comes now is worth more than a slow one
HEAD_BYTES: Final = 16 << 10  # of a request
_TEXT: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves until `close`. Its threads are daemons: they hold up no end of the process."""

    def __init__(self, metrics: Metrics, live: Check, ready: Check) -> None:
        self._metrics = metrics
        self._checks = {"/livez": live, "/readyz": ready}
        self._server: ThreadingHTTPServer | None = None

    def start(self, host: str, port: int) -> None:
        """Serve on this address; port 0 serves nowhere. Raises nothing: a port that is taken is warned of."""
        if port == 0:
            return
        try:
            self._server = _server(host, port, self.answer)
        except (OSError, OverflowError, UnicodeError) as error:
            log.warning(
                "metrics and health are not served",
                address=f"{host}:{port}",
                error=str(error),
                hint="give each process on this host its own REMESH_METRICS_PORT, or 0 for none",
            )
            return
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        log.info("metrics and health are served", address=f"{host}:{port}", component=self._metrics.component)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        path = path.partition("?")[0]
        if path == "/metrics":
            body, content_type = self._metrics.scrape(accept)
            return 200, content_type, body
        check = self._checks.get(path)
        if check is None:
            return 404, _TEXT, b"there are /metrics, /livez and /readyz\n"
        wrong = check()
        return (503, _TEXT, f"{wrong}\n".encode()) if wrong else (200, _TEXT, b"ok\n")


Answer = Callable[[str, str], tuple[int, str, bytes]]


class _Connections:
    """The open ones, oldest first: how many, and how long."""

    def __init__(self) -> None:
        self._until: dict[socket.socket, float] = {}
        self._leaving: set[socket.socket] = set()  # told to end; its thread has not noticed yet
        self._lock = threading.Lock()

    def admit(self, client: socket.socket) -> bool:
        """Count one more, at the cost of the oldest if need be. False: too many are still leaving."""
        with self._lock:
            if len(self._until) >= CONNECTIONS:
                self._end(next(iter(self._until)))
            if len(self._leaving) >= CONNECTIONS:
                return False
            self._until[client] = time.monotonic() + CLIENT_SECONDS
            return True

    def end_slow(self) -> None:
        """End those whose time is over."""
        with self._lock:
            now = time.monotonic()
            for client in [each for each, until in self._until.items() if until <= now]:
                self._end(client)

    def forget(self, client: socket.socket) -> None:
        """It is about to be closed."""
        with self._lock:
            self._until.pop(client, None)
            self._leaving.discard(client)

    def _end(self, client: socket.socket) -> None:
        del self._until[client]
        self._leaving.add(client)
        with suppress(OSError):  # the client was faster
            client.shutdown(socket.SHUT_RDWR)


def _server(host: str, port: int, answer: Answer) -> ThreadingHTTPServer:
    connections = _Connections()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            """Without HTTPServer's look-up of the host's name, which can take seconds."""
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = host, port

        def verify_request(self, request: Any, _client_address: object) -> bool:
            """In the accepting thread: False closes the connection."""
            return connections.admit(request)

        def service_actions(self) -> None:
            """Twice a second, and after each connection."""
            connections.end_slow()

        def shutdown_request(self, request: Any) -> None:
            """Whoever ends it: counted no more."""
            connections.forget(request)
            super().shutdown_request(request)

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is nothing to write home about."""

    return Server((host, port), partial(_Handler, answer))


class _Head:
    """The reading end of a connection, which gives no more than HEAD_BYTES."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = HEAD_BYTES

    def readline(self, limit: int) -> bytes:
        """The next line. Raises LineTooLong if the lines so far are too long together."""
        line: bytes = self._stream.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "remesh"
    sys_version = ""
    timeout = CLIENT_SECONDS

    def __init__(self, answer: Answer, *of_server: Any) -> None:
        self._answer = answer  # before the base's: it handles the request at once
        super().__init__(*of_server)

    def setup(self) -> None:
        """As the base does, with an end to what is read."""
        super().setup()
        self.rfile: Any = _Head(self.rfile)

    def do_GET(self) -> None:
        """Answer with a body."""
        self._respond(body=True)

    def do_HEAD(self) -> None:
        """Answer without one."""
        self._respond(body=False)

    def _respond(self, *, body: bool) -> None:
        status, content_type, data = self._answer(self.path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")  # none is kept for a next question
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds and are not logged."""
