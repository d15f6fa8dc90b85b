"""Which cluster a `remesh run` works on, and that one is enough."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions

from remesh.cli.only_run import AlreadyRunning, identity, only_run
from remesh.cli.options import Common
from remesh.cli.run_lease import HeldByAnother, RunLease
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


# On one Redis, by people who know nothing of each other


@pytest.fixture
def shared(remesh: Remesh, sim: SimCluster, redis_url: str) -> Iterator[Callable[[str], RunLease]]:
    """A lease of a person who calls the cluster so."""
    remesh.set(REMESH_REDIS_URL=redis_url)
    yield lambda name: RunLease(session(sim, name))
    session(sim).redis.flushdb()


def test_of_two_on_one_server_the_second_is_refused_whatever_it_calls_the_cluster(
    shared: Callable[[str], RunLease],
) -> None:
    first = shared("prod")
    first.take()
    for name in ("prod", "production"):
        with pytest.raises(HeldByAnother) as refused:
            shared(name).take()
        assert f"process {os.getpid()}, as cluster 'prod')" in str(refused.value)
        assert "one that was killed counts as gone in 2" in str(refused.value)
    first.take()  # to take it anew is to renew it
    first.give_back()
    shared("production").take()


def test_of_many_on_one_server_that_start_in_the_same_moment_one_runs(shared: Callable[[str], RunLease]) -> None:
    together = threading.Barrier(8)

    def start(number: int) -> bool:
        lease = shared(f"name-{number}")
        together.wait(60)
        try:
            lease.take()
        except HeldByAnother:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) == 1


def test_one_that_slept_for_too_long_finds_another_at_work(shared: Callable[[str], RunLease], sim: SimCluster) -> None:
    slept, another = shared("prod"), shared("prod")
    slept.take()
    session(sim, "prod").redis.flushdb()  # as if its time had passed
    another.take()
    slept._next = 0.0
    with pytest.raises(HeldByAnother):
        slept.keep()
    another._next = 0.0
    another.keep()


def test_a_server_that_is_away_for_a_while_ends_nothing(
    shared: Callable[[str], RunLease], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise redis.exceptions.ConnectionError("gone")

    lease = shared("prod")
    lease.take()
    lease._next = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(lease, "_take", away)
        lease.keep()
    lease._next = 0.0
    lease.keep()


def test_a_user_who_may_write_one_clusters_keys_only_is_bound_by_its_name(shared: Callable[[str], RunLease]) -> None:
    allowed = shared("prod")
    user: Any = allowed._redis
    user.execute_command("ACL", "SETUSER", "narrow", "on", ">narrow", "~remesh:{prod}:*", "+@all")
    user.execute_command("AUTH", "narrow", "narrow")
    try:
        allowed.take()
        assert len(allowed._keys) == 1
        with pytest.raises(HeldByAnother):
            shared("prod").take()
    finally:
        user.execute_command("AUTH", "default", "")
        user.execute_command("ACL", "DELUSER", "narrow")
