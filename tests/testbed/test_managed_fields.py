"""Who set which field and when, and what is not told: that a field was taken away. What `remesh.since` builds on."""

from typing import Any

from tests.cluster import workloads as w
from tests.testbed.http import JSON_PATCH, Http, Object

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def entries(found: Object) -> dict[str, Object]:
    """What of metadata is whose, with the time, by manager."""
    return {
        each["manager"]: {
            "time": each["time"],
            **{kind: set(keys) - {"."} for kind, keys in each["fieldsV1"].get("f:metadata", {}).items()},
        }
        for each in found["metadata"]["managedFields"]
        if each["operation"] == "Update"
    }


def change(http: Http, namespace: str, manager: str, **labels: str | None) -> Object:
    place = f"/api/v1/namespaces/{namespace}"
    return http.patch(place, {"metadata": {"labels": labels}}, fieldManager=manager).ok()


def test_a_label_is_whoever_set_it_last(http: Http, namespace: str) -> None:
    first = entries(change(http, namespace, "one", a="1", b="1"))
    assert first["one"]["f:labels"] == {"f:a", "f:b"}

    then = entries(change(http, namespace, "two", b="2"))
    assert (then["one"]["f:labels"], then["two"]["f:labels"]) == ({"f:a"}, {"f:b"})
    assert then["one"]["time"] == first["one"]["time"]
    assert entries(change(http, namespace, "three", b="2")) == then, "who changes nothing is not named"


def test_a_label_that_is_taken_away_leaves_nothing_but_a_higher_resource_version(http: Http, namespace: str) -> None:
    change(http, namespace, "one", a="1", b="1")
    before = http.get(f"/api/v1/namespaces/{namespace}").ok()
    pod = http.post(w.collection("Pod", namespace), w.pod("app")).ok()

    after = change(http, namespace, "two", b=None)

    assert "two" not in entries(after)
    assert after["metadata"]["labels"].get("b") is None
    assert {manager: each["time"] for manager, each in entries(after).items()} == {
        manager: each["time"] for manager, each in entries(before).items()
    }
    versions = [int(each["metadata"]["resourceVersion"]) for each in (before, pod, after)]
    assert versions == sorted(set(versions)), "one counter for all that is written"


def test_an_edited_selector_is_the_editors(http: Http) -> None:
    selector: Object = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    hook: Object = {
        "name": "hook.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": selector,
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"],
    }
    http.post(CONFIGURATIONS, {"metadata": {"name": "edited"}, "webhooks": [hook]}, fieldManager="helm").ok()
    try:
        place = f"{CONFIGURATIONS}/edited"
        edits: list[Any] = [
            {"op": "replace", "path": "/webhooks/0/namespaceSelector/matchExpressions/0/values", "value": ["c"]},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        ]
        for manager, edit in zip(("editor", "operator"), edits, strict=True):
            edited = http.patch(place, [edit], JSON_PATCH, fieldManager=manager).ok()
        found = {each["manager"]: each["fieldsV1"]["f:webhooks"] for each in edited["metadata"]["managedFields"]}
        name = 'k:{"name":"hook.example.com"}'
        assert found["editor"] == {name: {"f:namespaceSelector": {}}}, "a selector is one field, also for what it loses"
        assert found["operator"] == {name: {"f:failurePolicy": {}}}
        assert "f:namespaceSelector" not in found["helm"][name]
    finally:
        http.delete(f"{CONFIGURATIONS}/edited")
