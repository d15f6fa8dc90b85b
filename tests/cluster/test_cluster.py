"""The real test cluster itself: it starts, it injects, every fault is the fault it is named after, nothing stays."""

import os
import re
import secrets
import signal
import time

import pytest

from remesh.testbed import Fault
from remesh.testbed import TestBed as Bed
from tests.cluster import RealCluster, workloads
from tests.cluster.api import Api, Object
from tests.cluster.errors import ApiError
from tests.cluster.looks import failure_of, nudge, pods, ready_pods
from tests.cluster.wait import wait_for

pytestmark = pytest.mark.real

SIDECAR = "linkerd-proxy"

# What the API server says of each fault, in the words of Kubernetes 1.36.
FAILURES = {
    Fault.FROZEN: r"context deadline exceeded|Client\.Timeout exceeded",
    Fault.KILLED: r"connection refused",
    Fault.ERROR_500: r"the injector is out of order|Internal Server Error",
    Fault.DENYING: r"denied the request: the injector is denying",
    Fault.WRONG_CA: r"x509: certificate signed by unknown authority",
    Fault.NO_ENDPOINTS: r"no endpoints available for service",
    Fault.NODE_LOST: r"no endpoints available for service|context deadline exceeded",
}


def as_test_bed(cluster: RealCluster) -> Bed:
    """The type checker's proof that a `RealCluster` is a `TestBed`."""
    return cluster


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Deployment", workloads.deployment("app", 3)),
        ("ReplicaSet", workloads.replica_set("app", 3)),
        ("ReplicationController", workloads.replication_controller("app", 3)),
        ("StatefulSet", workloads.stateful_set("app", 3)),
        ("DaemonSet", workloads.daemon_set("app")),
        ("Job", workloads.job("app", 3)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pods_of_every_controller_get_the_sidecar_and_become_ready(
    real_cluster: RealCluster, meshed_namespace: str, kind: str, body: Object
) -> None:
    real_cluster.api.post(workloads.collection(kind, meshed_namespace), body)

    for pod in ready_pods(real_cluster, meshed_namespace, "app", 3):
        assert workloads.has_container(pod, SIDECAR)
        assert pod["metadata"]["annotations"]["linkerd.io/proxy-version"] == "test"
        assert pod["metadata"]["labels"]["linkerd.io/control-plane-ns"] == "linkerd"


def test_pods_that_do_not_ask_stay_without_the_sidecar(real_cluster: RealCluster, meshed_namespace: str) -> None:
    refusing = workloads.pod("refusing", annotations={"linkerd.io/inject": "disabled"})
    on_the_host = workloads.pod("on-the-host", hostNetwork=True)
    for body in (refusing, on_the_host):
        made = real_cluster.api.post(workloads.collection("Pod", meshed_namespace), body)
        assert not workloads.has_container(made, SIDECAR)

    outcomes = {call.name: call.outcome for call in real_cluster.admissions() if call.namespace == meshed_namespace}
    assert outcomes == {"refusing": "skipped", "on-the-host": "skipped"}


@pytest.mark.parametrize("fault", list(FAILURES))
def test_fault_refuses_pods_in_its_own_words_until_it_is_healed(
    real_cluster: RealCluster, meshed_namespace: str, fault: Fault
) -> None:
    real_cluster.inject_fault(fault)
    real_cluster.api.post(workloads.collection("ReplicaSet", meshed_namespace), workloads.replica_set("stuck", 2))

    assert re.search(FAILURES[fault], failure_of(real_cluster, meshed_namespace, "stuck"))
    assert pods(real_cluster, meshed_namespace, "stuck") == []

    real_cluster.heal()
    nudge(real_cluster, "ReplicaSet", meshed_namespace, "stuck")
    for pod in ready_pods(real_cluster, meshed_namespace, "stuck", 2):
        assert workloads.has_container(pod, SIDECAR)


def test_slow_injector_injects_late_and_too_slow_a_one_fails(real_cluster: RealCluster, meshed_namespace: str) -> None:
    path = workloads.collection("Pod", meshed_namespace)
    real_cluster.inject_fault(Fault.SLOW, delay_ms=300)
    assert workloads.has_container(real_cluster.api.post(path, workloads.pod("late")), SIDECAR)
    late = next(call for call in real_cluster.admissions() if call.namespace == meshed_namespace)
    assert late.milliseconds >= 300

    real_cluster.inject_fault(Fault.SLOW, delay_ms=60_000)
    with pytest.raises(ApiError, match=FAILURES[Fault.FROZEN]):
        real_cluster.api.post(path, workloads.pod("too-late"))


def test_injector_that_does_not_inject_lets_bare_pods_through(real_cluster: RealCluster, meshed_namespace: str) -> None:
    real_cluster.inject_fault(Fault.NOT_INJECTING)
    real_cluster.api.post(workloads.collection("ReplicaSet", meshed_namespace), workloads.replica_set("bare"))

    (pod,) = ready_pods(real_cluster, meshed_namespace, "bare", 1)
    assert not workloads.has_container(pod, SIDECAR)


def test_faults_add_up_and_one_heal_ends_all(real_cluster: RealCluster, meshed_namespace: str) -> None:
    for fault in (Fault.DENYING, Fault.FROZEN, Fault.WRONG_CA, Fault.KILLED, Fault.NODE_LOST, Fault.NO_ENDPOINTS):
        real_cluster.inject_fault(fault)
    real_cluster.heal()

    made = real_cluster.api.post(workloads.collection("Pod", meshed_namespace), workloads.pod("whole"))
    assert workloads.has_container(made, SIDECAR)


def test_failure_policy_ignore_admits_bare_pods_while_the_injector_is_dead(
    real_cluster: RealCluster, meshed_namespace: str
) -> None:
    real_cluster.change_webhook(failurePolicy="Ignore")
    real_cluster.inject_fault(Fault.KILLED)

    def bare() -> bool:
        name = f"bare-{secrets.token_hex(4)}"
        try:
            made = real_cluster.api.post(workloads.collection("Pod", meshed_namespace), workloads.pod(name))
        except ApiError:  # the API server has not seen the change of the policy yet
            return False
        return not workloads.has_container(made, SIDECAR)

    wait_for(bare, "a bare pod to be admitted")


def test_dry_runs_reach_the_injector_and_store_nothing(real_cluster: RealCluster, meshed_namespace: str) -> None:
    path = workloads.collection("Pod", meshed_namespace)
    answer = real_cluster.api.post(f"{path}?dryRun=All", workloads.pod("tried"))

    assert workloads.has_container(answer, SIDECAR)
    assert real_cluster.api.items(path) == []
    (call,) = [call for call in real_cluster.admissions() if call.namespace == meshed_namespace]
    assert call.dry_run


def test_user_without_rights_is_refused_and_writes_are_told_by_author(
    real_cluster: RealCluster, meshed_namespace: str
) -> None:
    path = workloads.collection("Pod", meshed_namespace)
    with pytest.raises(ApiError) as refused:
        api_of(real_cluster, "nobody").post(path, workloads.pod("never"))
    assert refused.value.status == 403

    api_of(real_cluster, "somebody", "system:masters").post(path, workloads.pod("made"))

    def told() -> set[tuple[str, int]]:
        writes = [w for w in real_cluster.writes() if w["objectRef"].get("namespace") == meshed_namespace]
        return {(write["user"]["username"], write["responseStatus"]["code"]) for write in writes}

    wait_for(lambda: {("nobody", 403), ("somebody", 201)} <= told(), "both in the audit log")


def test_pod_that_is_to_stay_unready_stays_so_and_a_job_that_completes_does(
    real_cluster: RealCluster, meshed_namespace: str
) -> None:
    stubborn = workloads.pod("stubborn", annotations=workloads.NEVER_READY)
    real_cluster.api.post(workloads.collection("Pod", meshed_namespace), stubborn)
    real_cluster.api.post(workloads.collection("Job", meshed_namespace), workloads.job("work", completes=True))

    job = workloads.path("Job", meshed_namespace, "work")
    wait_for(lambda: real_cluster.api.get(job)["status"].get("succeeded") == 1, "the Job to complete")
    found = real_cluster.api.get(workloads.path("Pod", meshed_namespace, "stubborn"))
    assert found["status"]["phase"] == "Pending"


def test_pod_created_under_the_name_of_one_just_deleted_stays(real_cluster: RealCluster, meshed_namespace: str) -> None:
    """kwok deletes by name; it must not take the successor away."""
    body = workloads.pod("lonely")
    place = workloads.path("Pod", meshed_namespace, "lonely")
    for seconds in (0, 0, 0, 1, 1, 1):
        body["spec"]["terminationGracePeriodSeconds"] = seconds
        created = _created_at_once(real_cluster.api, meshed_namespace, body)
        wait_for(lambda: workloads.is_ready(real_cluster.api.get(place)), "the pod to be Ready")
        assert real_cluster.api.get(place)["metadata"]["uid"] == created["metadata"]["uid"]
        real_cluster.api.delete(place)


def _created_at_once(api: Api, namespace: str, body: Object) -> Object:
    """The pod, as soon as its name is free: within a millisecond of the deletion of the one before."""
    end = time.monotonic() + 30
    while True:
        try:
            return api.post(workloads.collection("Pod", namespace), body)
        except ApiError as error:
            if error.status != 409 or time.monotonic() > end:
                raise


def test_a_scheduler_that_ends_by_itself_is_started_again(real_cluster: RealCluster, meshed_namespace: str) -> None:
    before = real_cluster.pids()["kube-scheduler"]
    os.kill(before, signal.SIGTERM)

    wait_for(lambda: real_cluster.pids().get("kube-scheduler", before) != before, "another scheduler")
    real_cluster.api.post(workloads.collection("ReplicaSet", meshed_namespace), workloads.replica_set("app", 1))
    ready_pods(real_cluster, meshed_namespace, "app", 1)


def test_restarted_api_server_still_injects(real_cluster: RealCluster, meshed_namespace: str) -> None:
    real_cluster.restart("kube-apiserver")
    real_cluster.api.post(workloads.collection("ReplicaSet", meshed_namespace), workloads.replica_set("after"))

    (pod,) = ready_pods(real_cluster, meshed_namespace, "after", 1)
    assert workloads.has_container(pod, SIDECAR)


def api_of(cluster: RealCluster, user: str, *groups: str) -> Api:
    return Api.from_kubeconfig(cluster.user_kubeconfig(user, *groups))
