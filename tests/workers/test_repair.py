"""What one repair does, by the state it leaves: the object, its pods, the trail and the ledger."""

from collections.abc import Iterator

import pytest

from remesh.audit import record_of_finding
from remesh.errors import ClusterUnreachable, Conflict, Forbidden, NotFound, Rejected
from remesh.kube.probe import ProbeResult
from remesh.models import RecordType, Result
from remesh.policy import Mode, Policy, RepairPolicy
from tests.redis.conftest import reserve
from tests.workers import doubles as d
from workers import context, nudge
from workers.repair import repair


@pytest.fixture
def world() -> Iterator[d.World]:
    """A ReplicaSet refused three pods by an injector that works again."""
    made = d.World(d.FakeCluster(d.a_replica_set(3)))
    yield made
    made.redis.close()


def test_a_stuck_replicaset_is_nudged_once_and_its_pods_come_with_the_sidecar(world: d.World) -> None:
    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.created, outcome.ready, outcome.acted) == (Result.HEALED, 3, 3, True)
    assert world.cluster.writes == [d.FINDING, None]
    assert world.types() == ["decision", "intent", "action", "action", "outcome"]
    assert [record.code for record in world.records(RecordType.ACTION)] == ["nudge_on", "nudge_off"]
    assert world.ledger.outcome(d.FINDING) == outcome


def test_every_record_of_a_chain_names_object_owner_actor_and_task(world: d.World) -> None:
    repair(d.a_request(actor="ada"), world.ctx, task_id="task-7")

    for record in world.trail.history(d.FINDING):
        assert record.ref is not None
        assert record.ref.name == "web-5d8"
        assert record.owner is not None
        assert (record.owner.name, record.actor, record.task_id, record.mesh) == ("web", "ada", "task-7", "linkerd")


def test_the_decision_says_that_a_dry_run_decides_now(world: d.World) -> None:
    repair(d.a_request(), world.ctx)

    (decision,) = world.records(RecordType.DECISION)
    assert (decision.action, decision.code) == ("nudge_owner", "dry_run_decides")
    assert decision.reason == "a dry run decides now; if it passes, it is to be nudged"


def test_the_intent_stands_in_the_trail_before_anything_is_written(world: d.World) -> None:
    seen: list[list[str]] = []

    def obey(cluster: d.FakeCluster) -> None:
        seen.append(world.types())
        cluster.create_missing()

    world.cluster.obey = obey

    repair(d.a_request(), world.ctx)

    assert seen[0] == ["decision", "intent"]


@pytest.mark.parametrize("refused", [RecordType.DECISION, RecordType.INTENT])
def test_a_trail_that_cannot_be_written_means_that_nothing_is_touched(world: d.World, refused: RecordType) -> None:
    world.trail.refuses = frozenset({refused})

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.ERROR, "trail_unavailable", False)
    assert world.cluster.writes == []


def test_the_annotation_is_taken_off_though_the_trail_breaks_after_it_was_put_on(world: d.World) -> None:
    world.trail.refuses = frozenset({RecordType.ACTION})

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ERROR, "trail_unavailable")
    assert world.cluster.writes == [d.FINDING, None]
    assert not world.cluster.annotated


def test_the_annotation_is_taken_off_though_its_writing_had_no_answer(world: d.World) -> None:
    world.cluster.errors = [ClusterUnreachable("no answer")]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ERROR, "cluster_unreachable")
    assert world.cluster.writes == [None]


def test_taking_the_annotation_off_is_tried_again(world: d.World) -> None:
    world.cluster.errors = [None, ClusterUnreachable("restarting"), ClusterUnreachable("restarting")]

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert not world.cluster.annotated


def test_an_annotation_that_cannot_be_taken_off_is_said_in_the_outcome(world: d.World) -> None:
    world.cluster.errors = [None, *[ClusterUnreachable("gone for good")] * 9]

    outcome = repair(d.a_request(), world.ctx)

    assert outcome.result is Result.HEALED
    assert "could not be removed" in outcome.reason
    assert [record.code for record in world.records(RecordType.ACTION)] == ["nudge_on", "nudge_left"]


def test_an_object_that_is_gone_or_replaced_is_obsolete(world: d.World) -> None:
    replaced = d.a_request(ref=d.a_request().ref.model_copy(update={"uid": "uid-former"}))
    gone = d.a_request(finding_id="f-00bb", ref=d.a_request().ref.model_copy(update={"name": "former"}))

    assert (repair(replaced, world.ctx).result, repair(gone, world.ctx).result) == (Result.OBSOLETE, Result.OBSOLETE)
    assert world.cluster.writes == []


def test_an_object_that_was_replaced_between_reading_and_writing_is_read_again(world: d.World) -> None:
    world.cluster.errors = [Conflict("another object has this name by now")]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ERROR, "changed_meanwhile")
    assert "outcome" not in world.types()


def test_a_healthy_object_is_left_alone(world: d.World) -> None:
    world.cluster.create_missing()

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.acted) == (Result.ALREADY_HEALTHY, False)
    assert world.cluster.writes == []


def test_an_annotation_left_on_a_healthy_object_is_removed(world: d.World) -> None:
    world.cluster.create_missing()
    world.cluster.found.metadata.annotations = {nudge.NUDGE_ANNOTATION: "f-0000", "kept": "yes"}

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.ALREADY_HEALTHY, "nudge_removed", True)
    assert world.cluster.found.metadata.annotations == {"kept": "yes"}
    assert world.types() == ["decision", "intent", "action", "outcome"]


def test_an_injector_that_fails_again_sends_the_finding_back_behind_the_gate(world: d.World) -> None:
    world.probe.answers = [d.REFUSES]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.WAITING, "webhook_connection_refused")
    assert world.types() == ["decision", "refusal", "outcome"]
    assert world.cluster.writes == []
    assert world.ledger.attempts("uid-web", "t-1") == 0


@pytest.mark.parametrize("answer", [d.DENIED, d.QUOTA], ids=lambda answer: answer.code)
def test_a_denial_and_a_quota_are_reported_and_not_waited_for(world: d.World, answer: ProbeResult) -> None:
    world.probe.answers = [answer]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, answer.code)
    assert world.cluster.writes == []


def test_a_webhook_that_refuses_dry_runs_gets_one_canary_if_its_endpoints_are_ready(world: d.World) -> None:
    world.probe.answers = [d.UNSUPPORTED]

    outcome = repair(d.a_request(), world.ctx)

    assert outcome.result is Result.HEALED
    assert "canary" in outcome.reason
    assert world.records(RecordType.INTENT)[0].details["dry_run"] == "dry_run_unsupported"


def test_a_webhook_that_refuses_dry_runs_is_waited_for_below_quorum(world: d.World) -> None:
    world.probe.answers = [d.UNSUPPORTED]
    world.cluster.ready_endpoints = 0

    assert repair(d.a_request(), world.ctx).result is Result.WAITING
    assert world.cluster.writes == []


def test_mode_observe_decides_and_touches_nothing(world: d.World) -> None:
    world.policy = Policy(mode=Mode.OBSERVE)
    world.cluster.found.metadata.annotations = {nudge.NUDGE_ANNOTATION: "f-0000"}

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "observe_mode")
    assert world.types() == ["decision", "refusal", "outcome"]
    assert world.cluster.writes == []


def test_a_protected_namespace_is_reported(world: d.World) -> None:
    world.policy = Policy.model_validate({"scope": {"protected_namespaces": ["shop"]}})

    assert repair(d.a_request(), world.ctx).code == "protected_namespace"
    assert world.cluster.writes == []


def test_an_object_held_by_another_worker_is_left_to_it(world: d.World) -> None:
    assert world.ledger.lease("uid-web", 60) is not None

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "held_elsewhere")
    assert world.types() == []


def test_the_lease_is_free_again_afterwards(world: d.World) -> None:
    repair(d.a_request(), world.ctx)

    assert world.ledger.lease("uid-web", 60) is not None


def test_a_cooling_owner_is_skipped_unless_a_person_asks(world: d.World) -> None:
    world.ledger.record_failure("uid-web", "t-1", "came back bare")

    assert repair(d.a_request(), world.ctx).code == "cooling_down"
    assert repair(d.a_request(attempt=2, on_demand=True), world.ctx).result is Result.HEALED
    assert world.ledger.attempts("uid-web", "t-1") == 0


def test_a_quarantined_owner_is_left_alone_even_if_a_person_asks(world: d.World) -> None:
    world.ledger.quarantine("uid-web", "t-1", {"reason": "came back bare three times"})

    outcome = repair(d.a_request(on_demand=True), world.ctx)

    assert (outcome.result, outcome.code) == (Result.QUARANTINED, "quarantined")
    assert "came back bare three times" in outcome.reason
    assert world.cluster.writes == []


def test_pods_that_come_back_bare_are_a_failure(world: d.World) -> None:
    world.cluster.obey = lambda cluster: cluster.create_missing(marked=False)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.bare) == (Result.FAILED, "came_back_bare", 3)
    assert world.ledger.attempts("uid-web", "t-1") == 1
    assert world.ledger.cooldown_left("uid-web", "t-1") > 0


def test_a_controller_that_does_nothing_is_a_failure(world: d.World) -> None:
    world.cluster.obey = lambda cluster: None

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.FAILED, "nothing_created")
    assert world.clock.passed >= world.policy.repair.verify_seconds
    assert not world.cluster.annotated


def test_the_last_failure_allowed_means_quarantine_with_its_evidence(world: d.World) -> None:
    world.cluster.obey = lambda cluster: None
    world.policy = Policy(repair=RepairPolicy(max_attempts=2, cooldown_seconds=0))

    results = [repair(d.a_request(attempt=number), world.ctx).result for number in (1, 2, 3)]

    assert results == [Result.FAILED, Result.QUARANTINED, Result.QUARANTINED]
    held = world.ledger.quarantined("uid-web", "t-1")
    assert held is not None
    assert held.evidence["code"] == "nothing_created"
    assert len(world.records(RecordType.INTENT)) == 2


def test_a_quarantine_from_under_another_webhook_configuration_ends(world: d.World) -> None:
    world.policy = Policy(repair=RepairPolicy(max_attempts=1, cooldown_seconds=0))
    world.ledger.record_failure("uid-web", "t-1", "nothing was created", cooldown_seconds=0)
    world.ledger.quarantine("uid-web", "t-1", {"reason": "nothing was created", "webhooks": "another one"})

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert [record.code for record in world.records(RecordType.NOTE)] == ["quarantine_ended"]
    assert world.ledger.quarantines() == []


def test_a_last_failure_whose_worker_died_before_the_quarantine_is_quarantined_now(world: d.World) -> None:
    world.policy = Policy(repair=RepairPolicy(max_attempts=1))
    world.ledger.record_failure("uid-web", "t-1", "nothing was created")

    assert repair(d.a_request(), world.ctx).result is Result.QUARANTINED
    held = world.ledger.quarantined("uid-web", "t-1")
    assert held is not None
    assert held.evidence["reason"] == "nothing was created"
    assert held.evidence["ref"]["uid"] == "uid-web"


def test_an_injector_that_dies_after_the_nudge_is_waited_for_and_not_counted(world: d.World) -> None:
    world.cluster.obey = lambda cluster: None
    world.probe.answers = [d.PASSES, d.REFUSES]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.WAITING, "webhook_connection_refused")
    assert world.clock.passed < world.policy.repair.verify_seconds
    assert world.ledger.attempts("uid-web", "t-1") == 0


def test_pods_that_are_injected_and_not_ready_in_time_count_as_injected(world: d.World) -> None:
    world.cluster.obey = lambda cluster: cluster.create_missing(ready=False)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.created, outcome.ready) == (Result.INJECTED, "not_ready_yet", 3, 0)


def test_older_bare_pods_do_not_count_against_the_repair(world: d.World) -> None:
    world.cluster.create_missing(marked=False, at_most=1)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.created, outcome.bare) == (Result.HEALED, 2, 0)


def test_a_webhook_that_refuses_the_nudge_itself_is_reported_or_waited_for(world: d.World) -> None:
    world.cluster.errors = [Rejected("refused", status=500, message=d.REFUSED)]
    assert repair(d.a_request(), world.ctx).result is Result.WAITING
    denial = 'admission webhook "policy.example" denied the request: no'
    world.cluster.errors = [Rejected("refused", status=403, message=denial)]
    assert repair(d.a_request(attempt=2), world.ctx).code == "nudge_refused"
    assert world.cluster.writes == []


def test_a_missing_right_ends_the_repair_with_its_name(world: d.World) -> None:
    world.cluster.errors = [Forbidden("a right is missing: cannot patch replicasets", status=403)]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ERROR, "not_allowed")
    assert world.types()[-1] == "outcome"


def test_an_object_deleted_while_its_pods_are_awaited_is_obsolete(world: d.World) -> None:
    def vanish(cluster: d.FakeCluster) -> None:
        cluster.read_errors = [NotFound("gone", status=404)] * 99

    world.cluster.obey = vanish

    assert repair(d.a_request(), world.ctx).result is Result.OBSOLETE


def test_an_api_server_that_is_away_for_a_while_is_waited_out_while_verifying(world: d.World) -> None:
    def restart(cluster: d.FakeCluster) -> None:
        cluster.read_errors = [ClusterUnreachable("restarting")] * 3
        cluster.create_missing()

    world.cluster.obey = restart

    assert repair(d.a_request(), world.ctx).result is Result.HEALED


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the process runs after it, except what a test lets run."""


def die_at(world: d.World, step: context.Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a repair whose process is gone from `step` on. Its lease has run out by the time anybody else comes."""

    def reached(now: context.Step) -> None:
        if now is step:
            raise Killed

    with monkeypatch.context() as patched:
        for module in ("workers.repair", "workers.nudge", "workers.ending"):
            patched.setattr(f"{module}.reached", reached)
        if step is context.Step.NUDGE_ON:
            patched.setattr(nudge.Nudge, "_take_off", lambda self: True)  # SIGKILL runs no `finally`
        with pytest.raises(Killed):
            repair(d.a_request(), world.ctx)


def test_a_worker_that_dies_before_the_nudge_leaves_one_nudge_to_the_next(
    world: d.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(world, context.Step.INTENT_WRITTEN, monkeypatch)
    assert world.cluster.writes == []

    outcome = repair(d.a_request(), world.ctx)

    assert outcome.result is Result.HEALED
    assert world.cluster.writes == [d.FINDING, None]
    assert world.types() == ["decision", "intent", "decision", "intent", "action", "action", "outcome"]


def test_a_worker_that_dies_with_the_annotation_on_leaves_it_to_the_next(
    world: d.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(world, context.Step.NUDGE_ON, monkeypatch)
    assert world.cluster.annotated

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.created) == (Result.HEALED, 3)
    assert world.cluster.writes == [d.FINDING, None], "taken off, and not nudged again"
    assert not world.cluster.annotated


def test_a_worker_that_dies_after_the_nudge_leaves_only_the_watching(
    world: d.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(world, context.Step.NUDGE_OFF, monkeypatch)

    outcome = repair(d.a_request(attempt=2), world.ctx)

    assert (outcome.result, outcome.acted) == (Result.HEALED, True)
    assert world.cluster.writes == [d.FINDING, None]


def test_a_task_delivered_again_after_its_outcome_returns_it_and_does_nothing(world: d.World) -> None:
    first = repair(d.a_request(), world.ctx)
    world.cluster.pods.clear()

    assert repair(d.a_request(), world.ctx) == first
    assert world.cluster.writes == [d.FINDING, None]


def test_a_finding_that_stands_in_the_trail_is_not_too_young(world: d.World) -> None:
    """Whoever wrote it watched the object for long enough; its own state does not say since when it lacks pods."""
    world.cluster.found = d.a_replica_set(3, message="")
    world.trail.append(record_of_finding(d.a_finding(), RecordType.FINDING, at=d.START))

    assert repair(d.a_request(), world.ctx).result is Result.HEALED


def test_the_window_learns_from_pods_that_came_and_its_room_is_given_back(world: d.World) -> None:
    key = "linkerd/linkerd-proxy-injector"
    reserve(world.ledger, key, d.FINDING, 3, 32, 60)

    repair(d.a_request(), world.ctx)

    assert world.ledger.in_flight(key) == 0
    assert world.ledger.window_size(key, world.policy.window) > world.policy.window.initial


def test_the_window_shrinks_when_the_injector_fails_again(world: d.World) -> None:
    world.probe.answers = [d.REFUSES]

    repair(d.a_request(), world.ctx)

    key = "linkerd/linkerd-proxy-injector"
    assert world.ledger.window_size(key, world.policy.window) < world.policy.window.initial


# What is not ours to clean up


@pytest.mark.parametrize("value", ["x", "f-", "yes please", "f-0000 ", "F-0000"])
def test_an_annotation_that_no_worker_has_set_is_left_where_it_is(world: d.World, value: str) -> None:
    world.cluster.found = d.a_replica_set(0, message="", annotations={nudge.NUDGE_ANNOTATION: value})

    repair(d.a_request(), world.ctx)

    assert world.cluster.writes == []
    assert world.cluster.annotated


@pytest.mark.parametrize("scope", [{"protected_namespaces": ("shop",)}, {"namespaces": ("other",)}])
def test_nothing_is_cleaned_up_in_a_namespace_that_is_not_to_be_touched(
    world: d.World, scope: dict[str, tuple[str, ...]]
) -> None:
    world.policy = Policy.model_validate({"scope": scope})
    world.cluster.found = d.a_replica_set(0, message="", annotations={nudge.NUDGE_ANNOTATION: "f-0000"})

    repair(d.a_request(), world.ctx)

    assert world.cluster.writes == []
    assert world.records(RecordType.INTENT) == []


def test_what_a_worker_left_on_an_object_that_is_healthy_by_now_is_cleaned_up(world: d.World) -> None:
    world.cluster.found = d.a_replica_set(0, message="", annotations={nudge.NUDGE_ANNOTATION: "f-0000"})

    repair(d.a_request(), world.ctx)

    assert world.cluster.writes == [None]


def test_an_outcome_names_the_account_that_its_failure_was_counted_by(world: d.World) -> None:
    world.policy = Policy(repair=RepairPolicy(max_attempts=1))
    world.cluster.obey = lambda cluster: cluster.create_missing(marked=False)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.account) == (Result.QUARANTINED, "uid-web:t-1")
