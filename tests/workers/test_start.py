"""How worker and Flower start, and with which one line and exit code they refuse to."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.errors import ConfigError
from remesh.testbed import TestBed
from tests.stack import Process, Stack, free_port, wait_until
from workers.app import require_password

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def stack(bed: TestBed, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(bed, tmp_path)
    yield started
    started.stop()


def ended(process: Process) -> tuple[int, list[str]]:
    """Exit code and lines of a process that ends by itself."""
    wait_until(lambda: process.popen.poll() is not None, f"the end of {process.name}", 30)
    return process.popen.returncode, [line for line in process.text().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        ("REMESH_CLUSTER", "Not_A_Name", 2, "REMESH_CLUSTER"),
        ("REMESH_KUBECONFIG", "missing.yaml", 2, "missing.yaml"),
        ("REMESH_REDIS_URL", "redis://127.0.0.1:1/0", 5, "127.0.0.1:1"),
        ("REMESH_BROKER_URL", "redis://127.0.0.1:1/0", 5, "127.0.0.1:1"),
    ],
)
def test_a_worker_that_cannot_work_ends_with_one_line(
    stack: Stack, variable: str, value: str, code: int, said: str
) -> None:
    found, lines = ended(stack.start("worker", env={variable: value}))

    assert found == code, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith("worker: ")
    assert said in lines[0]


def test_a_malformed_policy_is_named_by_file_and_line(stack: Stack) -> None:
    stack.policy('mode = "repair"\n\n[gate]\nquorum = 0\n')

    code, lines = ended(stack.start("worker"))

    assert code == 2
    assert len(lines) == 1
    assert "policy.toml:4: gate.quorum" in lines[0]


def test_a_redis_that_may_lose_tasks_is_refused_unless_overridden_by_name(stack: Stack) -> None:
    stack.connection.config_set("maxmemory-policy", "allkeys-lru")

    code, lines = ended(stack.start("worker"))
    assert (code, len(lines)) == (5, 1)
    assert "noeviction" in lines[0]
    assert "REMESH_ALLOW_UNSAFE_BROKER" in lines[0]

    stack.start_worker(REMESH_ALLOW_UNSAFE_BROKER="true").wait_for("unsafe broker allowed")


def test_a_workers_log_is_json_if_asked_for(stack: Stack) -> None:
    worker = stack.start_worker(REMESH_LOG_FORMAT="json", PYTHONWARNINGS="ignore")

    lines = [line for line in worker.text().splitlines() if line.startswith("{")]
    messages = [json.loads(line)["message"] for line in lines]

    assert "worker starts" in messages
    assert any(message.endswith("ready.") for message in messages)


def test_a_worker_ends_when_asked_to(stack: Stack) -> None:
    worker = stack.start_worker()

    worker.terminate()

    assert worker.popen.returncode == 0


def test_flower_refuses_to_start_without_a_password(stack: Stack) -> None:
    code, lines = ended(stack.start("flower", f"--port={free_port()}"))

    assert code == 2
    assert lines == ["flower: Flower would be open to everybody: set REMESH_FLOWER_BASIC_AUTH to user:password"]


@pytest.mark.parametrize("value", ["justauser", ":secret", "user:", ""])
def test_a_login_without_user_or_password_is_none(value: str) -> None:
    with pytest.raises(ConfigError, match="user:password") as refused:
        require_password([value], "")

    assert "secret" not in str(refused.value)


def test_several_logins_or_an_oauth_provider_will_do() -> None:
    require_password(["ada:one", "bob:two"], "")
    require_password([], ".*@example[.]com")


@pytest.mark.parametrize("variable", ["REMESH_FLOWER_BASIC_AUTH", "FLOWER_BASIC_AUTH"])
def test_flower_asks_for_the_password(stack: Stack, variable: str) -> None:
    port = free_port()
    flower = stack.start("flower", f"--port={port}", "--address=127.0.0.1", env={variable: "ada:secret"})
    flower.wait_for("Visit me")

    assert status(port, "") == 401
    assert status(port, "ada:wrong") == 401
    assert status(port, "ada:secret") == 200
    assert "secret" not in flower.text()


def status(port: int, login: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/workers")
    if login:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
