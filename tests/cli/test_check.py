"""What `remesh check` prints, and how it judges what was found. Faults by name: test_check_faults.py."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from remesh.cli.check_access import clock_check, lease_name
from remesh.cli.check_catalogue import CATALOGUE, link
from remesh.cli.check_parts import report_checks, watchers
from remesh.cli.checks import State
from remesh.embedded import EmbeddedRedis
from remesh.presence import Role, WatcherSeen
from remesh.redisdb import BrokerReport
from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.cli.conftest import NOWHERE, Remesh, run_apart


def test_where_no_namespace_asks_the_dry_run_is_not_asked_and_said_so(remesh: Remesh) -> None:
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as cluster:
        answer = remesh("check", "--kubeconfig", cluster.kubeconfig)
    assert "not asked, no namespace asks for Linkerd yet" in answer.out


def test_marks_are_ascii_where_nothing_else_would_arrive() -> None:
    plain = run_apart("check", PYTHONIOENCODING="ascii", REMESH_KUBECONFIG="/nowhere", REMESH_REDIS_URL=NOWHERE)
    assert plain.out.isascii()
    assert "  + policy: mode repair" in plain.out
    assert "  x kubeconfig /nowhere" in plain.out
    assert "\x1b" not in plain.out


def test_a_failure_has_a_hint_and_a_link_below_it(remesh: Remesh) -> None:
    remesh.set(REMESH_KUBECONFIG="/nowhere")
    answer = remesh("check")
    assert answer.code == 2
    lines = answer.out.splitlines()
    at = next(number for number, line in enumerate(lines) if "✗ kubeconfig /nowhere" in line)
    assert lines[at + 1].strip() == CATALOGUE["cluster-access"].hint
    assert lines[at + 2].strip() == f"see {link('cluster-access')}"


def test_a_wide_answer_links_every_line(remesh: Remesh) -> None:
    remesh.set(REMESH_KUBECONFIG="/nowhere")
    out = remesh("check", "-o", "wide").out
    assert f"see {link('policy')}" in out
    assert f"see {link('policy')}" not in remesh("check").out


def test_documents_carry_hint_and_link_for_each(remesh: Remesh) -> None:
    remesh.set(REMESH_KUBECONFIG="/nowhere")
    document = json.loads(remesh("check", "-o", "json").out)
    assert (document["kind"], document["ok"]) == ("CheckList", False)
    assert all(item["hint"] and item["docs"] == link(item["name"]) for item in document["items"])
    assert yaml.safe_load(remesh("check", "-o", "yaml").out)["items"][0] == document["items"][0]


def test_warnings_do_not_fail(remesh: Remesh, sim: SimCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMESH_REDIS_URL")
    answer = remesh("check", "--kubeconfig", sim.kubeconfig)
    assert answer.code == 0
    assert " warning" in answer.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("seconds", "state"), [(0, State.OK), (4, State.OK), (-4, State.OK), (7, State.WARNING), (-7, State.WARNING)]
)
def test_clocks_that_differ_are_a_warning(seconds: float, state: State) -> None:
    ours = datetime(2026, 1, 1, tzinfo=UTC)
    assert clock_check(ours + timedelta(seconds=seconds), ours).state is state


def test_nobody_watching_is_a_warning() -> None:
    (check,) = watchers([])
    assert (check.id, check.state, check.text) == ("watcher", State.WARNING, "nobody is watching")


def watcher(identity: str, role: Role, shard: str = "", *, synced: bool = True) -> WatcherSeen:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return WatcherSeen(
        mode="repair", version="1", since=since, synced=synced, identity=identity, role=role, shard=shard
    )


def test_a_policy_that_says_another_mode_than_the_watchers_is_a_warning() -> None:
    seen = [watcher("a", Role.LEADER)]
    assert next(watchers(seen, "repair")).state is State.OK
    told = next(watchers(seen, "observe"))
    assert (told.id, told.state) == ("watcher", State.WARNING)
    assert told.text.endswith("mode repair, version 1; the policy read here says observe")
    assert "--policy or REMESH_POLICY" in told.hint


def test_each_shard_has_its_leader_or_is_named() -> None:
    seen = [watcher("a", Role.LEADER, "0/2"), watcher("b", Role.STANDBY, "1/2", synced=False)]
    found = {check.id: check for check in watchers(seen)}
    assert found["watcher"].text == "2 watchers alive, mode repair, version 1, 1 of them on standby"
    assert (found["watcher-leader"].state, "shard 1/2 leads now" in found["watcher-leader"].text) == (
        State.WARNING,
        True,
    )
    assert "b (shard 1/2) has not read" in found["watcher-synced"].text
    led = {check.id: check for check in watchers([watcher("a", Role.LEADER), watcher("b", Role.STANDBY)])}
    assert (led["watcher-leader"].state, led["watcher-leader"].text) == (State.OK, "leading: a")


def report(**changes: Any) -> BrokerReport:
    facts: dict[str, Any] = {
        "place": "Redis at h:1",
        "server": "valkey",
        "version": "9",
        "aof": True,
        "aof_writable": True,
        "policy": "noeviction",
        "used_memory": 1 << 20,
        "max_memory": 0,
        "clock_skew": 0.0,
    }
    return BrokerReport(**{**facts, **changes})


@pytest.mark.parametrize(
    ("changes", "check", "state"),
    [
        ({"aof": False}, "broker-persistence", State.FAILED),
        ({"aof_writable": False}, "broker-persistence", State.FAILED),
        ({"policy": "allkeys-lru"}, "broker-eviction", State.FAILED),
        ({"max_memory": 1 << 20}, "broker-memory", State.WARNING),
        ({"clock_skew": -9.0}, "broker-clock", State.WARNING),
    ],
)
def test_each_trouble_of_a_broker_has_its_check(changes: dict[str, Any], check: str, state: State) -> None:
    found = {each.id: each.state for each in report_checks(report(**changes))}
    assert found.pop(check) is state
    assert set(found.values()) == {State.OK}
    if state is State.FAILED:
        allowed = {each.id: each.state for each in report_checks(report(**changes), allow_unsafe=True)}
        assert allowed[check] is State.WARNING


def test_a_port_of_another_program_is_no_metrics(remesh: Remesh, redis_url: str, sim: SimCluster) -> None:
    port = sim.url.rpartition(":")[2]
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_METRICS_PORT=port)
    document = json.loads(remesh("check", "--kubeconfig", sim.kubeconfig, "-o", "json").out)
    states = {each["name"]: each["state"] for each in document["items"]}
    assert (states["metrics"], states["watcher"], states["workers"]) == ("warning", "warning", "warning")


def test_rights_are_asked_for_where_settings_and_scope_need_them(
    remesh: Remesh, sim: SimCluster, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[scope]\nnamespaces = ["shop"]\n[repair]\nimpersonate_controller = true\n')
    remesh.set(REMESH_POLICY=policy, REMESH_LEADER_ELECTION="true", REMESH_KUBERNETES_EVENTS="true", REMESH_SHARD="1/2")
    sim.refuse("update", "leases")
    try:
        document = json.loads(remesh("check", "--kubeconfig", sim.kubeconfig, "-o", "json").out)
    finally:
        sim.router.refused.clear()
    found = {each["name"]: (each["state"], each["text"]) for each in document["items"]}
    assert found["rights-lease"] == (
        "failed",
        "rights to the Lease of the leader: missing update leases.coordination.k8s.io",
    )
    assert found["rights-events"][0] == found["rights-impersonate"][0] == found["rights-repair"][0] == "ok"
    assert lease_name("1/2") == "remesh-watcher-1"
    assert lease_name(None) == "remesh-watcher"


def test_a_broker_of_its_own_is_looked_at_too(remesh: Remesh, redis_url: str, sim: SimCluster, tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "tasks").start()
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_BROKER_URL=server.url)
    try:
        document = json.loads(remesh("check", "--kubeconfig", sim.kubeconfig, "-o", "json").out)
    finally:
        server.stop()
    (each,) = [item for item in document["items"] if item["name"] == "task-broker"]
    assert (each["state"], "tasks through Redis at" in each["text"]) == ("ok", True)
    gone = json.loads(remesh("check", "--kubeconfig", sim.kubeconfig, "-o", "json").out)
    assert {item["name"]: item["state"] for item in gone["items"]}["task-broker"] == "failed"
