"""What is counted, under which labels, and how it is served."""

import socket
import threading
import time
import urllib.request
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from remesh.kube.config import Access
from remesh.kube.transport import KubeClient
from remesh.meshes import load_profiles
from remesh.metrics import MOST_VALUES, OTHER, Metrics
from remesh.metrics_http import MetricsServer
from remesh.metrics_table import SPECS, WATCHER, WORKER
from remesh.models import Action, FailureClass, Finding, InjectorRef, ObjectRef, Result
from tests.monitoring import metrics_page
from tests.monitoring.scene import fetch
from tests.stack import free_port
from watcher.findings import Book
from watcher.gate import Gate
from watcher.health import STUCK_SECONDS, Pulse
from watcher.reflect import STUCK_SECONDS as WATCH_STUCK_SECONDS
from watcher.reflect import Reflectors
from watcher.snapshot import samples, take
from watcher.store import Store
from workers.seeing import STUCK_SECONDS as CONSUMER_SECONDS
from workers.seeing import Consumer

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def finding(mesh: str = "istio", name: str = "web") -> Finding:
    return Finding(
        id="f-1",
        cluster="c",
        ref=ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name=name, uid=f"uid-{name}"),
        mesh=mesh,
        injector=InjectorRef(mesh=mesh, service_namespace="istio-system", service_name="istiod"),
        failure_class=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.WAIT_FOR_INJECTOR,
        code="x",
        reason="x",
        first_seen=NOW,
    )


def text(metrics: Metrics) -> str:
    return metrics.scrape("text/plain")[0].decode()


def series(metrics: Metrics) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text(metrics)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


def test_the_page_is_as_the_table_is() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.render(), (
        "docs/metrics.md is out of date: run python -m tests.monitoring.metrics_page"
    )


@pytest.mark.parametrize("component", [WATCHER, WORKER])
def test_each_process_has_the_metrics_that_the_table_gives_it_and_no_others(component: str) -> None:
    metrics = Metrics("c", component)
    families = {family.name for family in text_string_to_metric_families(text(metrics))}
    assert families == {spec.name.removesuffix("_total") for spec in SPECS if component in spec.on}


def test_names_follow_the_conventions_of_prometheus() -> None:
    for spec in SPECS:
        assert spec.name.startswith("remesh_")
        assert not spec.buckets or spec.name.endswith("_seconds")
        assert spec.help.endswith(".")
        assert "cluster" not in spec.labels


def test_every_series_names_the_cluster_and_nothing_is_left_in_the_default_registry() -> None:
    before = {family.name for family in REGISTRY.collect()}
    metrics = Metrics("prod-1", WATCHER)
    metrics.found(finding())
    metrics.ended(finding(), Result.HEALED, 12.0)
    assert all(labels["cluster"] == "prod-1" for each in series(metrics).values() for labels in each)
    assert {family.name for family in REGISTRY.collect()} == before


def test_a_label_has_no_more_values_than_the_bound() -> None:
    metrics = Metrics("c", WATCHER)
    for number in range(3 * MOST_VALUES):
        metrics.dry_run(f"mesh-{number}", "passes", "sidecar_in_reply", 0.1)
    meshes = [labels["mesh"] for labels in series(metrics)["remesh_dry_runs_total"]]
    assert len(meshes) == MOST_VALUES + 1
    assert OTHER in meshes


def test_a_name_cannot_forge_a_series() -> None:
    metrics = Metrics("c", WATCHER)
    metrics.dry_run('x"} 1\nremesh_leader{cluster="c"} 0\n#', "passes", "ok", 0.1)
    assert "remesh_leader" not in series(metrics)
    assert len(series(metrics)["remesh_dry_runs_total"]) == 1


def test_no_name_of_a_workload_gets_into_the_metrics() -> None:
    metrics, book = Metrics("c", WATCHER), Book()
    secret = finding(name="very-own-name")
    book.add(secret)
    metrics.found(secret)
    metrics.ended(secret, Result.HEALED, 1.0)
    snapshot = take(book, [Gate("istio-system/istiod")])
    metrics.add(lambda: samples(snapshot, NOW))
    assert 'state="waiting"} 1.0' in text(metrics)
    assert "very-own-name" not in text(metrics)
    assert "shop" not in text(metrics)


def test_a_source_that_fails_does_not_hide_the_others() -> None:
    metrics = Metrics("c", WATCHER)

    def broken() -> dict[str, list[tuple[tuple[str, ...], float]]]:
        raise RuntimeError("odd")

    metrics.add(broken)
    metrics.add(lambda: {"remesh_synced": [((), 1.0)]})
    assert 'remesh_synced{cluster="c"} 1.0' in text(metrics)


def test_health_says_what_is_wrong_and_unknown_paths_are_404() -> None:
    port, wrong = free_port(), [""]
    server = MetricsServer(Metrics("c", WATCHER), live=lambda: None, ready=lambda: wrong[0] or None)
    server.start("127.0.0.1", port)
    try:
        assert fetch(port, "/livez") == (200, "ok\n")
        assert fetch(port, "/readyz?verbose") == (200, "ok\n")
        wrong[0] = "not synced"
        assert fetch(port, "/readyz") == (503, "not synced\n")
        assert fetch(port, "/etc/passwd")[0] == 404
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
        )
        with urllib.request.urlopen(asked) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")
    finally:
        server.close()


def test_a_taken_port_is_one_warning_and_the_process_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other, caplog.at_level("WARNING", logger="remesh.metrics"):
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = MetricsServer(Metrics("c", WATCHER), live=lambda: None, ready=lambda: None)
        server.start("127.0.0.1", other.getsockname()[1])
        server.close()
    assert [record.getMessage() for record in caplog.records] == ["metrics and health are not served"]


def test_a_main_loop_that_hangs_is_stuck_and_one_that_rests_is_not() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    assert pulse.stuck() is None, "it has not begun"
    pulse.beat()
    now[0] = STUCK_SECONDS
    assert pulse.stuck() is None
    now[0] += 1
    assert "61 s" in str(pulse.stuck())
    pulse.rest()
    assert pulse.stuck() is None, "it stands by"


def test_a_watch_that_neither_hears_anything_nor_tries_again_is_stuck() -> None:
    reflectors = Reflectors(
        KubeClient(Access("http://127.0.0.1:9", "test")), Store(), load_profiles(None), threading.Event()
    )
    pods = reflectors._by_kind["Pod"]
    assert reflectors.stuck() is None
    pods.last_activity = time.monotonic() - WATCH_STUCK_SECONDS - 1
    assert reflectors.stuck() is None, "the API server is away, and is tried again"
    pods.last_turn = pods.last_activity
    assert "the watch of Pod is stuck" in str(reflectors.stuck())


def test_a_consumer_without_heartbeats_is_stuck_only_while_the_broker_answers() -> None:
    now = [0.0]
    consumer = Consumer(lambda: now[0])
    consumer.broker(True)
    consumer.beat()
    now[0] = CONSUMER_SECONDS + 1
    assert consumer.stuck() is not None
    consumer.broker(False)
    assert consumer.stuck() is None, "a restart would not bring the broker back"
    consumer.broker(True)
    assert consumer.stuck() is None, "it has only just come back"
    now[0] *= 2
    now[0] += 1
    assert consumer.stuck() is not None
