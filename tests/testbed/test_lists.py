"""Lists and watches: pages, selectors, bookmarks, and what happens to those who come too late."""

from tests.cluster import workloads
from tests.cluster.workloads import collection, path
from tests.testbed.http import Http, Object
from tests.testbed.test_objects import config_map, config_maps


def names(items: list[Object]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def own(items: list[Object]) -> list[str]:
    """Without what Kubernetes puts into every namespace."""
    return [name for name in names(items) if name != "kube-root-ca.crt"]


def test_list_has_the_version_of_the_snapshot_and_items_without_kind(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one")).ok()
    listed = http.get(config_maps(namespace)).ok()

    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) > 0
    assert "kind" not in listed["items"][0]


def test_pages_show_one_moment(http: Http, namespace: str) -> None:
    for number in range(7):
        http.post(config_maps(namespace), config_map(f"m-{number}", paged="yes")).ok()
    first = http.get(config_maps(namespace), limit=3).ok()
    http.post(config_maps(namespace), config_map("m-late")).ok()
    http.delete(f"{config_maps(namespace)}/m-6").ok()
    pages, token = [first], first["metadata"]["continue"]
    while token:
        pages.append(http.get(config_maps(namespace), **{"limit": 3, "continue": token}).ok())
        token = pages[-1]["metadata"].get("continue", "")

    seen = [name for page in pages for name in own(page["items"])]
    assert seen == [f"m-{number}" for number in range(7)]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert first["metadata"]["remainingItemCount"] > 0


def test_label_selectors(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("a", tier="web", env="prod")).ok()
    http.post(config_maps(namespace), config_map("b", tier="web", env="test")).ok()
    http.post(config_maps(namespace), config_map("c", tier="db")).ok()

    def selected(selector: str) -> list[str]:
        return own(http.items(config_maps(namespace), labelSelector=selector))

    assert selected("tier=web") == ["a", "b"]
    assert selected("tier==web,env!=prod") == ["b"]
    assert selected("tier in (web, db),env notin (test)") == ["a", "c"]
    assert selected("env") == ["a", "b"]
    assert selected("tier,!env") == ["c"]
    assert http.get(config_maps(namespace), labelSelector="tier in web").code == 400


def test_field_selectors(http: Http, namespace: str) -> None:
    for name in ("a", "b"):
        http.post(collection("Pod", namespace), workloads.pod(name)).ok()
    http.wait(
        lambda: names(http.items(collection("Pod", namespace), fieldSelector="status.phase=Running")) == ["a", "b"],
        "both to run",
    )
    node = http.get(path("Pod", namespace, "a")).ok()["spec"]["nodeName"]

    def selected(selector: str) -> list[str]:
        return names(http.items("/api/v1/pods", fieldSelector=f"metadata.namespace={namespace},{selector}"))

    assert selected("metadata.name=a") == ["a"]
    assert "a" in selected(f"spec.nodeName={node}")
    assert selected("status.phase!=Running") == []
    assert http.get("/api/v1/pods", fieldSelector="spec.nonsense=1").code == 400


def test_watch_tells_what_came_after_the_list(http: Http, namespace: str) -> None:
    where = config_maps(namespace)
    http.post(where, config_map("before")).ok()
    version = http.get(where).ok()["metadata"]["resourceVersion"]
    http.post(where, config_map("one")).ok()
    http.patch(f"{where}/one", {"metadata": {"annotations": {"note": "1"}}}).ok()
    http.patch(f"{where}/one", {"metadata": {"annotations": {"note": "1"}}}).ok()
    gone = http.delete(f"{where}/one").ok()
    events = list(http.watch(where, resourceVersion=version, timeoutSeconds=1))

    assert gone["status"] == "Success"
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event["object"]["kind"] for event in events} == {"ConfigMap"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_watch_without_a_version_begins_with_what_is_there(http: Http, namespace: str) -> None:
    http.post(config_maps(namespace), config_map("one", mine="yes")).ok()
    events = list(http.watch(config_maps(namespace), labelSelector="mine", timeoutSeconds=1))

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "one")]


def test_watch_with_a_selector_sees_objects_enter_and_leave(http: Http, namespace: str) -> None:
    where = config_maps(namespace)
    version = http.get(where).ok()["metadata"]["resourceVersion"]
    http.post(where, config_map("one")).ok()
    http.patch(f"{where}/one", {"metadata": {"labels": {"seen": "yes"}}}).ok()
    http.patch(f"{where}/one", {"metadata": {"labels": {"more": "yes"}}}).ok()
    http.patch(f"{where}/one", {"metadata": {"labels": {"seen": None}}}).ok()
    http.patch(f"{where}/one", {"metadata": {"labels": {"more": "no"}}}).ok()
    events = list(http.watch(where, resourceVersion=version, labelSelector="seen=yes", timeoutSeconds=1))

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_bookmark_comes_before_the_end(http: Http, namespace: str) -> None:
    where = config_maps(namespace)
    version = http.get(where).ok()["metadata"]["resourceVersion"]
    events = list(http.watch(where, resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=4))

    bookmarks = [event["object"] for event in events if event["type"] == "BOOKMARK"]
    assert bookmarks
    assert bookmarks[-1]["kind"] == "ConfigMap"
    assert int(bookmarks[-1]["metadata"]["resourceVersion"]) >= int(version)
    assert "name" not in bookmarks[-1]["metadata"]


def test_large_answer_is_compressed_for_who_asks(http: Http, namespace: str) -> None:
    for number in range(3):
        large = {"metadata": {"name": f"large-{number}"}, "data": {"text": "word " * 20_000}}
        http.post(config_maps(namespace), large).ok()
    answer = http.call("GET", config_maps(namespace), headers={"Accept-Encoding": "gzip"})

    assert len(own(answer.ok()["items"])) == 3
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in http.get(config_maps(namespace)).headers
