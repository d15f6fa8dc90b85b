"""Typed verbs, as the API server sees them."""

from collections.abc import Callable
from typing import Any

import pytest

from remesh.errors import ClusterUnreachable, Conflict, Gone, NotFound, Rejected, UsageError
from remesh.kube.api import Cluster, count_endpoints
from remesh.kube.template import pod_from
from remesh.models import ObjectRef
from remesh.objects import Endpoint, EndpointConditions, EndpointSlice
from tests.kube.server import Handler, ScriptedServer, answer, page, pod, refusal, reset

REF = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="cart", uid="u-1")
POD = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="cart-1", uid="u-2")
TEMPLATE = {
    "metadata": {"labels": {"app": "cart"}, "annotations": {"a": "b"}, "ownerReferences": [{"uid": "x"}]},
    "spec": {"containers": [{"name": "app"}], "nodeName": "n1", "serviceAccountName": "cart"},
}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "cart", "namespace": "shop", "uid": "u-1"},
    "spec": {"replicas": 1, "template": TEMPLATE},
}


def test_annotations_are_patched_with_the_uid_as_precondition(server: ScriptedServer) -> None:
    server.on("other", answer({}))
    Cluster(server.client()).annotate(REF, {"remesh.dev/nudge": "f-1", "old": None})
    seen = server.seen[0]
    assert (seen.method, seen.path) == ("PATCH", "/apis/apps/v1/namespaces/shop/replicasets/cart")
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.params == {"fieldManager": "remesh"}
    assert seen.json() == {"metadata": {"uid": "u-1", "annotations": {"remesh.dev/nudge": "f-1", "old": None}}}


WRITES: list[Callable[[Cluster], None]] = [
    lambda cluster: cluster.annotate(REF, {"a": "b"}),
    lambda cluster: cluster.evict(POD),
    lambda cluster: cluster.delete(POD),
]


@pytest.mark.parametrize("write", WRITES, ids=["annotate", "evict", "delete"])
def test_dry_run_covers_every_write(server: ScriptedServer, write: Callable[[Cluster], None]) -> None:
    server.on("other", answer({}))
    write(Cluster(server.client(), dry_run=True))
    seen = server.seen[0]
    assert seen.params["dryRun"] == "All"
    if seen.method != "PATCH":  # the API server reads a deletion's options from its body
        options = seen.json().get("deleteOptions", seen.json())
        assert options["dryRun"] == ["All"]


def test_evictions_and_deletions_carry_their_preconditions(server: ScriptedServer) -> None:
    server.on("other", answer({}))
    cluster = Cluster(server.client())
    cluster.evict(POD)
    cluster.delete(POD, resource_version="7")
    evicted, deleted = server.seen
    assert evicted.path == "/api/v1/namespaces/shop/pods/cart-1/eviction"
    assert evicted.json()["deleteOptions"]["preconditions"] == {"uid": "u-2"}
    assert deleted.json()["preconditions"] == {"uid": "u-2", "resourceVersion": "7"}
    assert "dryRun" not in evicted.params | deleted.params | deleted.json()


def test_nothing_is_deleted_without_a_uid(server: ScriptedServer) -> None:
    nobody = POD.model_copy(update={"uid": ""})
    with pytest.raises(UsageError, match="needs the UID"):
        Cluster(server.client()).delete(nobody)
    assert server.seen == []


def test_a_dry_run_sends_the_owners_template_without_owner_and_node(server: ScriptedServer) -> None:
    server.on(
        "other", answer(OWNER), answer({"metadata": {"name": "cart-x"}, "spec": {"containers": [{"name": "app"}]}})
    )
    found = Cluster(server.client()).dry_run_pod(REF, timeout=2)
    seen = server.seen[1]
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/shop/pods")
    assert seen.params == {"dryRun": "All", "timeout": "2000ms", "fieldManager": "remesh"}
    body = seen.json()
    assert body["metadata"] == {
        "labels": {"app": "cart"},
        "annotations": {"a": "b"},
        "generateName": "cart-",
        "namespace": "shop",
    }
    assert body["spec"] == {"containers": [{"name": "app"}], "serviceAccountName": "cart"}
    assert found.pod is not None
    assert (found.pod.metadata.name, found.error, found.message) == ("cart-x", None, "")


def test_a_dry_run_keeps_the_servers_text(server: ScriptedServer) -> None:
    text = 'Internal error occurred: failed calling webhook "w": failed to call webhook: connection refused'
    server.on("other", answer(OWNER), refusal(500, "InternalError", text))
    found = Cluster(server.client()).dry_run_pod(REF)
    assert found.pod is None
    assert isinstance(found.error, Rejected)
    assert found.message == text
    assert not found.unsupported


def test_a_connection_closed_at_the_deadline_is_a_timeout(server: ScriptedServer) -> None:
    def close_late(handler: Handler) -> None:
        handler.script.closing.wait(0.3)
        handler.close_connection = True

    server.on("other", answer(OWNER), close_late)
    found = Cluster(server.client()).dry_run_pod(REF, timeout=0.2)
    assert isinstance(found.error, ClusterUnreachable)
    assert found.error.status == 504
    assert found.message == "Timeout: request did not complete within the allotted timeout"


def test_a_connection_closed_before_the_deadline_is_not(server: ScriptedServer) -> None:
    server.on("other", answer(OWNER), reset)
    found = Cluster(server.client()).dry_run_pod(REF, timeout=20)
    assert isinstance(found.error, ClusterUnreachable)
    assert found.error.status == 0


@pytest.mark.parametrize(
    "text",
    [
        'admission webhook "w" does not support dry run',
        'failed calling webhook "w": Webhook SideEffects is nil',
    ],
)
def test_a_webhook_with_side_effects_makes_dry_runs_unsupported(server: ScriptedServer, text: str) -> None:
    server.on("other", answer(OWNER), refusal(400, "BadRequest", text))
    assert Cluster(server.client()).dry_run_pod(REF).unsupported


def test_another_object_of_that_name_is_not_dry_run(server: ScriptedServer) -> None:
    server.on("other", answer({**OWNER, "metadata": {**OWNER["metadata"], "uid": "u-9"}}))  # type: ignore[dict-item]
    found = Cluster(server.client()).dry_run_pod(REF)
    assert isinstance(found.error, NotFound)
    assert len(server.seen) == 1


def test_a_stateful_sets_pod_has_volumes_for_its_claims() -> None:
    template = {"spec": {"volumes": [{"name": "config", "configMap": {}}, {"name": "data", "emptyDir": {}}]}}
    owner = {
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"template": template, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
    }
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
    assert pod_from(owner)["spec"]["volumes"] == [{"name": "config", "configMap": {}}, claimed]


def test_a_pod_is_its_own_template() -> None:
    bare = {
        "kind": "Pod",
        "metadata": {"name": "cart-1", "generateName": "cart-", "namespace": "shop", "uid": "x", "labels": {"a": "b"}},
        "spec": {"containers": [], "nodeName": "n", "ephemeralContainers": [{}]},
        "status": {"phase": "Running"},
    }
    metadata = {"labels": {"a": "b"}, "generateName": "cart-", "namespace": "shop"}
    assert pod_from(bare) == {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


def test_an_object_without_a_template_cannot_be_tried() -> None:
    with pytest.raises(Rejected, match="Service/web has no pod template"):
        pod_from({"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}})


def test_pods_of_a_workload_are_those_it_controls(server: ScriptedServer) -> None:
    def owned(name: str, uid: str, controller: bool = True) -> dict[str, Any]:
        return pod(name, ownerReferences=[{"kind": "ReplicaSet", "name": "cart", "uid": uid, "controller": controller}])

    selected = {**OWNER, "spec": {"selector": {"matchLabels": {"app": "cart"}}, "template": TEMPLATE}}
    server.on("other", answer(selected))
    server.on("list", page(owned("a", "u-1"), owned("b", "u-9"), owned("c", "u-1", False), pod("d")))
    cluster = Cluster(server.client())
    found = cluster.pods_of(cluster.workload("ReplicaSet", "shop", "cart"))
    assert [one.metadata.name for one in found] == ["a"]
    assert server.asked("list")[0].params["labelSelector"] == "app=cart"


def test_a_list_that_expires_again_and_again_is_given_up(server: ScriptedServer) -> None:
    server.on("list", refusal(410, "Expired", "too old"))
    with pytest.raises(Gone):
        Cluster(server.client()).list("Pod")
    assert len(server.seen) == 3


def test_webhooks_come_in_the_order_of_their_configurations_names(server: ScriptedServer) -> None:
    def configuration(name: str, *webhooks: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "webhooks": [{"name": webhook} for webhook in webhooks]}

    server.on("list", page(configuration("b", "b1", "b2"), configuration("a", "a1"), {"metadata": {"name": "none"}}))
    found = [(name, webhook.name) for name, webhook in Cluster(server.client()).webhooks()]
    assert found == [("a", "a1"), ("b", "b1"), ("b", "b2")]


def test_kinds_outside_the_table_are_found_by_discovery_once(server: ScriptedServer) -> None:
    resources = [
        {"name": "rollouts/status", "kind": "Rollout", "namespaced": True},
        {"name": "rollouts", "kind": "Rollout", "namespaced": True},
    ]
    server.on("other", answer({"resources": resources}), answer({"metadata": {"name": "r"}}))
    cluster = Cluster(server.client())
    for _ in range(2):
        cluster.get_raw("Rollout", "shop", "r", api_version="argoproj.io/v1alpha1")
    path = "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/r"
    assert [seen.path for seen in server.seen] == ["/apis/argoproj.io/v1alpha1", path, path]


def test_a_kind_that_the_cluster_lacks_is_named(server: ScriptedServer) -> None:
    server.on("other", answer({"resources": []}))
    with pytest.raises(NotFound, match=r"no kind Rollout in argoproj.io/v1alpha1"):
        Cluster(server.client()).get_raw("Rollout", "shop", "r", api_version="argoproj.io/v1alpha1")


def test_rights_are_asked_for_by_subresource(server: ScriptedServer) -> None:
    server.on("other", answer({"status": {"allowed": True}}), answer({"status": {"allowed": False}}))
    cluster = Cluster(server.client(), dry_run=True)
    assert cluster.can_i("create", "", "pods", "shop", "eviction")
    assert not cluster.can_i("list", "", "pods")
    asked = {"verb": "create", "group": "", "resource": "pods", "namespace": "shop", "subresource": "eviction"}
    assert server.seen[0].json()["spec"]["resourceAttributes"] == asked


def test_a_changed_uid_is_a_conflict(server: ScriptedServer) -> None:
    text = 'ReplicaSet.apps "cart" is invalid: metadata.uid: Invalid value: "u-1": field is immutable'
    server.on("other", refusal(422, "Invalid", text))
    with pytest.raises(Conflict, match="another object has this name"):
        Cluster(server.client()).annotate(REF, {"a": "b"})


def _endpoint(address: str, ready: bool | None, node: str | None = None) -> Endpoint:
    return Endpoint(addresses=[address], conditions=EndpointConditions(ready=ready), node_name=node)


def test_endpoints_are_distinct_over_slices_and_families() -> None:
    first = EndpointSlice(endpoints=[_endpoint("10.0.0.1", True, "n1"), _endpoint("10.0.0.2", False, "n2")])
    overlap = EndpointSlice(endpoints=[_endpoint("10.0.0.1", None, "n1"), _endpoint("10.0.0.3", None, "n3")])
    dual = EndpointSlice(endpoints=[_endpoint("fd00::1", True, "n1")])
    found = count_endpoints([first, overlap, dual, EndpointSlice()])
    assert (found.ready, found.total, found.nodes) == (2, 3, ("n1", "n3"))
    assert count_endpoints([]).ready == 0
