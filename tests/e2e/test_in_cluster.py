"""The project's own image, installed by its chart on a node with a real kubelet, heals the same cluster's workloads."""

from collections.abc import Iterator
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
from tests.containers.fixtures import require
from tests.manifests import tools
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


def kubectl(cluster: RealCluster, *arguments: str) -> str:
    return tools.run("kubectl", "--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE, *arguments)


def install(cluster: RealCluster, client: Client, folder: Path) -> None:
    """As a user does it, with a volume for Redis that somebody else provides."""
    data = folder / "data"
    data.mkdir()
    data.chmod(0o777)
    volume = {
        "metadata": {"name": "data"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(data)},
        },
    }
    client.api.post("/api/v1/persistentvolumes", volume)
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES), encoding="utf-8")
    kubectl(cluster, "create", "namespace", NAMESPACE)
    tools.run(
        "helm", "install", "remesh", str(tools.CHART), "--kubeconfig", str(cluster.kubeconfig),
        "--namespace", NAMESPACE, "--take-ownership", "--values", str(values),
    )  # fmt: skip


def parts(client: Client) -> dict[str, list[dict[str, Any]]]:
    """The pods of each part of remesh."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in client.pods(NAMESPACE):
        found.setdefault(pod["metadata"]["labels"]["app.kubernetes.io/component"], []).append(pod)
    return found


def all_ready(client: Client) -> bool:
    counts = {part: len(pods) for part, pods in parts(client).items()}
    return counts == PARTS and all(map(w.is_ready, client.pods(NAMESPACE)))


def state(cluster: RealCluster) -> str:
    return kubectl(cluster, "get", "pods", "--output", "wide") + kubectl(cluster, "get", "events")


def audited(cluster: RealCluster, reference: str, namespace: str) -> str:
    """What `remesh audit` says of an object, asked inside a worker's container."""
    return kubectl(cluster, "exec", "deploy/remesh-worker", "--", "remesh", "audit", reference, "-n", namespace)


def test_installed_by_its_chart_it_heals_stuck_and_bare_workloads_of_the_same_cluster(
    cluster: RealCluster, client: Client, tmp_path: Path
) -> None:
    install(cluster, client, tmp_path)
    try:
        wait_until(lambda: all_ready(client), "every part of remesh to be Ready", 240)
    except AssertionError:
        pytest.fail(state(cluster))
    for pod in client.pods(NAMESPACE):
        assert pod["spec"]["nodeName"] == real_node.NAME
        assert {"livenessProbe", "readinessProbe"} <= pod["spec"]["containers"][0].keys()
    sidecar = cluster.wear.sidecar
    client.create_meshed_namespace("shop", cluster.wear)

    cluster.inject_fault(Fault.KILLED)
    client.change_webhooks(cluster.wear.configuration, failurePolicy="Ignore")
    client.create("shop", w.deployment("open", 3))
    client.create("shop", w.pod("lonely"))
    wait_until(lambda: len(client.ready("shop")) == 4, "4 bare pods Ready")
    client.change_webhooks(cluster.wear.configuration, failurePolicy="Fail")
    for name in ("web-0", "web-1"):
        client.create("shop", w.replica_set(name, 2))
    client.wait_failing("ReplicaSet", "shop", ["web-0", "web-1"])
    wait_until(lambda: "finding" in audited(cluster, "rs/web-1", "shop"), "a finding of web-1 in the trail", 60)
    cluster.heal()

    client.wait_healed("shop", sidecar, 8, 240)
    assert client.nudge_annotations("shop") == []
    for reference in ("rs/web-0", "rs/web-1", "pod/lonely"):
        wait_until(lambda: "outcome" in audited(cluster, reference, "shop"), f"an outcome of {reference}", 60)  # noqa: B023
    restarts = {
        p["metadata"]["name"]: p["status"]["containerStatuses"][0]["restartCount"] for p in client.pods(NAMESPACE)
    }
    assert set(restarts.values()) == {0}, restarts
    acted = {event["user"]["username"] for event in cluster.writes() if event["objectRef"].get("namespace") == "shop"}
    assert f"system:serviceaccount:{NAMESPACE}:remesh-worker" in acted
