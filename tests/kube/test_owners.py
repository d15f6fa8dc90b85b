"""Owner references: to kinds that remesh knows, to custom resources, and to nothing."""

from typing import Any

import pytest

from remesh.errors import NotFound
from remesh.kube.api import Cluster
from remesh.objects import ObjectMeta, OwnerReference, Pod, RollingUpdate
from tests.kube.server import ScriptedServer, answer, refusal

POD = Pod(metadata=ObjectMeta(name="cart-1", namespace="shop", labels={"app": "cart"}))


def reference(kind: str = "ReplicaSet", api_version: str = "apps/v1", uid: str = "u-1") -> OwnerReference:
    return OwnerReference(kind=kind, name="cart", uid=uid, api_version=api_version, controller=True)


def document(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cart", "namespace": "shop", "uid": "u-1"}, "spec": spec}


def test_a_known_owner_comes_with_how_it_rolls_out(server: ScriptedServer) -> None:
    server.on("other", answer(document(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})))

    found = Cluster(server.client()).owner("shop", reference("StatefulSet"))

    assert server.seen[0].path == "/apis/apps/v1/namespaces/shop/statefulsets/cart"
    assert found.spec.update_strategy is not None
    assert found.spec.update_strategy.rolling_update == RollingUpdate(partition=2)


def test_another_object_of_the_same_name_is_not_the_owner(server: ScriptedServer) -> None:
    server.on("other", answer(document()))

    with pytest.raises(NotFound, match="UID u-0 is gone"):
        Cluster(server.client()).owner("shop", reference(uid="u-0"))


def test_a_custom_owner_is_found_by_discovery_and_read_leniently(server: ScriptedServer) -> None:
    resources = {"resources": [{"name": "clonesets", "kind": "CloneSet", "namespaced": True}]}
    template = {"metadata": {"labels": {"app": "cart"}}, "spec": {"containers": [{"name": "app"}]}}
    server.on("other", answer(resources), answer(document(replicas="many", paused="no", template=template)))

    found = Cluster(server.client()).owner("shop", reference("CloneSet", "apps.kruise.io/v1alpha1"))

    assert [each.path for each in server.seen] == [
        "/apis/apps.kruise.io/v1alpha1",
        "/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets/cart",
    ]
    assert (found.spec.replicas, found.spec.paused) == (None, None)
    assert found.spec.template is not None
    assert found.template_hash


@pytest.mark.parametrize("spec", [{}, {"template": "none"}, {"template": {"spec": 7}}])
def test_a_custom_owner_without_a_template_is_no_error(server: ScriptedServer, spec: dict[str, Any]) -> None:
    resources = {"resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}
    server.on("other", answer(resources), answer(document(**spec)))

    assert Cluster(server.client()).owner("shop", reference("Thing", "example.com/v1")).spec.template is None


def test_a_kind_that_is_not_installed_is_not_found(server: ScriptedServer) -> None:
    server.on("other", refusal(404, "NotFound", "the server could not find the requested resource"))

    with pytest.raises(NotFound):
        Cluster(server.client()).owner("shop", reference("Gone", "example.com/v1"))


@pytest.mark.parametrize("text", ["", "a/b/c", "../../api/v1", "v1?watch=1", "x y/v1", "apps/v1#", "%2e%2e/v1"])
def test_what_is_no_api_version_never_becomes_part_of_a_url(server: ScriptedServer, text: str) -> None:
    with pytest.raises(NotFound, match="no API version"):
        Cluster(server.client()).owner("shop", reference("Thing", text))
    assert server.seen == []


def test_budgets_are_found_by_their_selectors(server: ScriptedServer) -> None:
    def budget(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    selectors = [
        budget("mine", selector={"matchLabels": {"app": "cart"}}),
        budget("all", selector={}),
        budget("none"),
        budget("others", selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["cart"]}]}),
        budget("odd", selector={"matchExpressions": [{"key": "app", "operator": "Near", "values": ["cart"]}]}),
    ]
    server.on("other", answer({"items": selectors}))

    assert Cluster(server.client()).budgets_of(POD) == ["mine", "all"]
    assert server.seen[0].path == "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
