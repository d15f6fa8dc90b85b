"""What a pod without a controller can be created again from, and what of it people see."""

import base64
import json
from typing import Any

import pytest

from remesh.kube.failures import Answer, answer_error
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


def with_secrets() -> dict[str, Any]:
    pod = stored()
    pod["metadata"]["annotations"]["example.com/key"] = "4nnotat10n-key"
    container = pod["spec"]["containers"][0]
    container["env"] = [
        {"name": "QUOTED", "value": 'p"ss\\w<r>d'},
        {"name": "LONG", "value": "kFq82-" * 20},
        {"name": "LINES", "value": "first line of it\nsecond line of it\n"},
        {"name": "URL", "value": "redis://app:horse-battery@db.example:6379/0"},
    ]
    container["args"] = ["--token=t0k3n-of-args", "serve", "--port", "8080"]
    container["command"] = ["sh", "-c", "export API=c0mmand9; exec app"]
    container["livenessProbe"] = {"httpGet": {"httpHeaders": [{"name": "X", "value": "Bearer pr0beSecret"}]}}
    return restorable(pod)


QUOTED = 'p"ss\\w<r>d'
GO_JSON = json.dumps(QUOTED).replace("<", "\\u003c").replace(">", "\\u003e")


@pytest.mark.parametrize(
    "text",
    [
        f"value {QUOTED} is bad",
        f"value {json.dumps(QUOTED)} is bad",
        f"value {GO_JSON} is bad",
        f"value {json.dumps(json.dumps(QUOTED))} is bad",
        "value " + ("kFq82-" * 20)[:30] + "... is bad",
        "value kFq82-kFq… is bad",
        "value is bad: kFq82-kF",
        "value ..." + ("kFq82-" * 20)[-20:],
        "first line of it second line of it is bad",
        'bad "first line of it\\nsecond line of it\\n"',
        "no login with horse-battery",
        "no login at redis://app:horse-battery@db",
        "flag t0k3n-of-args unknown",
        "command c0mmand9 unknown",
        "header pr0beSecret unknown",
        "annotation 4nnotat10n-key unknown",
        "data " + base64.b64encode(QUOTED.encode()).decode(),
    ],
)
def test_a_value_is_found_escaped_cut_or_as_a_part(text: str) -> None:
    said = withheld(text, with_secrets())
    assert said == f"(withheld: {len(text)} characters, which repeat a value of the pod's manifest)"


@pytest.mark.parametrize(
    "text",
    [
        "annotation linkerd.io/inject=enabled asks Linkerd for a sidecar",
        "evicted, and not back yet: its containers are still being stopped",
        "port 8080 is taken; serve it elsewhere",
        "Linkerd has already changed it",
        "",
    ],
)
def test_what_remesh_says_itself_stays(text: str) -> None:
    assert withheld(text, with_secrets()) == text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504])
@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "guard.example" denied the request: I do not like xyzzy',
        "pods is forbidden: xyzzy",
        "metadata.uid: Invalid value: xyzzy",
        "spec: Invalid value: xyzzy",
    ],
)
def test_what_others_say_is_left_out_whole_and_its_class_stays(status: int, message: str) -> None:
    body = json.dumps({"kind": "Status", "apiVersion": "v1", "message": message, "code": status}).encode()
    error = answer_error(Answer("https://192.0.2.1", "one", "POST /api/v1/namespaces/shop/pods", status, body))
    said = withheld(f"evicted, and not back yet: {error}", restorable(stored()))
    assert "xyzzy" not in said
    assert said.startswith("evicted, and not back yet: ")
    if "xyzzy" in str(error):
        assert "characters, classified as " in said
    assert withheld(f"{said}. It is tried again", restorable(stored())) == f"{said}. It is tried again"
