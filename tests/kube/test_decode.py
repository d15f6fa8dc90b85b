"""Bytes of the API server into projections."""

import json
from typing import Any

import msgspec
import pytest

from remesh.errors import ClusterError, UsageError
from remesh.kube.decode import decode_list, decode_object, decode_watch_line, selector_text, template_hash
from remesh.kube.resources import KINDS, path_for, resource_of
from remesh.kube.sharing import Siblings
from remesh.models import ObjectRef
from remesh.objects import LabelSelector, SelectorRequirement, WorkloadSpec


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def workload(template: dict[str, Any], selector: Any = None, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "uid": "u", "labels": labels},
        "spec": {"replicas": 2, "selector": selector or {"matchLabels": {"app": "a"}}, "template": template},
        "status": {"replicas": 1},
    }


TEMPLATE = {
    "metadata": {"labels": {"app": "a"}, "creationTimestamp": None},
    "spec": {"containers": [{"name": "app", "image": "i", "env": [{"name": "A", "value": "1"}]}]},
}


def test_items_carry_kind_and_version_although_lists_leave_them_out() -> None:
    found = decode_list("StatefulSet", encoded({"items": [workload(TEMPLATE)]})).items[0]
    assert (found.kind, found.api_version) == ("StatefulSet", "apps/v1")
    assert found.spec.template.spec.containers[0].name == "app"
    assert found.status.replicas == 1


@pytest.mark.parametrize("name", ["контейнер", "容器", "\u202eapp", "app\0", "\U0001f433", "a" * 100_000])
def test_a_container_name_that_no_api_server_would_store_is_read_as_it_is(name: str) -> None:
    spec = {"containers": [{"name": name}], "initContainers": [{"name": name, "restartPolicy": "Always"}]}
    known = {"metadata": {"name": "web-1", "uid": "u", "annotations": {name: name}}, "spec": spec}
    found = decode_list("Pod", encoded({"items": [known]})).items[0]
    assert [each.name for each in found.spec.containers] == [name]
    assert [each.name for each in found.spec.init_containers] == [name]
    assert decode_object("ReplicaSet", encoded(workload({"metadata": {}, "spec": spec}))).template_hash


def test_no_field_of_a_workloads_spec_is_lost_on_the_way() -> None:
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(WorkloadSpec)}
    told: dict[str, Any] = dict.fromkeys(fields, 7) | {
        "template": TEMPLATE,
        "selector": {"matchLabels": {"app": "a"}},
        "suspend": True,
        "paused": True,
        "podManagementPolicy": "Parallel",
        "strategy": {"type": "Recreate"},
        "updateStrategy": {"type": "OnDelete"},
    }
    found = decode_object("StatefulSet", encoded({"metadata": {"name": "a"}, "spec": told}))
    assert [name for name in fields.values() if getattr(found.spec, name) is None] == []


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_list_has_no_items(items: Any) -> None:
    page = decode_list("Pod", encoded({"metadata": {"resourceVersion": "7"}, "items": items}))
    assert (page.items, page.resource_version, page.continue_token) == ([], "7", "")


def test_a_replica_sets_hash_is_its_label() -> None:
    assert (
        decode_object("ReplicaSet", encoded(workload(TEMPLATE, **{"pod-template-hash": "97587d"}))).template_hash
        == "97587d"
    )


def test_a_replica_set_of_nobody_is_hashed_like_all_others() -> None:
    assert decode_object("ReplicaSet", encoded(workload(TEMPLATE))).template_hash == template_hash(encoded(TEMPLATE))


def test_the_hash_sees_every_field_but_no_order_no_space_and_no_null_timestamp() -> None:
    shuffled = {"spec": TEMPLATE["spec"], "metadata": {"labels": {"app": "a"}}}
    spaced = json.dumps(shuffled, indent=2).encode()
    changed = json.dumps(TEMPLATE).replace('"value": "1"', '"value": "2"').encode()
    assert template_hash(spaced) == template_hash(encoded(TEMPLATE))
    assert template_hash(changed) != template_hash(encoded(TEMPLATE))


def test_a_cron_jobs_template_is_found_two_levels_down() -> None:
    document = {"metadata": {"name": "a"}, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
    found = decode_object("CronJob", encoded(document))
    assert found.spec.template.metadata.labels == {"app": "a"}
    assert found.template_hash == template_hash(encoded(TEMPLATE))


def test_a_replication_controllers_selector_is_a_plain_map() -> None:
    found = decode_object(
        "ReplicationController", encoded(workload(TEMPLATE, selector={"app": "a", "matchLabels": "x"}))
    )
    assert selector_text(found.spec.selector) == "app=a,matchLabels=x"


def test_selectors_are_written_as_the_api_server_reads_them() -> None:
    parts = [
        SelectorRequirement("a", "In", ["x", "y"]),
        SelectorRequirement("b", "NotIn", ["z"]),
        SelectorRequirement("c", "Exists"),
        SelectorRequirement("d", "DoesNotExist"),
    ]
    text = selector_text(LabelSelector(match_labels={"app": "a"}, match_expressions=parts))
    assert text == "app=a,a in (x,y),b notin (z),c,!d"
    assert selector_text(None) == ""


def test_a_bookmark_moves_the_version_only() -> None:
    line = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9","creationTimestamp":null}}}'
    event = decode_watch_line("Pod", line)
    assert (event.type, event.object, event.resource_version) == ("BOOKMARK", None, "9")


def test_an_error_carries_its_status() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old", "metadata": {}}
    event = decode_watch_line("Pod", encoded({"type": "ERROR", "object": status}))
    assert event.status is not None
    assert (event.status.code, event.status.reason, event.status.message) == (410, "Expired", "old")


@pytest.mark.parametrize("data", [b"", b"<html>", b'{"items": 3}', b'{"items": [{"metadata": {"name": 1}}]}', b"\xff"])
def test_anything_else_is_one_line(data: bytes) -> None:
    with pytest.raises(ClusterError, match="not a list of Pod") as caught:
        decode_list("Pod", data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_decodes_from_nothing_but_a_name(kind: str) -> None:
    assert decode_object(kind, b'{"metadata":{"name":"a"}}').metadata.name == "a"


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        ("Pod", "shop", "/api/v1/namespaces/shop/pods/a"),
        ("Job", "shop", "/apis/batch/v1/namespaces/shop/jobs/a"),
        ("Node", "", "/api/v1/nodes/a"),
        ("Namespace", "", "/api/v1/namespaces/a"),
        ("Namespace", "ignored", "/api/v1/namespaces/a"),
    ],
)
def test_paths(kind: str, namespace: str, path: str) -> None:
    assert path_for(ObjectRef(api_version="v1", kind=kind, namespace=namespace, name="a")) == path


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb", "../../secrets/x"])
def test_a_name_never_reaches_another_path(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a Kubernetes object"):
        resource_of("Pod").path("shop", name)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UsageError, match="kind 'Gadget' is not one that remesh reads"):
        resource_of("Gadget")


def siblings(count: int, **changes: Any) -> list[Any]:
    document = {
        "metadata": {
            "namespace": "shop",
            "labels": {"app": "cart"},
            "annotations": {"a": "b"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "cart", "uid": "u-1", "controller": True}],
        },
        "spec": {"containers": [{"name": "app", "image": "i"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    return [decode_object("Pod", encoded(document | changes)) for _ in range(count)]


def test_siblings_share_what_is_equal_and_only_that() -> None:
    first, second = siblings(2)
    (other,) = siblings(1, spec={"containers": [{"name": "app", "image": "newer"}]})
    known = Siblings()
    for pod in (first, second, other):
        known.share(pod)
    assert second.metadata.labels is first.metadata.labels
    assert second.spec.containers is first.spec.containers
    assert second.status.conditions is first.status.conditions
    assert other.metadata.annotations is first.metadata.annotations
    assert other.spec.containers[0].image == "newer"
    assert second.spec.containers[0].image == "i"


def test_a_workload_shares_with_itself_and_with_the_revision_before_it() -> None:
    def revision(name: str, image: str) -> Any:
        labels = {"app": "cart", "pod-template-hash": name}
        template = {
            "metadata": {"labels": labels, "annotations": {"a": "b"}},
            "spec": {"containers": [{"image": image}]},
        }
        owner = {"kind": "Deployment", "name": "cart", "uid": "u-1", "controller": True}
        meta = {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": [owner]}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        return decode_object("ReplicaSet", encoded({"metadata": meta, "spec": spec}))

    known, shared = Siblings(), [revision("1", "old"), revision("2", "new"), revision("3", "new")]
    for each in shared:
        known.share(each)
    first, second, third = shared
    assert second.spec.selector.match_labels is second.spec.template.metadata.labels is second.metadata.labels
    assert second.metadata.owner_references is first.metadata.owner_references
    assert second.spec.template.metadata.annotations is first.spec.template.metadata.annotations
    assert third.spec.template.spec is second.spec.template.spec
    assert shared == [revision("1", "old"), revision("2", "new"), revision("3", "new")]


def test_sharing_changes_no_value() -> None:
    for kind, document in (("Pod", {"metadata": {"name": "a"}}), ("Node", {"metadata": {"name": "n"}})):
        before, after = (decode_object(kind, encoded(document)) for _ in range(2))
        Siblings().share(after)
        assert after == before
    first, second = siblings(2)
    known = Siblings()
    known.share(first)
    known.share(second)
    assert second == siblings(1)[0]


def test_what_an_owner_says_of_its_rolling_update_is_read() -> None:
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}}}
    found = decode_object("Deployment", json.dumps(deployment).encode())
    assert found.spec.strategy.rolling_update.max_unavailable == "10%"
    daemon_set = {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}}}
    found = decode_object("DaemonSet", json.dumps(daemon_set).encode())
    assert found.spec.update_strategy.rolling_update.max_unavailable == 3
    stateful_set = {"spec": {"podManagementPolicy": "Parallel"}}
    assert decode_object("StatefulSet", json.dumps(stateful_set).encode()).spec.pod_management_policy == "Parallel"
