"""Real workers as processes: what a killed Redis or a killed worker leaves, and who is served first."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import create_server
from typing import Any, Protocol
from urllib.parse import quote

import pytest
from celery import Celery

from remesh.embedded import EmbeddedRedis
from remesh.models import Action
from remesh.queue import BACKGROUND, ON_DEMAND, TASK_NUDGE, TASK_RECREATE, make_app, queue_lengths, send
from remesh.redisdb import RedisClient, connect
from tests.redis.conftest import request_for, settings_for, until

ROOT = Path(__file__).parents[2]
PREFIX = "remesh:{test}:celery:"
PATIENCE_SECONDS = 90.0  # several processes on a small, busy machine


class Start(Protocol):
    def __call__(self, *arguments: str) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def broker() -> Iterator[EmbeddedRedis]:
    """A server of this test's own, for it will be killed."""
    with EmbeddedRedis() as own:
        yield own


@pytest.fixture
def client(broker: EmbeddedRedis) -> Iterator[RedisClient]:
    with connect(settings_for(broker)) as connected:
        yield connected


@pytest.fixture
def app(broker: EmbeddedRedis) -> Iterator[Celery]:
    with make_app(settings_for(broker), consumes=False) as sender:
        yield sender


@pytest.fixture
def celery(broker: EmbeddedRedis, folder: Path) -> Iterator[Start]:
    """Starts `celery -A tests.redis.worker_app …` as its users do; all end with the test."""
    environment = os.environ | {
        "REMESH_REDIS_URL": broker.url,
        "REMESH_CLUSTER": "test",
        "REMESH_TEST_FOLDER": str(folder),
        "FLOWER_UNAUTHENTICATED_API": "true",
    }
    with ExitStack() as ends:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            log = ends.enter_context((folder / f"{arguments[0]}.log").open("ab"))
            command = [sys.executable, "-m", "celery", "-A", "tests.redis.worker_app", *arguments]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
            ends.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def let_go(folder: Path) -> None:
    (folder / "go").touch()


def nothing_left(client: RedisClient) -> bool:
    waiting = [client.llen(PREFIX + name) for name in (ON_DEMAND, BACKGROUND)]
    return waiting == [0, 0] and client.zcard(PREFIX + "unacked_index") == 0


def finding_ids(numbers: range) -> list[str]:
    return [request_for(number).finding_id for number in numbers]


def test_redis_killed_under_a_running_task_loses_neither_task_nor_worker(
    broker: EmbeddedRedis, client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    worker = celery("worker", "--concurrency", "2")
    send(app, request_for(1))
    send(app, request_for(2, on_demand=True))
    for number in (3, 4, 5):
        send(app, request_for(number))
    until(lambda: len(lines(folder, "started")) == 2, PATIENCE_SECONDS)
    broker.kill()
    # The worker notices and waits for the broker; only then do the tasks end.
    until(lambda: "Trying again in" in (folder / "worker.log").read_text(), PATIENCE_SECONDS)
    broker.start()
    let_go(folder)
    until(lambda: set(lines(folder, "done")) == set(finding_ids(range(1, 6))), PATIENCE_SECONDS)
    until(lambda: nothing_left(client), PATIENCE_SECONDS)
    assert worker.poll() is None
    send(app, request_for(6))
    until(lambda: request_for(6).finding_id in lines(folder, "done"), PATIENCE_SECONDS)
    assert worker.poll() is None


def test_redis_killed_while_a_task_ends_loses_neither_task_nor_worker(
    broker: EmbeddedRedis, client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    worker = celery("worker", "--concurrency", "2")
    send(app, request_for(1))
    until(lambda: len(lines(folder, "started")) == 1, PATIENCE_SECONDS)
    broker.kill()
    let_go(folder)
    until(lambda: len(lines(folder, "done")) == 1, PATIENCE_SECONDS)
    until(lambda: "Trying again in" in (folder / "worker.log").read_text(), PATIENCE_SECONDS)
    broker.start()
    until(lambda: nothing_left(client), PATIENCE_SECONDS)
    send(app, request_for(2))
    until(lambda: request_for(2).finding_id in lines(folder, "done"), PATIENCE_SECONDS)
    assert worker.poll() is None


def test_a_worker_that_starts_before_redis_waits_for_it(
    broker: EmbeddedRedis, app: Celery, celery: Start, folder: Path
) -> None:
    broker.kill()
    worker = celery("worker", "--concurrency", "1")
    until(lambda: "Trying again in" in (folder / "worker.log").read_text(), PATIENCE_SECONDS)
    broker.start()
    let_go(folder)
    send(app, request_for(1))
    until(lambda: lines(folder, "done") == finding_ids(range(1, 2)), PATIENCE_SECONDS)
    assert worker.poll() is None


def test_the_task_of_a_killed_worker_comes_back_to_another(
    client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    first = celery("worker", "--concurrency", "1")
    send(app, request_for(1))
    until(lambda: len(lines(folder, "started")) == 1, PATIENCE_SECONDS)
    first.send_signal(signal.SIGKILL)
    first.wait()
    celery("worker", "--concurrency", "1")
    let_go(folder)
    until(lambda: lines(folder, "done") == finding_ids(range(1, 2)), PATIENCE_SECONDS)
    until(lambda: nothing_left(client), PATIENCE_SECONDS)
    assert len(lines(folder, "started")) == 2


def test_a_worker_that_is_told_to_stop_ends_its_task_first(
    client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    worker = celery("worker", "--concurrency", "1")
    send(app, request_for(1))
    send(app, request_for(2))
    until(lambda: len(lines(folder, "started")) == 1, PATIENCE_SECONDS)
    worker.terminate()
    until(lambda: "Warm shutdown" in (folder / "worker.log").read_text(), PATIENCE_SECONDS)
    let_go(folder)
    assert worker.wait(PATIENCE_SECONDS) == 0
    assert lines(folder, "done") == finding_ids(range(1, 2))
    assert client.llen(PREFIX + BACKGROUND) == 1, "the other task waits for another worker"


def broken_messages(app: Celery, client: RedisClient) -> list[str]:
    """A good message, broken in one place each."""
    send(app, request_for(99))
    good = str(client.rpop(PREFIX + BACKGROUND))
    changes: list[tuple[tuple[str, ...], Any]] = [
        (("properties",), None),
        (("properties", "delivery_tag"), None),
        (("properties", "delivery_tag"), []),
        (("properties", "delivery_info"), 7),
        (("properties", "body_encoding"), "rot13"),
        (("properties", "body_encoding"), []),
        (("body",), "%%%"),
        (("body",), {"a": 1}),
        (("headers",), [1]),
        (("headers",), None),
        (("headers", "task"), {}),
        (("headers", "task"), "no such task"),
        (("headers", "id"), []),
        (("headers", "eta"), "soon"),
        (("headers", "eta"), []),
        (("headers", "expires"), {}),
        (("headers", "timelimit"), 3),
        (("headers", "retries"), "many"),
        (("headers", "compression"), "none such"),
        (("content-type",), "application/x-python-serialize"),
        (("content-encoding",), "no such encoding"),
    ]
    made = []
    for number, (path, value) in enumerate(changes):
        message = json.loads(good)
        message["properties"]["delivery_tag"] = f"tag-{number}"
        place = message
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        made.append(json.dumps(message))
    return made


def test_whatever_lies_in_a_queue_the_worker_goes_on(
    client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    let_go(folder)
    garbage: list[Any] = ["garbage", b"\xff\xfe", "", "7", "[]", "null", "{}", "[" * 5000, '{"properties": {}}']
    garbage += ["9" * 5000, '{"__type__": "datetime", "__value__": 7}', '{"__type__": "x", "__value__": 7}']
    for queue in (ON_DEMAND, BACKGROUND):
        for entry in (*garbage, *broken_messages(app, client)):
            client.lpush(PREFIX + queue, entry)
    for number, entry in enumerate(garbage[:7]):
        client.hset(PREFIX + "unacked", f"old-{number}", entry)
        client.zadd(PREFIX + "unacked_index", {f"old-{number}": 1})
    send(app, request_for(1))
    worker = celery("worker", "--concurrency", "1")
    until(lambda: finding_ids(range(1, 2))[0] in lines(folder, "done"), PATIENCE_SECONDS)
    until(lambda: nothing_left(client), PATIENCE_SECONDS)
    send(app, request_for(2))
    until(lambda: finding_ids(range(2, 3))[0] in lines(folder, "done"), PATIENCE_SECONDS)
    assert worker.poll() is None
    client.lpush(PREFIX + BACKGROUND, "garbage")  # while it waits idly
    send(app, request_for(3))
    until(lambda: finding_ids(range(3, 4))[0] in lines(folder, "done"), PATIENCE_SECONDS)
    assert worker.poll() is None
    said = (folder / "worker.log").read_text()
    assert "dropped an entry that is no task" in said


def test_a_long_background_does_not_delay_a_persons_repair(app: Celery, celery: Start, folder: Path) -> None:
    for number in range(500):
        send(app, request_for(number))
    celery("worker", "--concurrency", "1")
    until(lambda: len(lines(folder, "started")) == 1, PATIENCE_SECONDS)
    person = request_for(1000, on_demand=True, actor="alice")
    send(app, person)  # 499 tasks wait before it, and one runs
    let_go(folder)
    until(lambda: person.finding_id in lines(folder, "started"), PATIENCE_SECONDS)
    assert lines(folder, "started").index(person.finding_id) <= 2


def test_many_repairs_on_demand_do_not_starve_the_background(app: Celery, celery: Start, folder: Path) -> None:
    for number in range(300):
        send(app, request_for(number, on_demand=True))
    background = {request_for(number).finding_id for number in range(1000, 1020)}
    for number in range(1000, 1020):
        send(app, request_for(number))
    let_go(folder)
    celery("worker", "--concurrency", "1")
    until(lambda: background <= set(lines(folder, "done")), PATIENCE_SECONDS)
    done = lines(folder, "done")
    first = done[: max(done.index(name) for name in background) + 1]
    assert len(first) <= 2 * len(background) + 2, "every second task is one of the background"


def test_a_fetched_task_does_not_wait_in_a_busy_worker(
    broker: EmbeddedRedis, client: RedisClient, app: Celery, celery: Start, folder: Path
) -> None:
    celery("worker", "--concurrency", "2")
    for number in range(6):
        send(app, request_for(number))
    until(lambda: len(lines(folder, "started")) == 2, PATIENCE_SECONDS)
    assert queue_lengths(client, settings_for(broker)) == {ON_DEMAND: 0, BACKGROUND: 4}
    assert client.zcard(PREFIX + "unacked_index") == 2


def test_flower_shows_readable_tasks_at_working_addresses(app: Celery, celery: Start, folder: Path) -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            text = answer.read().decode()
        return json.loads(text) if path.startswith("/api") else text

    def listening() -> bool:
        """Flower has heard an event of the worker, so it will hear those of its tasks."""
        try:
            return any(get("/api/workers?status=1").values())
        except OSError:
            return False

    celery("flower", "--address=127.0.0.1", f"--port={port}")
    celery("worker", "--concurrency", "1")
    let_go(folder)
    until(listening, PATIENCE_SECONDS)
    nudge, recreate = request_for(1), request_for(2, action=Action.RECREATE_POD)
    send(app, nudge)
    send(app, recreate)

    def states() -> dict[str, str]:
        return {task["name"]: task["state"] for task in get("/api/tasks").values()}

    until(lambda: states() == {TASK_NUDGE: "SUCCESS", TASK_RECREATE: "FAILURE"}, PATIENCE_SECONDS)
    assert list(get(f"/api/tasks?taskname={quote(TASK_NUDGE)}")) == [nudge.task_id]
    page = get(f"/task/{nudge.task_id}")
    assert TASK_NUDGE in page
    assert "ReplicaSet/web-1 -n shop in mesh istio, because of: webhook timeout" in page
    assert get(f"/api/task/result/{nudge.task_id}")["result"] == {"result": "healed"}
    assert {queue["name"] for queue in get("/api/queues/length")["active_queues"]} == {ON_DEMAND, BACKGROUND}
