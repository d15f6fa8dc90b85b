"""A worker that dies at any step of replacing a pod: the next one evicts no second pod, and loses none."""

from typing import Any

import pytest

from remesh.audit import record
from remesh.models import Outcome, RecordType, Result
from tests.workers import recreate_doubles as d
from tests.workers.doubles import FINDING, START
from tests.workers.test_recreate_alone import RAW
from workers.context import Step
from workers.repair import repair


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the process runs after it, except what a test lets run."""


def die_at(world: d.PodWorld, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a replacement whose process is gone from `step` on. Its lease has run out by the time anybody else comes."""

    def reached(now: Step) -> None:
        if now is step:
            raise Killed

    with monkeypatch.context() as patched:
        for module in ("recreate_attempt", "recreate_evict", "recreate_alone", "ending"):
            patched.setattr(f"workers.{module}.reached", reached)
        with pytest.raises(Killed):
            repair(d.a_request(), world.ctx)


STEPS = [Step.DECIDED, Step.INTENT_WRITTEN, Step.EVICTED, Step.VERIFIED, Step.OUTCOME_WRITTEN]


@pytest.mark.parametrize("attempt", [1, 2], ids=["redelivered", "released again"])
@pytest.mark.parametrize("step", STEPS)
def test_one_request_evicts_one_pod(monkeypatch: pytest.MonkeyPatch, step: Step, attempt: int) -> None:
    world = d.a_world(bare=2)
    die_at(world, step, monkeypatch)

    outcome = repair(d.a_request(attempt=attempt), world.another_worker())

    over = step is Step.OUTCOME_WRITTEN and attempt == 2
    assert outcome.result is (Result.OBSOLETE if over else Result.HEALED)
    assert world.cluster.evicted == ["uid-0"]
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) == [] or step is Step.OUTCOME_WRITTEN
    world.redis.close()


def test_a_dead_workers_replacement_is_not_mistaken_for_a_bare_sibling_of_the_same_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = d.a_world(bare=3)
    for pod in world.cluster.pods.values():
        pod.metadata.creation_timestamp = d.NEW
    die_at(world, Step.EVICTED, monkeypatch)

    outcome = repair(d.a_request(), world.another_worker())

    assert (outcome.result, outcome.bare) == (Result.HEALED, 0)
    world.redis.close()


def test_a_dead_workers_replacement_that_came_bare_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    world = d.a_world()
    world.cluster.obey = d.replaces(marked=False)
    die_at(world, Step.EVICTED, monkeypatch)

    outcome = repair(d.a_request(), world.another_worker())

    assert (outcome.result, outcome.code) == (Result.FAILED, "came_back_bare")
    assert world.ledger.attempts("uid-web", "t-1") == 1
    world.redis.close()


def test_a_slot_of_a_dead_worker_counts_until_its_eviction_was_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    world = d.a_world(bare=2)
    die_at(world, Step.EVICTED, monkeypatch)

    assert repair(d.a_request(1), world.another_worker()).code == "share_taken"
    assert repair(d.a_request(), world.another_worker()).result is Result.HEALED
    assert repair(d.a_request(1, attempt=2), world.another_worker()).result is Result.HEALED
    world.redis.close()


LONELY = [Step.DECIDED, Step.MANIFEST_KEPT, Step.INTENT_WRITTEN, Step.EVICTED, Step.CREATED, Step.VERIFIED]


@pytest.mark.parametrize("attempt", [1, 2], ids=["redelivered", "released again"])
@pytest.mark.parametrize("step", LONELY)
def test_a_pod_without_a_controller_is_never_lost(monkeypatch: pytest.MonkeyPatch, step: Step, attempt: int) -> None:
    world = d.PodWorld(d.FakePods(obey=d.vanishes, raw=dict(RAW)).add(d.a_pod(0)))
    world.use({"repair": {"bare_pods": True}})
    die_at(world, step, monkeypatch)

    outcome = repair(d.a_request(attempt=attempt), world.another_worker())

    assert outcome.result is Result.HEALED
    assert (world.cluster.evicted, len(world.cluster.created)) == (["uid-0"], 1)
    assert "web-0" in world.cluster.pods
    world.redis.close()


def test_a_watcher_that_saw_it_gone_meanwhile_does_not_end_the_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    world = d.PodWorld(d.FakePods(obey=d.vanishes, raw=dict(RAW)).add(d.a_pod(0)))
    world.use({"repair": {"bare_pods": True}})
    die_at(world, Step.EVICTED, monkeypatch)
    gone = Outcome(finding_id=FINDING, result=Result.OBSOLETE, code="gone", reason="the object is gone")
    details = gone.model_dump(mode="json")
    world.trail.append(record(RecordType.OUTCOME, cluster="test", at=START, finding_id=FINDING, details=details))

    assert repair(d.a_request(), world.another_worker()).result is Result.HEALED
    assert len(world.cluster.created) == 1
    world.redis.close()


def test_a_task_delivered_again_after_its_outcome_does_nothing() -> None:
    world = d.a_world()
    first = repair(d.a_request(), world.ctx)
    before: list[Any] = list(world.records(RecordType.ACTION))

    assert repair(d.a_request(), world.another_worker()) == first
    assert world.records(RecordType.ACTION) == before
    world.redis.close()
