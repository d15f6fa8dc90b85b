"""How controllers fail while the injector is broken, what shows of it, and what a nudge does."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from remesh.testbed import Fault, TestBed
from tests.cluster import workloads
from tests.cluster.workloads import collection, condition, has_container, is_ready, path
from tests.testbed.http import Http, Object

MAKERS: dict[str, Callable[[str], Object]] = {
    "ReplicaSet": lambda name: workloads.replica_set(name, 2),
    "ReplicationController": lambda name: workloads.replication_controller(name, 2),
    "StatefulSet": lambda name: workloads.stateful_set(name, 1),
    "DaemonSet": workloads.daemon_set,
    "Job": lambda name: workloads.job(name, 1),
}


def make(http: Http, namespace: str, kind: str, name: str) -> None:
    http.post(collection(kind, namespace), MAKERS[kind](name)).ok()


def events(http: Http, namespace: str, kind: str, name: str, reason: str) -> list[Object]:
    found = http.items(
        collection("Event", namespace), fieldSelector=f"involvedObject.kind={kind},involvedObject.name={name}"
    )
    return [event for event in found if event["reason"] == reason]


def pods_of(http: Http, namespace: str, owner: str) -> list[Object]:
    return [
        pod
        for pod in http.items(collection("Pod", namespace))
        if any(reference["name"] == owner for reference in pod["metadata"].get("ownerReferences") or ())
    ]


def are_healed(http: Http, namespace: str, owner: str, sidecar: str) -> bool:
    pods = pods_of(http, namespace, owner)
    return bool(pods) and all(is_ready(pod) and has_container(pod, sidecar) for pod in pods)


def nudge(http: Http, namespace: str, kind: str, name: str) -> None:
    """One annotation on, then off."""
    for value in ("now", None):
        http.patch(path(kind, namespace, name), {"metadata": {"annotations": {"test.remesh.dev/nudge": value}}}).ok()


def has_failed(http: Http, namespace: str, kind: str, name: str, times: int) -> bool:
    return sum(int(event["count"]) for event in events(http, namespace, kind, name, "FailedCreate")) >= times


def failure(http: Http, namespace: str, kind: str, name: str) -> Object:
    return condition(http.get(path(kind, namespace, name)).ok(), "ReplicaFailure")


def test_replica_set_gets_its_pods(http: Http, namespace: str, testbed: TestBed) -> None:
    make(http, namespace, "ReplicaSet", "web")
    status: dict[str, Any] = http.wait(
        lambda: (s := http.get(path("ReplicaSet", namespace, "web")).ok()["status"]).get("readyReplicas") == 2 and s,
        "both pods to be Ready",
    )

    assert (status["replicas"], status["availableReplicas"], status["observedGeneration"]) == (2, 2, 1)
    assert "conditions" not in status
    assert are_healed(http, namespace, "web", testbed.wear.sidecar)
    pod = pods_of(http, namespace, "web")[0]
    (reference,) = pod["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["apiVersion"], reference["controller"]) == ("ReplicaSet", "apps/v1", True)
    assert pod["metadata"]["generateName"] == "web-"
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["nodeName"]
    assert pod["status"]["podIP"]


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_refused_replicas_carry_the_first_failure_until_a_sync_succeeds(
    http: Http, namespace: str, testbed: TestBed, kind: str
) -> None:
    testbed.inject_fault(Fault.KILLED)
    make(http, namespace, kind, "web")
    first = http.wait(lambda: failure(http, namespace, kind, "web"), "the condition")
    assert (first["status"], first["reason"]) == ("True", "FailedCreate")
    assert first["message"].startswith("Internal error occurred: failed calling webhook")
    assert "connection refused" in first["message"]

    testbed.inject_fault(Fault.NO_ENDPOINTS)
    before = len(events(http, namespace, kind, "web", "FailedCreate"))
    nudge(http, namespace, kind, "web")
    http.wait(
        lambda: any("no endpoints" in e["message"] for e in events(http, namespace, kind, "web", "FailedCreate")),
        f"another failure, after {before}",
    )
    assert failure(http, namespace, kind, "web") == first
    status = http.get(path(kind, namespace, "web")).ok()["status"]
    assert (status["replicas"], status["observedGeneration"]) == (0, 1)

    testbed.heal()
    nudge(http, namespace, kind, "web")
    http.wait(lambda: not failure(http, namespace, kind, "web"), "the condition to go")
    http.wait(lambda: are_healed(http, namespace, "web", testbed.wear.sidecar), "pods with sidecars")


def test_event_of_a_refused_creation_has_a_prefix(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.DENYING)
    make(http, namespace, "ReplicaSet", "web")
    make(http, namespace, "StatefulSet", "db")
    make(http, namespace, "DaemonSet", "agent")
    make(http, namespace, "Job", "once")

    def first(kind: str, name: str) -> Object:
        found = http.wait(lambda: events(http, namespace, kind, name, "FailedCreate"), f"an event of {kind}")
        return min(found, key=lambda event: str(event["firstTimestamp"]))

    denied = f'admission webhook "{testbed.wear.webhook}" denied the request: '
    plain, ordered = first("ReplicaSet", "web"), first("StatefulSet", "db")
    assert plain["message"].startswith(f"Error creating: {denied}")
    assert (plain["type"], plain["source"]["component"]) == ("Warning", "replicaset-controller")
    assert ordered["message"].startswith(f"Create Pod db-0 in StatefulSet db failed error: {denied}")
    assert first("DaemonSet", "agent")["message"].startswith(f"Error creating: {denied}")
    assert first("Job", "once")["message"].startswith(f"Error creating: {denied}")
    assert failure(http, namespace, "ReplicaSet", "web")["message"].startswith(denied)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job"])
def test_other_kinds_show_a_refusal_only_by_numbers(http: Http, namespace: str, testbed: TestBed, kind: str) -> None:
    testbed.inject_fault(Fault.KILLED)
    make(http, namespace, kind, "web")
    http.wait(lambda: events(http, namespace, kind, "web", "FailedCreate"), "a refusal")

    def counted() -> Any:
        status = http.get(path(kind, namespace, "web")).ok()["status"]
        return status if status.get("observedGeneration") or status.get("startTime") else None

    status = http.wait(counted, "the status")
    assert not status.get("conditions")
    numbers = {
        "StatefulSet": ("replicas", 0),
        "DaemonSet": ("currentNumberScheduled", 0),
        "Job": ("active", None),
    }
    field, value = numbers[kind]
    assert status.get(field) == value
    if kind == "DaemonSet":
        assert status["desiredNumberScheduled"] == len(http.items("/api/v1/nodes"))


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_nudge_is_quicker_than_the_back_off(http: Http, namespace: str, testbed: TestBed, kind: str) -> None:
    testbed.inject_fault(Fault.KILLED)
    for name in ("left", "nudged"):
        make(http, namespace, kind, name)
    # Nine failures of 5 ms doubling make the next wait 2.5 s; a Job begins with one second, and needs three for 4 s.
    failures = 3 if kind == "Job" else 9
    for name in ("left", "nudged"):
        http.wait(
            partial(has_failed, http, namespace, kind, name, failures),
            f"{failures} refusals of {name}",
        )
    testbed.heal()
    nudge(http, namespace, kind, "nudged")
    http.wait(lambda: are_healed(http, namespace, "nudged", testbed.wear.sidecar), "the nudged one's pods")

    after = http.get(path(kind, namespace, "nudged")).ok()
    assert "test.remesh.dev/nudge" not in (after["metadata"].get("annotations") or {})
    assert after["metadata"]["generation"] == 1
    http.wait(lambda: are_healed(http, namespace, "left", testbed.wear.sidecar), "the other's pods, in their own time")


def test_hanging_webhook_keeps_unrelated_replica_sets_waiting(
    http: Http, namespace: str, plain_namespace: str, testbed: TestBed
) -> None:
    unseen = dict(testbed.wear.injector_labels)  # by the webhook: its objectSelector leaves these out
    testbed.inject_fault(Fault.FROZEN)
    for number in range(30):
        make(http, namespace, "ReplicaSet", f"stuck-{number}")
    bystander = workloads.replica_set("bystander", 2, labels=unseen)
    http.post(collection("ReplicaSet", plain_namespace), bystander).ok()
    # Whoever has not been looked at shows nothing at all: no condition, no event, no observedGeneration.
    waiting = http.get(path("ReplicaSet", plain_namespace, "bystander")).ok()
    assert waiting["status"] == {"replicas": 0}
    assert http.items(collection("Event", plain_namespace)) == []
    http.post(collection("Pod", plain_namespace), workloads.pod("alone", labels=unseen)).ok()
    http.wait(lambda: is_ready(http.get(path("Pod", plain_namespace, "alone")).ok()), "a pod beside it")

    assert http.get(path("ReplicaSet", plain_namespace, "bystander")).ok()["status"] == {"replicas": 0}
    testbed.heal()
    http.wait(
        lambda: http.get(path("ReplicaSet", plain_namespace, "bystander")).ok()["status"].get("readyReplicas") == 2,
        "the bystander's pods",
    )


def test_most_events_are_never_seen(http: Http, namespace: str) -> None:
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 60)).ok()
    http.wait(
        lambda: http.get(path("ReplicaSet", namespace, "web")).ok()["status"].get("readyReplicas") == 60, "60 pods"
    )

    def told() -> int:
        return sum(event["count"] for event in events(http, namespace, "ReplicaSet", "web", "SuccessfulCreate"))

    http.wait(lambda: told() == 25, "25 creations to be told")
    assert len(events(http, namespace, "ReplicaSet", "web", "SuccessfulCreate")) <= 11


def test_pods_let_in_bare_leave_no_trace(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.NOT_INJECTING)
    make(http, namespace, "ReplicaSet", "web")
    http.wait(lambda: http.get(path("ReplicaSet", namespace, "web")).ok()["status"].get("readyReplicas") == 2, "pods")

    assert not any(has_container(pod, testbed.wear.sidecar) for pod in pods_of(http, namespace, "web"))
    assert not failure(http, namespace, "ReplicaSet", "web")
    assert not [event for event in http.items(collection("Event", namespace)) if event["type"] == "Warning"]


def test_quota_shows_in_the_condition(http: Http, namespace: str) -> None:
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    http.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}).ok()
    http.wait(lambda: http.get(f"{quotas}/few").ok()["status"].get("used") == {"pods": "0"}, "the quota to be counted")
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 3)).ok()
    found = http.wait(lambda: failure(http, namespace, "ReplicaSet", "web"), "the condition")

    text = r'pods "web-[a-z0-9]{5}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    assert re.fullmatch(text, found["message"]), found["message"]


def test_deployment_rolls_over_to_a_new_template(http: Http, namespace: str, testbed: TestBed) -> None:
    where = path("Deployment", namespace, "web")
    http.post(collection("Deployment", namespace), workloads.deployment("web", 3)).ok()
    http.wait(lambda: http.get(where).ok()["status"].get("readyReplicas") == 3, "three pods")
    (first,) = http.items(collection("ReplicaSet", namespace))
    assert first["metadata"]["name"] == f"web-{first['metadata']['labels']['pod-template-hash']}"
    assert first["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    assert first["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"

    restart = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    http.patch(where, restart).ok()

    def rolled() -> bool:
        status = http.get(where).ok()["status"]
        return bool(
            status.get("observedGeneration") == 2
            and status.get("updatedReplicas") == 3
            and status.get("replicas") == 3
            and status.get("readyReplicas") == 3
        )

    http.wait(rolled, "the new pods")
    sets = {
        item["metadata"]["name"]: item["spec"]["replicas"] for item in http.items(collection("ReplicaSet", namespace))
    }
    assert sorted(sets.values()) == [0, 3]
    assert sets[first["metadata"]["name"]] == 0
    assert condition(http.get(where).ok(), "Available")["status"] == "True"


def test_deployment_shows_its_replica_sets_failure(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.KILLED)
    http.post(collection("Deployment", namespace), workloads.deployment("web", 3)).ok()
    found = http.wait(
        lambda: condition(http.get(path("Deployment", namespace, "web")).ok(), "ReplicaFailure"), "the condition"
    )

    assert found["reason"] == "FailedCreate"


def test_deployments_annotation_reaches_its_replica_set(http: Http, namespace: str) -> None:
    http.post(collection("Deployment", namespace), workloads.deployment("web", 1)).ok()
    http.wait(lambda: http.items(collection("ReplicaSet", namespace)), "the ReplicaSet")
    http.patch(path("Deployment", namespace, "web"), {"metadata": {"annotations": {"note": "1"}}}).ok()

    http.wait(
        lambda: http.items(collection("ReplicaSet", namespace))[0]["metadata"]["annotations"].get("note") == "1",
        "the annotation on the ReplicaSet",
    )


def test_stateful_set_makes_named_pods_in_order(http: Http, namespace: str) -> None:
    http.post(collection("StatefulSet", namespace), workloads.stateful_set("db", 3)).ok()
    where = path("StatefulSet", namespace, "db")
    http.wait(lambda: http.get(where).ok()["status"].get("readyReplicas") == 3, "three pods")

    pods = sorted(pods_of(http, namespace, "db"), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
    assert pods[1]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pods[1]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    uid = pods[1]["metadata"]["uid"]
    http.delete(path("Pod", namespace, "db-1")).ok()
    http.wait(
        lambda: (a := http.get(path("Pod", namespace, "db-1"))).code == 200 and a.body["metadata"]["uid"] != uid,
        "another db-1",
    )


def test_stateful_set_waits_for_the_pod_before(http: Http, namespace: str) -> None:
    body = workloads.stateful_set("db", 2, annotations=dict(workloads.NEVER_READY))
    http.post(collection("StatefulSet", namespace), body).ok()
    where = path("StatefulSet", namespace, "db")
    http.wait(lambda: http.get(where).ok()["status"].get("observedGeneration") == 1, "the status")
    http.wait(lambda: http.get(where).ok()["status"].get("replicas") == 1, "one pod")

    assert http.get(path("Pod", namespace, "db-1")).code == 404


def test_daemon_set_has_a_pod_on_every_node(http: Http, namespace: str) -> None:
    make(http, namespace, "DaemonSet", "agent")
    nodes = {node["metadata"]["name"] for node in http.items("/api/v1/nodes")}
    where = path("DaemonSet", namespace, "agent")
    http.wait(lambda: http.get(where).ok()["status"].get("numberReady") == len(nodes), "all pods")

    status = http.get(where).ok()["status"]
    assert {pod["spec"]["nodeName"] for pod in pods_of(http, namespace, "agent")} == nodes
    assert status["desiredNumberScheduled"] == status["currentNumberScheduled"] == len(nodes)
    assert status["observedGeneration"] == 1


def test_job_runs_to_its_end(http: Http, namespace: str) -> None:
    http.post(collection("Job", namespace), workloads.job("once", 2, completes=True)).ok()
    where = path("Job", namespace, "once")
    job = http.wait(lambda: (j := http.get(where).ok()) and condition(j, "Complete") and j, "the end")

    assert (job["status"]["succeeded"], job["status"].get("active", 0)) == (2, 0)
    pods = pods_of(http, namespace, "once")
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert all(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "once" for pod in pods)


def test_running_job_counts_its_pods(http: Http, namespace: str) -> None:
    http.post(collection("Job", namespace), workloads.job("long", 2)).ok()
    where = path("Job", namespace, "long")
    http.wait(lambda: http.get(where).ok()["status"].get("ready") == 2, "both to run")

    assert http.get(where).ok()["status"]["active"] == 2


def test_deleted_pod_is_terminating_and_then_gone(http: Http, namespace: str) -> None:
    http.post(collection("Pod", namespace), workloads.pod("alone", terminationGracePeriodSeconds=30)).ok()
    where = path("Pod", namespace, "alone")
    http.wait(lambda: is_ready(http.get(where).ok()), "the pod to run")
    answer = http.delete(where).ok()

    assert answer["kind"] == "Pod"
    assert answer["metadata"]["deletionTimestamp"]
    http.wait(lambda: http.get(where).code == 404, "the pod to go")


def test_injector_is_there_to_be_seen(http: Http, testbed: TestBed) -> None:
    wear = testbed.wear
    slices = http.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{wear.namespace}/endpointslices",
        labelSelector=f"kubernetes.io/service-name={wear.service}",
    )
    selector = ",".join(f"{key}={value}" for key, value in wear.injector_labels.items())
    pods = http.items(f"/api/v1/namespaces/{wear.namespace}/pods", labelSelector=selector)
    endpoints = [entry for piece in slices for entry in piece["endpoints"]]

    assert len(endpoints) == len(pods) == wear.replicas
    assert endpoints[0]["conditions"]["ready"] is True
    assert endpoints[0]["targetRef"]["name"] == pods[0]["metadata"]["name"]
    assert slices[0]["ports"][0]["port"] == wear.target_port
