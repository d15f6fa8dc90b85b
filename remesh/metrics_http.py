"""/metrics, /livez and /readyz over HTTP, for watcher and worker. Reads only, and asks nobody who it is.

A port that cannot be had costs one warning and not the process: repairs matter more than being counted.
"""

import socket
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from remesh import logs
from remesh.metrics import Metrics

log = logs.get("metrics")

Check = Callable[[], str | None]
"""What is wrong, in one line, or None."""

CLIENT_SECONDS: Final = 10.0  # a client that is slower than this to ask, or to take, is let go
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


def _server(host: str, port: int, answer: Answer) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            """Without HTTPServer's look-up of the host's name, which can take seconds."""
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = host, port

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away is nothing to write home about."""

    return Server((host, port), partial(_Handler, answer))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "remesh"
    sys_version = ""
    timeout = CLIENT_SECONDS

    def __init__(self, answer: Answer, *of_server: Any) -> None:
        self._answer = answer  # before the base's: it handles the request at once
        super().__init__(*of_server)

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
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds and are not logged."""
