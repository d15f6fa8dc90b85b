"""One trace from the watcher's release to the API server, collected by a receiver on loopback."""

import pytest

from remesh import tracing
from remesh.settings import Settings
from tests.monitoring.collector import value
from tests.monitoring.conftest import Incident
from tests.stack import wait_until


@pytest.mark.timeout(200)
def test_one_trace_leads_from_the_release_over_the_task_to_the_api_server(incident: Incident) -> None:
    received = incident.received
    wait_until(lambda: received.named("nudge"), "a nudge's span arrives")
    nudge = received.named("nudge")[0]
    wait_until(
        lambda: {"release", "task"} <= {span.name for _, span in received.of_trace(nudge.trace_id)},
        "the rest of its trace arrives",
    )
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


@pytest.mark.timeout(200)
def test_no_secret_is_in_any_trace(incident: Incident) -> None:
    wait_until(lambda: incident.received.raw, "traces arrive")
    for secret in (b"Bearer", b"uthorization", incident.stack.env["REMESH_SIGNING_KEY"].encode(), b"password"):
        assert secret not in incident.received.raw


def test_without_the_setting_nothing_is_traced_and_no_header_travels() -> None:
    tracing.start(Settings(), "watcher")
    with tracing.span("release") as span, tracing.inner("dry run") as inner:
        span.set({"remesh.result": "x"})
        inner.failed("x")
        assert tracing.headers() == {}
