"""The points at which a reliability test lets a process die have names that do not change with the objects."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import fakeredis
import pytest

from remesh import crash


def test_points_are_named_and_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash.LOG_VARIABLE, str(tmp_path / "points"))
    client = crash.on_redis(fakeredis.FakeRedis(decode_responses=True))

    client.set("remesh:{a}:lease:uid-1", "x")
    client.get("remesh:{a}:lease:uid-1")
    client.set("remesh:{a}:lease:uid-2", "x")
    with client.pipeline() as pipe:
        pipe.set("remesh:{a}:k", 1)
        pipe.execute()

    assert (tmp_path / "points").read_text().splitlines() == [
        "redis.SET.lease.before#1",
        "redis.SET.lease.after#1",
        "redis.SET.lease.before#2",
        "redis.SET.lease.after#2",
        "redis.pipeline.before#1",
        "redis.pipeline.after#1",
    ]


def test_a_client_is_left_as_it_is_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(crash.VARIABLE, raising=False)
    monkeypatch.delenv(crash.LOG_VARIABLE, raising=False)
    client = fakeredis.FakeRedis()
    before = client.execute_command
    assert crash.on_redis(client).execute_command == before


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/apis/apps/v1/namespaces/shop/replicasets/web-6f", "kube.PATCH.replicasets"),
        ("/api/v1/namespaces/shop/pods/web-1/eviction", "kube.PATCH.pods/eviction"),
        ("/api/v1/namespaces/shop/pods?dryRun=All", "kube.PATCH.pods"),
    ],
)
def test_points_of_the_api_server(path: str, point: str) -> None:
    assert crash.kube_point("PATCH", path) == point


def test_the_process_dies_at_the_point_and_not_before() -> None:
    code = "from remesh import crash; crash.reached('a'); print('once', flush=True); crash.reached('a'); print('twice')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, crash.VARIABLE: "a#2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "once\n")
