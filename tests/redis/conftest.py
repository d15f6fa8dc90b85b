"""A server per session for what needs a real one, and the same tests on fakeredis and on it for what does not."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import fakeredis
import pytest

from remesh.audit import Trail
from remesh.embedded import EmbeddedRedis
from remesh.ledger import Ledger
from remesh.ledger_window import Asked
from remesh.models import Action, FailureClass, Finding, ObjectRef, RepairRequest
from remesh.policy import WindowPolicy
from remesh.redisdb import RedisClient, connect
from remesh.settings import Settings

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as embedded:
        yield embedded


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def real(server: EmbeddedRedis) -> Iterator[RedisClient]:
    with connect(settings_for(server)) as client:
        client.flushall()
        yield client


@pytest.fixture(params=["fake", "real"])
def redis(request: pytest.FixtureRequest) -> Iterator[RedisClient]:
    """Every test with this fixture runs on both."""
    if request.param == "real":
        yield request.getfixturevalue("real")
        return
    with fakeredis.FakeRedis(decode_responses=True) as client:
        yield client


@pytest.fixture
def trail(redis: RedisClient) -> Trail:
    return Trail(redis, "test")


@pytest.fixture
def ledger(redis: RedisClient) -> Ledger:
    return Ledger(redis, "test")


def settings_for(server: EmbeddedRedis, **more: object) -> Settings:
    return Settings.model_validate({"redis_url": server.url, "cluster": "test", **more})


def replica_set(name: str = "web-5d8", uid: str = "uid-web") -> ObjectRef:
    return ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name=name, uid=uid)


def deployment(name: str = "web") -> ObjectRef:
    return ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name=name, uid=f"uid-of-{name}")


def finding(number: int = 1, **more: object) -> Finding:
    known: dict[str, object] = {
        "id": f"f-{number:04x}",
        "cluster": "test",
        "ref": replica_set(f"web-{number}", f"uid-{number}"),
        "owner": deployment(),
        "mesh": "istio",
        "failure_class": FailureClass.WEBHOOK_TIMEOUT,
        "action": Action.WAIT_FOR_INJECTOR,
        "code": "injector_not_ready",
        "reason": "The injector does not answer.",
        "first_seen": AT,
    }
    return Finding.model_validate(known | more)


def request_for(number: int = 1, **more: object) -> RepairRequest:
    known: dict[str, object] = {
        "cluster": "test",
        "finding_id": f"f-{number:04x}",
        "ref": replica_set(f"web-{number}", f"uid-{number}"),
        "mesh": "istio",
        "cause": FailureClass.WEBHOOK_TIMEOUT,
        "action": Action.NUDGE_OWNER,
        "requested_at": AT,
    }
    return RepairRequest.model_validate(known | more)


def until(state: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not state():
        assert time.monotonic() < end, "the state did not come in time"
        time.sleep(0.01)


def reserve(ledger: Ledger, injector_key: str, holder: str, pods: int, limit: int, seconds: float) -> bool:
    """Ask for room in a window of this size, as a release does; True if there was some."""
    window = WindowPolicy(initial=limit, minimum=1, maximum=limit)
    return bool(ledger.admit(injector_key, [Asked(holder, "task-", pods)], seconds, window))
