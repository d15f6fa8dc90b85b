"""scan, explain, plan, repair, audit, status, quarantine and check, on the simulated and on the real control plane."""

import json
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remesh.models import RecordType
from remesh.testbed import Fault, TestBed
from tests.cli.conftest import Answer, Remesh
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import CLUSTER, Stack, types, wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def namespace(bed: TestBed, client: Client) -> Iterator[str]:
    name = f"cli-{secrets.token_hex(3)}"
    client.create_meshed_namespace(name, bed.wear)
    yield name
    client.delete_workloads(name)


@pytest.fixture
def stack(bed: TestBed, remesh: Remesh, tmp_path: Path) -> Iterator[Stack]:
    """A Redis of its own, and the command line set to use it."""
    started = Stack(bed, tmp_path)
    remesh.set(REMESH_CLUSTER=CLUSTER, REMESH_REDIS_URL=started.redis.url, REMESH_KUBECONFIG=bed.kubeconfig)
    yield started
    started.stop()


@pytest.fixture
def cli(remesh: Remesh, bed: TestBed) -> Remesh:
    """The command line on this cluster, without Redis."""
    remesh.set(REMESH_CLUSTER=CLUSTER, REMESH_KUBECONFIG=bed.kubeconfig)
    return remesh


@pytest.fixture
def stuck(bed: TestBed, client: Client, namespace: str) -> str:
    """Name of a ReplicaSet that the dead injector's webhook keeps from its two pods."""
    bed.inject_fault(Fault.KILLED)
    client.create(namespace, w.replica_set("web", 2))
    client.wait_failing("ReplicaSet", namespace, ["web"])
    return "web"


def parsed(answer: Answer) -> Any:
    assert answer.code == 0, answer
    return json.loads(answer.out)


# Looking


def test_scan_shows_what_is_stuck_and_why(cli: Remesh, namespace: str, stuck: str) -> None:
    header, row = cli("scan", "-n", namespace).out.splitlines()
    assert header.split() == ["NAMESPACE", "OBJECT", "MISSING", "CAUSE", "MESH", "ACTION", "AGE", "REASON"]
    assert row.split()[:5] == [namespace, f"rs/{stuck}", "2", "webhook_connection_refused", "linkerd"]
    assert "wait_for_injector, then nudge_owner" in row


def test_scan_as_documents(cli: Remesh, namespace: str, stuck: str) -> None:
    (finding,) = parsed(cli("scan", "-n", namespace, "-o", "json"))["items"]
    assert (finding["ref"]["name"], finding["missing"], finding["desired"]) == (stuck, 2, 2)
    assert "connection refused" in finding["message"]
    assert yaml.safe_load(cli("scan", "-n", namespace, "-o", "yaml").out)["items"][0]["ref"] == finding["ref"]
    assert parsed(cli("scan", "-n", namespace, "-o", "jsonl"))["ref"] == finding["ref"]


def test_scan_of_every_namespace_finds_it_too(cli: Remesh, namespace: str, stuck: str) -> None:
    found = parsed(cli("scan", "-A", "-o", "json"))["items"]
    assert (namespace, stuck) in [(each["ref"]["namespace"], each["ref"]["name"]) for each in found]


def test_scan_of_one_mesh_leaves_the_others_out(cli: Remesh, bed: TestBed, namespace: str, stuck: str) -> None:
    assert stuck in cli("scan", "-n", namespace, "--mesh", bed.wear.mesh).out
    assert cli("scan", "-n", namespace, "--mesh", "istio").out == ""


def test_nothing_wrong_is_said_and_is_no_error(cli: Remesh, namespace: str) -> None:
    answer = cli("scan", "-n", namespace)
    assert (answer.code, answer.out, answer.err) == (0, "", f"No findings in namespace {namespace}.\n")


def test_a_namespace_that_is_not_there_is_said(cli: Remesh) -> None:
    answer = cli("scan", "-n", "nope")
    assert (answer.code, answer.out) == (6, "")
    assert answer.line == "remesh: namespace nope is not there; check the name, -n and --context"


def test_findings_elsewhere_are_hinted_at_where_no_namespace_was_named(cli: Remesh, stuck: str) -> None:
    answer = cli("scan")
    assert (answer.code, answer.out) == (0, "")
    assert re.fullmatch(
        r"No findings in namespace default\.\nElsewhere: \d+ findings? in \d+ other namespaces?; "
        r"`remesh scan -A` shows what is there\.\n",
        answer.err,
    )
    assert cli("scan", "-n", "default").err == "No findings in namespace default.\n"


def test_explain_shows_every_step_to_the_decision(cli: Remesh, bed: TestBed, namespace: str, stuck: str) -> None:
    (explained,) = parsed(cli("explain", f"rs/{stuck}", "-n", namespace, "-o", "json"))["items"]
    steps = {step["step"]: step["text"] for step in explained["steps"]}
    assert list(steps) == ["object", "condition", "namespace", "webhook", "injector", "dry run", "decision", "ledger"]
    assert "2 wanted, 0 there" in steps["object"]
    assert f"{bed.wear.mesh}'s injector) sees its pods" in steps["webhook"]
    assert steps["dry run"].startswith("fails")
    assert steps["ledger"].startswith("not asked")
    assert explained["decision"]["action"] == "wait_for_injector"


def test_explain_after_the_injector_is_back(cli: Remesh, bed: TestBed, namespace: str, stuck: str) -> None:
    bed.heal()
    out = cli("explain", f"rs/{stuck}", "-n", namespace).out
    healed_meanwhile = "nothing is wrong with it" in out
    assert healed_meanwhile or ("dry run    passes" in out and "would be nudged now" in out)


def test_explain_of_a_healthy_object_says_so(cli: Remesh, client: Client, namespace: str) -> None:
    client.create(namespace, w.deployment("fine"))
    wait_until(lambda: client.ready(namespace), "a pod")
    answer = cli("explain", "deploy/fine", "-n", namespace)
    assert answer.code == 0
    assert "nothing is wrong with it: it has all the pods" in answer.out


def test_explain_of_an_object_outside_the_mesh_names_the_webhook_that_does_not_see_it(
    cli: Remesh, client: Client, namespace: str
) -> None:
    labels = {"linkerd.io/control-plane-component": "own"}
    client.create(namespace, w.replica_set("outside", labels=labels))
    assert "does not see its pods" in cli("explain", "rs/outside", "-n", namespace).out


def test_plan_tells_what_repair_would_do_and_writes_nothing(
    cli: Remesh, bed: TestBed, client: Client, namespace: str, stuck: str
) -> None:
    before = client.get("ReplicaSet", namespace, stuck)["metadata"]
    (planned,) = parsed(cli("plan", "-n", namespace, "-o", "json"))["items"]
    assert planned["action"] == "wait_for_injector"
    assert planned["dry_run"]["probe"] == "fails"
    after = client.get("ReplicaSet", namespace, stuck)["metadata"]
    assert (after.get("annotations"), after["generation"]) == (before.get("annotations"), before["generation"])


def test_a_deployment_as_target_means_its_replicasets(
    cli: Remesh, bed: TestBed, client: Client, namespace: str
) -> None:
    bed.inject_fault(Fault.KILLED)
    client.create(namespace, w.deployment("web", 2))
    (name,) = wait_until(
        lambda: [rs["metadata"]["name"] for rs in client.items("ReplicaSet", namespace)], "a ReplicaSet"
    )
    client.wait_failing("ReplicaSet", namespace, [name])
    (planned,) = parsed(cli("plan", "deploy/web", "-n", namespace, "-o", "json"))["items"]
    assert (planned["ref"]["kind"], planned["ref"]["name"]) == ("ReplicaSet", name)
    assert planned["owner"]["name"] == "web"


# Repairing


def test_repair_heals_in_a_persons_name(
    remesh: Remesh, bed: TestBed, client: Client, namespace: str, stuck: str, stack: Stack
) -> None:
    stack.start_worker()
    bed.heal()
    answer = remesh("repair", f"rs/{stuck}", "-n", namespace, "--wait")
    assert answer.code == 0, answer
    client.wait_healed(namespace, bed.wear.sidecar, 2)
    assert client.nudge_annotations(namespace) == []
    chain = stack.chain(stuck)
    if chain:  # empty where Kubernetes' own retry came first
        assert [chain[0].type, chain[1].type, chain[-1].type] == [
            RecordType.FINDING,
            RecordType.RELEASE,
            RecordType.OUTCOME,
        ]
        assert all("@" in record.actor for record in chain)
        assert chain[0].finding_id in answer.out


def test_repair_behind_a_dead_injector_touches_nothing_and_fails(
    remesh: Remesh, client: Client, namespace: str, stuck: str, stack: Stack
) -> None:
    stack.start_worker()
    answer = remesh("repair", "--all", "-n", namespace, "--wait")
    assert answer.code == 1
    assert "waiting" in answer.out
    assert "1 of 1 target not repaired, for the reason given" in answer.err
    chain = stack.chain(stuck)
    assert RecordType.INTENT.value not in types(chain)
    assert client.pods(namespace) == []


def test_repair_without_waiting_prints_the_task(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    (sent,) = parsed(remesh("repair", "--all", "-n", namespace, "-o", "json"))["items"]
    assert sent["task_id"].startswith(f"nudge-owner.ReplicaSet.{namespace}.{stuck}.linkerd.webhook-connection-refused.")
    assert sent["outcome"] is None
    assert parsed(remesh("status", "-o", "json"))["queues"]["remesh.on-demand"] == 1


def test_a_repair_asked_for_twice_is_sent_once(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    (first,) = parsed(remesh("repair", f"rs/{stuck}", "-n", namespace, "-o", "json"))["items"]
    (second,) = parsed(remesh("repair", f"rs/{stuck}", "-n", namespace, "-o", "json"))["items"]
    assert (second["joined"], second["task_id"]) == (True, first["task_id"])
    assert types(stack.chain(stuck)) == ["finding", "release"]


def test_waiting_without_a_worker_ends_with_a_hint(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    answer = remesh("repair", f"rs/{stuck}", "-n", namespace, "--wait", "--timeout", "1")
    assert answer.code == 1
    assert "is a worker running?" in answer.line


def test_a_healthy_target_needs_no_repair(remesh: Remesh, client: Client, namespace: str, stack: Stack) -> None:
    client.create(namespace, w.replica_set("fine"))
    wait_until(lambda: client.ready(namespace), "a pod")
    wait_until(lambda: client.get("ReplicaSet", namespace, "fine")["status"].get("replicas"), "its status")
    answer = remesh("repair", "rs/fine", "-n", namespace, "--wait")
    assert answer.code == 0
    assert "it has all the pods" in answer.out
    assert stack.records() == []


def test_a_denial_is_not_repaired_and_the_reason_given(
    remesh: Remesh, bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.DENYING)
    client.create(namespace, w.replica_set("denied"))
    client.wait_failing("ReplicaSet", namespace, ["denied"])
    answer = remesh("repair", "rs/denied", "-n", namespace)
    assert answer.code == 1
    assert "answered no" in answer.out
    assert stack.records() == []


def test_a_dry_run_of_repair_is_the_plan(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    planned = parsed(remesh("repair", "--all", "--dry-run", "-n", namespace, "-o", "json"))
    assert planned["kind"] == "PlanList"
    assert stack.records() == []


def test_a_policy_that_observes_repairs_nothing(
    remesh: Remesh, namespace: str, stuck: str, stack: Stack, tmp_path: Path
) -> None:
    policy = tmp_path / "observe.toml"
    policy.write_text('mode = "observe"\n')
    answer = remesh("repair", "--all", "-n", namespace, "--policy", policy)
    assert answer.code == 2
    assert "observe" in answer.line
    assert stack.records() == []


def test_what_observing_workers_leave_alone_is_no_failed_repair(
    remesh: Remesh, bed: TestBed, namespace: str, bare: str, stack: Stack
) -> None:
    stack.policy('mode = "observe"\n')
    stack.start_worker()
    answer = remesh("repair", f"pod/{bare}", "-n", namespace, "--wait")
    assert answer.code == 1
    assert "not repaired: observe mode" in answer.out
    assert "1 of 1 target not repaired: observe mode" in answer.err
    assert "fail" not in answer.err


def test_a_quarantined_owner_is_left_alone_until_it_is_cleared(
    remesh: Remesh, client: Client, namespace: str, stuck: str, stack: Stack
) -> None:
    (finding,) = parsed(remesh("scan", "-n", namespace, "-o", "json"))["items"]
    uid = finding["ref"]["uid"]
    evidence = {"ref": finding["ref"], "reason": "came back bare", "finding_id": finding["id"]}
    stack.ledger.quarantine(uid, finding["template_hash"], evidence)
    assert f"{namespace}/ReplicaSet/{stuck}" in remesh("quarantine", "list").out
    for looking in ("scan", "plan"):
        (row,) = parsed(remesh(looking, "-n", namespace, "-o", "json"))["items"]
        assert row["not_now"]["code"] == "quarantined"
        assert "quarantined since" in " ".join(remesh(looking, "-n", namespace).out.split())
    refused = remesh("repair", f"rs/{stuck}", "-n", namespace)
    assert refused.code == 1
    assert "quarantined since" in refused.out

    cleared = remesh("quarantine", "clear", f"rs/{stuck}", "-n", namespace)
    assert cleared.code == 0
    assert remesh("quarantine", "list").err == "Nothing is quarantined.\n"
    assert "not_now" not in parsed(remesh("scan", "-n", namespace, "-o", "json"))["items"][0]
    assert [record.code for record in stack.records(types=[RecordType.NOTE])] == ["quarantine_cleared"]
    assert remesh("repair", f"rs/{stuck}", "-n", namespace).code == 0
    assert remesh("quarantine", "clear", uid).code == 6


@pytest.fixture
def bare(bed: TestBed, client: Client, namespace: str) -> str:
    """Name of a pod that its ReplicaSet got without the sidecar; the injector works again."""
    bed.inject_fault(Fault.NOT_INJECTING)
    client.create(namespace, w.replica_set("web", 2))
    wait_until(lambda: len(client.ready(namespace)) == 2, "two pods, Ready and bare")
    bed.heal()
    return client.ready(namespace)[0]


def test_a_bare_pod_is_found_and_planned_to_be_replaced(cli: Remesh, namespace: str, bare: str) -> None:
    found = parsed(cli("scan", "-n", namespace, "-o", "json"))["items"]
    assert {(each["ref"]["kind"], each["failure_class"]) for each in found} == {("Pod", "missing_sidecar")}
    (planned,) = parsed(cli("plan", f"pod/{bare}", "-n", namespace, "-o", "json"))["items"]
    assert (planned["action"], planned["dry_run"]["probe"]) == ("recreate_pod", "passes")
    assert planned["template_hash"]
    (explained,) = parsed(cli("explain", f"po/{bare}", "-n", namespace, "-o", "json"))["items"]
    assert explained["decision"]["failure_class"] == "missing_sidecar"


@pytest.mark.parametrize("owner", ["rs/web", "deploy/web"])
def test_an_owner_stands_for_its_bare_pods(
    cli: Remesh, bed: TestBed, client: Client, namespace: str, owner: str
) -> None:
    bed.inject_fault(Fault.NOT_INJECTING)
    make = w.deployment if owner.startswith("deploy") else w.replica_set
    client.create(namespace, make("web", 2))
    wait_until(lambda: len(client.ready(namespace)) == 2, "two pods, Ready and bare")
    bed.heal()
    planned = parsed(cli("plan", owner, "-n", namespace, "-o", "json"))["items"]
    assert sorted(each["ref"]["name"] for each in planned) == sorted(client.ready(namespace))
    out = cli("explain", owner, "-n", namespace).out
    assert "2 of its 2 pods lack the sidecar: web-" in out
    assert "healthy" not in out
    assert "nothing is wrong" not in out
    assert "last-applied" not in out
    document = parsed(cli("explain", owner, "-n", namespace, "-o", "json"))["items"][0]
    assert len(document["bare_pods"]) == 2
    assert document["decision"]["failure_class"] == "missing_sidecar"


def test_a_bare_pod_is_replaced_on_demand(
    remesh: Remesh, bed: TestBed, client: Client, namespace: str, bare: str, stack: Stack
) -> None:
    stack.start_worker()
    answer = remesh("repair", f"pod/{bare}", "-n", namespace, "--wait")
    assert answer.code == 0, answer
    assert bare not in [pod["metadata"]["name"] for pod in client.pods(namespace)]
    assert len(client.pods_ready_with_sidecar(namespace, bed.wear.sidecar)) == 1
    assert "@" in stack.chain(bare)[-1].actor


def test_status_tells_nobody_watching_from_all_is_well(remesh: Remesh, namespace: str, stack: Stack) -> None:
    assert "NONE: nobody is watching" in remesh("status").out
    watcher = stack.start_watcher()
    stack.start_worker()
    wait_until(lambda: "mode repair" in remesh("status").out, "a watcher in the status")
    out = remesh("status").out
    assert "alive for" in out
    assert "workers      1: " in out
    document = parsed(remesh("status", "-o", "json"))
    assert document["watcher"]["mode"] == "repair"
    assert len(document["workers"]) == 1
    watcher.terminate()
    assert "NONE: nobody is watching" in remesh("status").out


def test_status_marks_a_gate_that_no_watcher_keeps(
    remesh: Remesh, bed: TestBed, namespace: str, stuck: str, stack: Stack
) -> None:
    watcher = stack.start_watcher()
    (gate,) = wait_until(lambda: parsed(remesh("status", "-o", "json"))["gates"], "a gate")
    assert (gate["stale"], gate["mesh"], gate["waiting"]) == (False, bed.wear.mesh, 1)
    watcher.kill()
    stack.connection.delete(*stack.connection.keys("*watchers"))  # as its time runs out
    (gate,) = parsed(remesh("status", "-o", "json"))["gates"]
    assert gate["stale"]
    assert "closed (stale)" in remesh("status").out


# The trail


def test_the_trail_is_read_by_object_owner_type_finding_and_time(
    remesh: Remesh, namespace: str, stuck: str, stack: Stack
) -> None:
    (sent,) = parsed(remesh("repair", "--all", "-n", namespace, "-o", "json"))["items"]
    by_object = remesh("audit", f"rs/{stuck}", "-n", namespace).out.splitlines()
    assert [line.split()[2] for line in by_object[1:]] == ["finding", "release"]
    assert len(remesh("audit", "--type", "release").out.splitlines()) == 2
    assert parsed(remesh("audit", "--finding", sent["finding_id"], "-o", "json"))["kind"] == "AuditRecordList"
    assert len(remesh("audit", "--since", "1h", "-o", "jsonl").out.splitlines()) == 2
    assert remesh("audit", "rs/other", "-n", namespace).err.startswith("Nothing is known of ReplicaSet/other")
    assert remesh("audit", "-n", "elsewhere").err.startswith("Nothing is known of namespace elsewhere")
    exported = [json.loads(line) for line in remesh("audit", "export").out.splitlines()]
    assert [each["record_id"] for each in exported] == [record.record_id for record in stack.records()]


def test_following_shows_what_comes_until_it_is_interrupted(
    remesh: Remesh, namespace: str, stuck: str, stack: Stack
) -> None:
    command = [sys.executable, "-m", "remesh", "audit", "--follow", "--type", "release", "-o", "jsonl"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=stack.env)
    try:
        assert follower.stdout is not None
        remesh("repair", "--all", "-n", namespace)
        record = json.loads(follower.stdout.readline())
        assert (record["type"], record["ref"]["name"]) == ("release", stuck)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130
        assert follower.stderr is not None
        assert follower.stderr.read() == ""
    finally:
        follower.kill()
        follower.communicate()


# Checking


def test_check_finds_everything_right(remesh: Remesh, bed: TestBed, stack: Stack) -> None:
    stack.start_worker()
    answer = remesh("check")
    assert answer.code == 0, answer.out
    assert "rights for mode repair: all" in answer.out
    assert f"Injector {bed.wear.mesh} (" in answer.out
    assert "append-only file on" in answer.out
    assert "1 worker" in answer.out
    assert "✗" not in answer.out


@pytest.mark.parametrize("fault", [Fault.KILLED, Fault.NOT_INJECTING])
def test_check_fails_while_an_injector_does_not_inject(
    cli: Remesh, bed: TestBed, namespace: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMESH_REDIS_URL")
    before = cli("check")
    assert before.code == 0, before.out
    assert "came back with the linkerd sidecar" in before.out
    assert "none yet; `remesh run` brings its own" in before.out
    bed.inject_fault(fault)
    answer = cli("check")
    assert answer.code == 1
    (line,) = [line for line in answer.out.splitlines() if "✗" in line]
    assert "dry run in namespace" in line
    assert "1 of" in answer.out.splitlines()[-1]


def test_check_goes_on_after_a_failure(cli: Remesh) -> None:
    answer = cli("check", "-o", "json")
    assert answer.code == 5
    states = {each["name"]: each["state"] for each in json.loads(answer.out)["items"] if each["name"]}
    assert (states["cluster-access"], states["broker-access"]) == ("ok", "failed")


def test_check_refuses_a_redis_that_may_forget(remesh: Remesh, stack: Stack) -> None:
    stack.connection.config_set("maxmemory-policy", "allkeys-lru")
    answer = remesh("check")
    assert answer.code == 5
    assert "set `maxmemory-policy noeviction`" in answer.out
    stack.connection.config_set("maxmemory-policy", "noeviction")


def test_repair_refuses_a_redis_that_may_forget(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    stack.connection.config_set("maxmemory-policy", "allkeys-lru")
    answer = remesh("repair", "--all", "-n", namespace)
    assert answer.code == 5
    assert "noeviction" in answer.line
    assert stack.records() == []


def test_a_full_redis_means_that_nothing_is_sent(remesh: Remesh, namespace: str, stuck: str, stack: Stack) -> None:
    stack.connection.config_set("maxmemory", "1")
    answer = remesh("repair", "--all", "-n", namespace)
    stack.connection.config_set("maxmemory", "0")
    assert answer.code == 5
    assert "full" in answer.line
    assert stack.records() == []
    assert parsed(remesh("status", "-o", "json"))["queues"]["remesh.on-demand"] == 0
