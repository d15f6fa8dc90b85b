"""JSON logs: every line of both processes is one object, and one finding can be followed through both."""

import json
from typing import Any

import pytest

from remesh.models import RecordType
from tests.monitoring.conftest import Incident
from tests.stack import Process

pytestmark = pytest.mark.timeout(200)


def lines(process: Process) -> list[dict[str, Any]]:
    """Every whole line that the process wrote to standard output or error."""
    return [json.loads(line) for line in process.text().splitlines(keepends=True) if line.endswith("\n")]


def said(process: Process, finding: str) -> list[str]:
    return [line["message"] for line in lines(process) if line.get("finding") == finding]


def test_every_line_is_an_object_with_the_same_first_keys(incident: Incident) -> None:
    for served in (incident.watcher, incident.worker):
        for line in lines(served.process):
            assert list(line)[:4] == ["at", "level", "logger", "message"]
    loggers = {line["logger"].split(".")[0] for line in lines(incident.worker.process)}
    assert loggers >= {"celery", "remesh"}


def test_one_finding_is_followed_from_the_watch_to_the_outcome_in_both_logs_and_the_trail(incident: Incident) -> None:
    watcher, worker = incident.watcher.process, incident.worker.process
    worker.wait_for("succeeded in")
    healed = [each for each in lines(worker) if each["message"] == "repair ended" and each["result"] == "healed"]
    finding = str(healed[0]["finding"])
    watcher.wait_for("repair ended")
    assert said(watcher, finding)[:2] == ["finding", "released"]
    assert "repair ended" in said(watcher, finding)
    theirs = said(worker, finding)
    assert theirs[0].endswith("received"), "Celery's own line carries the finding as well"
    assert "repair ended" in theirs
    trail = incident.stack.records(finding_id=finding)
    assert trail[0].type is RecordType.FINDING
    assert trail[-1].type is RecordType.OUTCOME
