"""`remesh status`: its one screen from made-up facts, and over a real incident on the simulated cluster."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remesh.cli.gates import only_observes
from remesh.cli.status import _rows
from remesh.cli.status_facts import _repairs
from remesh.presence import WatcherSeen, now_seen
from remesh.sim import SimCluster
from remesh.testbed import Fault
from tests.cli.conftest import Remesh
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import CLUSTER, Stack, wait_until

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


def watcher(identity: str, role: str, **changes: Any) -> dict[str, Any]:
    known = {"since": ago(hours=3), "synced": True, "namespaces": [], "mode": "repair", "version": "1.2", "shard": ""}
    return {"identity": identity, "role": role, **known, **changes}


def facts(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "cluster": "shop",
        "watchers": [watcher("a", "leader")],
        "workers": ["celery@x"],
        "gates": [],
        "findings": {},
        "repairs": {"total": 0},
        "incident": None,
        "queues": {"remesh.on-demand": 0, "remesh.background": 3},
        "quarantined": 0,
        "quarantines": [],
        "brakes": [],
        "records": 7,
        "trail_head": "7/1-0/aa",
        "trail_lost": "",
    }
    return known | changes


def shown(**changes: Any) -> dict[str, str]:
    return dict(_rows(facts(**changes), NOW))


REPAIRS = {
    "waiting": 5,
    "running": 4,
    "cooling": 0,
    "done": 11,
    "total": 20,
    "per_second": 1.5,
    "eta_seconds": 6.0,
    "eta_unknown": "",
}
INCIDENT = {
    "began": ago(minutes=10),
    "objects": 40,
    "healed": 39,
    "not_ready": 0,
    "quarantined": 1,
    "left": 0,
    "meshes": ["linkerd"],
    "seconds": 75.0,
    "repair_seconds": 4.2,
    "at_least": False,
}


def test_who_leads_and_who_stands_by() -> None:
    assert shown()["watcher"] == "alive for 3h, mode repair, version 1.2"
    two = shown(watchers=[watcher("a", "leader"), watcher("b", "standby")])["watcher"]
    assert two.endswith("; leads: a; on standby: b")
    nobody = shown(watchers=[watcher("b", "standby")])["watcher"]
    assert nobody.endswith("; nobody leads; on standby: b")
    assert shown(watchers=[])["watcher"].startswith("NONE: nobody is watching")


def test_progress_and_its_end_are_told_where_they_are_known() -> None:
    text = shown(repairs=REPAIRS)["repairs"]
    assert "11 of 20 healed, 4 running, 5 waiting; done in about 6s, at 1.5 a second" in text
    unknown = {**REPAIRS, "eta_seconds": None, "per_second": None, "eta_unknown": "the gate is closed"}
    assert shown(repairs=unknown)["repairs"].endswith("; end not known: the gate is closed")
    assert "repairs" not in shown()


def test_where_it_is_only_observed_no_end_is_promised() -> None:
    def told(*watchers: WatcherSeen) -> dict[str, Any]:
        return _repairs(Counter({"waiting": 6}), [], [], observed=only_observes(list(watchers)))

    observing, repairing = (now_seen(mode, "1.2", ()) for mode in ("observe", "repair"))
    text = shown(repairs=told(observing))["repairs"]
    assert text.endswith("0 of 6 healed, 0 running, 6 waiting; the watcher only observes, so nothing will be repaired")
    assert told(observing)["eta_seconds"] is None
    assert "only observes" not in told(observing, repairing)["eta_unknown"]
    assert "only observes" not in told()["eta_unknown"]


def test_the_last_incident_in_one_line() -> None:
    text = shown(incident=INCIDENT)["incident"]
    assert text == (
        "2026-01-01 11:50:00Z (10m ago): 40 objects of linkerd, 39 healed, within 75s, 4.2 s after the gate opened, "
        "1 quarantined"
    )
    assert shown()["incident"] == "none in the trail"


def test_quarantines_are_named_and_many_are_counted() -> None:
    each = {"object": "shop/Deployment/web", "uid": "u", "since": ago(hours=4), "reason": "came back bare"}
    rows = list(_rows(facts(quarantined=7, quarantines=[each] * 7), NOW))
    assert ("", "shop/Deployment/web since 4h: came back bare") in rows
    assert ("", "and 2 more; see `remesh quarantine list`") in rows


def test_a_lost_trail_stands_out() -> None:
    assert shown(trail_lost="at noon")["TRAIL LOST"] == "at noon"


# Over an incident


@pytest.fixture
def stack(sim_cluster: SimCluster, remesh: Remesh, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(sim_cluster, tmp_path)
    remesh.set(REMESH_CLUSTER=CLUSTER, REMESH_REDIS_URL=started.redis.url, REMESH_KUBECONFIG=sim_cluster.kubeconfig)
    yield started
    started.stop()
    sim_cluster.heal()


@pytest.fixture
def client(sim_cluster: SimCluster) -> Iterator[Client]:
    opened = Client(sim_cluster.kubeconfig)
    yield opened
    opened.delete_workloads("status-incident")
    opened.close()


@pytest.mark.timeout(240)
def test_an_incident_from_its_gate_to_its_end(
    remesh: Remesh, sim_cluster: SimCluster, client: Client, stack: Stack
) -> None:
    client.create_meshed_namespace("status-incident", sim_cluster.wear)
    stack.start_watcher()
    stack.start_worker()
    sim_cluster.inject_fault(Fault.KILLED)
    for number in range(3):
        client.create("status-incident", w.replica_set(f"web-{number}", 1))

    def document() -> Any:
        return json.loads(remesh("status", "-o", "json").out)

    def all_wait() -> Any:
        """The findings are in the ledger a moment before their gate is."""
        found = document()
        return found if found["repairs"]["waiting"] == 3 and found["gates"] else None

    waiting = wait_until(all_wait, "three that wait")
    (gate,) = waiting["gates"]
    assert (gate["open"], gate["brake_seconds"]) == (False, 0.0)
    assert waiting["repairs"]["eta_unknown"] == "the gate is closed"
    assert waiting["incident"]["left"] == 3
    assert "0 of 3 healed, 0 running, 3 waiting; end not known: the gate is closed" in remesh("status").out
    sim_cluster.heal()

    def over() -> Any:
        """The trail has the end a moment before the ledger drops the findings."""
        found = document()
        return found if found["incident"]["ended"] and not found["repairs"]["total"] else None

    ended = wait_until(over, "the incident's end")
    assert (ended["incident"]["healed"], ended["incident"]["objects"]) == (3, 3)
    assert ended["incident"]["seconds"] > 0
    assert "3 objects of linkerd, 3 healed" in remesh("status").out


@pytest.mark.timeout(120)
def test_watching_prints_one_line_after_the_other_until_it_is_interrupted(stack: Stack, remesh: Remesh) -> None:
    command = [sys.executable, "-m", "remesh", "status", "--watch", "-o", "jsonl"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=stack.env)
    try:
        assert watching.stdout is not None
        assert [json.loads(watching.stdout.readline())["cluster"] for _ in range(2)] == [CLUSTER] * 2
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
        assert watching.stderr is not None
        assert watching.stderr.read() == ""
    finally:
        watching.kill()
        watching.communicate()


def test_watching_whole_documents_is_refused(remesh: Remesh) -> None:
    answer = remesh("status", "--watch", "-o", "yaml")
    assert answer.code == 2
    assert "-o jsonl" in answer.line
