"""The project's own image, on a node with a real kubelet, heals the workloads of the same cluster.

It is installed as people do it: by the chart, and from the plain manifests through a kustomization of one's own.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from remesh.testbed import Fault, InjectorWear
from tests.client import Client
from tests.cluster import RealCluster, Tuning, real_node
from tests.cluster import workloads as w
from tests.containers import needs
from tests.containers.engine import REDIS
from tests.manifests import tools
from tests.needs import require
from tests.stack import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(590)]

NAMESPACE = "remesh"
HERE = {"nodeSelector": {real_node.LABEL: real_node.NAME}, "tolerations": [{"operator": "Exists"}]}
# What is not placed is as the chart has it.
VALUES: dict[str, Any] = {
    "cluster": "real",
    "image": {"pullPolicy": "Never"},
    "policy": {"detection": {"silent_seconds": 5, "no_condition_seconds": 3}, "repair": {"bare_pods": True}},
    "namespace": {"create": True},
    "watcher": HERE,
    "worker": HERE,
    "flower": HERE,
    "redis": {**HERE, "image": REDIS, "imagePullPolicy": "Never"},
}
POLICY = """
mode = "repair"
[detection]
silent_seconds = 5
no_condition_seconds = 3
[repair]
bare_pods = true
"""
STUCK = ["web-0", "web-1"]
PARTS = {"watcher": 2, "worker": 2, "flower": 1, "redis": 1}


@pytest.fixture(scope="module")
def cluster(image_archive: Path) -> Iterator[RealCluster]:
    """A cluster with an injector, kwok's nodes for workloads, and one real node that has the project's image."""
    require(needs.unavailable_reason() or real_node.unavailable_reason())
    # For Redis' volume.
    claims = ("--controllers=persistentvolume-binder-controller",)
    started = RealCluster.start(
        InjectorWear(timeout_seconds=2),
        node="real",
        tuning=Tuning(controller_qps=200, controller_manager_arguments=claims),
    )
    assert started.node is not None
    try:
        started.node.load_image(image_archive)
        yield started
    finally:
        started.stop()


@pytest.fixture
def client(cluster: RealCluster) -> Iterator[Client]:
    opened = Client(cluster.kubeconfig)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def volume(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A volume for Redis, which somebody else provides."""
    data = tmp_path_factory.mktemp("data")
    data.chmod(0o777)
    spec = {
        "capacity": {"storage": "8Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(data)},
    }
    cluster.api.post("/api/v1/persistentvolumes", {"metadata": {"name": "data"}, "spec": spec})


def kubectl(cluster: RealCluster, *arguments: str) -> str:
    return tools.run("kubectl", "--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE, *arguments)


def helm(cluster: RealCluster, *arguments: str) -> str:
    return tools.run("helm", "--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE, *arguments)


def install_chart(cluster: RealCluster, folder: Path) -> None:
    """As a user of Helm does it, into a namespace that is there."""
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES), encoding="utf-8")
    kubectl(cluster, "create", "namespace", NAMESPACE)
    helm(cluster, "install", "remesh", str(tools.CHART), "--take-ownership", "--values", str(values))


def install_manifests(cluster: RealCluster, folder: Path) -> None:
    """As a user of kustomize does it: a kustomization with Secrets and places, on top of an overlay."""
    secrets = {"redis": "password=letters", "flower": "basic-auth=me:letters", "signing-key": f"key={'letters' * 3}"}
    place = [{"op": "add", "path": f"/spec/template/spec/{key}", "value": value} for key, value in HERE.items()]
    policy = [{"op": "replace", "path": "/data/policy.toml", "value": POLICY}]
    kustomization = {
        "resources": [os.path.relpath(tools.KUBERNETES / "overlays" / "repair-with-bare-pods", folder)],
        "generatorOptions": {"disableNameSuffixHash": True},
        "secretGenerator": [
            {"name": f"remesh-{name}", "namespace": NAMESPACE, "literals": [literal]}
            for name, literal in secrets.items()
        ],
        "images": [dict(zip(("name", "newName", "newTag"), ("redis", *REDIS.split(":")), strict=True))],
        "patches": [
            {"target": {"kind": "Deployment"}, "patch": json.dumps(place)},
            {"target": {"kind": "StatefulSet"}, "patch": json.dumps(place)},
            {"target": {"kind": "ConfigMap", "name": "remesh"}, "patch": json.dumps(policy)},
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    # Redis' Secret and the namespace outlive the chart.
    kubectl(cluster, "apply", "--server-side", "--force-conflicts", "--kustomize", str(folder))


@pytest.fixture(params=["chart", "manifests"])
def installed(
    request: pytest.FixtureRequest, cluster: RealCluster, client: Client, volume: None, tmp_path: Path
) -> Iterator[str]:
    """remesh in the cluster, every part Ready. The value names how it came there."""
    {"chart": install_chart, "manifests": install_manifests}[request.param](cluster, tmp_path)
    try:
        wait_until(lambda: all_ready(client), "every part of remesh to be Ready", 240)
    except AssertionError:
        pytest.fail(kubectl(cluster, "get", "pods", "--output", "wide") + kubectl(cluster, "get", "events"))
    yield str(request.param)
    if request.param == "chart":  # the other one goes with the cluster
        helm(cluster, "uninstall", "remesh", "--wait")
        wait_until(lambda: not client.pods(NAMESPACE), "nothing of the chart's to run any more", 120)


def parts(client: Client) -> dict[str, list[dict[str, Any]]]:
    """The pods of each part of remesh."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in client.pods(NAMESPACE):
        found.setdefault(pod["metadata"]["labels"]["app.kubernetes.io/component"], []).append(pod)
    return found


def all_ready(client: Client) -> bool:
    counts = {part: len(pods) for part, pods in parts(client).items()}
    return counts == PARTS and all(map(w.is_ready, client.pods(NAMESPACE)))


def wait_in_trail(cluster: RealCluster, word: str, namespace: str, references: list[str]) -> None:
    """Poll until `remesh audit`, asked inside a worker's container, has this record of each of these objects."""

    def told(reference: str) -> bool:
        command = ["remesh", "audit", reference, "-n", namespace]
        return word in kubectl(cluster, "exec", "deploy/remesh-worker", "--container", "worker", "--", *command)

    for reference in references:
        wait_until(partial(told, reference), f"{word} of {reference} in the trail", 90)


def test_it_runs_hardened_on_the_real_node_and_heals_stuck_and_bare_workloads_of_the_others(
    cluster: RealCluster, client: Client, installed: str
) -> None:
    for pod in client.pods(NAMESPACE):
        assert pod["spec"]["nodeName"] == real_node.NAME
        assert {"livenessProbe", "readinessProbe"} <= pod["spec"]["containers"][0].keys()
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    namespace, configuration = f"shop-{installed}", cluster.wear.configuration
    client.create_meshed_namespace(namespace, cluster.wear)

    cluster.inject_fault(Fault.KILLED)
    client.change_webhooks(configuration, failurePolicy="Ignore")
    client.create(namespace, w.deployment("open", 3))
    client.create(namespace, w.pod("lonely"))
    wait_until(lambda: len(client.ready(namespace)) == 4, "4 bare pods Ready")
    client.change_webhooks(configuration, failurePolicy="Fail")
    for name in STUCK:
        client.create(namespace, w.replica_set(name, 2))
    client.wait_failing("ReplicaSet", namespace, STUCK)
    wait_in_trail(cluster, "finding", namespace, [f"rs/{name}" for name in STUCK])
    cluster.heal()

    client.wait_healed(namespace, cluster.wear.sidecar, 4 + 2 * len(STUCK), 240)
    assert client.nudge_annotations(namespace) == []
    wait_in_trail(cluster, "outcome", namespace, ["pod/lonely", *(f"rs/{name}" for name in STUCK)])
    statuses = [status for pod in client.pods(NAMESPACE) for status in pod["status"]["containerStatuses"]]
    assert {status["restartCount"] for status in statuses} == {0}
    acted = {
        event["user"]["username"] for event in cluster.writes() if event["objectRef"].get("namespace") == namespace
    }
    assert acted >= {f"system:serviceaccount:{NAMESPACE}:remesh-worker"}
