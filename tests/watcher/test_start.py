"""How the watcher starts and ends as a process: one line and one exit code for everything that is wrong."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.redisdb import connect_url
from remesh.sim import SimCluster
from tests.stack import Stack, compose_command, wait_until


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster.start() as started:
        yield started


@pytest.fixture
def stack(cluster: SimCluster, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(cluster, tmp_path)
    yield started
    started.stop()


def refused_start(stack: Stack, **env: str) -> tuple[int, list[str]]:
    """Exit code and standard error's lines of a watcher that cannot start."""
    done = subprocess.run(
        compose_command("watcher"), env={**stack.env, **env}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr.splitlines()


def test_it_ends_at_once_when_asked_and_leaves_no_heartbeat(stack: Stack) -> None:
    watcher = stack.start_watcher()
    wait_until((stack.folder / "heartbeat.json").exists, "a heartbeat")
    watcher.terminate()
    assert watcher.popen.returncode == 0
    assert not (stack.folder / "heartbeat.json").exists()
    assert "watcher stopped" in watcher.text()


def test_its_health_is_told_by_its_heartbeat(stack: Stack) -> None:
    def health() -> int:
        command = [compose_command("watcher")[0], "-m", "watcher.health"]
        return subprocess.run(command, env=stack.env, capture_output=True, timeout=30, check=False).returncode

    assert health() == 1
    stack.start_watcher()
    wait_until(lambda: health() == 0, "the watcher to be healthy", 20)


def test_a_missing_right_is_named(cluster: SimCluster, stack: Stack) -> None:
    cluster.refuse("list", "statefulsets")
    code, lines = refused_start(stack)
    assert code == 4
    assert len(lines) == 1
    assert "statefulsets" in lines[0]


def test_an_unreachable_cluster_is_named(cluster: SimCluster, stack: Stack) -> None:
    kept = stack.folder / "kubeconfig"
    kept.write_bytes(cluster.kubeconfig.read_bytes())
    cluster.stop()
    code, lines = refused_start(stack, REMESH_KUBECONFIG=str(kept))
    assert code == 3
    assert len(lines) == 1
    assert cluster.url.removeprefix("http://") in lines[0]


def test_a_broker_that_evicts_keys_is_refused_unless_allowed_by_name(stack: Stack) -> None:
    connect_url(stack.redis.url).config_set("maxmemory-policy", "allkeys-lru")
    code, lines = refused_start(stack)
    assert code == 5
    assert len(lines) == 1
    assert "REMESH_ALLOW_UNSAFE_BROKER" in lines[0]
    stack.settings_extra["REMESH_ALLOW_UNSAFE_BROKER"] = "true"
    stack.start_watcher()


def test_a_malformed_policy_is_named_with_file_and_key(stack: Stack) -> None:
    stack.policy("[gate]\nsucesses = 3\n")
    code, lines = refused_start(stack)
    assert code == 2
    assert len(lines) == 1
    assert "policy.toml:2: gate.sucesses" in lines[0]


def test_a_redis_that_is_not_there_is_named(stack: Stack) -> None:
    code, lines = refused_start(stack, REMESH_REDIS_URL=f"unix://{stack.folder}/nobody.sock")
    assert code == 5
    assert len(lines) == 1


@pytest.mark.parametrize(("service", "begun"), [("watcher", "synced"), ("worker", "ready.")])
def test_started_before_its_redis_it_waits_as_long_as_it_is_told_to(stack: Stack, service: str, begun: str) -> None:
    stack.redis.stop()
    started = stack.start(service, env={"REMESH_START_SECONDS": "120"})
    started.wait_for("waiting for redis and broker")
    assert started.popen.poll() is None
    stack.redis.start()
    started.wait_for(begun)


@pytest.mark.parametrize("service", ["watcher", "worker"])
def test_waiting_for_redis_ends_when_asked_to_and_when_its_time_is_over(stack: Stack, service: str) -> None:
    stack.redis.stop()
    started = stack.start(service, env={"REMESH_START_SECONDS": "120"})
    started.wait_for("waiting for redis and broker")
    started.terminate()
    assert started.popen.returncode == 128 + signal.SIGTERM

    started = stack.start(service, env={"REMESH_START_SECONDS": "1"})
    wait_until(lambda: started.popen.poll() is not None, "its end", 30)
    assert started.popen.returncode == 5
    assert started.text().count("waiting for redis and broker") == 1
    assert "Traceback" not in started.text()


def test_a_wrong_password_is_not_waited_for(stack: Stack) -> None:
    stack.connection.config_set("requirepass", "another one")
    code, lines = refused_start(stack, REMESH_START_SECONDS="120")
    assert code == 5
    assert len(lines) == 1
    assert "password" in lines[0]


ELECTION = {"REMESH_LEADER_ELECTION": "true", "REMESH_LEASE_NAMESPACE": "default"}


def test_a_missing_right_to_the_lease_is_named(cluster: SimCluster, stack: Stack) -> None:
    cluster.refuse("get", "leases")
    code, lines = refused_start(stack, **ELECTION)
    assert code == 4
    assert len(lines) == 1
    assert "leases" in lines[0]


def test_an_election_without_a_namespace_outside_of_a_cluster_is_refused(stack: Stack) -> None:
    code, lines = refused_start(stack, **{**ELECTION, "REMESH_LEASE_NAMESPACE": ""})
    assert code == 2
    assert len(lines) == 1
    assert "REMESH_LEASE_NAMESPACE" in lines[0]


def test_rabbitmq_for_the_trail_is_refused_by_name(stack: Stack) -> None:
    code, lines = refused_start(stack, REMESH_REDIS_URL="amqp://me:letmein@127.0.0.1:5672/mesh")
    assert code == 2
    assert len(lines) == 1
    assert "REMESH_REDIS_URL" in lines[0]
    assert "letmein" not in lines[0]
