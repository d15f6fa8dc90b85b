"""No pod is evicted that should not be, on the simulated and on the real control plane, though a person asks for it.

Each injector here works when the repair comes, and each pod is bare: only the one reason keeps it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from remesh.models import Result
from remesh.policy import Policy
from remesh.testbed import TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.harm.conftest import Opened
from tests.stack import wait_until

pytestmark = pytest.mark.timeout(120)

ASKS = {"linkerd.io/inject": "enabled"}
OPT_OUT = "config.linkerd.io/admission-webhooks"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NODES = "/api/v1/nodes"
BARE_PODS = Policy.model_validate({"repair": {"bare_pods": True}})


# Older than the wish


def test_pods_that_came_before_their_namespace_asked(stage: Opened) -> None:
    here = stage(labels={"team": "a"})
    (name, *_) = here.made(w.deployment("web", 2), 2)
    here.a_second_later()
    here.change_namespace(annotations=ASKS)

    assert "older than the webhook or the request" in here.stays(name, "older_than_mesh")


def test_pods_that_came_before_their_namespaces_revision_label(stage: Opened, istio_revision: None) -> None:
    here = stage(labels={"team": "a"})
    (name, *_) = here.made(w.deployment("web", 2), 2)
    here.a_second_later()
    here.change_namespace(labels={"istio.io/rev": "default"})

    assert "older than the webhook or the request" in here.stays(name, "older_than_mesh")


@pytest.fixture
def istio_revision(client: Client) -> Iterator[None]:
    """The webhook of an Istio revision, as its chart has it, whose control plane is not reached."""
    hook = {
        "name": "rev.namespace.sidecar-injector.istio.io",
        "clientConfig": {"service": {"namespace": "istio-system", "name": "istiod", "path": "/inject"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"istio.io/rev": "default"}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    client.api.ensure(CONFIGURATIONS, {"metadata": {"name": "istio-sidecar-injector"}, "webhooks": [hook]})
    yield
    client.api.delete(f"{CONFIGURATIONS}/istio-sidecar-injector")


def test_pods_from_before_an_opt_out_was_lifted_though_nobody_saw_it(stage: Opened) -> None:
    here = stage(labels={OPT_OUT: "disabled"}, annotations=ASKS)
    (name, *_) = here.made(w.deployment("web", 2), 2)
    here.a_second_later()
    here.change_namespace(labels={OPT_OUT: None})

    assert "something was taken away from its namespace" in here.stays(name, "older_than_mesh")


def test_pods_from_before_their_webhooks_selector_was_edited(stage: Opened, bed: TestBed, client: Client) -> None:
    here = stage()
    with unseen(client, bed, here.namespace):
        (name, *_) = here.made(w.deployment("web", 2), 2)
        here.a_second_later()

    assert "older than the webhook or the request" in here.stays(name, "older_than_mesh")


@contextmanager
def unseen(client: Client, bed: TestBed, namespace: str) -> Iterator[None]:
    """The webhook does not see one namespace."""
    place = f"{CONFIGURATIONS}/{bed.wear.configuration}"
    selector = client.api.get(place)["webhooks"][0]["namespaceSelector"]
    without = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}
    expressions = [*selector.get("matchExpressions", ()), without]

    def select(value: Any) -> None:
        edit = {"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": value}
        client.api.patch(f"{place}?fieldManager=kubectl-edit", [edit], kind="json")

    select({**selector, "matchExpressions": expressions})
    try:
        yield
    finally:
        select(selector)


# Nowhere to come back to


def test_pods_of_a_daemon_set_on_a_node_that_it_may_not_use_any_more(stage: Opened, client: Client) -> None:
    here = stage()
    nodes = [node["metadata"]["name"] for node in client.api.items(NODES)]
    here.bare(w.daemon_set("agent"), len(nodes))
    tainted = next(pod for pod in client.pods(here.namespace) if pod["spec"]["nodeName"] == nodes[0])
    taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
    client.api.patch(f"{NODES}/{nodes[0]}", {"spec": {"taints": [taint]}})
    try:
        reason = here.stays(tainted["metadata"]["name"], "no_node")
    finally:
        client.api.patch(f"{NODES}/{nodes[0]}", {"spec": {"taints": None}})
    assert f"node {nodes[0]} has the taint maintenance:NoSchedule" in reason


def test_pods_of_a_cordoned_cluster_until_a_node_is_free(stage: Opened, client: Client) -> None:
    here = stage()
    (name, *_) = here.bare(w.deployment("web", 2), 2)
    before = here.uids()
    with cordoned(client):
        assert "every node that is Ready is cordoned" in here.stays(name, "no_node")

    assert here.repair(name).result is Result.HEALED
    assert len(here.uids() & before) == 1


@contextmanager
def cordoned(client: Client) -> Iterator[None]:
    """`kubectl cordon` for every node."""
    places = [f"{NODES}/{node['metadata']['name']}" for node in client.api.items(NODES)]
    for place in places:
        client.api.patch(place, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for place in places:
            client.api.patch(place, {"spec": {"unschedulable": None}})
        free = lambda: not any("taints" in node["spec"] for node in client.api.items(NODES))  # noqa: E731
        wait_until(free, "the controller to take its taints away")


# Not now


def test_the_next_pod_while_the_last_ones_replacement_is_ready_for_too_short_a_time(
    stage: Opened, client: Client
) -> None:
    here = stage()
    here.policy = Policy.model_validate({"repair": {"verify_seconds": 2.0}})
    body = w.replica_set("web", 3)
    body["spec"]["minReadySeconds"] = 5
    first, second, third = here.bare(body, 3)
    wait_until(lambda: client.get("ReplicaSet", here.namespace, "web")["status"].get("availableReplicas") == 3, "3")
    before = here.uids()

    outcome = here.repair(first)

    assert (outcome.result, outcome.code) == (Result.INJECTED, "not_available_yet")
    assert len(here.uids() & before) == 2
    for name in (second, third):
        here.stays(name, "share_taken")


def test_a_pod_that_is_opted_out_while_the_dry_run_is_under_way(stage: Opened, client: Client) -> None:
    here = stage()
    (name, *_) = here.bare(w.deployment("web", 2), 2)
    before = here.uids()
    place = w.path("Pod", here.namespace, name)
    opt_out = {"metadata": {"annotations": {"linkerd.io/inject": "disabled"}}}
    here.meddling.meanwhile = partial(client.api.patch, place, opt_out)

    outcome = here.repair(name)

    assert (outcome.code, outcome.acted, here.uids()) == ("changed_meanwhile", False, before)
    assert "while a dry run went on" in here.told(outcome)


# Not back as it was


def test_a_lonely_pod_with_finalizers(stage: Opened, client: Client) -> None:
    here = stage()
    here.policy = BARE_PODS
    body = w.pod("lonely")
    body["metadata"]["finalizers"] = ["example.com/kept"]
    here.bare(body, 1)
    try:
        assert "it has finalizers (example.com/kept)" in here.stays("lonely", "has_finalizers")
    finally:
        client.api.patch(w.path("Pod", here.namespace, "lonely"), {"metadata": {"finalizers": None}})


def test_pods_of_a_lone_replica_set_whose_template_was_changed_since(stage: Opened, client: Client) -> None:
    here = stage()
    (name, *_) = here.bare(w.replica_set("web", 2), 2)
    containers = [{"name": "app", "image": "app:next"}]
    client.api.patch(
        w.path("ReplicaSet", here.namespace, "web"), {"spec": {"template": {"spec": {"containers": containers}}}}
    )

    assert "its owner's template is another than the pod's" in here.stays(name, "owner_unsettled")
