"""What a pod without a controller can be created again from, and what of it people see."""

from typing import Any

import pytest

from remesh.kube.manifest import restorable, shape_hash, withheld

TOKEN = {"name": "kube-api-access-x7k2p", "projected": {"sources": [{"serviceAccountToken": {}}]}}


def stored(**spec: Any) -> dict[str, Any]:
    """A running pod as the API server has it."""
    container = {
        "name": "app",
        "image": "app:1",
        "env": [{"name": "PASSWORD", "value": "s3cret"}, {"name": "MODE", "value": "ok"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": TOKEN["name"], "mountPath": "/var/run"}],
    }
    return {
        "metadata": {
            "name": "lonely",
            "namespace": "shop",
            "uid": "u-1",
            "resourceVersion": "17",
            "generation": 1,
            "creationTimestamp": "2026-03-04T05:06:07Z",
            "labels": {"app": "lonely"},
            "annotations": {"linkerd.io/inject": "enabled"},
            "finalizers": ["example.com/hold"],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}, TOKEN],
            "nodeName": "node-1",
            "priority": 1000,
            "preemptionPolicy": "PreemptLowerPriority",
            "overhead": {"cpu": "1"},
            "ephemeralContainers": [{"name": "debugger"}],
            "tolerations": [{"key": "a"}],
            **spec,
        },
        "status": {"phase": "Running"},
    }


def test_what_the_server_sets_is_left_out_and_all_else_is_kept() -> None:
    manifest = restorable(stored())

    assert manifest["metadata"] == {
        "name": "lonely",
        "namespace": "shop",
        "labels": {"app": "lonely"},
        "annotations": {"linkerd.io/inject": "enabled"},
        "finalizers": ["example.com/hold"],
    }
    assert set(manifest["spec"]) == {"containers", "volumes", "tolerations"}
    assert manifest["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert manifest["spec"]["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert "status" not in manifest


def test_a_token_that_the_pod_asked_for_itself_is_kept() -> None:
    manifest = restorable(stored(automountServiceAccountToken=False))

    assert TOKEN in manifest["spec"]["volumes"]


def test_a_node_that_the_creator_chose_is_kept() -> None:
    pod = stored()
    pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:nodeName"] = {}

    assert restorable(pod)["spec"]["nodeName"] == "node-1"


def test_the_pod_itself_is_not_changed() -> None:
    pod = stored()
    restorable(pod)

    assert pod == stored()


def test_a_pod_that_came_back_has_the_same_shape_and_no_secret_is_in_it() -> None:
    before, after = stored(), stored(nodeName="node-2")
    after["metadata"]["uid"] = "u-2"
    after["metadata"]["annotations"]["net.example/address"] = "10.0.0.7"
    after["spec"]["containers"][0]["env"][0]["value"] = "another"

    assert shape_hash(restorable(before)) == shape_hash(restorable(after))
    after["spec"]["containers"][0]["image"] = "app:2"
    assert shape_hash(restorable(before)) != shape_hash(restorable(after))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("quota exceeded", True),
        ("env PASSWORD=s3cret is not allowed", False),
        ("prefixs3cretsuffix", False),
        ("the mode ok is not allowed", False),
        ("a token is needed", True),  # "ok" is only part of a word
    ],
)
def test_a_text_that_repeats_a_value_of_the_environment_is_withheld(text: str, shown: bool) -> None:
    assert (withheld(text, restorable(stored())) == text) is shown
