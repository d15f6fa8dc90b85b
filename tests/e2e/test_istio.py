"""The real, unmodified Istio injector: bare pods replaced and stuck ReplicaSets nudged, and nothing else touched."""

import signal
import threading
from collections.abc import Iterator

import pytest

from remesh.models import RecordType
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.istio import IstioCluster
from tests.e2e.test_bare_pods import bare, findings, uids
from tests.e2e.test_main_job import QUICK, start_all, waiting
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

REPLICAS = 500


@pytest.fixture
def bed(istio_cluster: IstioCluster) -> TestBed:
    """For `client` and `stack`."""
    return istio_cluster


@pytest.fixture(autouse=True)
def sound_again(istio_cluster: IstioCluster, istio_namespace: str, client: Client) -> Iterator[None]:
    yield
    istio_cluster.reset_webhook()
    istio_cluster.heal()
    client.delete_workloads(istio_namespace)


class BudgetWatch:
    """Looks at a PodDisruptionBudget all the time, and remembers the fewest healthy pods it ever saw."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.fewest = 10**9
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(client, namespace, name), daemon=True)
        self._thread.start()

    def _watch(self, client: Client, namespace: str, name: str) -> None:
        while not self._stop.wait(0.05):
            status = client.get("PodDisruptionBudget", namespace, name).get("status", {})
            if status.get("observedGeneration"):
                self.fewest = min(self.fewest, status["currentHealthy"] - status["desiredHealthy"])
                self.looks += 1

    def stop(self) -> int:
        """The fewest healthy pods above what the budget demands; below 0 it was violated."""
        self._stop.set()
        self._thread.join()
        return self.fewest


def test_exactly_the_pods_that_a_frozen_istiod_let_through_are_replaced(
    istio_cluster: IstioCluster, istio_namespace: str, client: Client, stack: Stack
) -> None:
    sidecar = istio_cluster.wear.sidecar
    client.create(istio_namespace, w.deployment("web", 10))
    client.wait_healed(istio_namespace, sidecar, 10)
    istio_cluster.change_webhook(failurePolicy="Ignore", timeoutSeconds=2)
    client.scale("Deployment", istio_namespace, "web", REPLICAS)
    wait_until(lambda: len(client.pods(istio_namespace)) > 60, "the scale-up is under way", 60)
    istio_cluster.inject_fault(Fault.FROZEN)
    wait_until(lambda: len(bare(client, istio_namespace, sidecar)) >= 40, "bare pods", 90)
    istio_cluster.heal()
    istio_cluster.change_webhook(failurePolicy="Ignore", timeoutSeconds=10)
    wait_until(lambda: len(client.ready(istio_namespace)) == REPLICAS, "all pods Ready", 120)
    lacking = bare(client, istio_namespace, sidecar)
    sound = uids(client, istio_namespace) - lacking
    client.create(istio_namespace, w.disruption_budget("web", "web", REPLICAS - 50))
    budget = BudgetWatch(client, istio_namespace, "web")

    start_all(stack, QUICK)

    wait_until(lambda: findings(stack) >= lacking, "a finding for each bare pod", 60)
    client.wait_healed(istio_namespace, sidecar, REPLICAS, 300)
    assert budget.stop() >= 0
    assert budget.looks > 0
    now = uids(client, istio_namespace)
    assert sound <= now
    assert not lacking & now
    intents = {r.ref.uid for r in stack.records(types=[RecordType.INTENT]) if r.ref}
    assert intents == lacking
    print(f"{len(lacking)} of {REPLICAS} pods were bare; the budget was looked at {budget.looks} times")


def test_replicasets_that_a_frozen_istiod_refused_are_nudged(
    istio_cluster: IstioCluster, istio_namespace: str, client: Client, stack: Stack
) -> None:
    istio_cluster.change_webhook(timeoutSeconds=2)
    istio_cluster.inject_fault(Fault.FROZEN)
    names = [f"web-{number}" for number in range(10)]
    for name in names:
        client.create(istio_namespace, w.replica_set(name, 2))
    client.wait_failing("ReplicaSet", istio_namespace, names, 120)
    start_all(stack)
    waiting(stack, len(names))

    istio_cluster.heal()

    client.wait_healed(istio_namespace, istio_cluster.wear.sidecar, 20, 120)
    wait_until(lambda: len({r.finding_id for r in stack.outcomes()}) >= len(names), "an outcome for each")
    assert client.nudge_annotations(istio_namespace) == []


def test_with_one_of_two_istiods_on_a_lost_node_the_other_heals(
    istio_cluster: IstioCluster, istio_namespace: str, client: Client, stack: Stack
) -> None:
    istio_cluster.change_webhook(timeoutSeconds=2)
    istio_cluster.inject_fault(Fault.FROZEN)
    client.create(istio_namespace, w.replica_set("web", 4))
    client.wait_failing("ReplicaSet", istio_namespace, ["web"], 60)
    istio_cluster.inject_fault(Fault.NODE_LOST)
    start_all(stack)
    waiting(stack, 1)

    for name in istio_cluster.istiods()[1:]:  # the first one's node is the lost one
        istio_cluster.processes.signal(name, signal.SIGCONT)

    client.wait_healed(istio_namespace, istio_cluster.wear.sidecar, 4, 120)
    wait_until(lambda: len(stack.outcomes()) >= 1, "an outcome")
