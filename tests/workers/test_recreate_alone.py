"""Pods that nobody else would create again: what is kept, what comes back, and what of them nobody sees."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from remesh.errors import ClusterUnreachable, Conflict, Forbidden, Rejected, Throttled
from remesh.models import RecordType, Result
from remesh.objects import Container
from tests.workers import recreate_doubles as d
from tests.workers.doubles import REFUSED
from workers.repair import repair
from workers.verdicts import RESTORE_RETRIES, leaves_for_another_try, retries_for

SECRET = "hunter2-hunter2"
RAW: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "uid-0",
        "resourceVersion": "7",
        "labels": {"app": "web"},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {}}],
    },
    "spec": {
        "containers": [{"name": "app", "image": "app", "env": [{"name": "PASSWORD", "value": SECRET}]}],
        "nodeName": "node-1",
    },
    "status": {"phase": "Running"},
}


@pytest.fixture
def world() -> Iterator[d.PodWorld]:
    """One bare pod without a controller, and a policy that allows to recreate it."""
    cluster = d.FakePods(obey=d.vanishes, raw=json.loads(json.dumps(RAW))).add(d.a_pod(0))
    made = d.PodWorld(cluster)
    made.use({"repair": {"bare_pods": True, "cooldown_seconds": 0}})
    yield made
    made.redis.close()


def test_it_is_left_alone_unless_the_policy_allows_it(world: d.PodWorld) -> None:
    world.use({})

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "no_controller")
    assert world.cluster.evicted == []
    assert world.ledger.manifest("uid-0") is None


def test_it_is_evicted_and_created_again_with_its_sidecar(world: d.PodWorld) -> None:
    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.created, outcome.ready, outcome.acted) == (Result.HEALED, 1, 1, True)
    assert (world.cluster.evicted, world.cluster.versions) == (["uid-0"], ["7"])
    [manifest] = world.cluster.created
    assert manifest["metadata"] == {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}}
    assert manifest["spec"] == {"containers": RAW["spec"]["containers"]}
    assert world.types() == ["decision", "intent", "action", "action", "outcome"]
    assert [record.code for record in world.records(RecordType.ACTION)] == ["evicted", "created"]


def test_the_dry_run_is_made_of_the_very_manifest(world: d.PodWorld) -> None:
    repair(d.a_request(), world.ctx)

    [(ref, user, template)] = world.cluster.tried
    assert (ref.name, user, template) == ("web-0", "", world.cluster.created[0])


def test_its_manifest_is_kept_before_it_is_evicted_and_the_intent_names_it_by_digest(world: d.PodWorld) -> None:
    kept: list[Any] = []

    def obey(cluster: d.FakePods, gone: Any) -> None:
        kept.append(world.ledger.manifest("uid-0"))
        d.vanishes(cluster, gone)

    world.cluster.obey = obey
    repair(d.a_request(), world.ctx)

    [(manifest, digest)] = kept
    assert manifest["spec"]["containers"] == RAW["spec"]["containers"]
    told = world.records(RecordType.INTENT)[0].details["manifest"]
    assert {**told, "signature": ""} == {"digest": digest, "kept_days": 30, "sensitive": True, "signature": ""}
    assert told["signature"]


def everything_seen(world: d.PodWorld, outcome: Any, caplog: pytest.LogCaptureFixture) -> str:
    """Trail, ledger without the manifest, outcome and log, as one text."""
    keys = [key for key in world.redis.scan_iter() if ":manifest:" not in key]
    values = [world.redis.dump(key) for key in keys]
    records = [record.model_dump_json() for record in world.trail.read()]
    pairs = [str(getattr(record, "pairs", "")) + record.getMessage() for record in caplog.records]
    return "\n".join([*records, *map(str, values), outcome.model_dump_json(), *pairs])


@pytest.mark.parametrize("at", ["nowhere", "proof", "eviction", "creation"])
def test_no_value_of_its_environment_is_seen_whatever_goes_wrong(
    world: d.PodWorld, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="remesh")
    quoting = Rejected(f"refused: {SECRET}", status=403, message=f'admission webhook "guard.example" denied: {SECRET}')
    if at == "proof":
        world.cluster.answers = [d.refused(quoting)]
    if at == "eviction":
        world.cluster.evict_errors = [quoting]
    if at == "creation":
        world.cluster.create_errors = [quoting] * 99

    outcome = repair(d.a_request(), world.ctx)

    seen = everything_seen(world, outcome, caplog)
    assert "web-0" in seen
    assert SECRET not in seen
    assert ("withheld" in outcome.reason) is (at != "nowhere")


def test_nothing_is_evicted_unless_the_manifest_comes_back_injected(world: d.PodWorld) -> None:
    world.cluster.answers = [d.INJECTS_NOT]

    assert repair(d.a_request(), world.ctx).result is Result.WAITING
    assert world.cluster.evicted == []
    assert world.ledger.manifest("uid-0") is None


def test_a_pod_with_finalizers_is_reported_and_holds_up_nobody(world: d.PodWorld) -> None:
    """Evicted, it would keep its name until somebody else removes them, and nothing could be created."""
    world.cluster.raw["metadata"]["finalizers"] = ["example.com/hold"]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "has_finalizers")
    assert (world.cluster.evicted, world.ledger.manifest("uid-0")) == ([], None)
    assert world.ledger.brakes.take("linkerd/linkerd-proxy-injector", "another", 60).free


def test_a_pod_that_one_injector_has_changed_already_is_not_recreated(world: d.PodWorld) -> None:
    """Its manifest would carry the first sidecar as if a person had written it."""
    world.view.found += d.hooks("vault")
    world.cluster.pods["web-0"].spec.containers = [Container("app"), Container("linkerd-proxy")]
    world.cluster.pods["web-0"].metadata.annotations = d.VAULT_ASKS

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "partly_injected")
    assert world.cluster.evicted == []


def test_a_pod_that_changed_since_its_manifest_was_read_is_read_again(world: d.PodWorld) -> None:
    world.cluster.evict_errors = [Conflict("the ResourceVersion in the precondition does not match", status=409)]

    outcome = repair(d.a_request(), world.ctx)
    assert (outcome.code, outcome.acted) == ("changed_meanwhile", False)
    assert leaves_for_another_try(outcome)

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert world.cluster.evicted == ["uid-0"]


def test_a_budget_in_its_way_is_respected(world: d.PodWorld) -> None:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    world.cluster.evict_errors = [Throttled("come back", message=message)]

    assert repair(d.a_request(), world.ctx).code == "blocked_by_pdb"
    assert "web-0" in world.cluster.pods


def test_its_name_is_waited_for_while_the_old_one_stops(world: d.PodWorld) -> None:
    world.cluster.obey = d.lingers
    reads: list[int] = []

    class Slow(d.FakePods):
        def pod(self, namespace: str, name: str) -> Any:
            reads.append(1)
            if len(reads) > 5:
                self.pods.pop(name, None) if name in self.pods and self.pods[name].metadata.uid == "uid-0" else None
            return super().pod(namespace, name)

    world.cluster.__class__ = Slow

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert len(world.cluster.created) == 1


@pytest.mark.parametrize(
    "error",
    [
        ClusterUnreachable("restarting"),
        Rejected("refused", status=500, message=REFUSED),
        Rejected("refused", status=403, message='pods "web-0" is forbidden: exceeded quota: few'),
        Forbidden("a right is missing", status=403),
    ],
)
def test_its_creation_is_tried_until_it_is_back(world: d.PodWorld, error: Exception) -> None:
    world.cluster.create_errors = [error] * 7

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert len(world.cluster.created) == 1


def test_if_it_does_not_come_back_in_time_a_person_is_told_and_the_next_try_goes_on(world: d.PodWorld) -> None:
    world.cluster.create_errors = [Rejected("quota", status=403, message="exceeded quota")] * 999

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.ERROR, "restore_pending", True)
    assert leaves_for_another_try(outcome)
    assert retries_for(outcome) == RESTORE_RETRIES
    [note] = world.records(RecordType.NOTE)
    kept = world.ledger.manifest("uid-0")
    assert kept is not None
    assert "a person has to create it" in note.reason
    assert kept[1] in note.reason

    world.cluster.create_errors.clear()
    assert repair(d.a_request(), world.another_worker()).result is Result.HEALED
    assert (world.cluster.evicted, len(world.cluster.created)) == (["uid-0"], 1)


def test_a_trail_that_breaks_after_the_eviction_does_not_end_the_restoring(world: d.PodWorld) -> None:
    world.trail.refuses = frozenset({RecordType.ACTION})

    outcome = repair(d.a_request(), world.ctx)
    assert (outcome.result, outcome.code) == (Result.ERROR, "restore_pending")
    assert retries_for(outcome) == RESTORE_RETRIES
    assert len(world.cluster.created) == 1

    world.trail.refuses = frozenset()
    assert repair(d.a_request(), world.another_worker()).result is Result.HEALED
    assert world.cluster.evicted == ["uid-0"]


def test_a_later_attempt_goes_on_where_the_last_one_gave_up(world: d.PodWorld) -> None:
    from workers.repair import give_up

    world.cluster.create_errors = [Rejected("quota", status=403, message="exceeded quota")] * 999
    outcome = repair(d.a_request(), world.ctx)
    give_up(d.a_request(), world.ctx, outcome)
    world.cluster.create_errors.clear()
    [said] = world.records(RecordType.OUTCOME)
    assert (said.code, "a person has to" in said.reason) == ("person_needed", True)
    assert not world.ledger.owed.has("uid-0")

    assert repair(d.a_request(attempt=2), world.another_worker()).result is Result.HEALED
    assert len(world.cluster.created) == 1


def test_an_eviction_without_an_answer_is_looked_after_too(world: d.PodWorld) -> None:
    """It may have been done, and then nobody but remesh brings the pod back."""

    class Deaf(d.FakePods):
        def evict(self, ref: Any, *, resource_version: str = "") -> None:
            super().evict(ref, resource_version=resource_version)
            raise ClusterUnreachable("no answer")

    world.cluster.__class__ = Deaf

    outcome = repair(d.a_request(), world.ctx)
    assert outcome.code == "restore_pending"
    assert repair(d.a_request(), world.another_worker()).result is Result.HEALED


def test_a_namespace_deleted_meanwhile_ends_it(world: d.PodWorld) -> None:
    message = 'pods "web-0" is forbidden: unable to create new content in namespace shop because it is being terminated'
    world.cluster.create_errors = [Rejected("refused", status=403, message=message)]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.OBSOLETE, "namespace_terminating")


def test_a_manifest_that_is_lost_is_said_to_be_lost(world: d.PodWorld) -> None:
    world.cluster.create_errors = [Rejected("quota", status=403, message="exceeded quota")] * 999
    repair(d.a_request(), world.ctx)
    world.redis.delete("remesh:{test}:manifest:uid-0")

    outcome = repair(d.a_request(), world.another_worker())

    assert (outcome.result, outcome.code) == (Result.FAILED, "manifest_lost")
    assert "a person has to create it again" in outcome.reason


def test_a_pod_that_comes_back_bare_again_and_again_is_quarantined_by_its_name(world: d.PodWorld) -> None:
    """Each time it has another UID, and so another finding."""
    world.use({"repair": {"bare_pods": True, "cooldown_seconds": 0, "max_attempts": 2}})
    world.cluster.injects = False
    results = []
    for number in range(3):
        pod = world.cluster.pods["web-0"]
        world.cluster.raw["metadata"]["uid"] = pod.metadata.uid
        ref = d.a_request().ref.model_copy(update={"uid": pod.metadata.uid})
        outcome = repair(d.a_request(ref=ref, finding_id=f"f-0{number}"), world.ctx)
        results.append(outcome.result)

    assert results == [Result.FAILED, Result.QUARANTINED, Result.QUARANTINED]
    assert len(world.cluster.evicted) == 2
    [held] = world.ledger.quarantines()
    assert held.uid == "pod:shop:web-0"
    assert outcome.account == f"{held.uid}:{held.template_hash}"  # also of one that was only found in quarantine


def test_a_pod_that_somebody_created_meanwhile_is_only_verified(world: d.PodWorld) -> None:
    def somebody(cluster: d.FakePods, gone: Any) -> None:
        d.vanishes(cluster, gone)
        cluster.add(d.a_pod(9, marked=True, at=d.NEW, name="web-0"))

    world.cluster.obey = somebody

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert world.cluster.created == []
