"""One trace from the watcher's release to the API server, collected by a small OTLP receiver on loopback."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from remesh import tracing
from remesh.settings import Settings
from remesh.sim import SimCluster
from tests.client import Client
from tests.e2e.test_main_job import long_in_backoff
from tests.monitoring.scene import QUICK, break_and_deploy
from tests.stack import Stack, wait_until

NAMESPACE = "traced"
NAMES = ["web-0", "web-1", "web-2"]

pytestmark = pytest.mark.timeout(200)


class Received:
    """Spans, as they came in."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.raw = b""

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
    return str(next((a.value.string_value for a in span.attributes if a.key == key), ""))


@contextmanager
def receiver() -> Iterator[tuple[Received, str]]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_one_trace_leads_from_the_release_over_the_task_to_the_api_server(
    sim_cluster: SimCluster, tmp_path: Path
) -> None:
    stack, client = Stack(sim_cluster, tmp_path), Client(sim_cluster.kubeconfig)
    with receiver() as (received, url):
        stack.settings_extra |= {"REMESH_TRACING": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        stack.settings_extra["OTEL_BSP_SCHEDULE_DELAY"] = "200"
        try:
            stack.policy(QUICK)
            client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
            stack.start_worker()
            stack.start_watcher()
            break_and_deploy(sim_cluster, client, NAMESPACE, NAMES)
            long_in_backoff(client, NAMESPACE, NAMES[0], 13.0)
            sim_cluster.heal()
            client.wait_healed(NAMESPACE, sim_cluster.wear.sidecar, 2 * len(NAMES))
            wait_until(lambda: received.named("nudge"), "a nudge's span arrives")
            nudge = received.named("nudge")[0]
            wait_until(
                lambda: {"release", "task"} <= {span.name for _, span in received.of_trace(nudge.trace_id)},
                "the rest of its trace arrives",
            )
        finally:
            sim_cluster.heal()
            stack.stop()
            client.delete_workloads(NAMESPACE)
            client.close()

    trace = received.of_trace(nudge.trace_id)
    by_id = {span.span_id: span for _, span in trace}
    (release,) = [span for service, span in trace if (service, span.name) == ("remesh-watcher", "release")]
    (task,) = [span for service, span in trace if (service, span.name) == ("remesh-worker", "task")]
    assert release.parent_span_id == b""
    assert by_id[task.parent_span_id] is release
    assert by_id[nudge.parent_span_id] is task
    (dry_run,) = [span for _, span in trace if span.name == "dry run"]
    assert by_id[dry_run.parent_span_id] is task
    patches = [span for _, span in trace if span.name == "PATCH"]
    assert len(patches) == 2, "the annotation goes on, and off"
    assert all(by_id[span.parent_span_id] is nudge for span in patches)
    assert [span.name for _, span in trace if by_id.get(span.parent_span_id) is dry_run] == ["GET", "POST"]
    assert value(task, "remesh.finding") == value(release, "remesh.finding") != ""
    assert value(task, "remesh.result") in ("healed", "injected")
    for secret in (b"Bearer", b"authorization", b"a key of all workers", b"password"):
        assert secret not in received.raw


def test_without_the_setting_nothing_is_traced_and_no_header_travels() -> None:
    tracing.start(Settings(), "watcher")
    with tracing.span("release") as span, tracing.inner("dry run") as inner:
        span.set({"remesh.result": "x"})
        inner.failed("x")
        assert tracing.headers() == {}
