"""Short runs of the state machine, and that it catches what it is there for."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from remesh.kube.probe import ProbeResult
from remesh.ledger_brake import Braked, Brakes
from remesh.models import Probe
from remesh.policy import Policy
from remesh.testbed import Fault
from tests.machine.machine import Machine, given
from tests.machine.world import World
from watcher.release import Releaser
from workers import recreate_evict
from workers.nudge import Nudge
from workers.recreate_attempt import Attempt
from workers.recreate_evict import Eviction

EXAMPLES = 60
FAST: dict[str, Any] = {"cooldown_seconds": 10.0, "verify_seconds": 5.0, "release_deadline_seconds": 30.0}


def test_random_clusters_faults_and_times_violate_nothing() -> None:
    machine = seed(7)(type("Seeded", (Machine,), {}))
    run_state_machine_as_test(machine, settings=given(EXAMPLES, 20, shrink=False))


# That it can fail: each of these is a defect put into the product, and what the machine says of it.


@pytest.fixture
def world() -> Iterator[World]:
    """Four bare pods of one Deployment, two of a StatefulSet, a stuck ReplicaSet; the injector does not inject yet."""
    made = World(Policy.model_validate({"repair": FAST, "window": {"initial": 2, "maximum": 2}}), seed=1)
    made.break_injector("linkerd", Fault.NOT_INJECTING)
    made.create("Deployment", "shop", 4)
    made.create("StatefulSet", "shop", 2)
    made.create("Deployment", "shop", 2, "out")
    made.run(5.0)
    made.break_injector("linkerd", Fault.KILLED)
    made.create("ReplicaSet", "shop", 2)
    made.create("ReplicationController", "shop", 2)
    made.run(100.0)  # the controllers' next try is then a minute away
    yield made
    made.close()


def said(world: World) -> str:
    """What is violated while the injector works again."""
    world.faults_over()
    world.run(200.0)
    return "\n".join(world.judge.violations)


def said_in_the_end(world: World) -> str:
    """What is violated once all came to rest, or should have."""
    world.come_to_rest()
    return "\n".join(world.judge.violations)


def test_the_scene_itself_violates_nothing_and_everything_in_it_is_healed(world: World) -> None:
    assert said_in_the_end(world) == ""
    assert world.judge.found["evicted"] == 6
    assert world.judge.found["nudged"] == 2


def test_an_eviction_without_a_proof_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = ProbeResult(Probe.PASSES, 0.0, "sidecar_in_reply", "as if")
    monkeypatch.setattr(Eviction, "_proof", lambda _self: passes)
    assert "evicted without a dry run" in said(world)


def test_an_ignored_share_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watcher.release.share", lambda *_: 100)
    monkeypatch.setattr(recreate_evict, "share", lambda *_: 100)
    monkeypatch.setattr("workers.recreate_share.share", lambda *_: 100)
    monkeypatch.setattr(Brakes, "take", lambda *_: Braked("free", 0.0))
    monkeypatch.setattr(Brakes, "proven", lambda *_: True)
    monkeypatch.setattr("watcher.release.cost", lambda _: 0)
    assert "are away because of remesh" in said(world)


def test_an_action_without_its_intent_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "intend", lambda *_: None)
    assert "without an intent" in said(world)


def test_an_ignored_window_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watcher.release.cost", lambda _: 0)
    assert "pods are on their way" in said(world)


def test_a_nudge_that_stays_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.machine.world.QUIET_SECONDS", 900.0)
    monkeypatch.setattr(Nudge, "_take_off", lambda _self: True)
    assert "a nudge was left on" in said_in_the_end(world)


def test_a_task_that_is_never_released_again_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.machine.world.QUIET_SECONDS", 900.0)
    monkeypatch.setattr("watcher.findings.Book.expired", lambda *_: [])
    monkeypatch.setattr("watcher.findings.Book.next_expiry", lambda _self: None)
    world.faults_over()
    world.broker.next += ["lost"]
    world.run(30.0)
    assert "has no end" in said_in_the_end(world)


def test_a_release_in_mode_observe_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Releaser, "_observe_only", lambda *_: None)
    monkeypatch.setattr("watcher.release.Mode", type("Mode", (), {"OBSERVE": "never"}))
    world = World(Policy.model_validate({"mode": "observe", "repair": FAST}))
    try:
        world.break_injector("linkerd", Fault.KILLED)
        world.create("ReplicaSet", "shop", 2)
        world.run(100.0)
        assert "mode observe" in said(world)
    finally:
        world.close()
