"""What the API server does with objects: versions, generations, conflicts, preconditions, dry runs."""

import pytest

from remesh.testbed import TestBed
from tests.cluster import workloads
from tests.cluster.workloads import collection, path
from tests.testbed.http import JSON_PATCH, STRATEGIC_PATCH, Http, Object


def config_map(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet"])
@pytest.mark.parametrize("name", ["контейнер", "容器", "حاوية", "İstanbul", "app\u202e", "naïve", "a" * 64])
def test_container_names_are_of_one_alphabet(http: Http, namespace: str, kind: str, name: str) -> None:
    made = {"Pod": workloads.pod, "ReplicaSet": workloads.replica_set}[kind]("odd")
    spec = made["spec"] if kind == "Pod" else made["spec"]["template"]["spec"]
    spec["containers"][0]["name"] = name
    answer = http.post(collection(kind, namespace), made)

    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "containers[0].name" in answer.message


@pytest.mark.parametrize("where", ["metadata", "template"])
def test_annotations_have_room_up_to_a_quarter_of_a_megabyte(http: Http, namespace: str, where: str) -> None:
    made = workloads.replica_set("large", 0)
    target = made["metadata"] if where == "metadata" else made["spec"]["template"]["metadata"]
    target["annotations"] = {"note": "é" * (128 * 1024 - 1), "x": "yy"}
    answer = http.post(collection("ReplicaSet", namespace), made)

    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "annotations: Too long: may not be more than 262144 bytes" in answer.message
    target["annotations"] = {"note": "é" * (128 * 1024 - 2)}
    assert http.post(collection("ReplicaSet", namespace), made).code == 201


def test_who_brings_no_token_is_refused(http: Http) -> None:
    answer = http.call("GET", "/api/v1/namespaces", headers={"Authorization": "Bearer wrong"})

    assert (answer.code, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")
    assert answer.body["kind"] == "Status"


def test_server_says_that_it_is_ready_and_which_version_it_is(http: Http) -> None:
    assert http.get("/readyz").message == "ok"
    assert http.get("/livez").message == "ok"
    assert http.get("/version").ok()["major"] == "1"


@pytest.mark.parametrize(
    ("group_version", "plural"),
    [
        ("/api/v1", "pods"),
        ("/apis/apps/v1", "replicasets"),
        ("/apis/batch/v1", "jobs"),
        ("/apis/discovery.k8s.io/v1", "endpointslices"),
        ("/apis/policy/v1", "poddisruptionbudgets"),
        ("/apis/coordination.k8s.io/v1", "leases"),
        ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    ],
)
def test_discovery_names_the_resources(http: Http, group_version: str, plural: str) -> None:
    resources = {entry["name"]: entry for entry in http.get(group_version).ok()["resources"]}

    assert {"get", "list", "watch", "create", "patch", "delete"} <= set(resources[plural]["verbs"])


def test_discovery_names_the_groups(http: Http) -> None:
    groups = {entry["name"] for entry in http.get("/apis").ok()["groups"]}

    assert {"apps", "batch", "policy", "authorization.k8s.io"} <= groups


def test_new_object_gets_identity_and_version(http: Http, namespace: str) -> None:
    created = http.post(config_maps(namespace), config_map("one")).ok()
    metadata = created["metadata"]

    assert (created["kind"], created["apiVersion"]) == ("ConfigMap", "v1")
    assert metadata["namespace"] == namespace
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert http.get(f"{config_maps(namespace)}/one").ok() == created


def test_name_is_generated(http: Http, namespace: str) -> None:
    body = {"metadata": {"generateName": "some-"}}
    first = http.post(config_maps(namespace), body).ok()["metadata"]["name"]
    second = http.post(config_maps(namespace), body).ok()["metadata"]["name"]

    assert first != second
    assert first.startswith("some-")
    assert len(first) == len("some-") + 5


def test_second_object_of_a_name_is_refused(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one")).ok()
    answer = http.post(config_maps(namespace), config_map("one"))

    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "one" already exists'
    assert answer.body["details"] == {"name": "one", "kind": "configmaps"}


def test_object_that_is_not_there(http: Http, namespace: str) -> None:
    for answer in (
        http.get(path("ReplicaSet", namespace, "none")),
        http.patch(path("ReplicaSet", namespace, "none"), {"metadata": {"labels": {"a": "b"}}}),
        http.delete(path("ReplicaSet", namespace, "none")),
    ):
        assert (answer.code, answer.reason) == (404, "NotFound")
        assert answer.message == 'replicasets.apps "none" not found'
        assert answer.body["details"] == {"name": "none", "group": "apps", "kind": "replicasets"}


def test_object_for_a_namespace_that_is_not_there(http: Http) -> None:
    answer = http.post(config_maps("nowhere-at-all"), config_map("one"))

    assert (answer.code, answer.message) == (404, 'namespaces "nowhere-at-all" not found')


def test_resource_that_is_not_there(http: Http) -> None:
    assert http.get("/apis/apps/v1/nonesuch").code == 404
    assert http.get("/apis/nonesuch.io/v1/things").code == 404


def test_generation_counts_changes_of_the_spec_alone(http: Http, namespace: str) -> None:
    where = path("ReplicaSet", namespace, "idle")
    created = http.post(collection("ReplicaSet", namespace), workloads.replica_set("idle", 0)).ok()
    labelled = http.patch(where, {"metadata": {"annotations": {"note": "1"}}}).ok()
    http.patch(f"{where}/status", {"status": {"replicas": 0}}).ok()
    scaled = http.patch(where, {"spec": {"minReadySeconds": 1}}).ok()

    assert created["metadata"]["generation"] == 1
    assert labelled["metadata"]["generation"] == 1
    assert labelled["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert scaled["metadata"]["generation"] == 2


def test_change_of_nothing_is_no_new_version(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one")).ok()
    change = {"metadata": {"annotations": {"note": "1"}}}
    first = http.patch(f"{config_maps(namespace)}/one", change).ok()
    second = http.patch(f"{config_maps(namespace)}/one", change).ok()

    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_annotation_is_taken_off_by_null(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    http.post(config_maps(namespace), config_map("one", kept="yes")).ok()
    http.patch(where, {"metadata": {"annotations": {"note": "1"}}}).ok()
    after = http.patch(where, {"metadata": {"annotations": {"note": None}}}).ok()

    assert "annotations" not in after["metadata"]
    assert after["metadata"]["labels"] == {"kept": "yes"}


def test_patch_with_an_old_version_is_a_conflict(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    version = http.post(config_maps(namespace), config_map("one")).ok()["metadata"]["resourceVersion"]
    locked = {"metadata": {"resourceVersion": version, "annotations": {"note": "1"}}}
    http.patch(where, locked).ok()
    answer = http.patch(where, {"metadata": {"resourceVersion": version, "annotations": {"note": "2"}}})

    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_patch_with_another_uid_is_refused(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    http.post(config_maps(namespace), config_map("one")).ok()
    other = "11111111-2222-3333-4444-555555555555"
    answer = http.patch(where, {"metadata": {"uid": other, "annotations": {"note": "1"}}})

    # Not a conflict, as it is for a replacement or a deletion.
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message == f'ConfigMap "one" is invalid: metadata.uid: Invalid value: "{other}": field is immutable'
    assert "annotations" not in http.get(where).ok()["metadata"]


def test_replacement_with_an_old_version_is_a_conflict(http: Http, namespace: str) -> None:
    created = http.post(config_maps(namespace), config_map("one")).ok()
    http.put(f"{config_maps(namespace)}/one", {**created, "data": {"key": "new"}}).ok()
    answer = http.put(f"{config_maps(namespace)}/one", {**created, "data": {"key": "newer"}})

    assert (answer.code, answer.reason) == (409, "Conflict")


def test_replacement_with_another_uid_is_a_conflict(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one")).ok()
    body = {"metadata": {"name": "one", "uid": "11111111-2222-3333-4444-555555555555"}}
    answer = http.put(f"{config_maps(namespace)}/one", body)

    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "UID in precondition" in answer.message


def test_json_patch_applies_only_where_its_tests_hold(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    http.post(config_maps(namespace), config_map("one")).ok()
    changed = http.patch(
        where,
        [
            {"op": "test", "path": "/data/key", "value": "value"},
            {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}},
            {"op": "replace", "path": "/data/key", "value": "new"},
        ],
        JSON_PATCH,
    ).ok()
    refused = http.patch(
        where,
        [
            {"op": "test", "path": "/data/key", "value": "value"},
            {"op": "remove", "path": "/metadata/annotations/a~1b"},
        ],
        JSON_PATCH,
    )

    assert changed["data"] == {"key": "new"}
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message == "the server rejected our request due to an error in our request"
    assert http.get(where).ok()["metadata"]["annotations"] == {"a/b": "1"}


def test_strategic_patch_merges_containers_by_name(http: Http, namespace: str) -> None:
    http.post(collection("Deployment", namespace), workloads.deployment("web", 0)).ok()
    containers = [{"name": "app", "image": "app:new"}, {"name": "other", "image": "other"}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    after = http.patch(path("Deployment", namespace, "web"), change, STRATEGIC_PATCH).ok()

    found = {entry["name"]: entry["image"] for entry in after["spec"]["template"]["spec"]["containers"]}
    assert found == {"app": "app:new", "other": "other"}


def test_unknown_kind_of_patch_is_refused(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one")).ok()
    assert http.patch(f"{config_maps(namespace)}/one", {}, "application/nonsense").code == 415


def test_deletion_of_another_uid_is_a_conflict(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    created = http.post(config_maps(namespace), config_map("one")).ok()
    answer = http.delete(where, {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}})

    assert (answer.code, answer.reason) == (409, "Conflict")
    assert http.get(where).code == 200

    gone = http.delete(where, {"preconditions": {"uid": created["metadata"]["uid"]}}).ok()
    assert gone["status"] == "Success"
    assert http.get(where).code == 404


def test_deletion_of_an_old_version_is_a_conflict(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    version = http.post(config_maps(namespace), config_map("one")).ok()["metadata"]["resourceVersion"]
    http.patch(where, {"data": {"key": "new"}}).ok()
    answer = http.delete(where, {"preconditions": {"resourceVersion": version}})

    assert (answer.code, answer.reason) == (409, "Conflict")


def test_dry_runs_change_nothing(http: Http, namespace: str) -> None:
    where = f"{config_maps(namespace)}/one"
    rehearsed = http.post(config_maps(namespace), config_map("one"), dryRun="All").ok()
    assert rehearsed["metadata"]["uid"]
    assert http.get(where).code == 404

    http.post(config_maps(namespace), config_map("one")).ok()
    assert http.patch(where, {"data": {"key": "new"}}, dryRun="All").ok()["data"] == {"key": "new"}
    http.delete(where, dryRun="All").ok()
    assert http.get(where).ok()["data"] == {"key": "value"}
    assert http.post(config_maps(namespace), config_map("one"), dryRun="All").code == 409


def test_pod_without_containers_is_invalid(http: Http, namespace: str) -> None:
    answer = http.post(collection("Pod", namespace), {"metadata": {"name": "empty"}, "spec": {"containers": []}})

    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "spec.containers: Required value" in answer.message


def test_everything_is_allowed_to_the_administrator(http: Http) -> None:
    attributes = {"verb": "create", "resource": "pods", "subresource": "eviction", "namespace": "default"}
    review = http.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
         "spec": {"resourceAttributes": attributes}},
    ).ok()  # fmt: skip

    assert review["status"]["allowed"] is True


def test_scale_is_read_and_written(http: Http, namespace: str) -> None:
    where = path("ReplicaSet", namespace, "web")
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 0)).ok()
    scale = http.get(f"{where}/scale").ok()
    assert (scale["kind"], scale["spec"].get("replicas", 0), scale["status"]["selector"]) == ("Scale", 0, "app=web")

    http.patch(f"{where}/scale", {"spec": {"replicas": 2}}).ok()
    http.wait(lambda: http.get(where).ok()["status"].get("readyReplicas") == 2, "two replicas")
    assert http.get(where).ok()["metadata"]["generation"] == 2


def test_owner_takes_its_dependents_along(http: Http, namespace: str, testbed: TestBed) -> None:
    http.post(collection("Deployment", namespace), workloads.deployment("web", 2)).ok()
    http.wait(lambda: len(http.items(collection("Pod", namespace))) == 2, "two pods")
    http.delete(path("Deployment", namespace, "web")).ok()

    http.wait(lambda: not http.items(collection("ReplicaSet", namespace)), "the ReplicaSet to go")
    http.wait(lambda: not http.items(collection("Pod", namespace)), "the pods to go")


def test_owner_can_leave_its_dependents(http: Http, namespace: str) -> None:
    http.post(collection("ReplicaSet", namespace), workloads.replica_set("web", 1)).ok()
    http.wait(lambda: len(http.items(collection("Pod", namespace))) == 1, "a pod")
    http.delete(path("ReplicaSet", namespace, "web"), {"propagationPolicy": "Orphan"}).ok()
    http.wait(lambda: http.get(path("ReplicaSet", namespace, "web")).code == 404, "the ReplicaSet to go")

    (pod,) = http.items(collection("Pod", namespace))
    assert not pod["metadata"].get("ownerReferences")


def test_nothing_is_created_in_a_namespace_that_ends(http: Http, plain_namespace: str) -> None:
    held = {"metadata": {"name": "held", "finalizers": ["test.remesh.dev/hold"]}}
    http.post(config_maps(plain_namespace), held).ok()
    http.delete(f"/api/v1/namespaces/{plain_namespace}").ok()
    answer = http.post(config_maps(plain_namespace), config_map("late"))

    assert http.get(f"/api/v1/namespaces/{plain_namespace}").ok()["status"]["phase"] == "Terminating"
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {plain_namespace} '
        "because it is being terminated"
    )
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"

    http.patch(f"{config_maps(plain_namespace)}/held", {"metadata": {"finalizers": None}}).ok()
    http.wait(lambda: http.get(f"/api/v1/namespaces/{plain_namespace}").code == 404, "the namespace to go")
