"""A real Prometheus scrapes a real watcher and worker through an incident, with the project's rules loaded."""

import json
import math
from pathlib import Path

import pytest

from remesh.sim import SimCluster
from tests.monitoring.conftest import Incident
from tests.monitoring.dashboard import document, panels
from tests.monitoring.scene import Served
from tests.stack import Stack, free_port, wait_until

pytestmark = pytest.mark.timeout(240)


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
    assert float(most[0]["value"][1]) == len(incident.names)
    (gate,) = incident.prometheus.range('remesh_gate_status{status="open"}', incident.began, incident.ended)
    assert gate["values"][0][1] == "0"
    (released,) = incident.prometheus.query("sum(remesh_releases_total)")
    assert 1 <= float(released["value"][1]) <= len(incident.names), "those that Kubernetes left to remesh"
    (healed,) = incident.prometheus.query('sum(remesh_findings_ended_total{result=~"healed|already_healthy"})')
    assert float(healed["value"][1]) == len(incident.names)
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


def test_an_alert_names_what_it_is_about(incident: Incident) -> None:
    (alert,) = [each for each in incident.pending if each["labels"]["alertname"] == "RemeshGateClosed"]
    wear = incident.bed.wear
    assert alert["annotations"]["summary"] == (
        f"The injector {wear.namespace}/{wear.service} of {wear.mesh} does not inject in {incident.stack.cluster}"
    )
    assert alert["annotations"]["description"].startswith(f"{len(incident.names)} findings")


def test_a_worker_that_loses_its_redis_is_alive_and_not_ready_and_says_all_in_json(
    sim_cluster: SimCluster, tmp_path: Path
) -> None:
    stack = Stack(sim_cluster, tmp_path, {"REMESH_LOG_FORMAT": "json"})
    port = free_port()
    try:
        worker = Served(stack.start_worker(REMESH_METRICS_PORT=str(port)), port)
        wait_until(lambda: worker.get("/readyz") == (200, "ok\n"), "the worker is ready")
        stack.redis.stop()
        wait_until(lambda: worker.get("/readyz")[0] == 503, "the worker is not ready")
        assert worker.get("/readyz")[1] in ("not reachable: redis\n", "not reachable: redis, broker\n")
        assert worker.get("/livez") == (200, "ok\n")
    finally:
        stack.stop()
    told = [json.loads(line) for line in worker.process.text().splitlines()]
    assert any("shutdown" in line["message"] for line in told), "what Celery says past all logging"


def test_of_two_watchers_one_leads_and_both_are_alive_and_ready(sim_cluster: SimCluster, tmp_path: Path) -> None:
    election = {"REMESH_LEADER_ELECTION": "true", "REMESH_LEASE_NAMESPACE": "default"}
    stack, ports = Stack(sim_cluster, tmp_path, election), (free_port(), free_port())
    try:
        watchers = [Served(stack.start_watcher(REMESH_METRICS_PORT=str(port)), port) for port in ports]
        leader = 'remesh_leader{cluster="e2e",shard=""}'
        wait_until(lambda: sorted(each.metric(leader) or 0.0 for each in watchers) == [0.0, 1.0], "one leads")
        for each in watchers:
            wait_until(lambda each=each: each.get("/readyz") == (200, "ok\n"), "it is ready")  # type: ignore[misc]
            assert each.get("/livez") == (200, "ok\n")
    finally:
        stack.stop()
