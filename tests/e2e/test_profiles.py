"""Every mesh profile against an injector in that mesh's own clothes, with `failurePolicy` as the mesh has it.

What asked for a sidecar and did not get one is healed; what refused it in that mesh's own words, what never asked, and
what was injected in time are left as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from remesh.models import RecordType
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear, TestBed
from tests import wears
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.cluster import RealCluster
from tests.cluster.controlplane import Tuning
from tests.cluster.fixtures import require_control_plane
from tests.e2e.test_bare_pods import findings, gate_reasons, outcomes, uids
from tests.e2e.test_main_job import QUICK, long_in_backoff, outcome_of, start_all, waiting
from tests.stack import Stack, types, wait_until

pytestmark = pytest.mark.timeout(240)

# Half of an owner's pods at once: how many may go is not the question here.
POLICY = QUICK + "[repair]\nshare = 0.5\n"
PODS = 4

Words = dict[str, Any]  # labels and annotations of a pod template
_numbers = count(1)


def annotated(key: str, value: str) -> Words:
    return {"annotations": {key: value}}


def labelled(key: str, value: str) -> Words:
    return {"labels": {key: value}}


@dataclass(frozen=True)
class Case:
    """One mesh, and what its users write."""

    wear: InjectorWear
    refusals: tuple[Words, ...]
    """Templates that refuse the sidecar in a namespace that asks, or where only pods can ask."""
    in_meshed: Words = field(default_factory=dict)
    """What a template needs in a namespace that asks; nothing where the namespace's word is enough."""
    in_plain: Words | None = None
    """What a template needs in a namespace that says nothing; None where the pod alone cannot ask."""
    impersonate: bool = False
    """Whether the operator has to tell remesh to dry-run in the controllers' names."""
    fault: Fault = Fault.KILLED  # refused at once: with Fail, every try against a hanging injector takes its time-out


CASES = {
    "linkerd": Case(
        wears.LINKERD,
        (annotated("linkerd.io/inject", "disabled"), annotated("linkerd.io/inject", "enable")),
        in_plain=annotated("linkerd.io/inject", "enabled"),
        fault=Fault.FROZEN,
    ),
    "dapr": Case(
        wears.DAPR,
        (annotated("dapr.io/enabled", "false"),),
        in_meshed=annotated("dapr.io/enabled", "true"),
        impersonate=True,
    ),
    "vault": Case(
        wears.VAULT,
        (annotated("vault.hashicorp.com/agent-inject", "false"),),
        in_meshed=annotated("vault.hashicorp.com/agent-inject", "true"),
        fault=Fault.FROZEN,
    ),
    "vault-mark-only": Case(
        wears.VAULT_MARK_ONLY,
        (annotated("vault.hashicorp.com/agent-inject", "false"),),
        in_meshed=annotated("vault.hashicorp.com/agent-inject", "true"),
    ),
    "opentelemetry": Case(
        wears.OPENTELEMETRY,
        (annotated("sidecar.opentelemetry.io/inject", "false"),),
        in_plain=annotated("sidecar.opentelemetry.io/inject", "true"),
    ),
    "istio": Case(
        wears.ISTIO,
        (labelled("sidecar.istio.io/inject", "false"), annotated("sidecar.istio.io/inject", "false")),
        in_plain=labelled("sidecar.istio.io/inject", "true"),
    ),
    "consul": Case(
        wears.CONSUL,
        (annotated("consul.hashicorp.com/connect-inject", "false"),),
        in_meshed=annotated("consul.hashicorp.com/connect-inject", "true"),
    ),
    "kuma": Case(
        wears.KUMA,
        (labelled("kuma.io/sidecar-injection", "disabled"),),
        in_plain=labelled("kuma.io/sidecar-injection", "enabled"),
    ),
}


def beds(policy: str, *only: str) -> list[Any]:
    """Parameters: meshes with this failure policy, on the simulated cluster and on the real one."""
    found = [name for name, case in CASES.items() if case.wear.failure_policy == policy]
    names = [name for name in found if not only or name in only]
    real = pytest.mark.real
    return [pytest.param(("sim", name), id=f"{name}-sim") for name in names] + [
        pytest.param(("real", name), id=f"{name}-real", marks=real) for name in names
    ]


@pytest.fixture
def bed(request: pytest.FixtureRequest) -> Iterator[TestBed]:
    """A cluster of its own for each mesh."""
    kind, name = request.param
    wear = CASES[name].wear
    started: TestBed
    if kind == "sim":
        started = SimCluster.start(wear, controller_qps=wears.CONTROLLER_QPS)
    else:
        require_control_plane()
        started = RealCluster.start(wear, tuning=Tuning(controller_qps=wears.CONTROLLER_QPS))
    yield started
    started.stop()


@pytest.fixture
def case(bed: TestBed) -> Case:
    return next(each for each in CASES.values() if each.wear == bed.wear)


@pytest.fixture
def plain_namespace(bed: TestBed, client: Client) -> str:
    """A namespace that says nothing of any mesh."""
    name = f"plain-{next(_numbers)}"
    client.create_namespace(w.namespace(name))
    return name


@dataclass
class Scene:
    """Workloads of one mesh's users: those that ask, and those that are none of remesh's business."""

    case: Case
    client: Client
    meshed: str
    plain: str

    def asking(self) -> list[tuple[str, str, Words]]:
        """Namespace, name and words of what asks for a sidecar."""
        found = [(self.meshed, "asks", self.case.in_meshed)]
        return found if self.case.in_plain is None else [*found, (self.plain, "asks-alone", self.case.in_plain)]

    def bystanders(self) -> dict[str, set[str]]:
        """Create them while the injector works; UIDs of their pods by name, all Ready, and injected if they asked."""
        wanted: list[tuple[str, str, Words, bool]] = [
            (self.plain, "silent", {}, False),
            (self.meshed, "sound", self.case.in_meshed, True),
            *((self.meshed, f"refuses-{n}", words, False) for n, words in enumerate(self.case.refusals)),
        ]
        found = {}
        for namespace, name, words, injected in wanted:
            self.client.create(namespace, w.deployment(name, 2, **words))
            pods = self._ready(namespace, name, 2)
            assert {w.is_injected(pod, self.case.wear) for pod in pods} == {injected}, name
            found[name] = {pod["metadata"]["uid"] for pod in pods}
        return found

    def of(self, name: str) -> list[w.Object]:
        """Pods of one of the workloads."""
        pods = [*self.client.pods(self.meshed), *self.client.pods(self.plain)]
        return [pod for pod in pods if pod["metadata"]["labels"]["app"] == name]

    def unchanged(self, bystanders: dict[str, set[str]]) -> bool:
        return bystanders == {name: {pod["metadata"]["uid"] for pod in self.of(name)} for name in bystanders}

    def bare(self) -> set[str]:
        """UIDs of the pods that asked and have nothing of it."""
        lacking = [pod for _, name, _ in self.asking() for pod in self.of(name)]
        assert not any(w.is_injected(pod, self.case.wear) for pod in lacking)
        return {pod["metadata"]["uid"] for pod in lacking}

    def wait_ready(self) -> None:
        for namespace, name, _ in self.asking():
            self._ready(namespace, name, PODS)

    def wait_healed(self, seconds: float = 90.0) -> None:
        """Poll until everything that asked is Ready, with the sidecar and every mark of the mesh."""

        def healed(name: str) -> bool:
            pods = self.of(name)
            return len(pods) == PODS and all(w.is_ready(p) and w.is_injected(p, self.case.wear) for p in pods)

        for _, name, _ in self.asking():
            wait_until(lambda name=name: healed(name), f"{name} healed", seconds)  # type: ignore[misc]

    def _ready(self, namespace: str, name: str, replicas: int) -> list[w.Object]:
        def ready() -> list[w.Object]:
            pods = [pod for pod in self.client.pods(namespace) if pod["metadata"]["labels"]["app"] == name]
            return pods if len(pods) == replicas and all(w.is_ready(pod) for pod in pods) else []

        return wait_until(ready, f"{replicas} pods of {name} Ready")


@pytest.fixture
def scene(case: Case, client: Client, namespace: str, plain_namespace: str) -> Scene:
    return Scene(case, client, namespace, plain_namespace)


@pytest.mark.parametrize("bed", beds("Ignore"), indirect=True)
def test_pods_that_came_up_bare_get_the_meshs_marks_and_bystanders_keep_their_pods(
    bed: TestBed, case: Case, client: Client, scene: Scene, stack: Stack
) -> None:
    bystanders = scene.bystanders()
    bed.inject_fault(case.fault)
    for namespace, name, words in scene.asking():
        client.create(namespace, w.deployment(name, PODS, **words))
    scene.wait_ready()
    lacking = scene.bare()
    start_all(stack, POLICY + ("impersonate_controller = true\n" if case.impersonate else ""))
    wait_until(lambda: findings(stack) >= lacking, "a finding for each bare pod")

    bed.heal()

    scene.wait_healed()
    assert not lacking & (uids(client, scene.meshed) | uids(client, scene.plain))
    wait_until(lambda: outcomes(stack) >= lacking, "an outcome for each bare pod")
    assert {r.ref.uid for r in stack.records(types=[RecordType.INTENT]) if r.ref} == lacking
    assert {r.mesh for r in stack.records(types=[RecordType.FINDING])} == {bed.wear.mesh}
    assert findings(stack) == lacking
    assert scene.unchanged(bystanders)


@pytest.mark.parametrize("bed", beds("Fail"), indirect=True)
def test_what_the_injector_refused_is_nudged_and_bystanders_keep_their_pods(
    bed: TestBed, case: Case, client: Client, scene: Scene, stack: Stack
) -> None:
    bystanders = scene.bystanders()
    bed.inject_fault(case.fault)
    asking = scene.asking()
    for namespace, name, words in asking:
        client.create(namespace, w.replica_set(name, PODS, **words))
    start_all(stack, POLICY)
    waiting(stack, len(asking))
    # Long enough in back-off that Kubernetes does not come first.
    for namespace, name, _ in asking:
        long_in_backoff(client, namespace, name)

    bed.heal()

    scene.wait_healed()
    for _, name, _ in asking:
        assert outcome_of(stack, name) in ("healed", "already_healthy")
    nudged = [name for _, name, _ in asking if "intent" in types(stack.chain(name))]
    assert nudged, "nothing was nudged: Kubernetes was faster every time"
    assert client.nudge_annotations(scene.meshed) == client.nudge_annotations(scene.plain) == []
    found = stack.records(types=[RecordType.FINDING])
    assert {r.ref.name for r in found if r.ref} == {name for _, name, _ in asking}
    assert {r.mesh for r in found} == {bed.wear.mesh}
    assert scene.unchanged(bystanders)


@pytest.mark.parametrize("bed", beds("Ignore", "dapr"), indirect=True)
def test_without_the_right_name_a_dry_run_proves_nothing_and_no_pod_is_touched(
    bed: TestBed, case: Case, client: Client, scene: Scene, stack: Stack
) -> None:
    bed.inject_fault(case.fault)
    for namespace, name, words in scene.asking():
        client.create(namespace, w.deployment(name, PODS, **words))
    scene.wait_ready()
    lacking = scene.bare()
    bed.heal()

    start_all(stack, POLICY)

    wait_until(lambda: gate_reasons(stack) >= {"no_sidecar"}, "the gate says why it is closed")
    wait_until(lambda: findings(stack) >= lacking, "a finding for each bare pod")
    assert uids(client, scene.meshed) == lacking
    assert not stack.records(types=[RecordType.INTENT])
