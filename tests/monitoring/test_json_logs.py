"""JSON logs: every line of both processes is one object, and one finding can be followed through both."""

import json
from pathlib import Path
from typing import Any

import pytest

from remesh.models import RecordType
from remesh.sim import SimCluster
from tests.client import Client
from tests.e2e.test_main_job import long_in_backoff
from tests.monitoring.scene import QUICK, break_and_deploy
from tests.stack import Process, Stack

NAMESPACE = "told"
NAMES = ["web-0", "web-1", "web-2"]

pytestmark = pytest.mark.timeout(200)


def lines(process: Process) -> list[dict[str, Any]]:
    """Every line that the process wrote to standard output or error."""
    return [json.loads(line) for line in process.text().splitlines()]


def said(process: Process, finding: str) -> list[str]:
    return [line["message"] for line in lines(process) if line.get("finding") == finding]


def test_one_finding_is_followed_from_the_watch_to_the_outcome_in_both_logs(
    sim_cluster: SimCluster, tmp_path: Path
) -> None:
    stack, client = Stack(sim_cluster, tmp_path), Client(sim_cluster.kubeconfig)
    stack.settings_extra |= {"REMESH_LOG_FORMAT": "json"}
    try:
        stack.policy(QUICK)
        client.create_meshed_namespace(NAMESPACE, sim_cluster.wear)
        worker, watcher = stack.start_worker(), stack.start_watcher()
        break_and_deploy(sim_cluster, client, NAMESPACE, NAMES)
        long_in_backoff(client, NAMESPACE, NAMES[0], 13.0)
        sim_cluster.heal()
        client.wait_healed(NAMESPACE, sim_cluster.wear.sidecar, 2 * len(NAMES))
        watcher.wait_for("repair ended")
        worker.wait_for("succeeded in")
        trail = stack.records()
    finally:
        sim_cluster.heal()
        stack.stop()
        client.delete_workloads(NAMESPACE)
        client.close()

    ended = [line for line in lines(worker) if line["message"] == "repair ended"]
    finding = str(ended[0]["finding"])
    assert said(watcher, finding)[:2] == ["finding", "released"]
    assert said(watcher, finding)[-1] == "repair ended"
    theirs = said(worker, finding)
    assert theirs[0].endswith("received"), "Celery's own line carries the finding as well"
    assert theirs[-1].startswith("Task ")
    assert "repair ended" in theirs
    assert [record.type for record in trail if record.finding_id == finding][-1] is RecordType.OUTCOME
    assert {"at", "level", "logger", "message"} <= set(lines(watcher)[0])
    assert any("shutdown" in line["message"] for line in lines(worker)), "what Celery says past all logging"
