"""Pods of a real API server are the same from protobuf as from JSON, and so are its refusals."""

import base64
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remesh.errors import ClusterError, Forbidden, Gone
from remesh.kube import protobuf
from remesh.kube.api import list_all
from remesh.kube.config import load_access
from remesh.kube.decode import ListPage, decode_list
from remesh.kube.resources import resource_of
from remesh.kube.transport import JSON, KubeClient
from remesh.objects import Pod
from tests.client import Client
from tests.cluster import RealCluster
from tests.cluster import workloads as w
from tests.cluster.wait import wait_for
from tests.kube import wire

pytestmark = pytest.mark.real

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def kube(real_cluster: RealCluster) -> Iterator[KubeClient]:
    with closing(KubeClient(load_access(real_cluster.kubeconfig))) as client:
        yield client


@pytest.fixture
def user(real_cluster: RealCluster) -> Iterator[Client]:
    with closing(Client(real_cluster.kubeconfig)) as client:
        yield client


@pytest.fixture
def both(kube: KubeClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ListPage, ListPage]]:
    """A list of pods in pages of two, as protobuf and as JSON, once nothing changes between them."""

    def listed(namespace: str | None) -> tuple[ListPage, ListPage]:
        with monkeypatch.context() as patch:
            patch.setattr("remesh.kube.api.PAGE", 2)
            first = list_all(kube, "Pod", namespace)
            patch.setattr(protobuf, "accepted", lambda: JSON)
            return first, list_all(kube, "Pod", namespace)

    def settled(namespace: str | None) -> tuple[ListPage, ListPage]:
        found: list[tuple[ListPage, ListPage]] = []

        def same_moment() -> bool:
            found[:] = [listed(namespace)]
            versions = [[each.metadata.resource_version for each in page.items] for page in found[0]]
            return versions[0] == versions[1]

        wait_for(same_moment, "two lists of the same moment")
        return found[0]

    return settled


def test_all_sorts_of_pods_are_the_same_in_both_forms(
    both: Callable[..., tuple[ListPage, ListPage]], user: Client, meshed_namespace: str
) -> None:
    namespace = meshed_namespace
    user.create(namespace, w.replica_set("owned", 3, annotations={"a": "b", "long": "ü" * 5000}, labels={"x": ""}))
    user.create(namespace, w.job("job", completes=True))
    user.create(namespace, w.stateful_set("state", 1))
    user.create(namespace, w.pod("host", hostNetwork=True, priorityClassName="system-node-critical"))
    user.create(namespace, w.pod("never", restartPolicy="Never", nodeSelector={"no": "such"}))
    plain = w.pod("plain", initContainers=[{"name": "first", "image": "i"}], terminationGracePeriodSeconds=600)
    plain["metadata"] = {"name": "plain", "finalizers": ["remesh.dev/test"]}
    user.create(namespace, plain)
    wait_for(lambda: len(user.ready(namespace)) >= 5, "pods to be Ready")
    user.api.delete(w.path("Pod", namespace, "plain"))
    try:
        first, second = both(namespace)
    finally:
        user.api.patch(w.path("Pod", namespace, "plain"), {"metadata": {"finalizers": None}})
    assert first.items == second.items
    _require_all_sorts(first.items)


def _require_all_sorts(pods: list[Pod]) -> None:
    """The pods have in them what the two forms write differently."""
    by_name = {pod.metadata.name: pod for pod in pods}
    assert len(pods) >= 8
    assert by_name["plain"].metadata.deletion_timestamp
    assert by_name["plain"].metadata.owner_references is None
    assert by_name["host"].spec.host_network
    assert by_name["host"].spec.priority_class_name
    assert by_name["never"].spec.node_name == ""
    assert [pod for pod in pods if pod.metadata.controller]
    inits = [each for pod in pods for each in pod.spec.init_containers or ()]
    assert {each.restart_policy for each in inits} >= {None, "Always"}
    assert {each.status for pod in pods for each in pod.status.conditions or ()} >= {"True", "False"}


def test_the_list_of_the_whole_cluster_is_the_same_in_both_forms(
    both: Callable[..., tuple[ListPage, ListPage]], user: Client, meshed_namespace: str
) -> None:
    user.create(meshed_namespace, w.replica_set("cart", 3))
    wait_for(lambda: len(user.ready(meshed_namespace)) == 3, "pods to be Ready")
    first, second = both(None)
    assert len(first.items) >= 3
    assert first.items == second.items


def test_a_page_is_protobuf_and_says_what_the_json_of_it_says(
    kube: KubeClient, user: Client, meshed_namespace: str
) -> None:
    for name in ("a", "b", "c"):
        user.create(meshed_namespace, w.pod(name, nodeSelector={"no": "such"}))
    path = resource_of("Pod").path(meshed_namespace)

    def same() -> bool:
        body = kube.request("GET", path, params={"limit": 2}, gzip=True, accept=protobuf.accepted())
        assert protobuf.is_protobuf(body)
        page = decode_list("Pod", kube.request("GET", path, params={"limit": 2}))
        found = protobuf.decode_pods(body)
        assert (found.continue_token != "", page.continue_token != "") == (True, True)
        return found.items == page.items and found.resource_version == page.resource_version

    wait_for(same, "two pages of the same moment")


def test_bytes_that_are_no_utf8_can_be_stored_and_are_read_alike(
    both: Callable[..., tuple[ListPage, ListPage]], kube: KubeClient, user: Client, real_cluster: RealCluster
) -> None:
    """A user who may create pods can send them as protobuf; the list must stay readable."""
    namespace = real_cluster.create_namespace(f"odd-{secrets.token_hex(4)}", meshed=False)
    odd: dict[str, Any] = {
        "metadata": {"name": "odd", "annotations": {"a": b"x\xff\xe2\x82y", "b": "ü"}},
        "spec": {"containers": [{"name": "app", "image": "i"}], "nodeName": ""},
    }
    body = wire.answer("Pod", wire.encode("Pod", odd))
    user.create(namespace, w.pod("even"))
    kube.request("POST", resource_of("Pod").path(namespace), body=body, content_type=PROTOBUF)
    try:
        first, second = both(namespace)
    finally:
        user.api.delete(f"/api/v1/namespaces/{namespace}")
    assert first.items == second.items
    assert first.items[1].metadata.labels is None
    assert first.items[1].metadata.annotations == {"a": "x\ufffd\ufffd\ufffdy", "b": "ü"}


def refusal(kube: KubeClient, path: str, accept: str, params: dict[str, str | int]) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        kube.request("GET", path, params=params, accept=accept)
    return caught.value


def same_refusal(kube: KubeClient, path: str = "/api/v1/pods", **params: str | int) -> ClusterError:
    """What the API server refuses in both forms."""
    first, second = (refusal(kube, path, accept, params) for accept in (protobuf.accepted(), JSON))
    assert (type(first), str(first), vars(first)) == (type(second), str(second), vars(second))
    return first


def test_a_missing_right_is_named_in_both_forms(real_cluster: RealCluster) -> None:
    nobody: Path = real_cluster.user_kubeconfig("nobody-in-particular")
    with closing(KubeClient(load_access(nobody))) as kube:
        found = same_refusal(kube, limit=2)
        assert isinstance(found, Forbidden)
        assert 'User "nobody-in-particular" cannot list resource "pods"' in found.message
        with pytest.raises(Forbidden, match="a right is missing: pods is forbidden"):
            list_all(kube, "Pod")


def test_a_continue_token_that_expired_is_gone_in_both_forms(kube: KubeClient, real_cluster: RealCluster) -> None:
    """Revision 1 is removed from etcd first. Events, because these alone the API server does not have in its cache."""
    url = f"http://127.0.0.1:{real_cluster.network.ports.etcd}/v3/kv/compaction"
    code = f"""
import urllib.request, urllib.error
try:
    urllib.request.urlopen(urllib.request.Request({url!r}, b'{{"revision": 3}}')).read()
except urllib.error.HTTPError as error:
    assert b"compacted" in error.read()  # by the API server, before
"""
    real_cluster.processes.run(sys.executable, "-c", code)
    place = {"v": "meta.k8s.io/v1", "rv": 1, "start": "a/b\0"}
    token = base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
    found = same_refusal(kube, "/api/v1/events", limit=2, **{"continue": token})
    assert isinstance(found, Gone)
    assert found.reason == "Expired"
    assert "continue parameter is too old" in found.message


def test_a_token_that_is_none_is_refused_in_both_forms(kube: KubeClient) -> None:
    assert same_refusal(kube, limit=2, **{"continue": "!"}).status == 400
