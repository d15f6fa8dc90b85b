"""Which cluster a `remesh run` works on, and that one is enough."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remesh.cli.only_run import AlreadyRunning, identity, only_run
from remesh.cli.options import Common
from remesh.cli.session import Session
from remesh.errors import BrokerUnreachable, Forbidden
from remesh.kube.api import Cluster
from remesh.sim import SimCluster
from tests.cli.conftest import Remesh


def session(cluster: SimCluster, name: str | None = None) -> Session:
    return Session(Common(kubeconfig=cluster.kubeconfig, cluster=name))


def test_a_cluster_is_the_same_whatever_it_is_called(remesh: Remesh, sim: SimCluster) -> None:
    assert identity(session(sim)) == identity(session(sim, "another-name"))
    uid = session(sim).cluster.namespace("kube-system").metadata.uid
    assert identity(session(sim)) == uid != ""


def test_without_the_right_to_read_it_the_address_tells(
    remesh: Remesh, sim: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_cluster: Cluster, _name: str) -> None:
        raise Forbidden("no")

    monkeypatch.setattr(Cluster, "namespace", refuse)
    assert identity(session(sim)) == identity(session(sim, "another-name"))
    assert identity(session(sim)).isalnum()


def test_the_lock_is_held_by_one_and_free_again_afterwards(remesh: Remesh, sim: SimCluster) -> None:
    with only_run(session(sim)), pytest.raises(AlreadyRunning) as refused, only_run(session(sim, "another-name")):
        pass
    assert "as cluster 'remesh-sim' (process " in str(refused.value)
    with only_run(session(sim, "another-name")):
        pass


def test_a_state_folder_that_cannot_be_written_is_named(remesh: Remesh, sim: SimCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remesh.set(XDG_STATE_HOME=tmp_path / "file")
    with pytest.raises(BrokerUnreachable, match="XDG_STATE_HOME"), only_run(session(sim)):
        pass


def test_of_many_that_start_in_the_same_moment_one_runs(remesh: Remesh, sim: SimCluster) -> None:
    names = [f"name-{number}" for number in range(8)]
    together, looked = threading.Barrier(len(names)), threading.Barrier(len(names))

    def start(name: str) -> str:
        mine = session(sim, name)
        together.wait(60)
        try:
            with only_run(mine):
                looked.wait(60)  # nobody lets go before everybody has tried
                return name
        except AlreadyRunning:
            looked.wait(60)
            return ""

    with ThreadPoolExecutor(len(names)) as pool:
        running = [name for name in pool.map(start, names) if name]
    assert len(running) == 1
