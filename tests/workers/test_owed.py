"""What was taken away comes back, whatever is lost meanwhile; and nothing that was never there comes from Redis."""

import json
import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from remesh.errors import BrokerError, ClusterUnreachable, Forbidden, NotFound, TrailUnavailable
from remesh.ledger import Ledger
from remesh.models import AuditRecord, RecordType, RepairRequest, Result
from tests.cluster import workloads as w
from tests.stack import wait_until
from tests.workers import recreate_doubles as d
from tests.workers.conftest import Scene, on_every_bed
from tests.workers.test_recreate_alone import RAW
from tests.workers.test_recreate_worker import POLICY, all_ready, come_up_bare, failing_open, is_bare, request_for
from workers import owed
from workers.context import RepairContext
from workers.repair import repair
from workers.trust import signature
from workers.verdicts import RESTORE_RETRIES, retries_for

EVIL: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "shop"},
    "spec": {"hostPID": True, "containers": [{"name": "x", "image": "x", "securityContext": {"privileged": True}}]},
}


@pytest.fixture
def world() -> Iterator[d.PodWorld]:
    """One bare pod without a controller, and a policy that allows to recreate it."""
    cluster = d.FakePods(obey=d.lingers, raw=json.loads(json.dumps(RAW))).add(d.a_pod(0))
    made = d.PodWorld(cluster)
    made.use({"repair": {"bare_pods": True, "cooldown_seconds": 0}})
    yield made
    made.redis.close()


@pytest.fixture
def away(world: d.PodWorld) -> d.PodWorld:
    """The pod was evicted, and its containers stop only after the worker has ended its first try."""
    assert repair(d.a_request(), world.ctx).code == "restore_pending"
    assert world.ledger.owed.has("uid-0")
    del world.cluster.pods["web-0"]
    return world


# A lost task loses no pod


def test_a_sweep_brings_back_what_no_task_does(away: d.PodWorld) -> None:
    [outcome] = owed.sweep(away.another_worker())

    assert outcome.result is Result.HEALED
    assert len(away.cluster.created) == 1
    assert not away.ledger.owed.has("uid-0")
    assert owed.sweep(away.another_worker()) == []


def test_a_sweep_leaves_alone_what_a_task_is_at(away: d.PodWorld) -> None:
    assert away.ledger.lease("uid-0", 20) is not None

    assert owed.sweep(away.another_worker()) == []
    assert away.cluster.created == []
    assert away.ledger.owed.has("uid-0")


def test_a_sweep_touches_no_pod_whose_intent_was_never_written(world: d.PodWorld) -> None:
    world.ledger.owed.keep(d.a_request())

    assert owed.sweep(world.ctx) == []
    assert (world.cluster.evicted, world.ledger.owed.all()) == ([], [])


def test_a_sweep_gives_up_in_the_end_and_says_so_loudly(away: d.PodWorld, caplog: pytest.LogCaptureFixture) -> None:
    away.cluster.create_errors = [Forbidden("no right", status=403)] * 10**4
    caplog.set_level(logging.ERROR, logger="remesh")
    worker = away.another_worker()
    owed.sweep(worker)
    away.clock.passed += owed.GIVE_UP_SECONDS

    owed.sweep(worker)

    [said] = away.records(RecordType.OUTCOME)
    assert (said.code, said.details["result"]) == ("person_needed", "error")
    assert "a person is needed" in caplog.text
    assert away.ledger.owed.all() == []


def test_a_clock_that_jumps_ahead_does_not_end_the_tries(away: d.PodWorld) -> None:
    away.cluster.create_errors = [Forbidden("no right", status=403)] * 10**4
    worker = away.another_worker()
    owed.sweep(worker)
    away.clock.ahead += 24 * 3600

    owed.sweep(worker)

    assert away.records(RecordType.OUTCOME) == []
    assert away.ledger.owed.all() != []


def test_an_unreadable_entry_keeps_no_other_one_from_being_looked_after(away: d.PodWorld) -> None:
    key = "remesh:{test}:owed"
    other = d.a_request(5, cluster="another").model_dump_json()
    away.redis.hset(key, mapping={"x": "{", "y": d.a_request(7).model_dump_json(), "uid-5": other})

    assert [each.result for each in owed.sweep(away.another_worker())] == [Result.HEALED]


def test_nothing_is_owed_once_it_is_back_or_was_never_taken(world: d.PodWorld) -> None:
    world.cluster.obey = d.vanishes
    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert world.ledger.owed.all() == []

    refused = d.PodWorld(d.FakePods(obey=d.vanishes, raw=world.cluster.raw).add(d.a_pod(0)))
    refused.use({"repair": {"bare_pods": True}})
    refused.cluster.evict_errors = [NotFound("gone", status=404)]
    assert repair(d.a_request(), refused.ctx).result is Result.OBSOLETE
    assert refused.ledger.owed.all() == []


# An outage after the eviction


def fail(error: Exception) -> Any:
    def down(*_: Any, **__: Any) -> Any:
        raise error

    return down


@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("cluster", "pod", ClusterUnreachable("down")),
        ("cluster", "pod", Forbidden("a right is missing", status=403)),
        ("trail", "history", TrailUnavailable("down")),
        ("trail", "append", TrailUnavailable("down")),
        ("ledger", "lease", BrokerError("down")),
    ],
)
def test_an_outage_after_the_eviction_is_waited_out_for_long(
    away: d.PodWorld, monkeypatch: pytest.MonkeyPatch, part: str, name: str, error: Exception
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(getattr(away, part), name, fail(error))
        outcome = repair(d.a_request(), away.another_worker())

    assert retries_for(outcome) == RESTORE_RETRIES
    assert away.ledger.owed.has("uid-0")
    assert repair(d.a_request(), away.another_worker()).result is Result.HEALED
    assert len(away.cluster.created) == 1


def test_it_is_created_again_though_the_trail_is_down(away: d.PodWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away.trail, "append", fail(TrailUnavailable("down")))

    repair(d.a_request(), away.another_worker())

    assert len(away.cluster.created) == 1


def test_a_profile_that_is_not_known_any_longer_loses_no_pod(away: d.PodWorld) -> None:
    [intent] = away.records(RecordType.INTENT)
    told = {**intent.details, "sidecars": ["forgotten"]}
    _tell(away, intent.model_copy(update={"details": told, "record_id": "later"}))

    assert repair(d.a_request(), away.another_worker()).result is Result.HEALED


# What Redis says is not believed


def _tell(world: d.PodWorld, record: AuditRecord) -> None:
    world.trail.append(record)


def forge(world: d.PodWorld, request: RepairRequest, manifest: dict[str, Any], key: bytes = b"") -> None:
    """What somebody can write who can write to Redis; with `key`, who has the workers' key, too."""
    digest = world.ledger.keep_manifest(request.ref.uid, manifest)
    told = {"digest": digest, "signature": signature(key, request, digest, manifest)}
    record = AuditRecord(
        record_id="forged",
        type=RecordType.INTENT,
        at=request.requested_at,
        cluster="test",
        finding_id=request.finding_id,
        ref=request.ref,
        actor="worker",
        code="recreate",
        details={"attempt": 1, "sidecars": ["linkerd"], "manifest": told},
    )
    _tell(world, record)


NEVER_THERE = d.a_request(ref=d.a_request().ref.model_copy(update={"uid": "no-such-uid"}))


@pytest.mark.parametrize("key", [b"", b"another key, not ours"])
def test_a_forged_manifest_creates_nothing(world: d.PodWorld, key: bytes) -> None:
    world.cluster.pods.clear()
    forge(world, NEVER_THERE, EVIL, key)
    world.ledger.owed.keep(NEVER_THERE)

    outcome = repair(NEVER_THERE, world.ctx)
    owed.sweep(world.ctx)

    assert (outcome.result, outcome.code) == (Result.FAILED, "person_needed")
    assert world.cluster.created == []


def test_without_a_key_only_the_worker_that_evicted_it_creates_it_again(world: d.PodWorld) -> None:
    world.ctx = replace(world.ctx, signing_key=b"")
    repair(d.a_request(), world.ctx)
    del world.cluster.pods["web-0"]

    other = repair(d.a_request(), world.another_worker())
    assert (other.code, world.cluster.created) == ("restore_pending", [])
    assert "REMESH_SIGNING_KEY" in other.reason

    assert repair(d.a_request(), world.ctx).result is Result.HEALED


def elsewhere(manifest: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], **meta}}


@pytest.mark.parametrize(
    ("policy", "manifest"),
    [
        ({"mode": "observe", "repair": {"bare_pods": True}}, EVIL),
        ({}, EVIL),
        ({"repair": {"bare_pods": True}, "scope": {"protected_namespaces": ["shop"]}}, EVIL),
        ({"repair": {"bare_pods": True}, "scope": {"namespaces": ["other"]}}, EVIL),
        ({"repair": {"bare_pods": True}}, elsewhere(EVIL, namespace="kube-system")),
        ({"repair": {"bare_pods": True}}, elsewhere(EVIL, name="other")),
        ({"repair": {"bare_pods": True}}, {**EVIL, "kind": "Secret"}),
        ({"repair": {"bare_pods": True}}, {**EVIL, "metadata": "x"}),
    ],
)
def test_even_a_signed_manifest_is_created_only_where_the_policy_allows_it(
    world: d.PodWorld, policy: dict[str, Any], manifest: dict[str, Any]
) -> None:
    world.use(policy)
    world.cluster.pods.clear()
    forge(world, NEVER_THERE, manifest, world.ctx.signing_key)

    outcome = repair(NEVER_THERE, world.ctx)

    assert (outcome.result, outcome.code) == (Result.FAILED, "person_needed")
    assert world.cluster.created == []


def test_a_signature_is_good_for_one_object_and_one_manifest(away: d.PodWorld) -> None:
    """Another manifest under the old intent, with a digest that fits."""
    [intent] = away.records(RecordType.INTENT)
    digest = Ledger(away.redis, "test").keep_manifest("uid-0", EVIL)
    told = {**intent.details, "manifest": {**intent.details["manifest"], "digest": digest}}
    _tell(away, intent.model_copy(update={"details": told, "record_id": "later"}))

    assert repair(d.a_request(), away.another_worker()).code == "person_needed"
    assert away.cluster.created == []


def test_the_key_is_in_no_text(world: d.PodWorld) -> None:
    ctx: RepairContext = world.ctx
    assert "a key of all workers" not in repr(ctx)


# On clusters


@on_every_bed
@pytest.mark.timeout(200)
def test_a_pod_comes_back_though_its_task_is_lost_with_the_worker_that_evicted_it(scene: Scene) -> None:
    scene.stack.policy(POLICY + "bare_pods = true\n")
    with failing_open(scene):
        [bare] = come_up_bare(scene, w.pod("lonely"), 1)
        request = request_for(scene, bare)
        doomed = scene.stack.start_worker(REMESH_CRASH_AT="evicted")
        scene.send(request)
        wait_until(lambda: doomed.popen.poll() == -signal.SIGKILL, "the worker killed itself", 60)
        scene.expire_lease(request.ref)
        lose_every_task(scene)

        scene.stack.start_worker()

        assert scene.outcome(request).result in (Result.HEALED, Result.INJECTED)
        [after] = all_ready(scene, "lonely", 1)
    assert not is_bare(scene, after)
    assert wait_until(lambda: scene.stack.ledger.owed.all() == [], "nothing is owed any more")


def lose_every_task(scene: Scene) -> None:
    keys = [key for key in scene.stack.connection.scan_iter() if ":celery:" in key]
    assert any("unacked" in key for key in keys)
    scene.stack.connection.delete(*keys)
