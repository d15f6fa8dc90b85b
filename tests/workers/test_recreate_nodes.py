"""Nothing is evicted whose replacement could run nowhere."""

from typing import Any

import pytest

from remesh.models import Result
from remesh.objects import Node, Taint
from tests.workers import recreate_doubles as d
from workers.recreate_nodes import UNSCHEDULABLE, no_place, no_place_on
from workers.repair import repair

GPU = Taint("gpu", "yes", "NoSchedule")
CORDON = {"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}  # every DaemonSet's pods have it


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"operator": "Equal", "value": "yes"}, False),
    ],
)
def test_a_taint_keeps_off_what_does_not_tolerate_it(toleration: dict[str, Any], fits: bool) -> None:
    node = d.a_node("a", GPU)
    assert (no_place_on(node, lambda: [toleration]) == "") is fits
    assert (no_place([node], lambda: [toleration]) == "") is fits


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        (d.a_node(), True),
        (d.a_node("a", Taint("rather-not", "", "PreferNoSchedule")), True),
        (d.a_node(ready=False), False),
        (d.a_node(cordoned=True), False),
        (d.a_node("a", Taint("down", "", "NoExecute")), False),
    ],
)
def test_a_node_takes_pods_if_it_is_ready_and_neither_cordoned_nor_tainted(node: Node, fits: bool) -> None:
    assert (no_place([node], list) == "") is fits
    assert (no_place_on(node, list) == "") is fits


def test_one_node_that_takes_it_is_enough_and_none_is_not() -> None:
    assert no_place([d.a_node("a", cordoned=True), d.a_node("b")], list) == ""
    assert no_place([], list) == "no node is Ready"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize("node", [d.a_node(cordoned=True), d.a_node(ready=False)], ids=["cordoned", "not Ready"])
def test_with_no_node_to_go_to_nothing_is_evicted(kind: str, node: Node) -> None:
    world = d.a_world(kind)
    world.cluster.all_nodes = [node]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, world.cluster.evicted) == (Result.SKIPPED, "no_node", [])
    world.redis.close()


@pytest.mark.parametrize(
    ("node", "evicted"),
    [
        (d.a_node("home"), True),
        (d.a_node("home", cordoned=True), True),
        (d.a_node("home", GPU), False),
        (d.a_node("home", ready=False), False),
        (d.a_node("elsewhere"), False),
    ],
    ids=["free", "cordoned, which DaemonSets tolerate", "tainted", "not Ready", "gone"],
)
def test_a_daemonsets_pod_goes_only_where_another_one_may_come(node: Node, evicted: bool) -> None:
    world = d.a_world("DaemonSet")
    world.cluster.all_nodes = [node, d.a_node("another")]
    world.cluster.pods["web-0"].spec.node_name = "home"
    world.cluster.raw = {"spec": {"tolerations": [CORDON]}}

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.code == "no_node", bool(world.cluster.evicted)) == (not evicted, evicted)
    world.redis.close()
