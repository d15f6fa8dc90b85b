"""Several watchers: one leads, another takes over, shards share the namespaces out, clusters share a Redis."""

import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from remesh.embedded import EmbeddedRedis
from remesh.models import RecordType
from remesh.presence import Presence, Role
from remesh.queue import make_app
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.e2e.test_main_job import QUICK, long_in_backoff, outcome_of, waiting
from tests.stack import Process, Stack, free_port, types, wait_until
from tests.wears import CONTROLLER_QPS, WEBHOOK_TIMEOUT_SECONDS
from watcher.shard import Shard

# Little fits through at a time, so that a leader's end falls into the middle of the incident. What it released and
# could not queue any more is released again after seconds, not minutes.
NARROW = (
    QUICK
    + "[window]\ninitial = 2\nminimum = 2\nmaximum = 2\n"
    + "[repair]\nrelease_deadline_seconds = 12.0\nverify_seconds = 8.0\n"
)
SHORT = {"DURATION": 3, "RENEW_DEADLINE": 2, "RETRY": 1}
LONG = {"DURATION": 3000, "RENEW_DEADLINE": 2000, "RETRY": 1}

pytestmark = pytest.mark.timeout(240)
ON_SIM = pytest.mark.parametrize("bed", ["sim"], indirect=True)


def candidate(stack: Stack, namespace: str, times: dict[str, int], **env: str) -> Process:
    """Start a watcher that asks for the lease in `namespace`; returns when it is synced."""
    number = sum(1 for each in stack.processes if each.name.startswith("watcher"))
    seconds = {f"REMESH_LEASE_{name}_SECONDS": str(value) for name, value in times.items()}
    return stack.start_watcher(
        REMESH_LEADER_ELECTION="true",
        REMESH_LEASE_NAMESPACE=namespace,
        REMESH_HEARTBEAT=str(stack.folder / f"heartbeat-{number}.json"),
        **seconds,
        **env,
    )


def pair(stack: Stack, namespace: str, times: dict[str, int]) -> tuple[Process, Process]:
    """A leader and a standby."""
    leader = candidate(stack, namespace, times)
    leader.wait_for("leading")
    standby = candidate(stack, namespace, times)
    standby.wait_for("standing by")
    return leader, standby


def stuck(client: Client, namespace: str, names: list[str]) -> None:
    """ReplicaSets of two pods each, failing, one begun after the other."""
    for name in names:
        client.create(namespace, w.replica_set(name, 2))
        long_in_backoff(client, namespace, name, 1.0)


def as_if_nothing_had_happened(stack: Stack, names: list[str]) -> list[str]:
    """Assert that each has one whole chain, in order and without a repeat; the names that were nudged."""
    nudged = []
    for name in names:
        assert outcome_of(stack, name, 90) in ("healed", "already_healthy")
        chain = stack.chain(name)
        assert len({record.finding_id for record in chain}) == 1
        order = [kind for kind in types(chain) if kind not in ("wait", "note")]
        if "intent" in order:
            nudged.append(name)
            assert order == ["finding", "release", "decision", "intent", "action", "action", "outcome"]
        else:
            assert order in (["finding", "outcome"], ["finding", "release", "decision", "outcome"])
    return nudged


def test_a_leader_killed_in_the_middle_of_an_incident_leaves_no_trace(
    bed: TestBed, client: Client, namespace: str, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"web-{number}" for number in range(4)]
    bed.inject_fault(Fault.KILLED)
    stuck(client, namespace, names)
    stack.policy(NARROW)
    stack.start_worker()
    leader, standby = pair(stack, namespace, SHORT)
    waiting(stack, len(names))
    long_in_backoff(client, namespace, names[-1])

    bed.heal()
    leader.wait_for(": released ")  # its task is in the queue; others wait for room in the window
    leader.kill()
    killed = time.monotonic()
    standby.wait_for("leading")
    with capsys.disabled():
        print(f"\n[{bed.kind}] taken over {time.monotonic() - killed:.1f} s after SIGKILL, lease of 3 s")

    client.wait_healed(namespace, bed.wear.sidecar, 2 * len(names))
    assert as_if_nothing_had_happened(stack, names)
    assert client.nudge_annotations(namespace) == []


def test_a_leader_that_is_asked_to_end_gives_its_lease_back(
    bed: TestBed, client: Client, namespace: str, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, standby = pair(stack, namespace, LONG)
    presence = Presence(stack.connection, stack.cluster)
    wait_until(lambda: [s.role for s in presence.everybody()] == [Role.LEADER, Role.STANDBY], "both to be seen")
    began = time.monotonic()
    leader.terminate()
    standby.wait_for("leading", 60)  # a lease that was not given back would last 50 minutes
    with capsys.disabled():
        print(f"\n[{bed.kind}] taken over {time.monotonic() - began:.1f} s after SIGTERM, lease of 3000 s")
    assert leader.popen.returncode == 0
    lease = client.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/remesh-watcher")
    assert lease["spec"]["leaseTransitions"] == 1
    wait_until(lambda: [s.role for s in presence.everybody()] == [Role.LEADER], "the one that is left to lead")


@ON_SIM
def test_a_leader_that_slept_through_its_lease_releases_nothing_more(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    names = ["web-0", "web-1", "web-2"]
    bed.inject_fault(Fault.KILLED)
    stuck(client, namespace, names)
    stack.policy(NARROW)
    leader, standby = pair(stack, namespace, SHORT)
    waiting(stack, len(names))
    leader.freeze()
    standby.wait_for("leading")
    long_in_backoff(client, namespace, names[-1])
    bed.heal()
    wait_until(lambda: stack.records(types=[RecordType.RELEASE]), "the new leader to release")
    leader.thaw()
    leader.wait_for("the lease is lost")
    leader.wait_for("standing by")
    stack.start_worker()
    client.wait_healed(namespace, bed.wear.sidecar, 2 * len(names))
    as_if_nothing_had_happened(stack, names)
    assert ": released " not in leader.text()
    assert standby.text().count(": leading") == 1


@ON_SIM
def test_shards_share_the_findings_out_and_each_has_a_lease(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    found: dict[int, str] = {}
    for number in range(64):
        name = f"{namespace}-part-{number}"
        found.setdefault(next(i for i in range(2) if Shard(i, 2).owns(name)), name)
    assert set(found) == {0, 1}
    for part in found.values():
        client.create_meshed_namespace(part, bed.wear)
    bed.inject_fault(Fault.KILLED)
    for part in found.values():
        for number in range(3):
            client.create(part, w.replica_set(f"{part}-{number}", 1))
    stack.policy(QUICK)
    stack.start_worker()
    parts = [candidate(stack, namespace, SHORT, REMESH_SHARD=f"{index}/2") for index in (0, 1)]
    waiting(stack, 6)

    bed.heal()

    for part in found.values():
        client.wait_healed(part, bed.wear.sidecar, 3)
        as_if_nothing_had_happened(stack, [f"{part}-{number}" for number in range(3)])
    for index, watcher in enumerate(parts):
        said = [line for line in watcher.text().splitlines() if ": finding " in line]
        assert sum(found[index] in line for line in said) == 3
        assert not any(found[1 - index] in line for line in said)
        lease = client.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/remesh-watcher-{index}")
        assert lease["spec"]["holderIdentity"]
    for part in found.values():
        client.delete_workloads(part)


@ON_SIM
def test_clusters_on_one_redis_do_not_see_each_other(bed: TestBed, tmp_path: Path) -> None:
    wear = InjectorWear(timeout_seconds=WEBHOOK_TIMEOUT_SECONDS)
    with EmbeddedRedis(tmp_path / "redis") as server, SimCluster.start(wear, controller_qps=CONTROLLER_QPS) as other:
        stacks = {
            "east": Stack(bed, _folder(tmp_path, "east"), cluster="east", redis_url=server.url),
            "west": Stack(other, _folder(tmp_path, "west"), cluster="west", redis_url=server.url),
        }
        clients = {name: Client(stack.bed.kubeconfig) for name, stack in stacks.items()}
        try:
            _two_clusters(stacks, clients)
        finally:
            for name, stack in stacks.items():
                clients[name].delete_workloads("twin")
                clients[name].close()
                stack.stop()


def _two_clusters(stacks: dict[str, Stack], clients: dict[str, Client]) -> None:
    """The same names in both; the injector of one only comes back."""
    east, west = stacks["east"], stacks["west"]
    ports: dict[str, int] = {}
    for name, stack in stacks.items():
        clients[name].create_meshed_namespace("twin", stack.bed.wear)
        stack.bed.inject_fault(Fault.KILLED)
        clients[name].create("twin", w.replica_set("web", 2))
        stack.policy(QUICK)
        stack.start_worker(REMESH_METRICS_PORT="0")
        ports[name] = free_port()
        stack.start_watcher(REMESH_METRICS_PORT=str(ports[name]))
        waiting(stack, 1)

    east.bed.heal()

    clients["east"].wait_healed("twin", east.bed.wear.sidecar, 2)
    outcome_of(east, "web")
    assert "release" not in types(west.chain("web"))
    for name, stack in stacks.items():
        assert {record.cluster for record in stack.records()} == {name}
        with make_app(stack.settings, consumes=False) as app:
            answers = app.control.ping(timeout=3.0)
        assert len(answers) == 1
        assert _clusters_in_metrics(ports[name]) == {name}
    keys = [str(key) for key in east.connection.scan_iter(count=1000)]
    assert [key for key in keys if not key.startswith(("remesh:{east}:", "remesh:{west}:"))] == []
    west.bed.heal()
    clients["west"].wait_healed("twin", west.bed.wear.sidecar, 2)


def _clusters_in_metrics(port: int) -> set[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    ours = [line for line in text.splitlines() if line.startswith("remesh_")]
    assert all('cluster="' in line for line in ours)
    return {line.partition('cluster="')[2].partition('"')[0] for line in ours}


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder
