"""The main job: what an injector's outage left stuck is found, waited for, nudged, verified and written down."""

from datetime import UTC, datetime

import pytest

from remesh.models import RecordType
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import Stack, types, wait_until
from tests.wears import IN_BACK_OFF_SECONDS

QUICK = """
[detection]
silent_seconds = 5.0
no_condition_seconds = 3.0
"""

pytestmark = pytest.mark.timeout(240)


def start_all(stack: Stack, policy: str = QUICK) -> None:
    stack.policy(policy)
    stack.start_worker()
    stack.start_watcher()


def waiting(stack: Stack, count: int) -> None:
    """Poll until `count` objects have a finding in the trail."""

    def found() -> bool:
        return len({r.ref.uid for r in stack.records(types=[RecordType.FINDING]) if r.ref}) >= count

    wait_until(found, f"{count} findings in the trail", 90)


def outcome_of(stack: Stack, name: str, seconds: float = 60.0) -> str:
    """Poll until the chain of this object has an outcome; its result."""

    def ended() -> str:
        found = [r for r in stack.chain(name) if r.type is RecordType.OUTCOME]
        return str(found[-1].details["result"]) if found else ""

    return wait_until(ended, f"an outcome for {name}", seconds)


def long_in_backoff(client: Client, namespace: str, name: str, seconds: float = IN_BACK_OFF_SECONDS) -> None:
    """Poll until a ReplicaSet has failed for so long that its next retry is about as far away as `seconds`."""

    def long_ago() -> bool:
        conditions = client.get("ReplicaSet", namespace, name).get("status", {}).get("conditions", [])
        since = [c["lastTransitionTime"] for c in conditions if c["type"] == "ReplicaFailure"]
        now = datetime.now(UTC)
        return bool(since) and (now - datetime.fromisoformat(since[0])).total_seconds() > seconds

    wait_until(long_ago, f"{name} failing for {seconds} s", seconds + 60)


@pytest.mark.parametrize(
    "fault", [Fault.FROZEN, Fault.KILLED, Fault.WRONG_CA, Fault.NO_ENDPOINTS, Fault.ERROR_500], ids=str
)
def test_stuck_replicasets_are_healed_once_the_injector_works_again(
    bed: TestBed, client: Client, namespace: str, stack: Stack, fault: Fault
) -> None:
    bed.inject_fault(fault)
    names = [f"web-{number}" for number in range(4)]
    for name in names:
        client.create(namespace, w.replica_set(name, 2))
        # One after the other, so that Kubernetes' own retries do not all fall into the same moment.
        long_in_backoff(client, namespace, name, 2.0)
    start_all(stack)
    waiting(stack, len(names))
    assert not any(record.type is RecordType.INTENT for record in stack.records())
    # Each try against a frozen injector takes its time-out of 2 s, so the pauses between tries grow later.
    long_in_backoff(client, namespace, names[0], 46.0 if fault is Fault.FROZEN else IN_BACK_OFF_SECONDS)

    bed.heal()

    client.wait_healed(namespace, bed.wear.sidecar, 8)
    for name in names:
        assert outcome_of(stack, name) in ("healed", "already_healthy")
    assert client.nudge_annotations(namespace) == []
    nudged = [name for name in names if "intent" in types(stack.chain(name))]
    assert nudged, "nothing was nudged: Kubernetes was faster every time"
    for name in nudged:
        order = [t for t in types(stack.chain(name)) if t not in ("wait", "note")]
        assert order == ["finding", "release", "decision", "intent", "action", "action", "outcome"]


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job", "ReplicationController"])
def test_other_owners_are_nudged_and_nothing_is_left_behind(
    bed: TestBed, client: Client, namespace: str, stack: Stack, kind: str
) -> None:
    bed.inject_fault(Fault.KILLED)
    make = {
        "StatefulSet": lambda: w.stateful_set("db", 2),
        "DaemonSet": lambda: w.daemon_set("agent"),
        "Job": lambda: w.job("report", 2),
        "ReplicationController": lambda: w.replication_controller("old", 2),
    }
    name = client.create(namespace, make[kind]())["metadata"]["name"]
    start_all(stack)
    waiting(stack, 1)

    bed.heal()

    result = outcome_of(stack, name, 90)
    assert result in ("healed", "injected", "already_healthy")
    count = 3 if kind == "DaemonSet" else 2
    client.wait_healed(namespace, bed.wear.sidecar, count)
    assert client.nudge_annotations(namespace) == []


def test_a_denial_is_reported_with_its_reason_and_never_retried(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.DENYING)
    client.create(namespace, w.replica_set("denied", 1))
    client.wait_failing("ReplicaSet", namespace, ["denied"])
    start_all(stack)
    refusal = wait_until(
        lambda: [r for r in stack.chain("denied") if r.type is RecordType.REFUSAL], "a refusal in the trail"
    )[0]
    assert refusal.cause == "webhook_denied"
    bed.heal()
    client.create(namespace, w.replica_set("sound", 1))
    wait_until(lambda: client.pods(namespace, "sound"), "the sound one has its pod")
    assert "intent" not in types(stack.chain("denied"))
    assert "release" not in types(stack.chain("denied"))


def test_an_exceeded_quota_is_reported_and_never_retried(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "0"}},
    }
    client.api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    try:
        client.create(namespace, w.replica_set("greedy", 1))
        client.wait_failing("ReplicaSet", namespace, ["greedy"])
        start_all(stack)
        refusal = wait_until(
            lambda: [r for r in stack.chain("greedy") if r.type is RecordType.REFUSAL], "a refusal in the trail"
        )[0]
        assert refusal.cause == "quota_exceeded"
        assert "release" not in types(stack.chain("greedy"))
    finally:
        client.api.delete(f"/api/v1/namespaces/{namespace}/resourcequotas/few")


def test_a_restarted_watcher_goes_on_where_the_killed_one_was(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.KILLED)
    names = [f"web-{number}" for number in range(6)]
    for name in names:
        client.create(namespace, w.replica_set(name, 1))
    client.wait_failing("ReplicaSet", namespace, names)
    stack.policy(QUICK)
    stack.start_worker()
    first = stack.start_watcher()
    waiting(stack, len(names))
    ids = {r.ref.name: r.finding_id for r in stack.records(types=[RecordType.FINDING]) if r.ref}
    first.kill()

    bed.heal()
    stack.start_watcher()

    client.wait_healed(namespace, bed.wear.sidecar, len(names))
    for name in names:
        outcome_of(stack, name)
        chain = stack.chain(name)
        assert {record.finding_id for record in chain} == {ids[name]}
        assert types(chain).count("intent") <= 1
        assert types(chain).count("finding") == 1


def test_a_worker_killed_between_intent_and_action_leaves_one_nudge_in_effect(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.KILLED)
    names = [f"web-{number}" for number in range(4)]
    for name in names:
        client.create(namespace, w.replica_set(name, 2))
        # One after the other, so that Kubernetes' own retries do not come first for all of them.
        long_in_backoff(client, namespace, name, 2.0)
    stack.policy(QUICK + "[repair]\nrelease_deadline_seconds = 15.0\nverify_seconds = 10.0\n")
    doomed = stack.start_worker(REMESH_CRASH_AT="intent_written")
    stack.start_watcher()
    waiting(stack, len(names))
    long_in_backoff(client, namespace, names[0], 21.0)
    bed.heal()
    wait_until(lambda: doomed.popen.poll() is not None, "the worker killed itself after the intent", 60)
    begun = [name for name in names if "intent" in types(stack.chain(name))]
    assert begun
    for name in begun:
        assert types(stack.chain(name)).count("intent") == 1
        assert "action" not in types(stack.chain(name))

    stack.start_worker()

    client.wait_healed(namespace, bed.wear.sidecar, 8, 120)
    for name in begun:
        assert outcome_of(stack, name, 90) in ("healed", "already_healthy")
    assert client.nudge_annotations(namespace) == []


def test_redis_restarted_in_the_middle_loses_nothing(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.KILLED)
    names = [f"web-{number}" for number in range(5)]
    for name in names:
        client.create(namespace, w.replica_set(name, 1))
    client.wait_failing("ReplicaSet", namespace, names)
    start_all(stack)
    waiting(stack, len(names))
    before = [record.record_id for record in stack.records()]
    stack.redis.kill()
    stack.redis.start()
    assert [record.record_id for record in stack.records()][: len(before)] == before

    bed.heal()

    client.wait_healed(namespace, bed.wear.sidecar, len(names))
    for name in names:
        assert outcome_of(stack, name, 90) in ("healed", "already_healthy")


def test_the_trail_names_every_object_where_events_keep_twenty_five(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    client.create(namespace, w.deployment("big", 1000, annotations={"linkerd.io/inject": "disabled"}))
    wait_until(lambda: len(client.pods(namespace)) == 1000, "1000 pods", 120)
    created = [event for event in client.items("Event", namespace) if event["reason"] == "SuccessfulCreate"]
    assert sum(event.get("count") or 1 for event in created) == 25

    bed.inject_fault(Fault.KILLED)
    names = [f"web-{number}" for number in range(1000)]
    for name in names:
        client.create(namespace, w.replica_set(name, 1))
    start_all(stack)
    waiting(stack, 1000)
    named = {record.ref.name for record in stack.records(types=[RecordType.FINDING]) if record.ref}
    assert set(names) <= named
