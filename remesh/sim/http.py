"""The HTTP server on loopback: bearer token, keep-alive, chunked watches. One thread for each connection."""

import gzip
import hmac
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from remesh.sim import status
from remesh.sim.routes import Request, Response, Router

_IDLE_SECONDS = 300.0  # a kept-alive connection without a request is closed after this
_JOIN_SECONDS = 5.0
_GZIP_BYTES = 128 * 1024  # kube-apiserver compresses larger answers for clients that take it


class ApiHttpServer(ThreadingHTTPServer):
    """Serves a router on a free port of 127.0.0.1 until `close`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, router: Router, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.router = router
        self.token = token
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="sim-http", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Serve from a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and hang up on everybody."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        with self._open_lock:
            for connection in self._open:
                _hang_up(connection)
        self._thread.join(_JOIN_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, to hang up on it in the end."""
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error; anything else is told with a traceback."""
        import sys

        if not isinstance(sys.exception(), ConnectionError | TimeoutError | ValueError):
            super().handle_error(request, client_address)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was closed by the other side already


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "remesh-sim"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one write
    server: ApiHttpServer

    def _serve(self) -> None:
        body = self._body()
        if not self._is_authorized():
            self._send(Response(401, msgspec.json.encode(status.unauthorized().body())))
            return
        path, _, query = self.path.removeprefix(f"/{self.server.token}").partition("?")
        content_type = self.headers.get("Content-Type", "")
        user = self.headers.get("Impersonate-User", "")
        response = self.server.router.answer(Request(self.command, path, query, content_type, body, user))
        if response.chunks is None:
            self._send(response)
        else:
            self._stream(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names http.server asks for

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunked_body()
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunked_body(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _is_authorized(self) -> bool:
        # kubectl sends no token where there is no TLS, but it keeps to the path that it is given.
        if self.path.startswith(f"/{self.server.token}/"):
            return True
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode())

    def _send(self, response: Response) -> None:
        body = response.body
        self.send_response(response.code)
        self.send_header("Content-Type", response.content_type)
        if len(body) > _GZIP_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, response: Response) -> None:
        self.send_response(response.code)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        chunks = response.chunks or iter(())
        try:
            for chunk in chunks:
                if self.server.closing.is_set() or (not chunk and self._is_gone()):
                    self.close_connection = True
                    return
                if chunk:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: a watch-heavy server would write about nothing else."""
