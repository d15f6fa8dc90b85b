"""A real Prometheus scrapes a real watcher and worker through an incident, with the project's rules loaded."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.sim import SimCluster
from remesh.testbed import TestBed
from tests.client import Client
from tests.e2e.test_main_job import long_in_backoff
from tests.monitoring.dashboard import document, panels
from tests.monitoring.scene import QUICK, Prometheus, Served, break_and_deploy, program, start_served
from tests.stack import Stack, wait_until

NAMESPACE = "seen"
NAMES = [f"web-{number}" for number in range(4)]

pytestmark = pytest.mark.timeout(240)


class Incident:
    """One that has been played: from a healthy cluster over a dead injector to a healthy one."""

    def __init__(self, bed: TestBed, stack: Stack, client: Client, folder: Path) -> None:
        self.bed, self.stack, self.client = bed, stack, client
        self.watcher, self.worker = start_served(stack)
        self.prometheus = Prometheus(folder, {"watcher": self.watcher.port, "worker": self.worker.port})
        self.began = time.time()

    def play(self) -> None:
        self.prometheus.wait_ready()
        self._seen('remesh_build_info{component="worker"} == 1')
        self._seen('remesh_synced == 1 and on () remesh_heal_seconds_count{mesh="linkerd"} == 0')
        break_and_deploy(self.bed, self.client, NAMESPACE, NAMES)
        self._seen(f"sum(remesh_gate_waiting_findings) == {len(NAMES)}")
        self._seen('remesh_gate_status{status="closed"} == 1')
        long_in_backoff(self.client, NAMESPACE, NAMES[0], 13.0)
        self.bed.heal()
        self.client.wait_healed(NAMESPACE, self.bed.wear.sidecar, 2 * len(NAMES))
        self._seen("increase(remesh_heal_seconds_count[5m]) > 0")
        self._seen('sum(increase(remesh_repairs_total{result=~"healed|injected"}[5m])) > 0')
        self.ended = time.time()

    def _seen(self, expression: str) -> None:
        wait_until(lambda: self.prometheus.query(expression), f"Prometheus sees {expression}")


@pytest.fixture(scope="module")
def incident(sim_cluster: SimCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    program("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    stack, client = Stack(sim_cluster, folder), Client(sim_cluster.kubeconfig)
    client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
    stack.policy(QUICK)
    played = Incident(sim_cluster, stack, client, folder / "prometheus")
    try:
        played.play()
        yield played
    finally:
        sim_cluster.heal()
        played.prometheus.stop()
        stack.stop()
        client.delete_workloads(NAMESPACE)
        client.close()


def test_both_processes_are_scraped_and_every_rule_is_evaluated_without_an_error(incident: Incident) -> None:
    assert {each["value"][1] for each in incident.prometheus.query("up")} == {"1"}
    rules = [rule for group in incident.prometheus.api("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 20
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_every_query_of_every_panel_has_data_of_the_incident(incident: Incident) -> None:
    seconds = int(incident.ended - incident.began) + 1
    empty = []
    for panel in panels(seconds=seconds):
        for query in panel.queries:
            found = incident.prometheus.range(query.expression, incident.began, incident.ended + 5)
            numbers = [float(value) for series in found for _, value in series["values"]]
            if not any(math.isfinite(number) for number in numbers):
                empty.append(f"{panel.title}: {query.expression}")
    assert empty == []


def test_the_panels_tell_the_story(incident: Incident) -> None:
    most = incident.prometheus.query("max_over_time(sum(remesh_findings)[10m:1s])")
    assert float(most[0]["value"][1]) == len(NAMES)
    (gate,) = incident.prometheus.range('remesh_gate_status{status="open"}', incident.began, incident.ended)
    states = [value for _, value in gate["values"]]
    assert states[0] == "0"
    assert states[-1] == "1"
    (healed,) = incident.prometheus.query('sum(remesh_findings_ended_total{result=~"healed|already_healthy"})')
    assert float(healed["value"][1]) == len(NAMES)
    assert {series["metric"]["mesh"] for series in incident.prometheus.query("remesh_heal_seconds_count > 0")} == {
        incident.bed.wear.mesh
    }


def test_after_the_incident_no_alert_is_pending_or_firing(incident: Incident) -> None:
    wait_until(lambda: not incident.prometheus.api("alerts")["alerts"], "every alert is over", 30)


def test_panels_of_the_dashboard_do_not_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in document()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


def test_a_worker_that_loses_its_redis_is_alive_and_not_ready(incident: Incident) -> None:
    """The last one here: the incident's Redis is gone after it."""
    worker: Served = incident.worker
    assert worker.get("/readyz") == (200, "ok\n")
    incident.stack.redis.stop()
    wait_until(lambda: worker.get("/readyz")[0] == 503, "the worker is not ready")
    assert "redis" in worker.get("/readyz")[1]
    wait_until(lambda: incident.watcher.metric('remesh_redis_up{cluster="e2e"}') == 0.0, "the watcher sees it, too")
    assert worker.get("/livez") == (200, "ok\n")
    assert incident.watcher.get("/livez") == (200, "ok\n")
