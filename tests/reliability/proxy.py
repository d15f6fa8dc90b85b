"""A proxy in front of an API server that can be told to misbehave, as a healthy API server does not do on demand."""

import random
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3
import yaml

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host", "accept-encoding"}


@dataclass
class Mood:
    """How the proxy treats what comes now. Probabilities are of each request or each line of a watch."""

    delay_seconds: float = 0.0
    status: int = 0
    status_probability: float = 0.0
    retry_after: str = ""
    break_probability: float = 0.0  # a watch ends in the middle of a line
    stalled: bool = False  # watches send nothing more, and stay open
    gone: bool = False  # a watch is answered with 410
    bookmarks: bool = True
    refused: bool = False  # connections are closed at once
    ahead_seconds: float = 0.0  # what its clock says of the time of day


class FaultyProxy:
    """Listens on loopback; `kubeconfig` is as the cluster's own, but by way of the proxy."""

    def __init__(self, upstream: Path, folder: Path, seed: int = 0) -> None:
        self.mood = Mood()
        self.dice = random.Random(seed)
        document = yaml.safe_load(upstream.read_text(encoding="utf-8"))
        cluster = document["clusters"][0]["cluster"]
        self.server_url: str = cluster["server"].rstrip("/")
        self.pool = _pool(cluster, folder)
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        cluster.clear()
        cluster["server"] = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.kubeconfig = folder / "by-proxy.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.kubeconfig.chmod(0o600)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.pool.clear()


def _pool(cluster: dict[str, Any], folder: Path) -> urllib3.PoolManager:
    if "certificate-authority-data" in cluster:
        import base64

        path = folder / "upstream-ca.pem"
        path.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return urllib3.PoolManager(ca_certs=str(path), maxsize=32)
    return urllib3.PoolManager(ca_certs=cluster.get("certificate-authority"), maxsize=32)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultyProxy

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(timestamp or time.time() + self.owner.mood.ahead_seconds, usegmt=True)

    def _any(self) -> None:
        mood = self.owner.mood
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        watches = "watch=" in self.path and "watch=false" not in self.path
        if mood.refused:
            self._cut()
            return
        time.sleep(mood.delay_seconds)
        if mood.status and self.owner.dice.random() < mood.status_probability:
            self._answer(mood.status, "told to", mood.retry_after)
        elif watches and mood.gone:
            self._answer(410, "too old resource version", "")
        else:
            self._pass_on(body, watches)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815  the base class asks for these names

    def _answer(self, status: int, text: str, retry_after: str) -> None:
        body = f'{{"kind":"Status","status":"Failure","code":{status},"reason":"Told","message":"{text}"}}'.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, body: bytes | None, watches: bool) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        try:
            answer = self.owner.pool.request(
                self.command,
                self.owner.server_url + self.path,
                body=body,
                headers=headers,
                preload_content=False,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=5, read=3600),
            )
        except urllib3.exceptions.HTTPError:
            self._cut()
            return
        with suppress(OSError, urllib3.exceptions.HTTPError):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP | {"date", "server"}:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in self._lines(answer) if watches else answer.stream(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        answer.close()

    def _lines(self, answer: urllib3.BaseHTTPResponse) -> Any:
        """A watch line by line, with what goes wrong with it."""
        rest = b""
        for chunk in answer.stream(None):
            rest += chunk
            while b"\n" in rest:
                line, rest = rest.split(b"\n", 1)
                mood = self.owner.mood
                while mood.stalled:
                    time.sleep(0.05)
                    mood = self.owner.mood
                if not mood.bookmarks and b'"BOOKMARK"' in line[:40]:
                    continue
                if self.owner.dice.random() < mood.break_probability:
                    yield line[: len(line) // 2]
                    self._cut()
                    return
                yield line + b"\n"

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
