"""Real workers replace bare pods: what goes, what stays, and what the owner's people never have to miss."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from remesh.models import Action, FailureClass, ObjectRef, Outcome, RecordType, RepairRequest, Result
from remesh.testbed import Fault
from tests.cluster import workloads as w
from tests.cluster.cluster import RealCluster
from tests.cluster.served import CONFIGURATIONS
from tests.stack import wait_until
from tests.workers.conftest import Scene, on_every_bed
from workers.recreate_census import MANY_PODS
from workers.recreate_proof import LONGEST_PROOF_SECONDS

pytestmark = pytest.mark.timeout(280)

# Enough for one after the other, and no waiting for cooldowns: the tests ask again at once, as the watcher would later.
DRIVE_SECONDS = 200.0
POLICY = "[repair]\ncooldown_seconds = 0.0\nverify_seconds = 20.0\n"


@contextmanager
def failing_open(scene: Scene) -> Iterator[None]:
    """The webhook's failurePolicy is Ignore meanwhile: a dead injector means bare pods."""
    place = f"{CONFIGURATIONS}/{scene.bed.wear.configuration}"

    def set_policy(value: str) -> None:
        scene.client.api.patch(
            place, [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": value}], kind="json"
        )

    set_policy("Ignore")
    try:
        yield
    finally:
        set_policy("Fail")


@pytest.fixture
def lax(scene: Scene) -> Iterator[Scene]:
    """A scene behind a webhook that fails open."""
    scene.stack.policy(POLICY)
    with failing_open(scene):
        yield scene


def running(scene: Scene, app: str) -> list[dict[str, Any]]:
    """The pods of one app that are not being deleted."""
    pods = scene.client.pods(scene.namespace)
    mine = [pod for pod in pods if pod["metadata"]["labels"].get("app") == app]
    return [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]


def is_bare(scene: Scene, pod: dict[str, Any]) -> bool:
    return not w.has_container(pod, scene.bed.wear.sidecar)


def all_ready(scene: Scene, app: str, count: int) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]]:
        pods = running(scene, app)
        return pods if len(pods) == count and all(map(w.is_ready, pods)) else []

    return wait_until(look, f"{count} pods of {app} Ready", 90)


def come_up_bare(scene: Scene, body: dict[str, Any], count: int, fault: Fault = Fault.KILLED) -> list[dict[str, Any]]:
    """Create a workload while its injector is broken; the injector works again afterwards."""
    scene.bed.inject_fault(fault)
    scene.client.create(scene.namespace, body)
    pods = all_ready(scene, body["metadata"]["name"], count)
    assert all(is_bare(scene, pod) for pod in pods)
    scene.bed.heal()
    return pods


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def request_for(scene: Scene, pod: dict[str, Any], attempt: int = 1, **more: Any) -> RepairRequest:
    meta = pod["metadata"]
    ref = ObjectRef(api_version="v1", kind="Pod", namespace=scene.namespace, name=meta["name"], uid=meta["uid"])
    known = {"action": Action.RECREATE_POD, "cause": FailureClass.MISSING_SIDECAR}
    return scene.request(ref, attempt=attempt, **(known | more))


def drive(scene: Scene, pods: list[dict[str, Any]], attempt: int = 1) -> dict[str, Outcome]:
    """Ask for every pod, and again for those that were skipped, as the watcher would; the last outcomes by name."""
    end, left = time.monotonic() + DRIVE_SECONDS, list(pods)
    ended: dict[str, Outcome] = {}
    while left and time.monotonic() < end:
        requests = [request_for(scene, pod, attempt) for pod in left]
        for request in requests:
            scene.send(request)
        for request in requests:
            ended[request.ref.name] = scene.outcome(request)
        left = [pod for pod in left if ended[pod["metadata"]["name"]].result is Result.SKIPPED]
        attempt += 1
    return ended


class Sampler:
    """Looks at the world all the time while something happens; `worst` is the lowest that was seen."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.worst = 10**6

    def _run(self) -> None:
        while not self._over.is_set():
            self.worst = min(self.worst, self._look())
            self._over.wait(0.02)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def evicted(scene: Scene) -> list[str]:
    """Names of the evicted pods, in the order of the trail."""
    actions = scene.stack.records(types=[RecordType.ACTION])
    return [record.ref.name for record in actions if record.ref is not None and record.code == "evicted"]


@on_every_bed
def test_exactly_the_bare_pods_of_a_deployment_are_replaced_and_its_budget_is_kept(lax: Scene) -> None:
    scene = lax
    deployment = w.deployment("web", 4)
    scene.client.create(scene.namespace, deployment)
    injected = uids(all_ready(scene, "web", 4))
    scene.bed.inject_fault(Fault.FROZEN)
    scene.client.api.patch(w.path("Deployment", scene.namespace, "web"), {"spec": {"replicas": 12}})
    pods = all_ready(scene, "web", 12)
    bare = [pod for pod in pods if is_bare(scene, pod)]
    assert len(bare) == 8
    scene.bed.heal()
    scene.client.create(scene.namespace, w.disruption_budget("steady", "web", 10))
    budget = w.path("PodDisruptionBudget", scene.namespace, "steady")
    wait_until(
        lambda: scene.client.api.get(budget).get("status", {}).get("disruptionsAllowed") == 2, "a counted budget"
    )

    def healthy() -> int:
        return sum(1 for pod in running(scene, "web") if w.is_ready(pod))

    scene.stack.start_worker()
    with Sampler(healthy) as seen:
        outcomes = drive(scene, bare)

    assert {outcome.result for outcome in outcomes.values()} <= {Result.HEALED, Result.INJECTED}
    after = all_ready(scene, "web", 12)
    assert not any(is_bare(scene, pod) for pod in after)
    assert injected <= uids(after), "no injected pod was touched"
    assert not uids(bare) & uids(after)
    assert sorted(evicted(scene)) == sorted(pod["metadata"]["name"] for pod in bare)
    assert seen.worst >= 10, "the budget was kept at every moment"


@on_every_bed
def test_of_a_large_owner_exactly_the_bare_pods_are_replaced_and_its_pods_are_followed(lax: Scene) -> None:
    scene, whole = lax, MANY_PODS + 8
    scene.client.create(scene.namespace, w.replica_set("large", MANY_PODS))
    injected = uids(all_ready(scene, "large", MANY_PODS))
    scene.bed.inject_fault(Fault.KILLED)
    scene.client.scale("ReplicaSet", scene.namespace, "large", whole)
    bare = [pod for pod in all_ready(scene, "large", whole) if is_bare(scene, pod)]
    assert len(bare) == 8
    scene.bed.heal()
    worker = scene.stack.start_worker()

    outcomes = drive(scene, bare)

    assert {outcome.result for outcome in outcomes.values()} <= {Result.HEALED, Result.INJECTED}
    after = all_ready(scene, "large", whole)
    assert not any(is_bare(scene, pod) for pod in after)
    assert injected <= uids(after), "no injected pod was touched"
    assert sorted(evicted(scene)) == sorted(pod["metadata"]["name"] for pod in bare)
    assert worker.text().count("following the pods of a large owner") == 1


@on_every_bed
def test_an_injector_that_answers_and_injects_nothing_costs_no_pod(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.replica_set("web", 3), 3, Fault.NOT_INJECTING)
    scene.bed.inject_fault(Fault.NOT_INJECTING)
    scene.stack.start_worker()

    outcomes = drive(scene, bare)

    assert {(each.result, each.code) for each in outcomes.values()} == {(Result.WAITING, "no_sidecar")}
    assert uids(running(scene, "web")) == uids(bare)
    assert evicted(scene) == []


@on_every_bed
def test_a_budget_without_room_is_named_and_nothing_goes(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.replica_set("web", 2), 2)
    scene.client.create(scene.namespace, w.disruption_budget("steady", "web", 2))
    budget = w.path("PodDisruptionBudget", scene.namespace, "steady")
    wait_until(lambda: scene.client.api.get(budget).get("status", {}).get("currentHealthy") == 2, "a counted budget")
    scene.stack.start_worker()
    request = request_for(scene, bare[0])

    scene.send(request)

    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code, outcome.acted) == (Result.SKIPPED, "blocked_by_pdb", False)
    assert "PodDisruptionBudget/steady" in outcome.reason
    assert uids(running(scene, "web")) == uids(bare)


@on_every_bed
def test_a_statefulset_is_repaired_one_by_one_from_the_highest_ordinal(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.stateful_set("db", 3, parallel=True), 3)
    scene.stack.start_worker()

    with Sampler(lambda: sum(1 for pod in running(scene, "db") if w.is_ready(pod))) as seen:
        outcomes = drive(scene, bare)

    assert {outcome.result for outcome in outcomes.values()} == {Result.HEALED}
    assert evicted(scene) == ["db-2", "db-1", "db-0"]
    assert seen.worst >= 2
    assert not any(is_bare(scene, pod) for pod in all_ready(scene, "db", 3))


@on_every_bed
def test_a_daemonset_gives_up_one_pod_at_a_time(lax: Scene) -> None:
    scene = lax
    nodes = 3
    bare = come_up_bare(scene, w.daemon_set("agent"), nodes)
    scene.stack.start_worker()

    with Sampler(lambda: sum(1 for pod in running(scene, "agent") if w.is_ready(pod))) as seen:
        outcomes = drive(scene, bare)

    assert {outcome.result for outcome in outcomes.values()} == {Result.HEALED}
    assert seen.worst >= nodes - 1
    assert not any(is_bare(scene, pod) for pod in all_ready(scene, "agent", nodes))


@on_every_bed
def test_a_pod_without_a_controller_is_created_again(lax: Scene) -> None:
    scene = lax
    scene.stack.policy(POLICY + "bare_pods = true\n")
    lonely = w.pod("lonely", labels={"keep": "me"})
    lonely["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2-hunter2"}]
    [bare] = come_up_bare(scene, lonely, 1)
    worker = scene.stack.start_worker()

    outcomes = drive(scene, [bare])

    assert outcomes["lonely"].result is Result.HEALED, outcomes["lonely"].reason
    [after] = all_ready(scene, "lonely", 1)
    assert not is_bare(scene, after)
    assert after["metadata"]["uid"] != bare["metadata"]["uid"]
    assert after["metadata"]["labels"]["keep"] == "me"
    assert after["spec"]["containers"][0]["env"] == lonely["spec"]["containers"][0]["env"]
    trail = "\n".join(record.model_dump_json() for record in scene.stack.records())
    assert "hunter2" not in trail + worker.text() + outcomes["lonely"].model_dump_json()


@on_every_bed
@pytest.mark.parametrize("step", ["manifest_kept", "intent_written", "evicted", "created"])
def test_a_pod_without_a_controller_survives_a_worker_that_dies(lax: Scene, step: str) -> None:
    scene = lax
    scene.stack.policy(POLICY + "bare_pods = true\n")
    [bare] = come_up_bare(scene, w.pod("lonely"), 1)
    request = request_for(scene, bare)
    doomed = scene.stack.start_worker(REMESH_CRASH_AT=step)
    scene.send(request)
    wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
    scene.expire_lease(request.ref)

    scene.stack.start_worker()
    scene.expire_visibility()

    outcome = scene.outcome(request)
    assert outcome.result is Result.HEALED, outcome.reason
    [after] = all_ready(scene, "lonely", 1)
    assert not is_bare(scene, after)


@on_every_bed
def test_a_worker_that_dies_after_an_eviction_costs_no_second_pod(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.replica_set("web", 3), 3)
    request = request_for(scene, bare[0])
    doomed = scene.stack.start_worker(REMESH_CRASH_AT="evicted")
    scene.send(request)
    wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
    scene.expire_lease(request.ref)

    scene.stack.start_worker()
    scene.expire_visibility()

    assert scene.outcome(request).result is Result.HEALED
    after = all_ready(scene, "web", 3)
    assert uids(after) & uids(bare) == uids(bare[1:])
    assert sum(is_bare(scene, pod) for pod in after) == 2


@on_every_bed
def test_a_pod_that_cannot_be_created_again_is_tried_until_it_can(lax: Scene) -> None:
    scene = lax
    scene.stack.policy(POLICY.replace("20.0", "2.0") + "bare_pods = true\n")
    [bare] = come_up_bare(scene, w.pod("lonely"), 1)
    request = request_for(scene, bare)
    doomed = scene.stack.start_worker(REMESH_CRASH_AT="evicted")
    scene.send(request)
    wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
    scene.expire_lease(request.ref)
    quotas = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.client.api.post(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    wait_until(lambda: scene.client.api.get(f"{quotas}/none").get("status", {}).get("used"), "the quota is counted")

    scene.stack.start_worker()
    scene.expire_visibility()
    wait_until(lambda: "restore_pending" in scene.codes(request, RecordType.NOTE), "a person is told")
    assert running(scene, "lonely") == []
    scene.client.api.delete(f"{quotas}/none")

    assert scene.outcome(request).result in (Result.HEALED, Result.INJECTED)
    [after] = all_ready(scene, "lonely", 1)
    assert not is_bare(scene, after)


WRONG_OWNERS = {
    "a kind that is not installed": {"apiVersion": "example.com/v1", "kind": "Gone", "name": "x"},
    "no group that could be in a URL": {"apiVersion": "a b?c=d#/v1", "kind": "Thing", "name": "x"},
    "an installed kind and an object that never was": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "never"},
}


@on_every_bed
def test_pods_whose_owner_is_nobody_are_reported_and_stay(lax: Scene) -> None:
    """Kubernetes' own garbage collector may take those whose owner it knows to be gone; remesh takes none."""
    scene = lax
    scene.bed.inject_fault(Fault.KILLED)
    pods = []
    for number, owner in enumerate(WRONG_OWNERS.values()):
        body = w.pod(f"stray-{number}")
        body["metadata"]["ownerReferences"] = [
            {**owner, "uid": f"11111111-2222-3333-4444-55555555555{number}", "controller": True}
        ]
        pods.append(scene.client.create(scene.namespace, body))
    scene.bed.heal()
    scene.stack.start_worker()

    outcomes = drive(scene, pods)

    assert {outcome.code for outcome in outcomes.values()} <= {"owner_gone", "no_controller", "gone", "being_deleted"}
    assert outcomes["stray-0"].code == "owner_gone"
    assert all(outcome.reason and not outcome.acted for outcome in outcomes.values())
    assert evicted(scene) == []


@on_every_bed
def test_budgets_that_match_everything_or_nothing(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.replica_set("web", 2), 2)
    everything = w.disruption_budget("everything", "web", 1)
    everything["spec"]["selector"] = {}
    scene.client.create(scene.namespace, everything)
    scene.client.create(scene.namespace, w.disruption_budget("nothing", "nobody", 7))
    budget = w.path("PodDisruptionBudget", scene.namespace, "everything")
    wait_until(
        lambda: scene.client.api.get(budget).get("status", {}).get("disruptionsAllowed") == 1, "a counted budget"
    )
    scene.stack.start_worker()

    assert {outcome.result for outcome in drive(scene, bare).values()} == {Result.HEALED}

    second = w.disruption_budget("second", "web", 1)
    scene.client.create(scene.namespace, second)
    scene.bed.inject_fault(Fault.KILLED)
    scene.client.scale("ReplicaSet", scene.namespace, "web", 3)
    [late] = [pod for pod in all_ready(scene, "web", 3) if is_bare(scene, pod)]
    scene.bed.heal()
    outcome = drive(scene, [late])[late["metadata"]["name"]]
    assert (outcome.result, outcome.code) == (Result.REPORTED, "several_pdbs")
    assert "PodDisruptionBudget/everything, PodDisruptionBudget/second" in outcome.reason


@on_every_bed
def test_an_injector_that_dies_again_stops_the_evictions_until_it_is_back(lax: Scene) -> None:
    scene = lax
    bare = come_up_bare(scene, w.replica_set("web", 6), 6)
    scene.stack.start_worker()
    first = drive(scene, bare[:2])
    assert {outcome.result for outcome in first.values()} == {Result.HEALED}
    scene.bed.inject_fault(Fault.FROZEN)
    before, frozen = uids(running(scene, "web")), time.monotonic()
    wait_until(lambda: time.monotonic() - frozen > LONGEST_PROOF_SECONDS, "the last proof is not believed any longer")

    stopped = drive(scene, bare[2:])
    assert {outcome.result for outcome in stopped.values()} == {Result.WAITING}
    assert uids(running(scene, "web")) == before, "nothing was evicted"

    scene.bed.heal()
    healed = drive(scene, bare[2:], attempt=50)
    assert {outcome.result for outcome in healed.values()} == {Result.HEALED}
    assert not any(is_bare(scene, pod) for pod in all_ready(scene, "web", 6))


@pytest.mark.real
@pytest.mark.parametrize("bed", ["real"], indirect=True)
def test_the_dry_run_is_made_in_the_controllers_name(real_cluster: RealCluster, lax: Scene) -> None:
    """The API server's own audit log says who asked, and as whom."""
    scene = lax
    scene.stack.policy(POLICY + "impersonate_controller = true\n")
    bare = come_up_bare(scene, w.replica_set("web", 1), 1)
    scene.stack.start_worker()

    assert {outcome.result for outcome in drive(scene, bare).values()} == {Result.HEALED}

    asked = [
        event
        for event in real_cluster.control_plane.audit_events()
        if event.get("objectRef", {}).get("namespace") == scene.namespace and "impersonatedUser" in event
    ]
    account = "system:serviceaccount:kube-system:replicaset-controller"
    assert {event["impersonatedUser"]["username"] for event in asked} == {account}
    assert all("dryRun=All" in event["requestURI"] for event in asked), "nothing was stored in that name"
