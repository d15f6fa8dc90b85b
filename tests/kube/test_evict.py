"""Evicting, creating anew, and dry runs in another's name, as the API server sees them."""

import pytest

from remesh.errors import Throttled
from remesh.kube.api import Cluster
from remesh.models import ObjectRef
from tests.kube.server import ScriptedServer, answer

POD = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="lonely", uid="u-2")
META = {"name": "lonely", "namespace": "shop"}
MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": META, "spec": {"containers": [{"name": "app"}]}}


def test_an_eviction_can_be_bound_to_the_version_that_was_read(server: ScriptedServer) -> None:
    server.on("other", answer({}))
    Cluster(server.client()).evict(POD, resource_version="17")

    assert server.seen[0].path == "/api/v1/namespaces/shop/pods/lonely/eviction"
    assert server.seen[0].json()["deleteOptions"]["preconditions"] == {"uid": "u-2", "resourceVersion": "17"}


def test_a_refused_eviction_carries_what_is_said_of_each_budget(server: ScriptedServer) -> None:
    causes = [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget steady needs 2 healthy pods and has 2 currently",
        },
        {"reason": "Other", "message": "something else"},
    ]
    body = {"reason": "TooManyRequests", "message": "Cannot evict pod", "code": 429, "details": {"causes": causes}}
    server.on("other", answer(body, 429))

    with pytest.raises(Throttled) as caught:
        Cluster(server.client()).evict(POD)
    assert caught.value.budgets == ("The disruption budget steady needs 2 healthy pods and has 2 currently",)


def test_a_pod_is_created_from_its_manifest_and_a_dry_run_covers_that(server: ScriptedServer) -> None:
    server.on("other", answer({**MANIFEST, "metadata": {**META, "uid": "u-3"}}))

    assert Cluster(server.client()).create_pod(MANIFEST).metadata.uid == "u-3"
    Cluster(server.client(), dry_run=True).create_pod(MANIFEST)

    assert server.seen[0].json() == MANIFEST
    assert [each.params.get("dryRun") for each in server.seen] == [None, "All"]
    assert {(each.method, each.path) for each in server.seen} == {("POST", "/api/v1/namespaces/shop/pods")}


def test_a_dry_run_is_made_in_the_name_of_whoever_would_create(server: ScriptedServer) -> None:
    server.on("other", answer({**MANIFEST, "metadata": {**META, "uid": "u-2"}}))
    account = "system:serviceaccount:kube-system:replicaset-controller"

    Cluster(server.client()).dry_run_pod(POD, impersonate=account)

    read, tried = server.seen
    assert "Impersonate-User" not in read.headers, "the template is read in remesh's own name"
    assert tried.headers["Impersonate-User"] == account
    assert tried.params["dryRun"] == "All"
