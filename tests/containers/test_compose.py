"""compose.yaml with a real Docker engine: it comes up, and one incident is healed from inside its containers."""

import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from remesh.testbed import Fault
from tests.client import Client
from tests.cluster import RealCluster
from tests.cluster import workloads as w
from tests.containers.compose import Compose
from tests.containers.engine import REDIS, Engine
from tests.stack import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(590)]

PARTS = ("watcher", "worker", "flower")
QUICK = """
[detection]
silent_seconds = 5.0
no_condition_seconds = 3.0
"""
NAMES = ("web-0", "web-1", "web-2")


def portable_kubeconfig(cluster: RealCluster, target: Path) -> None:
    """As `kubectl config view --flatten --raw`: what is a file becomes part of it. Readable by any user."""
    document = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    server = document["clusters"][0]["cluster"]
    authority = Path(server.pop("certificate-authority")).read_bytes()
    server["certificate-authority-data"] = base64.b64encode(authority).decode()
    target.write_text(json.dumps(document), encoding="utf-8")
    target.chmod(0o644)


@pytest.fixture
def compose(
    engine: Engine, image: str, compose_program: Path, real_cluster: RealCluster, tmp_path: Path
) -> Iterator[Compose]:
    """compose.yaml, not yet up."""
    kubeconfig, policy = tmp_path / "kubeconfig", tmp_path / "policy.toml"
    portable_kubeconfig(real_cluster, kubeconfig)
    policy.write_text(QUICK, encoding="utf-8")
    variables = {
        "REMESH_IMAGE": image,
        "REDIS_IMAGE": REDIS,
        "REDIS_PASSWORD": secrets.token_hex(8),
        "REMESH_FLOWER_BASIC_AUTH": "test:a-long-password",
        "REMESH_CLUSTER": "composed",
        "REMESH_POLICY_FILE": str(policy),
        "KUBECONFIG": str(kubeconfig),
    }
    project = Compose(engine, compose_program, "remesh", variables)
    yield project
    project.down()


@pytest.fixture
def client(real_cluster: RealCluster) -> Iterator[Client]:
    opened = Client(real_cluster.kubeconfig)
    yield opened
    opened.close()


def wait_in_trail(compose: Compose, word: str, namespace: str) -> None:
    """Poll until `remesh audit`, asked inside the watcher's container, has this record of each ReplicaSet."""

    def told() -> bool:
        return all(word in compose.execute("watcher", "remesh", "audit", f"rs/{n}", "-n", namespace) for n in NAMES)

    wait_until(told, f"{word} of each of {', '.join(NAMES)} in the trail", 120)


def flower_answers(compose: Compose, credentials: str) -> int:
    """The status of Flower's list of tasks."""
    script = (
        "import base64, sys, urllib.error, urllib.request as r;"
        "q = r.Request('http://127.0.0.1:5555/tasks');"
        "q.add_header('Authorization', 'Basic ' + base64.b64encode(sys.argv[1].encode()).decode());\n"
        "try: print(r.urlopen(q, timeout=10).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)"
    )
    return int(compose.execute("flower", "python", "-c", script, credentials))


def test_it_comes_up_heals_an_incident_from_inside_and_ends_in_good_order(
    compose: Compose, real_cluster: RealCluster, client: Client, meshed_namespace: str
) -> None:
    compose.up()
    containers = compose.containers()
    assert set(containers) == {"redis", *PARTS}
    assert {one["State"]["Health"]["Status"] for one in containers.values()} == {"healthy"}
    for part in PARTS:
        settings = containers[part]["HostConfig"]
        assert settings["ReadonlyRootfs"]
        assert settings["CapDrop"] == ["ALL"]
        assert containers[part]["Config"]["User"] == "65532:65532"

    real_cluster.inject_fault(Fault.KILLED)
    for name in NAMES:
        client.create(meshed_namespace, w.replica_set(name, 2))
    client.wait_failing("ReplicaSet", meshed_namespace, list(NAMES))
    wait_in_trail(compose, "finding", meshed_namespace)
    real_cluster.heal()
    client.wait_healed(meshed_namespace, real_cluster.wear.sidecar, 2 * len(NAMES))
    wait_in_trail(compose, "outcome", meshed_namespace)
    assert client.nudge_annotations(meshed_namespace) == []
    assert flower_answers(compose, "test:a-long-password") == 200
    assert flower_answers(compose, "test:wrong") == 401

    compose("stop")
    ended = {service: one["State"]["ExitCode"] for service, one in compose.containers().items()}
    assert ended == dict.fromkeys(("redis", *PARTS), 0), compose.logs()[-3000:]
