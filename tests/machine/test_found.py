"""What the state machine has found, each as a test of its own."""

import pytest

from remesh.models import RecordType
from remesh.policy import Policy
from remesh.testbed import Fault
from tests.machine.world import World
from workers.context import Step

POLICY = Policy.model_validate({"repair": {"cooldown_seconds": 10.0, "verify_seconds": 5.0}})


@pytest.mark.parametrize("commands", range(8))
def test_a_finding_whose_watcher_died_at_first_sight_gets_an_end_although_its_object_is_gone(commands: int) -> None:
    world = World(POLICY)
    try:
        world.break_injector("linkerd", Fault.KILLED)
        world.create("DaemonSet", "shop", 3)
        world.run(14.0)  # not yet long enough without pods to be a finding
        assert world.watcher is not None
        world.watcher.faults.dies_in = commands
        first = world.watcher
        while not first.dead and world.clock.passed < 40.0:
            world.run(0.5)
        assert first.dead
        for owner in world.owners("DaemonSet"):
            world.delete(*owner)
        world.come_to_rest()
        assert world.judge.violations == []
    finally:
        world.close()


def test_an_intent_whose_workers_died_gets_an_end_although_nothing_is_to_be_repaired_any_more() -> None:
    world = World(POLICY)
    try:
        world.break_injector("linkerd", Fault.NOT_INJECTING)
        world.create("ReplicaSet", "shop", 3)
        world.run(5.0)
        for worker in world.workers:
            worker.die_at = Step.INTENT_WRITTEN.value
        world.heal_injector("linkerd")
        while not any(each.type is RecordType.INTENT for each in world.judge.records):
            world.run(0.1)
        world.broker.messages.clear()
        world.cluster.configure("linkerd", anew=True, failurePolicy="Fail")  # its pods are older than that
        world.restart_watcher()
        world.come_to_rest()
        assert world.judge.violations == []
    finally:
        world.close()
