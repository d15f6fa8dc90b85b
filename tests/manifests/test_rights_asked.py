"""`remesh check` asks for exactly the rights that the chart grants, in each mode: neither is forgotten in the other."""

from collections.abc import Iterable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from remesh.cli.check_access import needed
from remesh.policy import Policy
from remesh.settings import Settings
from tests.manifests import tools
from tests.manifests.tools import NAMESPACE, Object

pytestmark = pytest.mark.usefixtures("deploy_tools")

IMPERSONATES = {"repair": {"impersonate_controller": True}}


class Asked(NamedTuple):
    """One right, for one resource by one verb."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def granted(objects: list[Object]) -> set[Asked]:
    """What the roles that are bound to watcher and worker say, taken together."""
    bindings = [*tools.kinds(objects, "ClusterRoleBinding"), *tools.kinds(objects, "RoleBinding")]
    accounts = {"remesh-watcher", "remesh-worker"}
    roles = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in bindings
        if accounts & {subject["name"] for subject in each["subjects"]}
    }
    known = [*tools.kinds(objects, "ClusterRole"), *tools.kinds(objects, "Role")]
    return {right for role in known if (role["kind"], role["metadata"]["name"]) in roles for right in _of(role)}


def _of(role: Object) -> Iterator[Asked]:
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        names: Iterable[str] = rule.get("resourceNames", [""])
        for verb, group, resource, name in product(rule["verbs"], rule["apiGroups"], rule["resources"], names):
            yield Asked(verb, group, resource, namespace, name)


def asked(mode: str, policy: Policy, **settings: Any) -> set[Asked]:
    """What `remesh check` asks the API server about."""
    known = Settings(lease_namespace=NAMESPACE, leader_election=True, **settings)
    session: Any = SimpleNamespace(settings=known, policy=policy)
    found = needed(session)
    if mode == "observe":
        del found["rights-repair"]
    rights = [right for each in found.values() for right in each]
    return {
        Asked(
            each.verb,
            each.group,
            each.resource + (f"/{each.subresource}" if each.subresource else ""),
            each.namespace,
            each.name,
        )
        for each in rights
    }


@pytest.mark.parametrize(
    ("mode", "values", "settings"),
    [
        ("observe", {}, {}),
        ("observe", {"policy": IMPERSONATES}, {}),
        ("repair", {}, {}),
        ("repair", {"policy": IMPERSONATES}, {}),
        ("repair", {"policy": {"repair": {"bare_pods": True}, "scope": {"namespaces": ["shop"]}}}, {}),
        ("repair", {"kubernetesEvents": True}, {"kubernetes_events": True}),
        ("repair", {"watcher": {"shards": 1, "replicas": 2}}, {}),
    ],
    ids=["observe", "observe as controllers", "repair", "as controllers", "bare pods in a scope", "events", "standby"],
)
def test_every_right_of_the_chart_is_asked_for_and_no_other(
    mode: str, values: dict[str, Any], settings: dict[str, Any]
) -> None:
    objects = tools.render({"mode": mode, **values})
    policy = Policy.model_validate({"mode": mode, **values.get("policy", {})})
    assert asked(mode, policy, **settings) == granted(objects)


def test_with_shards_each_is_asked_about_the_lease_of_its_own() -> None:
    objects = tools.render({"watcher": {"shards": 2}})
    both = asked("repair", Policy(), shard="0/2") | asked("repair", Policy(), shard="1/2")
    assert both == granted(objects)
