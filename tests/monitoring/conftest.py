"""One incident for all tests that look at one: with metrics, JSON logs, traces and Kubernetes Events turned on."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear, TestBed
from tests.client import Client
from tests.e2e.test_main_job import long_in_backoff
from tests.monitoring.collector import Received, receiver
from tests.monitoring.scene import QUICK, Prometheus, break_and_deploy, program, start_served
from tests.stack import Stack, wait_until
from tests.wears import CONTROLLER_QPS, WEBHOOK_TIMEOUT_SECONDS


class Incident:
    """From a healthy cluster over a dead injector to a healthy one, scraped by Prometheus every second."""

    namespace = "seen"
    names = tuple(f"web-{number}" for number in range(4))

    def __init__(self, bed: TestBed, stack: Stack, client: Client, received: Received, exits: ExitStack) -> None:
        self.bed, self.stack, self.client, self.received = bed, stack, client, received
        self.watcher, self.worker = start_served(stack)
        folder = stack.folder / "prometheus"
        self.prometheus = Prometheus(folder, {"watcher": self.watcher.port, "worker": self.worker.port})
        exits.callback(self.prometheus.stop)
        self.began = time.time()
        self.pending: list[dict[str, Any]] = []

    def play(self) -> None:
        self.prometheus.wait_ready()
        self._seen('remesh_build_info{component="worker"} == 1')
        self._seen('remesh_synced == 1 and on () remesh_heal_seconds_count{mesh="linkerd"} == 0')
        break_and_deploy(self.bed, self.client, self.namespace, list(self.names))
        self._seen(f"sum(remesh_gate_waiting_findings) == {len(self.names)}")
        self._seen('remesh_gate_status{status="closed"} == 1')
        long_in_backoff(self.client, self.namespace, self.names[0], 24.0)
        self.pending = self.prometheus.api("alerts")["alerts"]
        self.bed.heal()
        self.client.wait_healed(self.namespace, self.bed.wear.sidecar, 2 * len(self.names))
        self._seen("increase(remesh_heal_seconds_count[5m]) > 0")
        self._seen('sum(increase(remesh_repairs_total{result=~"healed|injected"}[5m])) > 0')
        self.ended = time.time()

    def _seen(self, expression: str) -> None:
        wait_until(lambda: self.prometheus.query(expression), f"Prometheus sees {expression}")


def settings(received: Received) -> dict[str, str]:
    """Everything that can be seen is turned on."""
    return {
        "REMESH_LOG_FORMAT": "json",
        "REMESH_TRACING": "true",
        "REMESH_KUBERNETES_EVENTS": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """Played once; its processes, and Prometheus, are there to be asked.

    On a cluster of its own: the watcher goes on to the end of the session, and would heal what other tests break.
    """
    program("prometheus")
    folder: Path = tmp_path_factory.mktemp("incident")
    with ExitStack() as exits:
        received = exits.enter_context(receiver())
        wear = InjectorWear(timeout_seconds=WEBHOOK_TIMEOUT_SECONDS)
        cluster = exits.enter_context(SimCluster.start(wear, controller_qps=CONTROLLER_QPS))
        client, stack = Client(cluster.kubeconfig), Stack(cluster, folder, settings(received))
        exits.callback(client.close)
        exits.callback(stack.stop)
        stack.policy(QUICK)
        client.create_meshed_namespace(Incident.namespace, wear)
        played = Incident(cluster, stack, client, received, exits)
        played.play()
        yield played
