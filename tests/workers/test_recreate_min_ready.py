"""A replacement counts once it was Ready for minReadySeconds; and an owner may allow none to be missing."""

from typing import Any

import pytest

from remesh.models import Result
from remesh.objects import PodCondition, RollingUpdate, UpdateStrategy
from remesh.policy import RepairPolicy
from tests.workers import recreate_doubles as d
from tests.workers.doubles import StillClock
from workers.recreate_attempt import came_back
from workers.recreate_share import room
from workers.recreate_verify import Seen, Sight, wait
from workers.repair import repair
from workers.verdicts import Verdict

NOT_READY = [PodCondition(type="Ready", status="False")]


def a_patient_world(min_ready: int) -> d.PodWorld:
    world = d.a_world(desired=8, bare=8)
    world.cluster.main.spec.min_ready_seconds = min_ready
    world.cluster.main.status.available_replicas = 8
    return world


def test_it_is_healed_only_after_that_time() -> None:
    world = a_patient_world(15)
    outcome = repair(d.a_request(), world.ctx)
    assert (outcome.result, world.clock.passed >= 15) == (Result.HEALED, True)
    world.redis.close()


def test_while_it_waits_its_share_is_taken() -> None:
    world = a_patient_world(15)
    codes: list[str] = []
    sleep = world.clock.sleep

    def meanwhile(seconds: float) -> None:
        sleep(seconds)
        if len(codes) < 8:
            world.ledger.brakes.tell("linkerd/linkerd-proxy-injector", "earlier", good=True, shut_seconds=60)
            codes.append("")  # before, because the repair below sleeps as well
            codes[-1] = repair(d.a_request(len(codes)), world.another_worker()).code

    world.clock.sleep = meanwhile  # type: ignore[method-assign]
    repair(d.a_request(), world.ctx)

    assert len(world.cluster.evicted) <= 2
    assert "share_taken" in codes
    world.redis.close()


def test_longer_than_the_verification_it_keeps_its_slot() -> None:
    world = a_patient_world(600)
    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.INJECTED, "not_available_yet")
    assert came_back(outcome, was_ready=True) is True
    assert world.ledger.take_slot("uid-web", "another", 1, 60) is None
    assert world.ledger.take_slot("uid-web", "another", 2, 60) == ["uid-0"]
    world.redis.close()


@pytest.mark.parametrize(("policy", "evicted"), [({}, False), ({"repair": {"share": 0.1}}, True)])
def test_an_owner_that_allows_none_to_be_missing_loses_none_unless_the_policy_says_so(
    policy: dict[str, Any], evicted: bool
) -> None:
    world = d.a_world()
    world.use(policy)
    above = world.cluster.above
    assert above is not None
    above.spec.strategy = UpdateStrategy("RollingUpdate", RollingUpdate(max_unavailable=0))

    outcome = repair(d.a_request(), world.ctx)

    assert bool(world.cluster.evicted) is evicted
    assert outcome.code == ("healed" if evicted else "none_to_spare")
    world.redis.close()


def test_whoever_falters_begins_anew() -> None:
    clock, new = StillClock(), d.a_pod(1, marked=True)
    ready = new.status.conditions

    def look() -> Seen:
        new.status.conditions = NOT_READY if 8 < clock.passed < 12 else ready
        return Seen(new, marked=True)

    def no_doubt() -> Verdict | None:
        return None

    assert wait(Sight(look, no_doubt, lambda _: None, clock), "linkerd", 60, 10).result is Result.HEALED
    assert clock.passed >= 22


@pytest.mark.parametrize(("min_ready", "available", "away"), [(15, 6, 2), (15, 8, 0), (None, 6, 0)])
def test_pods_that_their_owner_does_not_count_yet_are_away(min_ready: int | None, available: int, away: int) -> None:
    owner = d.an_owner(desired=8)
    owner.spec.min_ready_seconds, owner.status.available_replicas = min_ready, available
    pods = [d.a_pod(number, owner=owner) for number in range(8)]
    found = room(owner, None, RepairPolicy(), pods, pods[0], earlier=[], marked=lambda _: False)
    assert found.away == away
