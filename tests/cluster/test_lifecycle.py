"""How clusters begin and end: killed parents, killed supervisors, the command for people, networks without root."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remesh.testbed import Fault
from tests.cluster import FaultUnavailable, RealCluster, network, workloads
from tests.cluster.fixtures import require_control_plane
from tests.cluster.processes import PROJECT
from tests.cluster.wait import wait_for

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("control_plane")]

COMMAND = [sys.executable, "-m", "tests.cluster"]


@pytest.fixture
def control_plane() -> None:
    require_control_plane()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Sockets of the command go to a directory of this test; the programs stay where they are cached."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.fixture
def up(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running `up`. The test may end it as it likes."""
    process = subprocess.Popen(
        [*COMMAND, "up", "--nodes", "1", "--json"],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What `up --json` says once the cluster runs."""
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    return facts


def remains(facts: dict[str, Any]) -> list[str]:
    """Processes, interface and directory that are still there."""
    left = [f"{name} ({pid})" for name, pid in facts["pids"].items() if is_alive(pid)]
    for path in (Path(facts["directory"]), interface(facts)):
        if path.exists():
            left.append(str(path))
    return left


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    # A zombie has let go of everything; only its own parent can make it disappear.
    return stat.rpartition(")")[2].split()[0] != "Z"


def interface(facts: dict[str, Any]) -> Path:
    """The host's end of the pair of interfaces."""
    return Path(f"/sys/class/net/{network.INTERFACE_PREFIX}{facts['pids']['supervisor']}")


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )


def test_nothing_stays_when_the_parent_is_killed(up: subprocess.Popen[str]) -> None:
    facts = said(up)
    assert len(facts["pids"]) >= 7
    assert interface(facts).exists() == (facts["network"] == "root")

    up.kill()

    wait_for(lambda: not remains(facts), lambda: f"{remains(facts)} to go")


def test_no_process_stays_when_the_supervisor_is_killed_too(up: subprocess.Popen[str]) -> None:
    facts = said(up)

    os.kill(facts["pids"]["supervisor"], signal.SIGKILL)
    up.kill()

    # The directory alone has nobody to remove it; the next cluster does.
    wait_for(
        lambda: set(remains(facts)) <= {facts["directory"]},
        lambda: f"{remains(facts)} to go",
    )


def test_command_breaks_heals_and_ends_a_cluster(up: subprocess.Popen[str], environment: dict[str, str]) -> None:
    facts = said(up)
    assert json.loads(run(environment, "status").stdout)["kubeconfig"] == facts["kubeconfig"]

    assert run(environment, "fault", "denying").stdout == "in force: denying\n"
    assert run(environment, "fault", "slow", "--delay-ms", "100").stdout == "in force: slow\n"
    assert run(environment, "heal").stdout == "healed: the injector injects\n"
    second = run(environment, "up")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "is running already" in second.stderr

    assert run(environment, "down").stdout == "down\n"
    assert up.wait(timeout=30) == 0
    assert remains(facts) == []


def test_command_ends_in_good_order_on_sigterm(up: subprocess.Popen[str]) -> None:
    facts = said(up)

    up.terminate()

    assert up.wait(timeout=30) == 130
    assert remains(facts) == []


@pytest.mark.parametrize("kind", ["user", "none"])
def test_cluster_without_root_injects(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("REMESH_TESTCLUSTER_NETWORK", kind)
    cluster = RealCluster.start(nodes=1)
    try:
        assert cluster.network.kind == kind
        cluster.create_namespace("meshed")
        made = cluster.api.post(workloads.collection("Pod", "meshed"), workloads.pod("whole"))
        assert workloads.has_container(made, cluster.wear.sidecar)
        if kind == "user":
            cluster.inject_fault(Fault.NO_ENDPOINTS)
        else:
            with pytest.raises(FaultUnavailable, match="needs pod addresses"):
                cluster.inject_fault(Fault.NO_ENDPOINTS)
            cluster.inject_fault(Fault.KILLED)
        cluster.heal()
    finally:
        cluster.stop()
