"""Pods that came up without their sidecar: proven, evicted a few at a time, verified; nothing healthy is hurt."""

from collections.abc import Iterator

import pytest

from remesh.models import ObjectRef, RecordType
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.e2e.test_main_job import QUICK, start_all
from tests.stack import Stack, wait_until

CLOSED = {"no_quorum", "webhook_connection_refused", "webhook_no_endpoints", "no_sidecar", "failed_again"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def fails_open(bed: TestBed, client: Client) -> Iterator[None]:
    """The webhook has `failurePolicy: Ignore` for one test."""
    client.change_webhooks(bed.wear.configuration, failurePolicy="Ignore")
    yield
    client.change_webhooks(bed.wear.configuration, failurePolicy=bed.wear.failure_policy)


def bare(client: Client, namespace: str, sidecar: str) -> set[str]:
    """UIDs of the pods without the sidecar."""
    return {p["metadata"]["uid"] for p in client.pods(namespace) if not w.has_container(p, sidecar)}


def uids(client: Client, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in client.pods(namespace)}


def half_bare(bed: TestBed, client: Client, namespace: str, name: str, count: int) -> set[str]:
    """A Deployment of `count` pods, half of them created while the injector was frozen; UIDs of the bare ones."""
    client.create(namespace, w.deployment(name, count // 2))
    client.wait_healed(namespace, bed.wear.sidecar, count // 2)
    bed.inject_fault(Fault.FROZEN)
    client.scale("Deployment", namespace, name, count)
    wait_until(lambda: len(client.ready(namespace)) == count, f"{count} pods Ready, half of them bare", 90)
    found = bare(client, namespace, bed.wear.sidecar)
    assert len(found) == count - count // 2
    return found


def test_exactly_the_bare_pods_are_replaced_once_the_injector_works(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    lacking = half_bare(bed, client, namespace, "web", 8)
    sound = uids(client, namespace) - lacking
    client.create(namespace, w.disruption_budget("web", "web", 6))
    start_all(stack)
    wait_until(lambda: findings(stack) >= lacking, "a finding for each bare pod")
    assert uids(client, namespace) == sound | lacking

    bed.heal()

    client.wait_healed(namespace, bed.wear.sidecar, 8, 200)
    now = uids(client, namespace)
    assert sound <= now
    assert not lacking & now
    wait_until(lambda: outcomes(stack) >= lacking, "an outcome for each bare pod")
    intents = {r.ref.uid for r in stack.records(types=[RecordType.INTENT]) if r.ref}
    assert intents == lacking
    above = ObjectRef(api_version="", kind="Deployment", namespace=namespace, name="web")
    found = stack.records(ref=above)
    for kind in (RecordType.FINDING, RecordType.DECISION, RecordType.INTENT, RecordType.ACTION, RecordType.OUTCOME):
        assert {r.ref.uid for r in found if r.ref and r.type is kind} >= lacking, kind
    assert {r.above for r in found if r.ref and r.ref.kind == "Pod"} == {found[-1].above}


def test_an_injector_that_injects_nothing_costs_no_pod(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.NOT_INJECTING)
    client.create(namespace, w.deployment("web", 4))
    wait_until(lambda: len(client.ready(namespace)) == 4, "4 bare pods Ready")
    before = uids(client, namespace)
    start_all(stack)
    wait_until(lambda: findings(stack) >= before, "a finding for each bare pod")
    wait_until(lambda: gate_reasons(stack) >= {"no_sidecar"}, "the gate says why it is closed")
    assert uids(client, namespace) == before
    assert not stack.records(types=[RecordType.INTENT])


def test_a_disruption_budget_is_never_overridden_and_is_named(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.FROZEN)
    client.create(namespace, w.deployment("web", 3))
    wait_until(lambda: len(client.ready(namespace)) == 3, "3 bare pods Ready", 60)
    client.create(namespace, w.disruption_budget("keep-all", "web", 3))
    before = uids(client, namespace)
    bed.heal()
    start_all(stack)

    def blocked() -> bool:
        refusals = stack.records(types=[RecordType.REFUSAL])
        return any("keep-all" in record.reason for record in refusals)

    wait_until(blocked, "a refusal that names the budget", 90)
    assert uids(client, namespace) == before


def test_pods_of_a_statefulset_are_replaced_one_by_one(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.FROZEN)
    client.create(namespace, w.stateful_set("db", 3, parallel=True))
    wait_until(lambda: len(client.ready(namespace)) == 3, "3 bare pods Ready", 60)
    bed.heal()
    start_all(stack)
    client.wait_healed(namespace, bed.wear.sidecar, 3, 200)
    wait_until(lambda: len(stack.outcomes()) >= 3, "an outcome for each pod")
    order = [r.ref.name for r in stack.records(types=[RecordType.INTENT]) if r.ref]
    assert order == ["db-2", "db-1", "db-0"]


def test_a_pod_without_a_controller_is_only_reported(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    bed.inject_fault(Fault.FROZEN)
    client.create(namespace, w.pod("lonely"))
    wait_until(lambda: len(client.ready(namespace)) == 1, "the bare pod is Ready", 30)
    before = uids(client, namespace)
    bed.heal()
    start_all(stack)
    wait_until(lambda: [r for r in stack.chain("lonely") if r.code == "no_controller"], "a refusal in the trail")
    assert uids(client, namespace) == before


def test_an_injector_that_dies_again_stops_the_repair_and_it_goes_on_after(
    bed: TestBed, client: Client, namespace: str, stack: Stack
) -> None:
    lacking = half_bare(bed, client, namespace, "web", 24)
    sound = uids(client, namespace) - lacking
    bed.heal()
    start_all(stack, QUICK + "[repair]\nshare = 0.01\n")  # one after the other: there is a middle to die in
    wait_until(lambda: outcomes(stack) & lacking, "the first one is replaced", 90)
    bed.inject_fault(Fault.KILLED)
    wait_until(lambda: gate_reasons(stack) & CLOSED, "the gate closes")
    assert uids(client, namespace) & lacking, "all were replaced before the injector died"

    bed.heal()

    client.wait_healed(namespace, bed.wear.sidecar, 24, 200)
    assert sound <= uids(client, namespace)


def findings(stack: Stack) -> set[str]:
    return {r.ref.uid for r in stack.records(types=[RecordType.FINDING]) if r.ref}


def outcomes(stack: Stack) -> set[str]:
    return {r.ref.uid for r in stack.outcomes() if r.ref and r.details["result"] in ("healed", "injected")}


def gate_reasons(stack: Stack) -> set[str]:
    return {record.code for record in stack.records(types=[RecordType.GATE])}
