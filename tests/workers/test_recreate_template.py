"""Pods of a lone owner whose template was changed since are left alone: evicting them would roll it out."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from remesh.models import Result
from tests.workers import recreate_doubles as d
from workers.recreate_template import another_template
from workers.repair import repair

Obj = dict[str, Any]

APP: Obj = {
    "name": "app",
    "image": "app:1",
    "args": ["serve", "--quiet"],
    "env": [{"name": "COLOUR", "value": "blue"}],
    "resources": {},
}
TEMPLATE: Obj = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [APP], "volumes": [{"name": "data", "emptyDir": {}}], "restartPolicy": "Always"},
}


def a_live_pod() -> Obj:
    """The template's pod, with all that admission, a scheduler and another injector add."""
    pod = deepcopy(TEMPLATE)
    pod["metadata"]["labels"]["added"] = "yes"
    pod["metadata"]["annotations"] = {"who": "me"}
    spec = pod["spec"]
    spec["containers"][0]["volumeMounts"] = [{"name": "kube-api-access", "mountPath": "/var/run"}]
    spec["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    spec["containers"].insert(0, {"name": "daprd", "image": "daprd"})
    spec["volumes"].append({"name": "kube-api-access"})
    return pod | {"spec": spec | {"nodeName": "n", "tolerations": [{"key": "x"}], "serviceAccountName": "default"}}


def an_image(template: Obj) -> None:
    template["spec"]["containers"][0]["image"] = "app:2"


def a_variable(template: Obj) -> None:
    template["spec"]["containers"][0]["env"][0]["value"] = "red"


def an_argument(template: Obj) -> None:
    template["spec"]["containers"][0]["args"] = ["serve"]


def a_container(template: Obj) -> None:
    template["spec"]["containers"].append({"name": "helper", "image": "helper"})


def a_volume(template: Obj) -> None:
    template["spec"]["volumes"][0] = {"name": "data", "hostPath": {"path": "/"}}


def a_label(template: Obj) -> None:
    template["metadata"]["labels"]["version"] = "2"


def an_annotation(template: Obj) -> None:
    template["metadata"]["annotations"] = {"linkerd.io/inject": "enabled"}


CHANGES = [an_image, a_variable, an_argument, a_container, a_volume, a_label, an_annotation]


def a_lone_world(kind: str, template: Obj) -> d.PodWorld:
    world = d.a_world(kind)
    world.cluster.main.metadata.owner_references = None
    world.cluster.above = None
    objects = {kind: {"spec": {"template": template}}, "Pod": a_live_pod()}
    world.cluster.get_raw = lambda kind, namespace, name: objects[kind]  # type: ignore[method-assign]
    return world


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_a_lone_owners_changed_template_is_not_rolled_out(kind: str, change: Callable[[Obj], None]) -> None:
    template = deepcopy(TEMPLATE)
    change(template)
    world = a_lone_world(kind, template)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "owner_unsettled")
    assert "its owner's template is another than the pod's" in outcome.reason
    assert (world.cluster.evicted, world.cluster.tried) == ([], [])
    world.redis.close()


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_what_admission_added_to_a_pod_is_no_difference(kind: str) -> None:
    world = a_lone_world(kind, TEMPLATE)

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    world.redis.close()


def test_owners_that_roll_out_by_themselves_are_not_asked() -> None:
    def read(*_: str) -> Obj:
        raise AssertionError("nothing is read")

    deployed = another_template(d.an_owner(), d.a_deployment(), d.a_pod(0), read)
    others = [
        another_template(d.an_owner(kind), None, d.a_pod(0), read) for kind in ("StatefulSet", "DaemonSet", "Job")
    ]
    assert [deployed, *others] == [""] * 4
