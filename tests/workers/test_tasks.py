"""The tasks: what a payload may be, and how an outcome becomes a retry or the end. No broker is needed."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Reject

from remesh.errors import ClusterUnreachable
from remesh.models import RecordType
from remesh.queue import TASK_NUDGE, TASK_RECREATE, make_app
from remesh.settings import Settings
from tests.workers import doubles as d
from workers import tasks
from workers.verdicts import RETRIES


class Retried(Exception):
    """Stands for celery's Retry."""


class FakeTask:
    """What a bound task offers to `serve`."""

    def __init__(self, retries: int = 0, *, queue_is_full: bool = False) -> None:
        self.request = SimpleNamespace(id="task-1", retries=retries)
        self.queue_is_full = queue_is_full
        self.countdowns: list[float] = []
        self.events: list[str] = []

    def retry(self, *, countdown: float, throw: bool, argsrepr: str, kwargsrepr: str) -> Retried:
        assert "asked for by" in argsrepr
        self.countdowns.append(countdown)
        if self.queue_is_full:  # as Celery does when the next try cannot be sent
            raise Reject(ConnectionError("no room"), requeue=False)
        return Retried()

    def send_event(self, name: str, *, retry: bool, **fields: Any) -> None:
        self.events.append(name)


@pytest.fixture
def world() -> Iterator[d.World]:
    made = d.World(d.FakeCluster(d.a_replica_set(3)))
    yield made
    made.redis.close()


def payload(**more: object) -> dict[str, Any]:
    return d.a_request().model_dump(mode="json") | more


def test_a_task_returns_its_outcome_and_shows_its_phases(world: d.World) -> None:
    task = FakeTask()

    assert tasks.serve(task, payload(), world.ctx)["result"] == "healed"
    assert task.events == ["task-nudging", "task-verifying", "task-outcome"]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "text",
        {},
        [1, 2],
        payload(version=2),
        payload(cluster="another"),
        payload(finding_id="../../etc"),
        payload(ref={"kind": "ReplicaSet"}),
        payload(ref=payload()["ref"] | {"uid": ""}),
        payload(action="delete_everything"),
        payload(attempt=10**9),
    ],
    ids=lambda bad: str(bad)[:40],
)
def test_a_payload_that_is_no_request_is_refused_and_written_down(world: d.World, bad: object) -> None:
    task = FakeTask()

    outcome = tasks.serve(task, bad, world.ctx)

    assert (outcome["result"], outcome["code"]) == ("skipped", "malformed")
    assert task.countdowns == []
    assert [record.code for record in world.records(RecordType.REFUSAL)] == ["malformed"]
    assert world.cluster.writes == []


def test_unknown_fields_of_a_newer_sender_are_ignored(world: d.World) -> None:
    assert tasks.serve(FakeTask(), payload(colour="blue"), world.ctx)["result"] == "healed"


def test_an_object_held_by_another_worker_is_tried_again_soon(world: d.World) -> None:
    lease = world.ledger.lease("uid-web", 60)
    assert lease is not None
    task = FakeTask()

    with pytest.raises(Retried):
        tasks.serve(task, payload(), world.ctx)

    assert task.countdowns == [2]
    lease.release()
    assert tasks.serve(FakeTask(retries=1), payload(), world.ctx)["result"] == "healed"


def test_what_the_queue_does_not_take_back_is_tried_again_by_the_same_task(world: d.World) -> None:
    """Or the message were lost, and nobody would verify what has begun."""
    lease = world.ledger.lease("uid-web", 60)
    assert lease is not None
    task = FakeTask(queue_is_full=True)
    world.clock.while_asleep = lease.release

    assert tasks.serve(task, payload(), world.ctx)["result"] == "healed"
    assert task.countdowns == [2]


def test_a_task_waits_for_the_queue_no_longer_than_its_tries_last(world: d.World) -> None:
    world.ledger.lease("uid-web", 60)
    task = FakeTask(queue_is_full=True)

    assert tasks.serve(task, payload(), world.ctx)["code"] == "held_elsewhere"
    assert task.countdowns == [2, 4, 8, 16, 30]


def test_countdowns_grow_and_stay_below_a_minute(world: d.World) -> None:
    world.ledger.lease("uid-web", 60)
    seen: list[float] = []
    for retries in range(RETRIES):
        task = FakeTask(retries)
        with pytest.raises(Retried):
            tasks.serve(task, payload(), world.ctx)
        seen += task.countdowns

    assert seen == [2, 4, 8, 16, 30]


def test_after_the_last_try_the_outcome_is_written_down(world: d.World) -> None:
    world.cluster.read_errors = [ClusterUnreachable("no route to host")]

    outcome = tasks.serve(FakeTask(RETRIES), payload(), world.ctx)

    assert (outcome["result"], outcome["code"]) == ("error", "cluster_unreachable")
    assert world.records(RecordType.OUTCOME)[0].code == "cluster_unreachable"


def test_after_the_last_try_another_workers_hold_is_noted_and_the_outcome_left_to_it(world: d.World) -> None:
    world.ledger.lease("uid-web", 60)

    outcome = tasks.serve(FakeTask(RETRIES), payload(), world.ctx)

    assert (outcome["result"], outcome["code"]) == ("skipped", "held_elsewhere")
    assert world.types() == ["refusal"]


def test_a_trail_that_stays_broken_ends_the_task_without_touching_anything(world: d.World) -> None:
    world.trail.refuses = frozenset(RecordType)

    outcome = tasks.serve(FakeTask(RETRIES), payload(), world.ctx)

    assert (outcome["result"], outcome["code"]) == ("error", "trail_unavailable")
    assert world.cluster.writes == []


def test_the_application_has_the_tasks_that_are_sent(world: d.World) -> None:
    app = make_app(Settings(cluster="test"))
    tasks.register(app, lambda: world.ctx)

    assert {TASK_NUDGE, TASK_RECREATE} <= set(app.tasks)
    assert app.tasks[TASK_NUDGE].acks_late
