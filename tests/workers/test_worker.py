"""Real workers, started as the compose file starts them, against a cluster and a Redis: what they leave behind."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from remesh.embedded import EmbeddedRedis
from remesh.models import ObjectRef, RecordType, Result
from remesh.queue import BACKGROUND, TASK_NUDGE, make_app
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.client import NUDGE
from tests.cluster import workloads as w
from tests.stack import wait_until
from tests.workers.conftest import Scene, on_every_bed, open_scene, reference

pytestmark = pytest.mark.timeout(240)


@on_every_bed
def test_every_kind_of_owner_is_nudged_and_nothing_is_left_behind(scene: Scene) -> None:
    bodies: list[dict[str, Any]] = [
        w.replica_set("web", 3),
        w.replication_controller("old", 2),
        w.stateful_set("db", 2),
        w.daemon_set("agent"),
        w.job("report", 2),
    ]
    refs = scene.stuck(*bodies)
    scene.stack.start_worker()
    scene.heal_in_back_off()

    requests = [scene.request(ref) for ref in refs]
    for request in requests:
        scene.send(request)

    outcomes = {request.ref.kind: scene.outcome(request) for request in requests}
    assert {kind: outcome.result for kind, outcome in outcomes.items()} == dict.fromkeys(outcomes, Result.HEALED)
    for request in requests:
        assert scene.types(request) == ["decision", "intent", "action", "action", "outcome"], request.ref.kind
    nodes = 3
    scene.client.wait_healed(scene.namespace, scene.bed.wear.sidecar, 3 + 2 + 2 + nodes + 2)
    assert scene.client.nudge_annotations(scene.namespace) == []


@on_every_bed
def test_a_worker_killed_between_intent_and_action_leaves_one_nudge_in_effect(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 2))
    doomed = scene.stack.start_worker(REMESH_CRASH_AT="intent_written")
    scene.heal_in_back_off()
    request = scene.request(ref)
    scene.send(request)
    wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
    assert scene.types(request) == ["decision", "intent"]
    scene.expire_lease(ref)

    scene.stack.start_worker()
    scene.expire_visibility()

    assert scene.outcome(request).result in (Result.HEALED, Result.ALREADY_HEALTHY)
    assert scene.codes(request, RecordType.ACTION).count("nudge_on") <= 1
    scene.client.wait_healed(scene.namespace, scene.bed.wear.sidecar, 2)
    assert scene.client.nudge_annotations(scene.namespace) == []


@on_every_bed
def test_a_worker_killed_with_the_annotation_on_leaves_it_to_the_next_one(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 2))
    doomed = scene.stack.start_worker(REMESH_CRASH_AT="nudge_on")
    scene.heal_in_back_off()
    request = scene.request(ref)
    scene.send(request)
    wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
    assert scene.client.nudge_annotations(scene.namespace) == ["ReplicaSet/web"]
    scene.client.wait_healed(scene.namespace, scene.bed.wear.sidecar, 2)

    again = scene.request(ref, attempt=2)  # as the watcher does after the deadline
    scene.expire_lease(ref)
    scene.stack.start_worker()
    scene.send(again)

    assert scene.outcome(again).result is Result.HEALED
    assert scene.client.nudge_annotations(scene.namespace) == []
    assert "nudge_on" not in scene.codes(again, RecordType.ACTION), "it was not nudged again"


def deny(scene: Scene) -> None:
    scene.bed.inject_fault(Fault.DENYING)


def exhaust_quota(scene: Scene) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    place = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.client.api.post(place, quota)
    wait_until(lambda: scene.client.api.get(f"{place}/few").get("status", {}).get("used"), "the quota is counted")


@on_every_bed
@pytest.mark.parametrize(
    ("refuse", "code"), [(deny, "webhook_denied"), (exhaust_quota, "quota_exceeded")], ids=["denial", "quota"]
)
def test_what_would_be_refused_again_is_reported_and_not_nudged(
    scene: Scene, refuse: Callable[[Scene], None], code: str
) -> None:
    [ref] = scene.stuck(w.replica_set("web", 1))
    scene.stack.start_worker()
    scene.bed.heal()
    refuse(scene)
    request = scene.request(ref)

    scene.send(request)

    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code, outcome.acted) == (Result.REPORTED, code, False)
    assert "intent" not in scene.types(request)
    assert scene.types(request)[-2:] == ["refusal", "outcome"]


def test_an_injector_that_still_fails_sends_the_finding_back_behind_the_gate(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 1))
    scene.stack.start_worker()
    request = scene.request(ref)

    scene.send(request)

    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code) == (Result.WAITING, "webhook_connection_refused")
    assert "intent" not in scene.types(request)


def test_a_full_redis_means_that_nothing_is_touched_until_it_has_room_again(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 2))
    with EmbeddedRedis(scene.stack.folder / "broker") as broker:
        scene.stack.settings_extra["REMESH_BROKER_URL"] = broker.url
        settings = scene.stack.settings.model_copy(update={"broker_url": SecretStr(broker.url)})
        with make_app(settings, consumes=False) as scene.app:
            worker = scene.stack.start_worker()
            scene.stack.connection.config_set("maxmemory", "1")
            scene.heal_in_back_off()
            before = scene.client.get("ReplicaSet", scene.namespace, "web")["metadata"]["resourceVersion"]
            request = scene.request(ref)
            scene.send(request)
            worker.wait_for("trying again")
            assert scene.types(request) == []
            after = scene.client.get("ReplicaSet", scene.namespace, "web")["metadata"]["resourceVersion"]
            assert after == before

            scene.stack.connection.config_set("maxmemory", "0")

            assert scene.outcome(request).result is Result.HEALED
            worker.terminate()


def test_a_task_revoked_before_it_starts_does_nothing(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 1))
    worker = scene.stack.start_worker()
    request = scene.request(ref)
    scene.app.control.revoke(request.task_id)
    worker.wait_for("flagged as revoked")
    scene.bed.heal()

    scene.send(request)

    worker.wait_for("Discarding revoked task")
    other = scene.request(ref, finding_id="f-02")
    scene.send(other)
    scene.outcome(other)
    assert scene.types(request) == ["outcome"]
    assert (scene.outcome(request).code, scene.outcome(request).acted) == ("revoked", False)


def test_two_copies_of_a_task_make_one_nudge_and_one_outcome(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 2))
    scene.stack.start_worker()
    scene.heal_in_back_off()
    request = scene.request(ref)

    for _ in range(4):
        scene.send(request)

    assert scene.outcome(request).result is Result.HEALED
    wait_until(lambda: unacknowledged(scene) == 0, "all copies have ended")
    assert scene.types(request) == ["decision", "intent", "action", "action", "outcome"]


def unacknowledged(scene: Scene) -> int:
    prefix = f"{scene.stack.settings.key_prefix}{{{scene.stack.settings.cluster}}}:celery:"
    return int(scene.stack.connection.zcard(prefix + "unacked_index"))


def test_a_malformed_task_is_refused_in_the_trail_and_the_worker_goes_on(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 1))
    worker = scene.stack.start_worker()
    scene.bed.heal()
    for bad in ({"version": 99}, "rm -rf", {"finding_id": "f-0a", "ref": None}):
        scene.app.send_task(TASK_NUDGE, args=[bad], queue=BACKGROUND)
    scene.app.send_task(TASK_NUDGE, args=[], queue=BACKGROUND)

    def refused() -> bool:
        return len(scene.stack.records(types=[RecordType.REFUSAL])) >= 3

    wait_until(refused, "three refusals in the trail")
    assert {record.code for record in scene.stack.records(types=[RecordType.REFUSAL])} == {"malformed"}
    request = scene.request(ref)
    scene.send(request)
    assert scene.outcome(request).result in (Result.HEALED, Result.ALREADY_HEALTHY)
    assert worker.popen.poll() is None


def test_redis_restarted_under_a_running_repair_costs_neither_worker_nor_outcome(scene: Scene) -> None:
    [slow] = scene.stuck(w.replica_set("slow", 1, annotations=w.NEVER_READY))
    scene.stack.policy("[repair]\nverify_seconds = 8.0\n")
    worker = scene.stack.start_worker()
    scene.heal_in_back_off()
    request = scene.request(slow)
    scene.send(request)
    wait_until(lambda: "action" in scene.types(request), "the repair is under way")

    scene.stack.redis.kill()
    scene.stack.redis.start()

    assert scene.outcome(request).result is Result.INJECTED
    other = scene.request(slow, finding_id="f-02")
    scene.send(other)
    assert scene.outcome(other).result is Result.ALREADY_HEALTHY
    assert worker.popen.poll() is None


def test_a_worker_asked_to_end_finishes_the_repair_under_way(scene: Scene) -> None:
    [slow] = scene.stuck(w.replica_set("slow", 1, annotations=w.NEVER_READY))
    scene.stack.policy("[repair]\nverify_seconds = 6.0\n")
    worker = scene.stack.start_worker()
    scene.heal_in_back_off()
    request = scene.request(slow)
    scene.send(request)
    wait_until(lambda: "action" in scene.types(request), "the repair is under way")

    worker.terminate()

    assert worker.popen.returncode == 0
    assert scene.types(request)[-1] == "outcome"
    assert scene.client.nudge_annotations(scene.namespace) == []


def test_on_demand_repairs_are_served_beside_the_background(scene: Scene) -> None:
    refs = scene.stuck(w.replica_set("web", 1), w.replica_set("asked", 1))
    scene.stack.start_worker()
    scene.bed.heal()
    background, asked = scene.request(refs[0]), scene.request(refs[1], on_demand=True, actor="ada")

    scene.send(background)
    scene.send(asked)

    for request in (background, asked):
        assert scene.outcome(request).result in (Result.HEALED, Result.ALREADY_HEALTHY)
    assert {record.actor for record in scene.stack.trail.history(asked.finding_id)} == {"ada"}


@on_every_bed
def test_an_annotation_left_on_a_healthy_object_is_removed(scene: Scene) -> None:
    body = w.replica_set("web", 1)
    body["metadata"]["annotations"] = {NUDGE: "f-0000", "kept": "yes"}
    ref = reference(body, scene.client.create(scene.namespace, body), scene.namespace)
    scene.client.wait_healed(scene.namespace, scene.bed.wear.sidecar, 1)
    scene.stack.start_worker()
    request = scene.request(ref)

    scene.send(request)

    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code, outcome.acted) == (Result.ALREADY_HEALTHY, "nudge_removed", True)
    assert scene.types(request) == ["decision", "intent", "action", "outcome"]
    assert scene.client.get("ReplicaSet", scene.namespace, "web")["metadata"]["annotations"] == {"kept": "yes"}


def test_mode_observe_touches_nothing(scene: Scene) -> None:
    [ref] = scene.stuck(w.replica_set("web", 1))
    scene.stack.policy('mode = "observe"\n')
    scene.stack.start_worker()
    before = scene.client.get("ReplicaSet", scene.namespace, "web")["metadata"]["resourceVersion"]
    request = scene.request(ref)

    scene.send(request)

    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code, outcome.acted) == (Result.REPORTED, "observe_mode", False)
    assert scene.client.get("ReplicaSet", scene.namespace, "web")["metadata"]["resourceVersion"] == before


def test_a_webhook_that_refuses_dry_runs_gets_a_canary(tmp_path: Path) -> None:
    with (
        SimCluster.start(InjectorWear(timeout_seconds=2, side_effects="Some")) as bed,
        open_scene(bed, tmp_path) as scene,
    ):
        [ref] = scene.stuck(w.replica_set("web", 2))
        scene.stack.start_worker()
        scene.heal_in_back_off()
        request = scene.request(ref)

        scene.send(request)

        outcome = scene.outcome(request)
        assert outcome.result is Result.HEALED
        assert "canary" in outcome.reason


def test_an_object_that_is_gone_is_obsolete(scene: Scene) -> None:
    scene.stack.start_worker()
    ref = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace=scene.namespace, name="never", uid="uid-1")
    request = scene.request(ref)

    scene.send(request)

    assert scene.outcome(request).result is Result.OBSOLETE
