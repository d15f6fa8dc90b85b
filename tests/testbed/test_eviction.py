"""Eviction and disruption budgets."""

import pytest

from tests.cluster import workloads
from tests.cluster.workloads import collection, is_ready, path
from tests.testbed.http import Answer, Http, Object

OTHER_UID = "11111111-2222-3333-4444-555555555555"


def evict(http: Http, namespace: str, name: str, **options: object) -> Answer:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    return http.post(f"{path('Pod', namespace, name)}/eviction", body)


@pytest.fixture
def pod(http: Http, namespace: str) -> Object:
    """A running pod of a ReplicaSet of one."""
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 1)).ok()

    def ready() -> list[Object]:
        return [item for item in http.items(collection("Pod", namespace)) if is_ready(item)]

    return http.wait(ready, "the pod to be Ready")[0]


def test_evicted_pod_goes_and_is_replaced(http: Http, namespace: str, pod: Object) -> None:
    answer = evict(http, namespace, pod["metadata"]["name"])

    assert (answer.code, answer.body["status"]) == (201, "Success")
    http.wait(
        lambda: (
            [item["metadata"]["uid"] for item in http.items(collection("Pod", namespace))]
            not in ([], [pod["metadata"]["uid"]])
        ),
        "another pod in its place",
    )


def test_eviction_of_another_uid_is_a_conflict(http: Http, namespace: str, pod: Object) -> None:
    answer = evict(http, namespace, pod["metadata"]["name"], preconditions={"uid": OTHER_UID})

    assert (answer.code, answer.reason) == (409, "Conflict")
    assert http.get(path("Pod", namespace, pod["metadata"]["name"])).code == 200


def test_eviction_of_no_pod(http: Http, namespace: str) -> None:
    assert evict(http, namespace, "nobody").code == 404


def test_eviction_can_be_rehearsed(http: Http, namespace: str, pod: Object) -> None:
    assert evict(http, namespace, pod["metadata"]["name"], dryRun=["All"]).code == 201
    after = http.get(path("Pod", namespace, pod["metadata"]["name"])).ok()
    assert "deletionTimestamp" not in after["metadata"]


def test_budget_says_not_now(http: Http, namespace: str, pod: Object) -> None:
    budget = path("PodDisruptionBudget", namespace, "steady")
    http.post(collection("PodDisruptionBudget", namespace), workloads.disruption_budget("steady", "web", 1)).ok()
    http.wait(lambda: http.get(budget).ok().get("status", {}).get("currentHealthy") == 1, "the budget to be counted")
    answer = evict(http, namespace, pod["metadata"]["name"])

    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget steady needs 1 healthy pods and has 1 currently"


def test_budget_with_room_allows_one(http: Http, namespace: str) -> None:
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 3)).ok()
    http.post(collection("PodDisruptionBudget", namespace), workloads.disruption_budget("steady", "web", 2)).ok()
    budget = path("PodDisruptionBudget", namespace, "steady")
    http.wait(lambda: http.get(budget).ok().get("status", {}).get("disruptionsAllowed") == 1, "room for one")
    first = http.items(collection("Pod", namespace))[0]["metadata"]["name"]

    assert evict(http, namespace, first).code == 201
    http.wait(lambda: http.get(path("Pod", namespace, first)).code == 404, "the pod to go")
    http.wait(lambda: http.get(budget).ok()["status"]["disruptionsAllowed"] == 1, "room again, with a new pod")


def test_budget_lets_a_pending_pod_go(http: Http, namespace: str) -> None:
    never = workloads.replica_set("web", 1, annotations=dict(workloads.NEVER_READY))
    http.post(collection("ReplicaSet", namespace), never).ok()
    http.post(collection("PodDisruptionBudget", namespace), workloads.disruption_budget("steady", "web", 1)).ok()
    budget = path("PodDisruptionBudget", namespace, "steady")
    http.wait(lambda: http.get(budget).ok().get("status", {}).get("expectedPods") == 1, "the budget to be counted")
    pending = http.wait(lambda: http.items(collection("Pod", namespace)), "the pod")[0]["metadata"]["name"]

    assert evict(http, namespace, pending).code == 201
