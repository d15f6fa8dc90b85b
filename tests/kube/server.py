"""A small HTTP server that plays an API server by script: pages, broken streams, stalls, refusals."""

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from remesh.kube.config import Access
from remesh.kube.credentials import Auth, NoAuth
from remesh.kube.transport import KubeClient


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the next reply of its script."""

    protocol_version = "HTTP/1.1"
    script: "ScriptedServer"

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(self.command, parts.path, dict(parse_qsl(parts.query)), dict(self.headers), body)
        self.script.next_reply(seen)(self)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def hang(self) -> None:
        self.script.closing.wait()
        self.close_connection = True


class ScriptedServer:
    """Replies in order for lists (`list`), watches (`watch`) and everything else (`other`); the last one repeats."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        self._replies: dict[str, list[Reply]] = {}
        self._lock = threading.Lock()
        handler = type("BoundHandler", (Handler,), {"script": self})
        self._server = _Quiet(("127.0.0.1", 0), handler)
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self._clients: list[KubeClient] = []

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def on(self, what: str, *replies: Reply) -> Self:
        self._replies[what] = list(replies)
        return self

    def client(self, auth: Auth | None = None, **access: Any) -> KubeClient:
        client = KubeClient(Access(self.url, "test", auth=auth or NoAuth(), **access))
        self._clients.append(client)
        return client

    def asked(self, what: str) -> list[Seen]:
        return [seen for seen in self.seen if _sort(seen) == what]

    def next_reply(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            script = self._replies[_sort(seen)]
            return script.pop(0) if len(script) > 1 else script[0]

    def close(self) -> None:
        self.closing.set()
        for client in self._clients:
            client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that go away in the middle are what the tests are about


def _sort(seen: Seen) -> str:
    if seen.method == "GET" and seen.params.get("watch"):
        return "watch"
    return "list" if seen.method == "GET" and seen.params.get("limit") else "other"


def answer(body: Any, status: int = 200, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def reply(handler: Handler) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.begin(status, {"Content-Type": "application/json", "Content-Length": str(len(data)), **names})
        handler.wfile.write(data)

    return reply


def refusal(status: int, reason: str = "", message: str = "", **headers: str) -> Reply:
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message, "metadata": {}}
    return answer(body, status, **headers)


def page(*items: Any, version: str = "100", more: str = "") -> Reply:
    return answer({"kind": "List", "metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


def stream(*chunks: bytes, then: str = "end") -> Reply:
    """A chunked answer; afterwards it ends, hangs, or breaks off in the middle of a chunk."""

    def reply(handler: Handler) -> None:
        handler.begin(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        for data in chunks:
            handler.chunk(data)
        if then == "hang":
            handler.hang()
        elif then == "end":
            handler.chunk(b"")
        else:
            handler.wfile.write(b"ff\r\n{")
            handler.close_connection = True

    return reply


def hang(handler: Handler) -> None:
    """No answer at all."""
    handler.hang()


def reset(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def pod(name: str, version: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}", "resourceVersion": version, **metadata}}


def event(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version, "creationTimestamp": None}})
