"""What only the simulated cluster can show: short histories, refused rights, old objects, several replicas."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remesh.sim import SimCluster
from remesh.sim import resources as res
from remesh.sim.status import StatusError
from remesh.testbed import Fault, InjectorWear
from tests.cluster import workloads
from tests.cluster.workloads import collection, has_container, meshed_namespace, path
from tests.testbed.http import Http

NAMESPACE = "shop"

ISTIO = InjectorWear(
    mesh="istio",
    configuration="istio-sidecar-injector",
    webhook="namespace.sidecar-injector.istio.io",
    namespace="istio-system",
    service="istiod",
    target_port=15017,
    path="/inject",
    injector_labels={"app": "istiod"},
    namespace_selector={"matchLabels": {"istio-injection": "enabled"}},
    object_selector={
        "matchExpressions": [{"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]}]
    },
    ask_annotation=None,
    sidecar="istio-proxy",
    native_sidecar=False,
    mark_annotations={"sidecar.istio.io/status": "{}"},
    mark_labels={},
)


@contextmanager
def running(
    wear: InjectorWear | None = None, *, watch_history: int = 1000, node_grace: float = 0.0
) -> Iterator[tuple[SimCluster, Http]]:
    """A cluster with a meshed namespace, and a client."""
    options = {"watch_history": watch_history, "node_grace": node_grace}
    with SimCluster.start(wear or InjectorWear(timeout_seconds=1), controller_qps=0, **options) as cluster:  # type: ignore[arg-type]
        http = Http.of(cluster.kubeconfig)
        http.post("/api/v1/namespaces", meshed_namespace(NAMESPACE, cluster.wear)).ok()
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        http.wait(lambda: http.get(account).code == 200, "its account")
        yield cluster, http
        http.close()


def rehearse(http: Http) -> tuple[int, str]:
    answer = http.post(collection("Pod", NAMESPACE), workloads.pod("dry"), dryRun="All")
    return answer.code, answer.message


def test_watch_behind_the_history_ends_with_410() -> None:
    with running(watch_history=20) as (_, http):
        where = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        version = http.get(where).ok()["metadata"]["resourceVersion"]
        for number in range(25):
            http.post(where, {"metadata": {"name": f"m-{number}"}}).ok()
        (event,) = http.watch(where, resourceVersion=version, timeoutSeconds=5)

        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {version} (")
        fresh = http.get(where).ok()["metadata"]["resourceVersion"]
        assert list(http.watch(where, resourceVersion=fresh, timeoutSeconds=1)) == []


def test_list_that_nobody_remembers_cannot_be_continued() -> None:
    with running() as (_, http):
        where = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        for number in range(3):
            http.post(where, {"metadata": {"name": f"m-{number}"}}).ok()
        token = http.get(where, limit=1).ok()["metadata"]["continue"]
        for _ in range(40):
            http.get(where, limit=1).ok()
        answer = http.get(where, **{"limit": 1, "continue": token})

        assert (answer.code, answer.reason) == (410, "Expired")
        assert http.get(where, **{"continue": "nonsense"}).code == 400


def test_refused_right_is_refused_and_said() -> None:
    with running() as (cluster, http):
        cluster.refuse("create", "pods/eviction")
        cluster.refuse("list", "jobs")
        answer = http.get("/apis/batch/v1/jobs")
        attributes = {"verb": "create", "resource": "pods", "subresource": "eviction"}
        review = {"spec": {"resourceAttributes": attributes}}
        said = http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).ok()

        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert answer.message == (
            'jobs.batch is forbidden: User "remesh-sim" cannot list resource "jobs" in API group "batch" '
            "at the cluster scope"
        )
        assert said["status"]["allowed"] is False
        assert http.post(f"{path('Pod', NAMESPACE, 'any')}/eviction", {}).code == 403
        assert http.get(collection("Pod", NAMESPACE)).code == 200


def test_stored_webhook_with_side_effects_refuses_dry_runs() -> None:
    with running(InjectorWear(side_effects="Some")) as (cluster, http):
        webhook = cluster.wear.webhook
        assert rehearse(http) == (400, f'admission webhook "{webhook}" does not support dry run')

        created = http.post(collection("Pod", NAMESPACE), workloads.pod("real")).ok()
        assert has_container(created, cluster.wear.sidecar)
        cluster.inject_fault(Fault.WRONG_CA)
        cluster.heal()


def test_ignored_webhook_that_hangs_can_eat_the_whole_request() -> None:
    with running(InjectorWear(failure_policy="Ignore")) as (cluster, _):
        cluster.inject_fault(Fault.FROZEN)
        with pytest.raises(StatusError) as refused:
            cluster.api.create(res.PODS, NAMESPACE, workloads.pod("late"), deadline=time.monotonic() + 0.2)

        assert (refused.value.code, refused.value.reason) == (504, "Timeout")
        assert refused.value.message == "Timeout: request did not complete within requested timeout"


def test_failing_open_is_counted() -> None:
    with running(InjectorWear(failure_policy="Ignore")) as (cluster, http):
        cluster.inject_fault(Fault.KILLED)
        assert rehearse(http)[0] == 201

        name = "apiserver_admission_webhook_fail_open_count"
        assert f'{name}{{name="{cluster.wear.webhook}",type="admit"}} 1' in http.get("/metrics").message


def test_lost_node_hangs_the_connection_until_its_replica_is_no_endpoint() -> None:
    wear = InjectorWear(timeout_seconds=1, replicas=2)
    with running(wear, node_grace=0.5) as (cluster, http):
        assert rehearse(http)[0] == 201
        cluster.inject_fault(Fault.NODE_LOST)
        code, message = rehearse(http)
        assert (code, message.endswith("context deadline exceeded")) == (500, True)

        cluster.heal()
        assert rehearse(http)[0] == 201


def test_no_replica_shares_a_node_with_another() -> None:
    with running(InjectorWear(replicas=3)) as (cluster, http):
        pods = http.items(f"/api/v1/namespaces/{cluster.wear.namespace}/pods")
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 3


def test_frozen_injector_answers_what_it_was_asked_when_it_goes_on() -> None:
    with running(InjectorWear(timeout_seconds=30)) as (cluster, http):
        cluster.inject_fault(Fault.FROZEN)
        answers: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: answers.append(rehearse(http)))
        asking.start()
        cluster.heal()
        asking.join(20)

        assert [code for code, _ in answers] == [201]


def test_istio_asks_by_namespace_label_and_injects_an_ordinary_container() -> None:
    with running(ISTIO) as (_, http):
        asked = http.post(collection("Pod", NAMESPACE), workloads.pod("asked"), dryRun="All").ok()
        refused = workloads.pod("refused", labels={"sidecar.istio.io/inject": "false"})
        left = http.post(collection("Pod", NAMESPACE), refused, dryRun="All").ok()
        elsewhere = http.post(collection("Pod", "default"), workloads.pod("else"), dryRun="All").ok()

        assert [container["name"] for container in asked["spec"]["containers"]] == ["app", "istio-proxy"]
        assert asked["metadata"]["annotations"]["sidecar.istio.io/status"] == "{}"
        assert not has_container(left, "istio-proxy")
        assert not has_container(elsewhere, "istio-proxy")


def test_webhooks_of_others_are_called_in_the_order_of_their_names() -> None:
    with running() as (cluster, http):
        hook = {
            "name": "first.test.remesh.dev",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "nowhere", "path": "/x"}, "caBundle": ""},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
        configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        http.post(configurations, {"metadata": {"name": "a-first"}, "webhooks": [hook]}).ok()
        cluster.inject_fault(Fault.KILLED)
        code, message = rehearse(http)

        assert code == 500
        assert message == (
            'Internal error occurred: failed calling webhook "first.test.remesh.dev": failed to call webhook: '
            'Post "https://nowhere.shop.svc:443/x?timeout=1s": service "nowhere" not found'
        )


def test_webhook_with_match_conditions_is_not_taken_for_granted() -> None:
    with running() as (_, http):
        hook = {
            "name": "cel.test.remesh.dev",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "never", "expression": "false"}],
        }
        configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        answer = http.post(configurations, {"metadata": {"name": "cel"}, "webhooks": [hook]})

        assert answer.code == 422
        assert "simulated API server cannot evaluate match conditions" in answer.message


def test_two_thousand_pods_are_created_listed_and_watched() -> None:
    with running() as (_, http):
        where = collection("Pod", NAMESPACE)
        version = http.get(where).ok()["metadata"]["resourceVersion"]
        http.post(collection("ReplicaSet", NAMESPACE), workloads.replica_set("web", 2000)).ok()
        seen: set[str] = set()
        for event in http.watch(where, resourceVersion=version, timeoutSeconds=60):
            if workloads.is_ready(event["object"]):
                seen.add(event["object"]["metadata"]["name"])
            if len(seen) == 2000:
                break
        assert len(http.items(where)) == 2000


def test_stop_ends_every_thread_and_file() -> None:
    before = set(threading.enumerate())
    cluster = SimCluster.start()
    cluster.inject_fault(Fault.FROZEN)
    folder = cluster.kubeconfig.parent
    cluster.stop()
    cluster.stop()

    left = [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()]
    assert left == []
    assert not folder.exists()


def test_kubectl_is_let_in_by_the_path_it_is_given() -> None:
    with running() as (cluster, _):
        anonymous = Http(cluster.kubectl_url, "", None)
        assert anonymous.get("/api/v1/namespaces").code == 200
        assert anonymous.get("/api/v1/namespaces", limit=1).ok()["metadata"]["continue"]
        anonymous.close()
        stranger = Http(cluster.url, "", None)
        assert stranger.get("/nonsense/api/v1/namespaces").code == 401
        stranger.close()


def test_person_can_run_it_and_break_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "remesh.sim", "up"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        first = process.stdout.readline()
        kubeconfig = process.stdout.readline().partition("KUBECONFIG=")[2].strip()
        assert first.startswith("simulated cluster at http://127.0.0.1:")
        with open(kubeconfig) as file:  # noqa: PTH123
            assert json.load(file)["current-context"] == "remesh-sim"
        assert process.stdout.readline().startswith("kubectl --server=http://127.0.0.1:")
        process.stdout.readline()
        for word, answer in (("killed", "done: killed\n"), ("heal", "done: heal\n")):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == answer
        process.stdin.write("nonsense\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("commands: ")
        process.stdin.write("quit\n")
        process.stdin.flush()
        assert process.wait(20) == 0
