"""What each ServiceAccount may and may not do, by real calls with its own token, for each overlay."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.errors import ApiError
from tests.manifests import generate, tools
from tests.manifests.applied import Account, account, applied, pod
from tests.manifests.conftest import WORKLOADS, Scene
from tests.manifests.tools import NAMESPACE, Object
from tests.stack import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PLURALS = {
    "ReplicaSet": "apis/apps/v1|replicasets",
    "StatefulSet": "apis/apps/v1|statefulsets",
    "DaemonSet": "apis/apps/v1|daemonsets",
    "Deployment": "apis/apps/v1|deployments",
    "ReplicationController": "api/v1|replicationcontrollers",
    "Job": "apis/batch/v1|jobs",
}
DRY_RUN = "?dryRun=All"
NUDGE = {"metadata": {"annotations": {"remesh.dev/nudge": "1"}}}
MERGE = "application/merge-patch+json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class Stage:
    """An overlay that is applied, and its accounts."""

    mode: str
    scene: Scene
    objects: list[Object]
    accounts: Mapping[str, Account]

    @property
    def repairs(self) -> bool:
        return self.mode != "observe-only"


@pytest.fixture(scope="module", params=[each.name for each in generate.OVERLAYS if each.name != generate.BASE])
def stage(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Stage]:
    objects = tools.kustomize(generate.overlay(request.param).folder)
    with applied(scene.cluster, objects):
        parts = [each["metadata"]["name"].removeprefix("remesh-") for each in tools.kinds(objects, "ServiceAccount")]
        accounts = {part: account(scene.cluster, part) for part in parts}
        yield Stage(request.param, scene, objects, accounts)


def collection(kind: str, namespace: str = "") -> str:
    root, plural = PLURALS[kind].split("|")
    return f"/{root}/namespaces/{namespace}/{plural}" if namespace else f"/{root}/{plural}"


def item(kind: str, namespace: str) -> str:
    return f"{collection(kind, namespace)}/{WORKLOADS[kind]['metadata']['name']}"


def test_every_pod_is_admitted_under_pod_security_and_without_a_sidecar(stage: Stage) -> None:
    cluster = stage.scene.cluster
    assert cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}")["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ] == ("restricted")
    controllers = [each for each in stage.objects if each["kind"] in ("Deployment", "StatefulSet")]
    wanted = {each["metadata"]["name"]: each["spec"]["replicas"] for each in controllers}

    def made() -> bool:
        pods = cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
        return all(
            sum(each["metadata"]["name"].startswith(f"{name}-") for each in pods) == n for name, n in wanted.items()
        )

    wait_until(made, f"pods of {wanted}", 60)
    for each in cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"):
        assert len(each["spec"]["containers"]) == 1


def test_what_each_has_to_read_it_may_read_and_no_more(stage: Stage) -> None:
    namespace = stage.scene.namespace
    watcher, worker = stage.accounts["watcher"], stage.accounts["worker"]
    watched = [collection(kind) for kind in PLURALS] + ["/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes"]
    watched += ["/apis/discovery.k8s.io/v1/endpointslices", f"{ADMISSION}/mutatingwebhookconfigurations"]
    streams = [f"{path}?watch=true&timeoutSeconds=1&resourceVersion=0" for path in watched]
    with ThreadPoolExecutor(len(streams)) as pool:  # each of these takes its second
        assert all(pool.map(lambda path: watcher.may("GET", path), [*watched, *streams])), watcher.said
    for path in streams:  # a large owner's pods are followed while they are replaced
        assert worker.may("GET", path) is path.startswith("/api/v1/pods?"), path
    for each in (watcher, worker):
        for kind in WORKLOADS:
            assert each.may("GET", item(kind, namespace)), each.said
        assert each.may("GET", f"/api/v1/namespaces/{namespace}/pods/alone"), each.said
        assert each.may("GET", f"/api/v1/namespaces/{namespace}"), each.said
        assert each.may("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dweb"), each.said
        assert each.may("GET", f"{ADMISSION}/mutatingwebhookconfigurations"), each.said
        assert each.may("GET", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"), each.said
    assert worker.may("GET", "/api/v1/nodes"), worker.said  # would any take what comes in an evicted pod's place?
    for path in ("/api/v1/namespaces", collection("ReplicaSet"), collection("Deployment", namespace)):
        assert not worker.may("GET", path), path
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    assert worker.may("GET", budgets) is stage.repairs
    assert not watcher.may("GET", budgets)


def test_each_may_create_a_pod_as_a_dry_run_and_only_bare_pods_for_good(stage: Stage) -> None:
    path = f"/api/v1/namespaces/{stage.scene.namespace}/pods"
    before = stage.scene.pods()
    for each in (stage.accounts["watcher"], stage.accounts["worker"]):
        assert each.may("POST", path + DRY_RUN, pod("tried")), each.said
        for name in ("kube-system", "default"):  # the cluster's own are tried, too, and only reported
            assert each.may("POST", f"/api/v1/namespaces/{name}/pods{DRY_RUN}", pod("tried")), each.said
    assert stage.scene.pods() == before
    for_good = stage.mode == "repair-with-bare-pods"
    assert not stage.accounts["watcher"].may("POST", path, pod("made"))
    assert stage.accounts["worker"].may("POST", path, pod("made")) is for_good
    assert (stage.scene.pods() != before) is for_good
    if for_good:
        stage.scene.cluster.api.delete(f"{path}/made")
    for name in ("kube-system", NAMESPACE):
        assert not stage.accounts["worker"].may("POST", f"/api/v1/namespaces/{name}/pods", pod("made")), name


def test_the_worker_may_nudge_and_nothing_else_may_be_changed_by_it(stage: Stage) -> None:
    watcher, worker, namespace = stage.accounts["watcher"], stage.accounts["worker"], stage.scene.namespace
    for kind, body in WORKLOADS.items():
        path = item(kind, namespace)
        for patch in (NUDGE, {"metadata": {"annotations": {"remesh.dev/nudge": None}}}):
            assert worker.may("PATCH", path, patch, content_type=MERGE) is stage.repairs, worker.said
            assert not watcher.may("PATCH", path, patch, content_type=MERGE)
        before = stage.scene.cluster.api.get(path)
        for patch in _more_than_a_nudge(kind):
            assert not worker.may("PATCH", path, patch, content_type=MERGE), patch
        assert not worker.may("PUT", path, body)
        assert not worker.may("DELETE", path)
        after = stage.scene.cluster.api.get(path)
        assert after["spec"] == before["spec"]
        assert after["metadata"].get("labels") == before["metadata"].get("labels")
    for path in (f"{item('ReplicaSet', namespace)}/scale", f"{item('ReplicaSet', namespace)}/status"):
        assert not worker.may("PATCH", path, {"spec": {"replicas": 9}}, content_type=MERGE)
    # A server-side apply of what is not there is a creation.
    made = {**WORKLOADS["ReplicaSet"], "metadata": {"name": "planted"}}
    apply = f"{collection('ReplicaSet', namespace)}/planted?fieldManager=x"
    assert not worker.may("PATCH", apply, made, content_type="application/apply-patch+yaml")
    assert not worker.may("POST", collection("Deployment", namespace), made)


def _more_than_a_nudge(kind: str) -> list[Object]:
    image = {"containers": [{"name": "app", "image": "evil"}]}
    spec: Object = {"parallelism": 5} if kind == "Job" else {"template": {"spec": image}}
    patches: list[Object] = [
        {**NUDGE, "spec": spec},
        {"metadata": {"annotations": {"other": "1"}}},
        {"metadata": {"labels": {"other": "1"}}},
        {"metadata": {"finalizers": ["remesh.dev/kept"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "alone", "uid": "x"}]}},
    ]
    return patches


def test_the_worker_may_evict_and_nobody_may_delete(stage: Stage) -> None:
    watcher, worker, scene = stage.accounts["watcher"], stage.accounts["worker"], stage.scene
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    name = scene.pod_of("web")
    for each in (watcher, worker):
        assert not each.may("DELETE", f"{pods}/{name}")
        assert not each.may("DELETE", pods)
        assert not each.may("PATCH", f"{pods}/{name}", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    assert not watcher.may("POST", f"{pods}/{name}/eviction", eviction(name))
    assert worker.may("POST", f"{pods}/{name}/eviction", eviction(name)) is stage.repairs, worker.said
    wait_until(scene.ready, "the evicted pod's replacement", 30)
    protected = "/api/v1/namespaces/kube-system/pods"
    scene.cluster.api.ensure(protected, pod("precious"))
    assert not worker.may("POST", f"{protected}/precious/eviction", eviction("precious"))
    own = scene.cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")[0]["metadata"]["name"]
    assert not worker.may("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{own}/eviction", eviction(own))


def eviction(name: str) -> Object:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def test_nobody_has_a_right_that_nobody_needs(stage: Stage) -> None:
    name = stage.scene.namespace
    core, own = f"/api/v1/namespaces/{name}", f"/api/v1/namespaces/{NAMESPACE}"
    alone = f"{core}/pods/alone"
    for each in stage.accounts.values():
        for path in (
            f"{core}/secrets/private",
            f"{core}/secrets",
            "/api/v1/secrets",
            f"{own}/secrets/remesh-redis",
            f"{core}/configmaps/private",
            f"{own}/configmaps/remesh",
            f"{core}/serviceaccounts",
            f"{core}/services",
            f"{core}/events",
            f"{alone}/log",
            f"{alone}/exec?command=sh",
            f"{alone}/attach",
            f"{alone}/portforward",
            f"{alone}/proxy",
            "/api/v1/nodes/node-0/proxy/",
            f"{RBAC}/clusterroles",
            f"{ADMISSION}/validatingadmissionpolicies",
            "/metrics",
            "/logs/",
            f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        ):
            assert not each.may("GET", path), (each.name, path)
        for path in (
            f"{alone}/exec?command=sh",
            f"{alone}/attach",
            f"{alone}/portforward",
            f"{alone}/binding",
            f"{core}/secrets",
            f"{core}/serviceaccounts/default/token",
            f"{own}/serviceaccounts/remesh-worker/token",
            "/api/v1/namespaces",
            f"{core}/events",
            f"{RBAC}/clusterrolebindings",
            f"{RBAC}/namespaces/{name}/rolebindings",
            f"{ADMISSION}/mutatingwebhookconfigurations",
            f"/apis/batch/v1/namespaces/{name}/jobs",
            f"/apis/apps/v1/namespaces/{name}/replicasets",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases",
        ):
            assert not each.may("POST", path, {"metadata": {"name": "planted"}}), (each.name, path)
        for path in (
            f"{RBAC}/clusterroles/remesh-dry-run",
            f"{ADMISSION}/validatingadmissionpolicies/remesh-pods",
            f"{ADMISSION}/validatingadmissionpolicybindings/remesh-pods",
            f"{core}/serviceaccounts/default",
            f"{alone}/ephemeralcontainers",
            f"{alone}/status",
            f"{alone}/resize",
            core,
            "/api/v1/nodes/node-0",
        ):
            assert not each.may("PATCH", path, NUDGE, content_type=MERGE), (each.name, path)
            assert not each.may("DELETE", path), (each.name, path)
        for user in ("system:serviceaccount:kube-system:replicaset-controller", "admin"):
            assert not each.may("GET", "/api/v1/namespaces", impersonate=user), (each.name, user)


def test_the_watcher_alone_holds_the_lease_and_no_other(stage: Stage) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    lease: dict[str, Any] = {"metadata": {"name": "remesh-watcher"}, "spec": {"holderIdentity": "a"}}
    watcher = stage.accounts["watcher"]
    assert watcher.may("POST", leases, lease), watcher.said
    held = watcher.api.get(f"{leases}/remesh-watcher")
    held["spec"]["holderIdentity"] = "b"
    assert watcher.may("PUT", f"{leases}/remesh-watcher", held), watcher.said
    assert not watcher.may("DELETE", f"{leases}/remesh-watcher")
    assert not watcher.may("GET", f"{leases}/other")
    assert not watcher.may("GET", leases)
    for part in set(stage.accounts) - {"watcher"}:
        assert not stage.accounts[part].may("GET", f"{leases}/remesh-watcher")
        assert not stage.accounts[part].may("POST", leases, lease)


def test_flower_and_redis_may_not_even_read(stage: Stage) -> None:
    for part in set(stage.accounts) - {"watcher", "worker"}:
        for path in (
            "/api/v1/pods",
            "/api/v1/namespaces",
            collection("ReplicaSet"),
            f"/api/v1/namespaces/{NAMESPACE}/pods",
        ):
            assert not stage.accounts[part].may("GET", path)
        assert not stage.accounts[part].may("POST", f"/api/v1/namespaces/default/pods{DRY_RUN}", pod("tried"))


def test_a_refusal_says_which_bound_it_met(stage: Stage) -> None:
    with pytest.raises(ApiError, match="dry run"):
        stage.accounts["watcher"].api.post("/api/v1/namespaces/default/pods", pod("made"))
