"""The rights are enough: watcher and worker heal under their ServiceAccounts alone, installed by Helm or kubectl."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.models import RecordType
from remesh.testbed import Fault
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.cluster import RealCluster
from tests.cluster.fixtures import delete_namespace
from tests.e2e.test_main_job import long_in_backoff
from tests.manifests import generate, tools
from tests.manifests.applied import account, applied, pod
from tests.manifests.conftest import WORKLOADS, Scene
from tests.manifests.test_rights import DRY_RUN, MERGE, NUDGE, eviction, item
from tests.manifests.tools import CHART, NAMESPACE
from tests.stack import Stack, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(280), pytest.mark.usefixtures("deploy_tools")]


@pytest.fixture
def stack(real_cluster: RealCluster, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(real_cluster, tmp_path)
    yield started
    started.stop()


def test_an_incident_is_healed_under_the_service_accounts_alone(
    real_cluster: RealCluster, meshed_namespace: str, stack: Stack
) -> None:
    """Nudge, eviction, re-creation and the Lease, with the policy of the manifests and their rights."""
    client, sidecar = Client(real_cluster.kubeconfig), real_cluster.wear.sidecar
    objects = tools.kustomize(generate.overlay("repair-with-bare-pods").folder)
    stack.policy(tools.named(objects, "ConfigMap", "remesh")["data"]["policy.toml"])
    with applied(real_cluster, objects):
        real_cluster.inject_fault(Fault.KILLED)
        real_cluster.change_webhook(failurePolicy="Ignore")
        client.create(meshed_namespace, w.deployment("bare", 3))
        client.create(meshed_namespace, w.pod("alone"))
        wait_until(lambda: len(client.ready(meshed_namespace)) == 4, "4 pods without their sidecar")
        real_cluster.change_webhook(failurePolicy="Fail")
        client.create(meshed_namespace, w.replica_set("stuck", 3))
        accounts = {part: str(account(real_cluster, part).kubeconfig) for part in ("watcher", "worker")}
        elected = {"REMESH_LEADER_ELECTION": "true", "REMESH_LEASE_NAMESPACE": NAMESPACE}
        stack.start_worker(REMESH_KUBECONFIG=accounts["worker"])
        stack.start_watcher(REMESH_KUBECONFIG=accounts["watcher"], **elected)
        wait_until(lambda: len(stack.records(types=[RecordType.FINDING])) >= 5, "a finding for each")
        long_in_backoff(client, meshed_namespace, "stuck")

        real_cluster.heal()

        client.wait_healed(meshed_namespace, sidecar, 7, 200)
        wait_until(lambda: len(stack.outcomes()) >= 5, "an outcome for each")
        assert {record.details["result"] for record in stack.outcomes()} == {"healed"}
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/remesh-watcher"
        assert real_cluster.api.get(leases)["spec"]["holderIdentity"]
    refused = [event for event in real_cluster.writes() if _refused_to_remesh(event)]
    assert not [event["requestURI"] for event in refused if f"/{meshed_namespace}/" in event["requestURI"]]
    client.close()


def _refused_to_remesh(event: dict[str, object]) -> bool:
    user, status = event["user"], event["responseStatus"]
    assert isinstance(user, dict)
    assert isinstance(status, dict)
    return f":{NAMESPACE}:remesh-" in user["username"] and status.get("code") == 403


def test_rights_that_a_policy_limits_or_asks_for_are_granted_so(real_cluster: RealCluster, scene: Scene) -> None:
    other = real_cluster.create_namespace(f"other-{secrets.token_hex(4)}", meshed=False)
    for kind in ("ReplicaSet", "Job"):
        real_cluster.api.post(w.collection(kind, other), WORKLOADS[kind])
    values = generate.values_of("repair-with-bare-pods")
    asked = {"scope": {"namespaces": [scene.namespace]}, "repair": {"impersonate_controller": True}}
    values["policy"] = generate.merged(values["policy"], asked)
    values["kubernetesEvents"] = True
    with applied(real_cluster, tools.render(values), scene.namespace):
        worker, watcher = account(real_cluster, "worker"), account(real_cluster, "watcher")
        for namespace, within in ((scene.namespace, True), (other, False)):
            pods = f"/api/v1/namespaces/{namespace}/pods"
            for each in (worker, watcher):
                assert each.may("GET", pods), each.said
                assert each.may("POST", pods + DRY_RUN, pod("tried")) is within, each.said
            for kind in ("ReplicaSet", "Job"):
                assert worker.may("PATCH", item(kind, namespace), NUDGE, content_type=MERGE) is within, worker.said
            assert worker.may("POST", pods, pod("made")) is within, worker.said
            assert not watcher.may("POST", pods, pod("made-too"))
            assert worker.may("POST", f"{pods}/nobody/eviction", eviction("nobody")) is within, worker.said
            events, event = f"/api/v1/namespaces/{namespace}/events", {"metadata": {"name": "told"}}
            assert worker.may("POST", events, event) is within, worker.said
            assert not watcher.may("POST", events, event)
        for each in (worker, watcher):
            for name, granted in (("replicaset-controller", True), ("clusterrole-aggregation-controller", False)):
                user = f"system:serviceaccount:kube-system:{name}"
                path = f"/api/v1/namespaces/{scene.namespace}/pods"
                assert each.may("POST", path + DRY_RUN, pod("tried"), impersonate=user) is granted, each.said
    real_cluster.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/made")
    delete_namespace(real_cluster, other)


def test_helm_makes_the_namespace_opted_out_and_keeps_the_passwords(real_cluster: RealCluster) -> None:
    kubeconfig = f"--kubeconfig={real_cluster.kubeconfig}"
    place = ["--namespace", "helmed", kubeconfig]
    wanted = ["--set", "namespace.create=true,fullnameOverride=helmed,policy.repair.bare_pods=true"]
    real_cluster.create_namespace("helmed", meshed=False)
    notes = tools.run("helm", "install", "remesh", str(CHART), *place, "--take-ownership", *wanted)
    assert "port-forward svc/helmed-flower 5555" in notes
    assert "does not opt out" not in notes
    metadata = real_cluster.api.get("/api/v1/namespaces/helmed")["metadata"]
    assert metadata["labels"]["istio-injection"] == "disabled"
    assert metadata["annotations"]["linkerd.io/inject"] == "disabled"
    before = _secrets(real_cluster)
    assert set(before) == {"helmed-redis", "helmed-flower", "helmed-signing-key"}
    assert before["helmed-flower"].startswith("remesh:")
    assert all(len(text) >= 40 for text in before.values())

    tools.run("helm", "upgrade", "remesh", str(CHART), *place, *wanted, "--set", "worker.replicas=3")

    assert _secrets(real_cluster) == before
    tools.run("helm", "uninstall", "remesh", *place)
    assert _secrets(real_cluster) == before
    real_cluster.api.get("/api/v1/namespaces/helmed")
    delete_namespace(real_cluster, "helmed")


def _secrets(cluster: RealCluster) -> dict[str, str]:
    found = cluster.api.items("/api/v1/namespaces/helmed/secrets", fieldSelector="type=Opaque")
    return {each["metadata"]["name"]: base64.b64decode(next(iter(each["data"].values()))).decode() for each in found}
