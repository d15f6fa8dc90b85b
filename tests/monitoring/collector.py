"""A small receiver of OTLP over HTTP on loopback."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received:
    """Spans, as they came in: the service that sent each, and the span."""

    def __init__(self) -> None:
        self.url = ""
        self.raw = b""
        self.spans: list[tuple[str, Any]] = []

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[Any]:
        return [span for _, span in self.spans if span.name == name]

    def of_trace(self, trace: bytes) -> list[tuple[str, Any]]:
        return [(service, span) for service, span in self.spans if span.trace_id == trace]


def value(span: Any, key: str) -> str:
    """A text attribute of a span."""
    return str(next((a.value.string_value for a in span.attributes if a.key == key), ""))


@contextmanager
def receiver() -> Iterator[Received]:
    """Listens as long as the block lasts."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
