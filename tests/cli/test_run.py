"""`remesh run` and `remesh demo`: whole processes, started as a person starts them."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.cli.conftest import ROOT, Remesh, kubeconfig
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until

pytestmark = pytest.mark.timeout(240)


class Running:
    """One command under way, its output collected in a file."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.log = folder / "out.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "remesh", *arguments],
                cwd=ROOT,
                env={**_clean(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def says(self, words: str, seconds: float = 90.0) -> None:
        def said() -> bool:
            assert self.process.poll() is None, self.text
            return words in self.text

        wait_until(said, f"{words!r} in the output", seconds)

    def end(self, number: signal.Signals, seconds: float = 60.0) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("REMESH_", "KUBE"))}


def sessions_of(pid: int) -> list[int]:
    """Living processes whose parent is `pid`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def _status_of(url: str, login: str = "", data: bytes | None = None) -> int | None:
    headers = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"} if login else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.fixture
def bed() -> Iterator[SimCluster]:
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as cluster:
        yield cluster


def start_run(bed: SimCluster, folder: Path, *more: str) -> Running:
    running = Running(folder, "run", "--kubeconfig", str(bed.kubeconfig), *more, XDG_STATE_HOME=str(folder / "state"))
    running.says("synced")
    running.says("ready     watching")
    return running


def test_run_heals_without_any_set_up_and_ends_all_with_ctrl_c(
    bed: SimCluster, tmp_path: Path, remesh: Remesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(sessions_of(os.getpid()))  # of fixtures that other tests share
    running = start_run(bed, tmp_path)
    client = Client(bed.kubeconfig)
    client.create_meshed_namespace("shop", bed.wear)
    bed.inject_fault(Fault.KILLED)
    client.create("shop", w.replica_set("web", 2))
    running.says("connection_refused")
    bed.heal()
    client.wait_healed("shop", bed.wear.sidecar, 2)
    client.close()

    monkeypatch.delenv("REMESH_REDIS_URL")  # the other commands find the server of `remesh run`
    here = ("--kubeconfig", bed.kubeconfig)
    wait_until(lambda: "outcome" in remesh("audit", "-n", "shop", *here).out, "an outcome in the trail")
    assert "watcher      alive" in remesh("status", *here).out
    assert "append-only file on" in remesh("check", "--kubeconfig", bed.kubeconfig).out

    children = sessions_of(running.process.pid)
    assert len(children) == 3
    assert running.end(signal.SIGINT) == 130
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert "Traceback" not in running.text
    assert "celery" not in running.text
    assert "Warning" not in running.text
    ended = remesh("audit", *here)  # what it has kept can be read without it
    assert ended.code == 0
    assert "outcome" in ended.out
    assert "read from what it has kept in" in ended.err
    assert "NONE: nobody is watching" in remesh("status", *here).out
    assert not set(sessions_of(os.getpid())) - others, "no server is left over"
    nobody = remesh("repair", "--all", *here)
    assert nobody.code == 5
    assert nobody.line.startswith("remesh: no `remesh run` is active for cluster 'remesh-sim'")


def test_run_observing_writes_nothing_to_the_cluster(bed: SimCluster, tmp_path: Path, remesh: Remesh) -> None:
    running = start_run(bed, tmp_path, "--observe", "--flower")
    told = next(line.split() for line in running.text.splitlines() if line.startswith("flower    http"))
    url, login = told[1], f"{told[3]}:{told[5]}"
    wait_until(lambda: _status_of(url) == 401, "Flower, which asks for its password")
    assert "flower   |" not in running.text
    assert _status_of(f"{url}/metrics") == _status_of(f"{url}/healthcheck") == 200, "as docs/security.md says"
    assert _status_of(f"{url}/api/task/send-task/x", login, b'{"kwargs": [1]}') == 500
    running.says("TypeError: ", 30)
    assert "Traceback" not in running.text
    assert "mode=observe" in running.text
    assert "mode=repair" not in running.text
    assert running.end(signal.SIGTERM) == 143


def _namespace_of(record: dict[str, Any]) -> str:
    return str(record.get("ref", {}).get("namespace", ""))


def test_run_in_one_namespace_leaves_the_others_alone(
    bed: SimCluster, tmp_path: Path, remesh: Remesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start_run(bed, tmp_path, "-n", "shop")
    assert "scope     only shop" in running.text
    assert "scope=shop" in running.text
    client = Client(bed.kubeconfig)
    for namespace in ("bank", "shop"):
        client.create_meshed_namespace(namespace, bed.wear)
    bed.inject_fault(Fault.KILLED)
    for namespace in ("bank", "shop"):
        client.create(namespace, w.replica_set("web", 2))
        client.wait_failing("ReplicaSet", namespace, ["web"])
    running.says("connection_refused")
    bed.heal()
    client.wait_healed("shop", bed.wear.sidecar, 2)
    client.close()
    monkeypatch.delenv("REMESH_REDIS_URL")
    records = [
        json.loads(line) for line in remesh("audit", "--kubeconfig", bed.kubeconfig, "-o", "jsonl").out.splitlines()
    ]
    codes = {name: {each.get("code") for each in records if _namespace_of(each) == name} for name in ("bank", "shop")}
    assert "out_of_scope" in codes["bank"]
    assert "out_of_scope" not in codes["shop"]  # healed by remesh, or by its controller's next try
    assert "bank" not in {_namespace_of(each) for each in records if each["type"] == "action"}
    assert running.end(signal.SIGINT) == 130


def test_run_ends_when_one_of_its_processes_does(bed: SimCluster, tmp_path: Path) -> None:
    running = start_run(bed, tmp_path)
    watcher = next(
        child for child in sessions_of(running.process.pid) if b"watcher" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    os.kill(watcher, signal.SIGKILL)
    assert running.process.wait(60) == 128 + signal.SIGKILL
    assert "the watcher ended with exit code 137" in running.text


def test_run_killed_leaves_no_process_behind(bed: SimCluster, tmp_path: Path) -> None:
    running = start_run(bed, tmp_path)
    children = sessions_of(running.process.pid)
    running.end(signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "all its processes gone")


def test_a_second_run_on_the_same_cluster_is_refused_whatever_it_is_called(bed: SimCluster, tmp_path: Path) -> None:
    first = start_run(bed, tmp_path)

    def refused(cluster: SimCluster, *name: str) -> str:
        command = ("run", "--kubeconfig", str(cluster.kubeconfig), *name)
        (tmp_path / "second").mkdir(exist_ok=True)
        second = Running(tmp_path / "second", *command, XDG_STATE_HOME=str(tmp_path / "state"))
        assert second.process.wait(60) == 5
        (line,) = second.text.splitlines()
        return line

    for name in ((), ("--cluster", "by-another-name")):
        assert refused(bed, *name) == (
            "remesh: `remesh run` is already at work on this cluster, as cluster 'remesh-sim' "
            f"(process {first.process.pid}); use that one, or end it first"
        )
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as other:  # its context has the same name
        line = refused(other)
    assert line.startswith("remesh: the trail kept for cluster 'remesh-sim' in ")
    assert line.endswith("name this cluster by --cluster")
    assert first.process.poll() is None
    first.end(signal.SIGTERM)


def test_a_second_run_on_the_same_server_is_refused_while_the_first_is_alive(
    bed: SimCluster, tmp_path: Path, redis_url: str
) -> None:
    command = ("run", "--kubeconfig", str(bed.kubeconfig), "--cluster", "shared")
    given = {"REMESH_REDIS_URL": redis_url, "XDG_STATE_HOME": str(tmp_path / "state")}
    another_user = {**given, "XDG_STATE_HOME": str(tmp_path / "another")}
    first = Running(tmp_path, *command, **given)
    first.says("ready     watching")
    (tmp_path / "second").mkdir()

    second = Running(tmp_path / "second", *command, **another_user)

    assert second.process.wait(60) == 5
    said = second.text.splitlines()[-1]
    assert said.startswith("remesh: a watcher of cluster 'shared' is alive already at ")
    assert "end it, or wait: one that was killed counts as gone in " in said
    assert second.text.splitlines() == [said]
    assert first.process.poll() is None

    assert first.end(signal.SIGTERM) == 143
    third = Running(tmp_path / "second", *command, **another_user)
    third.says("ready     watching")
    assert third.end(signal.SIGTERM) == 143


def test_run_without_a_cluster_starts_nothing(tmp_path: Path) -> None:
    unreachable = str(kubeconfig(tmp_path))
    running = Running(tmp_path, "run", "--kubeconfig", unreachable, XDG_STATE_HOME=str(tmp_path / "state"))
    assert running.process.wait(60) == 3
    assert running.text.startswith("remesh: cannot reach the API server")
    assert len(running.text.splitlines()) == 1


def test_the_demo_heals_everything_on_the_simulated_cluster(tmp_path: Path) -> None:
    playing = Running(tmp_path, "demo", "--on", "sim", "--count", "5", "--outage", "3")
    assert playing.process.wait(200) == 0, playing.text
    assert "SIMULATED API server" in playing.text
    assert "5 ReplicaSets refused at creation" in playing.text
    assert "healed      5 of 5, 5 of 5 pods Ready with the sidecar" in playing.text
    assert "5 of 5 objects with a chain from finding to outcome" in playing.text


@pytest.mark.real
def test_the_demo_heals_everything_on_a_real_control_plane(tmp_path: Path) -> None:
    from tests.cluster.fixtures import require_control_plane

    require_control_plane()
    playing = Running(tmp_path, "demo", "--on", "real", "--count", "5", "--outage", "5")
    assert playing.process.wait(220) == 0, playing.text
    assert "REAL control plane" in playing.text
    assert "healed      5 of 5, 5 of 5 pods Ready with the sidecar" in playing.text


def test_the_demo_interrupted_leaves_no_process_behind(tmp_path: Path) -> None:
    playing = Running(tmp_path, "demo", "--on", "sim", "--count", "2", "--outage", "60")
    playing.says("1. The sidecar injector fails")
    children = sessions_of(playing.process.pid)
    assert playing.end(signal.SIGINT) == 130
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert "Traceback" not in playing.text
