"""The same verbs, dry runs and watches on the simulated and on the real control plane."""

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remesh.errors import Conflict, NotFound, Rejected, Throttled
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.probe import judge, probe
from remesh.kube.transport import MERGE_PATCH, KubeClient
from remesh.kube.watch import Reflector
from remesh.meshes import load_profiles
from remesh.models import FailureClass, ObjectRef, Probe
from remesh.objects import Pod, Workload
from remesh.policy import GatePolicy
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads
from tests.cluster.wait import wait_for

NUDGE = "remesh.dev/nudge"
GATE = GatePolicy(latency_seconds=1.0)
LINKERD = load_profiles().by_name("linkerd")


@pytest.fixture(scope="module", params=["sim", pytest.param("real", marks=pytest.mark.real)])
def bed(request: pytest.FixtureRequest) -> TestBed:
    found: TestBed = request.getfixturevalue(f"{request.param}_cluster")
    return found


@pytest.fixture(scope="module")
def cluster(bed: TestBed) -> Iterator[Cluster]:
    client = KubeClient(load_access(bed.kubeconfig))
    yield Cluster(client)
    client.close()


@pytest.fixture(scope="module")
def user(bed: TestBed) -> Iterator[Client]:
    client = Client(bed.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def namespace(bed: TestBed, user: Client) -> Iterator[str]:
    name = f"kube-{secrets.token_hex(4)}"
    user.create_meshed_namespace(name, bed.wear)
    yield name
    bed.heal()
    user.api.delete(f"/api/v1/namespaces/{name}")


def ref_of(thing: Workload | Pod) -> ObjectRef:
    meta = thing.metadata
    return ObjectRef(
        api_version=thing.api_version, kind=thing.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


@pytest.fixture
def cart(cluster: Cluster, user: Client, namespace: str) -> Workload:
    """A ReplicaSet with two Ready pods."""
    user.create(namespace, workloads.replica_set("cart", 2))
    cart = cluster.workload("ReplicaSet", namespace, "cart")
    wait_for(lambda: sum(pod.ready for pod in cluster.pods_of(cart)) == 2, "two Ready pods")
    return cart


MAKE: dict[str, Callable[..., Any]] = {
    "ReplicaSet": workloads.replica_set,
    "ReplicationController": workloads.replication_controller,
    "StatefulSet": workloads.stateful_set,
    "DaemonSet": workloads.daemon_set,
    "Job": workloads.job,
    "Deployment": workloads.deployment,
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_dry_run_of_each_kinds_template_has_the_sidecar_and_leaves_nothing(
    cluster: Cluster, user: Client, namespace: str, kind: str
) -> None:
    user.create(namespace, MAKE[kind]("thing"))
    thing = cluster.workload(kind, namespace, "thing")
    if kind != "Deployment":
        wait_for(lambda: any(pod.ready for pod in cluster.pods_of(thing)), "a Ready pod")
    before = {pod.metadata.uid for pod in cluster.list("Pod", namespace)}
    result = probe(cluster, ref_of(thing), LINKERD, GATE)
    assert (result.probe, result.code) == (Probe.PASSES, "sidecar_in_reply"), result
    assert before <= {pod.metadata.uid for pod in cluster.list("Pod", namespace)}
    assert thing.template_hash
    assert not [pod for pod in cluster.list("Pod", namespace) if pod.metadata.controller is None]


def test_a_stateful_set_with_claims_can_be_dry_run(cluster: Cluster, user: Client, namespace: str) -> None:
    document = workloads.stateful_set("db", 1)
    document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    document["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    user.create(namespace, document)
    found = cluster.dry_run_pod(ref_of(cluster.workload("StatefulSet", namespace, "db")))
    assert found.error is None
    assert found.pod is not None


def test_annotations_go_on_and_off(cluster: Cluster, cart: Workload) -> None:
    ref = ref_of(cart)
    cluster.annotate(ref, {NUDGE: "f-1"})
    there = cluster.workload(ref.kind, ref.namespace, ref.name)
    assert (there.metadata.annotations or {})[NUDGE] == "f-1"
    cluster.annotate(ref, {NUDGE: None})
    assert NUDGE not in (cluster.workload(ref.kind, ref.namespace, ref.name).metadata.annotations or {})


@pytest.mark.parametrize("write", ["annotate", "evict", "delete"])
def test_another_uid_is_a_conflict_and_changes_nothing(cluster: Cluster, cart: Workload, write: str) -> None:
    pod = cluster.pods_of(cart)[0]
    writes: dict[str, Callable[[ObjectRef], None]] = {
        "annotate": lambda ref: cluster.annotate(ref, {NUDGE: "x"}),
        "evict": cluster.evict,
        "delete": cluster.delete,
    }
    with pytest.raises(Conflict):
        writes[write](ref_of(pod).model_copy(update={"uid": "00000000-0000-0000-0000-000000000000"}))
    after = cluster.pod(pod.metadata.namespace, pod.metadata.name)
    assert (after.metadata.uid, after.metadata.deletion_timestamp) == (pod.metadata.uid, None)
    assert NUDGE not in (after.metadata.annotations or {})


def test_a_dry_running_cluster_changes_nothing(cluster: Cluster, cart: Workload) -> None:
    dry, pod = Cluster(cluster.client, dry_run=True), cluster.pods_of(cart)[0]
    dry.annotate(ref_of(pod), {NUDGE: "x"})
    dry.evict(ref_of(pod))
    dry.delete(ref_of(pod))
    after = cluster.pod(pod.metadata.namespace, pod.metadata.name)
    assert (after.metadata.uid, after.metadata.deletion_timestamp) == (pod.metadata.uid, None)
    assert NUDGE not in (after.metadata.annotations or {})


def test_evictions_are_made_and_disruption_budgets_respected(cluster: Cluster, user: Client, cart: Workload) -> None:
    namespace = cart.metadata.namespace
    first = cluster.pods_of(cart)[0]
    cluster.evict(ref_of(first))
    wait_for(lambda: _is_gone(cluster, first), "the evicted pod to go")
    wait_for(lambda: sum(pod.ready for pod in cluster.pods_of(cart)) == 2, "its replacement")
    user.create(namespace, workloads.disruption_budget("cart", "cart", 2))

    def refused() -> bool:
        try:
            Cluster(cluster.client, dry_run=True).evict(ref_of(cluster.pods_of(cart)[0]))
        except Throttled as error:
            return error.retry_after > 0
        return False

    wait_for(refused, "a refusal by the disruption budget")


def _is_gone(cluster: Cluster, pod: Pod) -> bool:
    try:
        return cluster.pod(pod.metadata.namespace, pod.metadata.name).metadata.uid != pod.metadata.uid
    except NotFound:
        return True


@pytest.mark.parametrize(
    ("fault", "code", "failure_class"),
    [
        (Fault.KILLED, "webhook_connection_refused", FailureClass.WEBHOOK_CONNECTION_REFUSED),
        (Fault.ERROR_500, "webhook_bad_response", FailureClass.WEBHOOK_BAD_RESPONSE),
        (Fault.DENYING, "webhook_denied", FailureClass.WEBHOOK_DENIED),
        (Fault.NOT_INJECTING, "no_sidecar", FailureClass.MISSING_SIDECAR),
        (Fault.WRONG_CA, "webhook_x509", FailureClass.WEBHOOK_X509),
        (Fault.NO_ENDPOINTS, "webhook_no_endpoints", FailureClass.WEBHOOK_NO_ENDPOINTS),
        (Fault.SLOW, "too_slow", FailureClass.WEBHOOK_TIMEOUT),
    ],
)
def test_each_fault_fails_the_probe_in_its_own_words(
    bed: TestBed, cluster: Cluster, user: Client, namespace: str, fault: Fault, code: str, failure_class: FailureClass
) -> None:
    user.create(namespace, workloads.replica_set("cart", 0))
    ref = ref_of(cluster.workload("ReplicaSet", namespace, "cart"))
    bed.inject_fault(fault, delay_ms=1500 if fault is Fault.SLOW else 0)
    result = probe(cluster, ref, LINKERD, GATE)
    assert (result.probe, result.code, result.failure_class) == (Probe.FAILS, code, failure_class), result
    bed.heal()
    wait_for(lambda: probe(cluster, ref, LINKERD, GATE).probe is Probe.PASSES, "a probe that passes")


def test_a_frozen_injector_is_named_unless_the_deadline_comes_first(
    bed: TestBed, cluster: Cluster, user: Client, namespace: str
) -> None:
    user.create(namespace, workloads.replica_set("cart", 0))
    ref = ref_of(cluster.workload("ReplicaSet", namespace, "cart"))
    bed.inject_fault(Fault.FROZEN)
    named = judge(cluster.dry_run_pod(ref, timeout=bed.wear.timeout_seconds + 5), LINKERD, 1.0)
    assert (named.code, named.failure_class) == ("webhook_timeout", FailureClass.WEBHOOK_TIMEOUT)
    assert bed.wear.webhook in named.message
    hurried = judge(cluster.dry_run_pod(ref, timeout=bed.wear.timeout_seconds - 1), LINKERD, 1.0)
    assert (hurried.code, hurried.failure_class) == ("too_slow", FailureClass.API_TIMEOUT)
    assert bed.wear.webhook not in hurried.message


def test_a_quota_is_a_rejection_with_its_text(cluster: Cluster, user: Client, namespace: str) -> None:
    user.create(namespace, workloads.replica_set("cart", 0))
    ref = ref_of(cluster.workload("ReplicaSet", namespace, "cart"))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    user.api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)

    def refused() -> bool:
        found = cluster.dry_run_pod(ref)
        return isinstance(found.error, Rejected) and "exceeded quota: q" in found.message

    wait_for(refused, "a refusal by the quota")


def test_the_injector_is_found_by_its_webhook_and_its_endpoints(bed: TestBed, cluster: Cluster) -> None:
    wear = bed.wear
    names = [(configuration, webhook.name) for configuration, webhook in cluster.webhooks()]
    assert (wear.configuration, wear.webhook) in names
    found = cluster.endpoints(wear.namespace, wear.service)
    assert (found.ready, found.total, len(found.nodes)) == (wear.replicas, wear.replicas, 1)


def test_who_may_do_everything_can(cluster: Cluster, namespace: str) -> None:
    assert cluster.can_i("create", "", "pods", namespace, "eviction")
    assert cluster.client.version().startswith("v1.")


def test_a_list_of_several_pages_is_complete(
    cluster: Cluster, user: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        user.create(namespace, workloads.replica_set(f"rs-{number}", 0))
    monkeypatch.setattr("remesh.kube.api.PAGE", 3)
    found = [item.metadata.name for item in cluster.list("ReplicaSet", namespace)]
    assert found == [f"rs-{number}" for number in range(7)]


def test_a_reflector_follows_what_happens_and_stops_at_once(cluster: Cluster, user: Client, namespace: str) -> None:
    state: dict[str, str] = {}
    seen: list[str] = []

    def on_list(items: list[Any]) -> None:
        state.clear()
        state.update({item.metadata.name: item.template_hash for item in items})

    def on_event(kind: str, item: Any) -> None:
        seen.append(kind)
        if kind == "DELETED":
            state.pop(item.metadata.name, None)
        else:
            state[item.metadata.name] = item.template_hash

    user.create(namespace, workloads.replica_set("first", 0))
    stop = threading.Event()
    reflector = Reflector(cluster.client, "ReplicaSet", on_list, on_event, namespace=namespace)
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    try:
        wait_for(lambda: set(state) == {"first"}, "the first list")
        user.create(namespace, workloads.replica_set("second", 0))
        wait_for(lambda: set(state) == {"first", "second"}, "the second object")
        first, second = (cluster.workload("ReplicaSet", namespace, name) for name in ("first", "second"))
        assert state["first"] == first.template_hash  # the same from a list, a watch and a get
        assert state["second"] == second.template_hash
        cluster.annotate(ref_of(first), {NUDGE: "x"})
        wait_for(lambda: "MODIFIED" in seen, "the change")
        cluster.delete(ref_of(second))
        wait_for(lambda: set(state) == {"first"}, "the deletion")
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


def test_side_effects_make_dry_runs_unsupported(bed: TestBed, cluster: Cluster, user: Client, namespace: str) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{bed.wear.configuration}"
    webhooks = cluster.client.get(path)["webhooks"]
    body = {"webhooks": [{**webhooks[0], "sideEffects": "Some"}]}
    # Only a webhook that an API server before 1.22 stored can have them; such a one cannot be made any more.
    with pytest.raises(Rejected, match="sideEffects: Unsupported value"):
        cluster.client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
