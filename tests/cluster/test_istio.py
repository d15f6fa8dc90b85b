"""The real Istio in the test cluster: it is Istio's own, it injects, and it fails in Istio's ways."""

import base64
import re
from typing import Any

import pytest

from remesh.testbed import Fault
from remesh.testbed import TestBed as Bed
from tests.cluster import ApiError, ClusterError, FaultUnavailable, build, istio_manifest, pki, workloads
from tests.cluster.api import Object
from tests.cluster.istio import ISTIO_WEAR, IstioCluster, istio_wear
from tests.cluster.looks import failure_of, nudge, pods, ready_pods
from tests.cluster.wait import wait_for

pytestmark = pytest.mark.real

SIDECAR = ISTIO_WEAR.sidecar
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{ISTIO_WEAR.configuration}"
# What the API server says of each fault, in the words of Kubernetes 1.36 and of Istio.
FAILURES = {
    Fault.FROZEN: r"failed calling webhook .*context deadline exceeded",
    Fault.KILLED: r"failed calling webhook .*connection refused",
    Fault.DENYING: r"denied the request: failed to run injection template",
    Fault.WRONG_CA: r"failed calling webhook .*x509: certificate signed by unknown authority",
    Fault.NO_ENDPOINTS: r'failed calling webhook .*no endpoints available for service "istiod"',
}


def as_test_bed(cluster: IstioCluster) -> Bed:
    """The type checker's proof that an `IstioCluster` is a `TestBed`."""
    return cluster


def webhooks(cluster: IstioCluster) -> list[Object]:
    found: list[Object] = cluster.api.get(CONFIGURATION)["webhooks"]
    return found


def is_injected(pod: Object) -> bool:
    marked = "sidecar.istio.io/status" in pod["metadata"].get("annotations", {})
    assert marked is workloads.has_container(pod, SIDECAR)
    return marked


def bare_pods(cluster: IstioCluster, namespace: str) -> list[Object]:
    return [pod for pod in pods(cluster, namespace, "app") if not is_injected(pod)]


def content(thing: Object) -> Object:
    return {key: value for key, value in thing.items() if key not in ("metadata", "status")}


def make_pod(cluster: IstioCluster, namespace: str, name: str, **of_template: Any) -> Object:
    return cluster.api.post(workloads.collection("Pod", namespace), workloads.pod(name, **of_template))


def scale(cluster: IstioCluster, namespace: str, name: str, replicas: int) -> None:
    cluster.api.patch(workloads.path("Deployment", namespace, name), {"spec": {"replicas": replicas}})


def test_pods_get_the_sidecar_natively_and_become_ready(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    body = workloads.deployment("app", 3)
    istio_cluster.api.post(workloads.collection("Deployment", istio_namespace), body)

    for pod in ready_pods(istio_cluster, istio_namespace, "app", 3):
        assert is_injected(pod)
        sidecar = next(container for container in pod["spec"]["initContainers"] if container["name"] == SIDECAR)
        assert sidecar["restartPolicy"] == "Always"
        assert pod["metadata"]["labels"].items() >= istio_cluster.wear.mark_labels.items()


def test_installation_is_what_istioctl_renders(istio_cluster: IstioCluster) -> None:
    istioctl = build.ensure(build.ISTIO_PROGRAMS)["istioctl"]
    manifest = istio_manifest.rendered(istioctl, istio_cluster.wear.replicas)
    assert {"MutatingWebhookConfiguration", "ConfigMap", "Service", "Deployment"} <= {item["kind"] for item in manifest}
    for item in manifest:
        if item["kind"] != "ValidatingWebhookConfiguration":  # istiod itself changes its failurePolicy
            found = istio_cluster.api.get(istio_manifest.path(item))
            applied_again = istio_manifest.apply(istio_cluster.api, item, rehearse=True)
            assert content(applied_again) == content(found)


def test_webhooks_see_what_istio_documents(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    plain = istio_cluster.create_namespace(f"{istio_namespace}-plain", meshed=False)
    pod_asks, pod_refuses = {"sidecar.istio.io/inject": "true"}, {"sidecar.istio.io/inject": "false"}

    assert is_injected(make_pod(istio_cluster, plain, "asking", labels=pod_asks))
    assert not is_injected(make_pod(istio_cluster, plain, "silent"))
    assert not is_injected(make_pod(istio_cluster, istio_namespace, "refusing", labels=pod_refuses))
    assert not is_injected(make_pod(istio_cluster, istio_namespace, "on-the-host", hostNetwork=True))
    rehearsal = f"{workloads.collection('Pod', istio_namespace)}?dryRun=All"
    assert is_injected(istio_cluster.api.post(rehearsal, workloads.pod("tried")))

    told = {
        (call.name, call.outcome, call.dry_run)
        for call in istio_cluster.admissions()
        if call.namespace in (plain, istio_namespace)
    }
    assert told == {("asking", "injected", False), ("on-the-host", "skipped", False), ("tried", "injected", True)}
    istio_cluster.api.delete(f"/api/v1/namespaces/{plain}")


@pytest.mark.parametrize("fault", list(FAILURES))
def test_fault_refuses_pods_in_its_own_words_until_it_is_healed(
    istio_cluster: IstioCluster, istio_namespace: str, fault: Fault
) -> None:
    istio_cluster.change_webhook(timeoutSeconds=2)
    istio_cluster.inject_fault(fault)
    istio_cluster.api.post(workloads.collection("ReplicaSet", istio_namespace), workloads.replica_set("stuck", 2))

    assert re.search(FAILURES[fault], failure_of(istio_cluster, istio_namespace, "stuck"))
    assert pods(istio_cluster, istio_namespace, "stuck") == []

    istio_cluster.heal()
    nudge(istio_cluster, "ReplicaSet", istio_namespace, "stuck")
    assert all(map(is_injected, ready_pods(istio_cluster, istio_namespace, "stuck", 2)))


def test_istio_told_not_to_inject_lets_bare_pods_through(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    istio_cluster.inject_fault(Fault.NOT_INJECTING)
    assert not is_injected(make_pod(istio_cluster, istio_namespace, "bare"))

    istio_cluster.heal()
    assert is_injected(make_pod(istio_cluster, istio_namespace, "whole"))


def test_template_that_does_not_exist_refuses_one_workload_alone(
    istio_cluster: IstioCluster, istio_namespace: str
) -> None:
    with pytest.raises(ApiError, match=r'denied the request: .*template "missing" not found'):
        make_pod(istio_cluster, istio_namespace, "odd", annotations={"inject.istio.io/templates": "missing"})
    assert is_injected(make_pod(istio_cluster, istio_namespace, "even"))


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.ERROR_500])
def test_faults_that_istio_does_not_know_are_refused(istio_cluster: IstioCluster, fault: Fault) -> None:
    with pytest.raises(FaultUnavailable, match="cannot be made"):
        istio_cluster.inject_fault(fault, delay_ms=1)


def test_istiod_puts_its_ca_bundle_back_and_leaves_the_failure_policy(
    istio_cluster: IstioCluster, istio_namespace: str
) -> None:
    right = webhooks(istio_cluster)[0]["clientConfig"]["caBundle"]
    istio_cluster.change_webhook(failurePolicy="Ignore")
    stranger = base64.b64encode(pki.authority("stranger").certificate_pem).decode()
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": stranger}]
    istio_cluster.api.patch(CONFIGURATION, change, kind="json")

    def bundles() -> set[str]:
        return {webhook["clientConfig"]["caBundle"] for webhook in webhooks(istio_cluster)}

    wait_for(lambda: bundles() == {right}, "istiod to put its bundle back")
    assert {webhook["failurePolicy"] for webhook in webhooks(istio_cluster)} == {"Ignore"}


def test_deleted_configuration_comes_back_as_it_was(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    before = webhooks(istio_cluster)
    istio_cluster.api.delete(CONFIGURATION)
    istio_cluster.reset_webhook()

    assert webhooks(istio_cluster) == before


@pytest.mark.parametrize("fault", [Fault.NODE_LOST, None], ids=["node lost", "one frozen"])
def test_one_of_two_istiods_is_enough(istio_cluster: IstioCluster, istio_namespace: str, fault: Fault | None) -> None:
    istio_cluster.change_webhook(timeoutSeconds=2)
    if fault:
        istio_cluster.inject_fault(fault)
    else:
        istio_cluster.freeze(istio_cluster.istiods()[0])
    istio_cluster.api.post(workloads.collection("ReplicaSet", istio_namespace), workloads.replica_set("app", 5))

    # While the frozen one is still in the slice, or the API server has connections to it, some calls fail.
    def look() -> bool:
        nudge(istio_cluster, "ReplicaSet", istio_namespace, "app")
        return len(pods(istio_cluster, istio_namespace, "app")) == 5

    wait_for(look, "all pods to be created", timeout=60)
    assert all(map(is_injected, ready_pods(istio_cluster, istio_namespace, "app", 5)))


def test_istio_frozen_for_part_of_a_scale_up_leaves_some_pods_bare(
    istio_cluster: IstioCluster, istio_namespace: str
) -> None:
    istio_cluster.api.post(workloads.collection("Deployment", istio_namespace), workloads.deployment("app", 60))
    before = ready_pods(istio_cluster, istio_namespace, "app", 60)
    assert all(map(is_injected, before))

    istio_cluster.change_webhook(timeoutSeconds=2, failurePolicy="Ignore")
    istio_cluster.inject_fault(Fault.FROZEN)
    scale(istio_cluster, istio_namespace, "app", 140)
    wait_for(lambda: len(bare_pods(istio_cluster, istio_namespace)) > 2, "bare pods", timeout=60)
    istio_cluster.heal()
    # An istiod with many calls at once answers late: what is made from here on is not to be bare for that.
    istio_cluster.change_webhook(timeoutSeconds=10)
    scale(istio_cluster, istio_namespace, "app", 200)

    after = {pod["metadata"]["uid"] for pod in ready_pods(istio_cluster, istio_namespace, "app", 200)}
    bare = {pod["metadata"]["uid"] for pod in bare_pods(istio_cluster, istio_namespace)}
    injected_before = {pod["metadata"]["uid"] for pod in before}
    assert injected_before <= after - bare
    assert bare
    calls = [call for call in istio_cluster.admissions() if call.namespace == istio_namespace]
    assert [call.outcome for call in calls].count("failed-open") == len(bare)


def test_faults_add_up_and_one_heal_ends_all(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    istio_cluster.change_webhook(timeoutSeconds=2)
    for fault in (Fault.NODE_LOST, *FAILURES):
        istio_cluster.inject_fault(fault)
    istio_cluster.heal()

    assert is_injected(make_pod(istio_cluster, istio_namespace, "whole"))
    assert len(istio_cluster.istiods()) == 2


def test_more_istiods_than_nodes_are_refused_before_anything_starts() -> None:
    with pytest.raises(ClusterError, match="as many nodes"):
        IstioCluster.start(istio_wear(replicas=2), nodes=1)
