"""Istio's revisions and tags on real istiods: each pod's own webhook is known, and only its own revision is waited for.

Beside the default revision runs a second one, `canary`, with an istiod and a webhook configuration of its own; the
revision tag `prod` points to it.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient
from remesh.meshes import load_profiles
from remesh.models import RecordType
from remesh.sidecars import expected_sidecars
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.istio import IstioCluster
from tests.cluster.istio_injector import Istio
from tests.e2e.test_bare_pods import bare, findings, uids
from tests.e2e.test_main_job import QUICK, start_all, waiting
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DEFAULT, CANARY, TAG = "istio-sidecar-injector", "istio-sidecar-injector-canary", "istio-revision-tag-prod"
ASKING = {  # labels of a namespace → revision whose sidecar its pods get
    "enabled": ({"istio-injection": "enabled"}, "default"),
    "canary": ({"istio.io/rev": "canary"}, "canary"),
    "prod": ({"istio.io/rev": "prod"}, "canary"),
}
GATES = {"default": "istio-system/istiod", "canary": "istio-system/istiod-canary"}
PODS = 4
# Half of an owner's pods at once: how many may go is not the question here.
POLICY = QUICK + "[repair]\nshare = 0.5\n"

_numbers = count(1)


@pytest.fixture
def canary(istio_cluster: IstioCluster) -> Iterator[Istio]:
    """The second revision, and its tag. Afterwards both revisions work again, and are configured as they were."""
    second = istio_cluster.revision("canary")
    istio_cluster.tag("prod", "canary")
    yield second
    istio_cluster.reset_webhook()
    istio_cluster.heal()
    second.reset_configuration()
    second.heal()


@pytest.fixture
def bed(istio_cluster: IstioCluster) -> TestBed:
    """For `client` and `stack`."""
    return istio_cluster


@pytest.fixture
def shops(client: Client, canary: Istio) -> Iterator[dict[str, str]]:
    """A fresh namespace for each of `ASKING`."""
    number = next(_numbers)
    names = {asking: f"revision-{number}-{asking}" for asking in ASKING}
    for asking, name in names.items():
        client.create_namespace(w.namespace(name, labels=ASKING[asking][0]))
    yield names
    for name in names.values():
        client.delete_workloads(name)
        client.api.delete(f"/api/v1/namespaces/{name}")


def set_webhooks(client: Client, **fields: object) -> None:
    for configuration in (DEFAULT, CANARY, TAG):
        client.change_webhooks(configuration, **fields)


def revisions(client: Client, namespace: str) -> set[str]:
    """Which revisions the pods' sidecars are of."""
    return {pod["metadata"].get("annotations", {}).get("istio.io/rev", "") for pod in client.pods(namespace)}


def touched(stack: Stack) -> set[str]:
    """Namespaces in which anything was repaired."""
    return {r.ref.namespace for r in stack.records(types=[RecordType.INTENT]) if r.ref}


def gates_closed(stack: Stack) -> set[str]:
    return {str(r.details["injector"]) for r in stack.records(types=[RecordType.WAIT])}


@pytest.mark.parametrize(
    ("of_namespace", "of_pod", "seen_by"),
    [
        ({"istio-injection": "enabled"}, {}, DEFAULT),
        ({"istio.io/rev": "canary"}, {}, CANARY),
        ({"istio.io/rev": "prod"}, {}, TAG),
        ({"istio.io/rev": "default"}, {}, DEFAULT),
        ({"istio.io/rev": "retired"}, {}, None),
        ({"istio-injection": "enabled", "istio.io/rev": "canary"}, {}, DEFAULT),
        ({"istio-injection": "disabled", "istio.io/rev": "canary"}, {}, None),
        ({"istio.io/rev": "canary"}, {"sidecar.istio.io/inject": "false"}, None),
        ({"istio.io/rev": "canary"}, {"istio.io/rev": "prod"}, CANARY),
        ({}, {"istio.io/rev": "canary"}, CANARY),
        ({}, {"istio.io/rev": "prod"}, TAG),
        ({}, {"sidecar.istio.io/inject": "true"}, DEFAULT),
        ({}, {}, None),
    ],
)
def test_the_webhook_that_would_see_a_pod_is_the_one_that_the_api_server_calls(
    istio_cluster: IstioCluster,
    canary: Istio,
    client: Client,
    of_namespace: dict[str, str],
    of_pod: dict[str, str],
    seen_by: str | None,
) -> None:
    name = f"revision-{next(_numbers)}"
    client.create_namespace(w.namespace(name, labels=of_namespace))
    client.create(name, w.pod("asking", labels=of_pod))

    cluster = Cluster(KubeClient(load_access(istio_cluster.kubeconfig)))
    expected = expected_sidecars(
        cluster.pod(name, "asking"), cluster.namespace(name), cluster.webhooks(), load_profiles()
    )

    called = {seen_by} if seen_by else set()
    assert {injector.configuration for _, injector in expected} == called
    assert istio_cluster.asked(name)["asking"] == called
    cluster.client.close()
    client.api.delete(f"/api/v1/namespaces/{name}")


def test_bare_pods_of_a_frozen_revision_and_its_tag_wait_while_those_of_the_other_are_replaced(
    istio_cluster: IstioCluster, canary: Istio, client: Client, shops: dict[str, str], stack: Stack
) -> None:
    sidecar = istio_cluster.wear.sidecar
    set_webhooks(client, failurePolicy="Ignore", timeoutSeconds=2)
    istio_cluster.inject_fault(Fault.FROZEN)
    canary.inject_fault(Fault.FROZEN, 0)
    for name in shops.values():
        client.create(name, w.deployment("web", PODS))
    for name in shops.values():
        wait_until(lambda name=name: len(client.ready(name)) == PODS, f"pods of {name} Ready")  # type: ignore[misc]
    lacking = {name: bare(client, name, sidecar) for name in shops.values()}
    assert {len(found) for found in lacking.values()} == {PODS}
    istio_cluster.heal()

    start_all(stack, POLICY)

    client.wait_healed(shops["enabled"], sidecar, PODS)
    wait_until(lambda: findings(stack) >= set().union(*lacking.values()), "a finding for each bare pod")
    wait_until(lambda: GATES["canary"] in gates_closed(stack), "the canary's pods wait for it")
    for asking in ("canary", "prod"):
        assert uids(client, shops[asking]) == lacking[shops[asking]]
    assert touched(stack) == {shops["enabled"]}

    canary.heal()

    for asking, name in shops.items():
        client.wait_healed(name, sidecar, PODS)
        assert revisions(client, name) == {ASKING[asking][1]}
    wait_until(lambda: len(stack.outcomes()) >= 3 * PODS, "an outcome for each")
    assert {r.ref.uid for r in stack.records(types=[RecordType.INTENT]) if r.ref} == set().union(*lacking.values())
    assert injectors(stack) == {name: {GATES[ASKING[asking][1]]} for asking, name in shops.items()}


def test_what_a_frozen_revision_refused_waits_while_that_of_the_other_is_nudged(
    istio_cluster: IstioCluster, canary: Istio, client: Client, shops: dict[str, str], stack: Stack
) -> None:
    sidecar = istio_cluster.wear.sidecar
    set_webhooks(client, timeoutSeconds=2)
    istio_cluster.inject_fault(Fault.FROZEN)
    canary.inject_fault(Fault.FROZEN, 0)
    for name in shops.values():
        client.create(name, w.replica_set("web", PODS))
    for name in shops.values():
        client.wait_failing("ReplicaSet", name, ["web"])
    start_all(stack, POLICY)
    waiting(stack, len(shops))

    canary.heal()

    for asking in ("canary", "prod"):
        client.wait_healed(shops[asking], sidecar, PODS)
        assert revisions(client, shops[asking]) == {"canary"}
    assert client.pods(shops["enabled"]) == []
    assert shops["enabled"] not in touched(stack)

    istio_cluster.heal()

    client.wait_healed(shops["enabled"], sidecar, PODS)
    assert revisions(client, shops["enabled"]) == {"default"}
    wait_until(lambda: len({r.finding_id for r in stack.outcomes()}) >= len(shops), "an outcome for each")


def injectors(stack: Stack) -> dict[str, set[str]]:
    """By namespace: the injectors that the workers went by."""
    found: dict[str, set[str]] = {}
    for record in stack.records(types=[RecordType.INTENT]):
        if record.ref:
            found.setdefault(record.ref.namespace, set()).add(str(record.details["injector"]))
    return found
