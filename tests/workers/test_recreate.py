"""What replacing one bare pod with a controller does, by the state that it leaves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remesh.errors import ClusterUnreachable, Conflict, Forbidden, NotFound, Rejected, Throttled
from remesh.models import ObjectRef, RecordType, Result
from remesh.objects import Container, LabelSelector, OwnerReference, Pod, PodTemplate, Workload
from tests.redis.conftest import reserve
from tests.workers import recreate_doubles as d
from tests.workers.doubles import FINDING, REFUSED
from workers.repair import repair
from workers.verdicts import leaves_for_another_try


@pytest.fixture
def world() -> Iterator[d.PodWorld]:
    """Four pods of a Deployment's ReplicaSet; one came up bare, and the injector works again."""
    made = d.a_world()
    yield made
    made.redis.close()


def test_a_bare_pod_is_evicted_once_and_replaced_with_its_sidecar(world: d.PodWorld) -> None:
    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.created, outcome.ready, outcome.acted) == (Result.HEALED, 1, 1, True)
    assert world.cluster.evicted == ["uid-0"]
    assert world.types() == ["decision", "intent", "action", "outcome"]
    assert world.ledger.outcome(FINDING) == outcome


def test_the_records_name_pod_owner_actor_task_and_proof(world: d.PodWorld) -> None:
    repair(d.a_request(actor="ada"), world.ctx, task_id="task-7")

    for record in world.trail.history(FINDING):
        assert record.ref is not None
        assert record.owner is not None
        assert (record.ref.name, record.owner.kind, record.owner.name) == ("web-0", "ReplicaSet", "web")
        assert (record.actor, record.task_id, record.action) == ("ada", "task-7", record.action)
    details = world.records(RecordType.INTENT)[0].details
    assert (details["pod"], details["uid"], details["owner"]) == ("web-0", "uid-0", "ReplicaSet/web")
    assert (details["sidecars"], details["dry_run"], details["share"]) == (["linkerd"], "sidecar_in_reply", 1)


def test_every_record_names_the_deployment_above_the_pods_replica_set(world: d.PodWorld) -> None:
    repair(d.a_request(), world.ctx)

    assert len(world.types()) == 4
    assert {record.above.kind for record in world.trail.history(FINDING) if record.above} == {"Deployment"}
    assert all(record.above for record in world.trail.history(FINDING))


def test_decision_and_intent_say_that_and_how_the_dry_run_decided(world: d.PodWorld) -> None:
    repair(d.a_request(), world.ctx)

    (decision,) = world.records(RecordType.DECISION)
    assert (decision.action, decision.code) == ("recreate_pod", "dry_run_decides")
    assert decision.reason == "a dry run decides now; if it passes, it is to be evicted"
    (intent,) = world.records(RecordType.INTENT)
    assert "sidecar" in intent.reason.split(":")[0]
    assert intent.reason.endswith(": evict it, so that ReplicaSet/web puts a pod with its sidecar in its place")


def test_the_intent_stands_in_the_trail_before_the_eviction(world: d.PodWorld) -> None:
    seen: list[list[str]] = []

    def obey(cluster: d.FakePods, gone: Any) -> None:
        seen.append(world.types())
        d.replaces()(cluster, gone)

    world.cluster.obey = obey
    repair(d.a_request(), world.ctx)

    assert seen == [["decision", "intent"]]


@pytest.mark.parametrize("broken", [RecordType.DECISION, RecordType.INTENT])
def test_a_trail_that_cannot_be_written_means_that_nothing_is_evicted(world: d.PodWorld, broken: RecordType) -> None:
    world.trail.refuses = frozenset({broken})

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.ERROR, "trail_unavailable", False)
    assert world.cluster.evicted == []


# Not this pod


def test_an_injected_pod_is_left_alone(world: d.PodWorld) -> None:
    outcome = repair(d.a_request(3), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ALREADY_HEALTHY, "injected")
    assert world.cluster.evicted == []


def test_a_pod_that_is_gone_going_or_replaced_is_obsolete(world: d.PodWorld) -> None:
    world.cluster.pods["web-0"].metadata.deletion_timestamp = d.NEW
    other = d.a_request(1, ref=d.a_request(1).ref.model_copy(update={"uid": "uid-former"}))

    outcomes = [repair(each, world.ctx) for each in (d.a_request(), other, d.a_request(77))]

    assert [outcome.code for outcome in outcomes] == ["being_deleted", "replaced", "gone"]
    assert {outcome.result for outcome in outcomes} == {Result.OBSOLETE}
    assert world.cluster.evicted == []


def change_pod(world: d.PodWorld, **meta: Any) -> None:
    for key, value in meta.items():
        setattr(world.cluster.pods["web-0"].metadata, key, value)


def on_the_host(world: d.PodWorld) -> None:
    world.cluster.pods["web-0"].spec.host_network = True


def finish(world: d.PodWorld) -> None:
    world.cluster.pods["web-0"].status.phase = "Succeeded"


NEVER: list[tuple[str, Callable[[d.PodWorld], None]]] = [
    ("never_injected", on_the_host),  # Linkerd's injector leaves such pods alone
    ("finished", finish),
    ("mirror_pod", lambda world: change_pod(world, annotations={"kubernetes.io/config.mirror": "x"})),
    ("opted_out", lambda world: change_pod(world, annotations={"linkerd.io/inject": "disabled"})),
    ("not_expected", lambda world: world.view.annotations.clear()),
    ("not_expected", lambda world: world.view.found.clear()),  # no live webhook would see it
    ("protected_namespace", lambda world: world.use({"scope": {"protected_namespaces": ["shop"]}})),
    ("out_of_scope", lambda world: world.use({"scope": {"namespaces": ["other"]}})),
    ("no_controller", lambda world: change_pod(world, owner_references=None)),
]


@pytest.mark.parametrize(("code", "prepare"), NEVER, ids=[f"{number}-{code}" for number, (code, _) in enumerate(NEVER)])
def test_what_is_not_to_be_touched_is_reported_with_its_code(
    world: d.PodWorld, code: str, prepare: Callable[[d.PodWorld], None]
) -> None:
    prepare(world)

    outcome = repair(d.a_request(), world.ctx)

    expected = {"never_injected": ("never_injected", "host_network")}.get(code, (code,))
    assert outcome.result is Result.REPORTED
    assert outcome.code in expected
    assert outcome.reason
    assert world.types() == ["decision", "refusal", "outcome"]
    assert (world.cluster.evicted, world.cluster.tried) == ([], [])


def test_an_injectors_own_pod_is_never_evicted_though_another_mesh_would_inject_it(world: d.PodWorld) -> None:
    world.view.found += d.hooks("vault")
    change_pod(
        world,
        namespace="linkerd",
        labels={"linkerd.io/control-plane-component": "proxy-injector"},
        annotations=d.VAULT_ASKS,
    )

    outcome = repair(d.a_request(ref=d.a_request().ref.model_copy(update={"namespace": "linkerd"})), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "injector_itself")
    assert world.cluster.evicted == []


def test_pods_of_jobs_are_evicted_only_where_the_policy_allows_it() -> None:
    world = d.a_world("Job")
    assert repair(d.a_request(), world.ctx).code == "job_pod"

    world.use({"repair": {"job_pods": True}})
    assert repair(d.a_request(attempt=2), world.ctx).result is Result.HEALED
    world.redis.close()


def test_the_records_of_a_jobs_pod_name_the_cron_job_above_it() -> None:
    world = d.a_world("Job")
    cron = OwnerReference(kind="CronJob", name="nightly", uid="uid-c", api_version="batch/v1", controller=True)
    world.cluster.main.metadata.owner_references = [cron]
    world.use({"repair": {"job_pods": True}})

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    history = world.trail.history(FINDING)
    above = ObjectRef(api_version="batch/v1", kind="CronJob", namespace="shop", name="nightly")
    assert world.trail.history(above) == history
    assert {record.owner.kind for record in history if record.owner} == {"Job"}
    world.redis.close()


def test_only_pods_are_recreated(world: d.PodWorld) -> None:
    ref = d.a_request().ref.model_copy(update={"kind": "ReplicaSet"})

    assert repair(d.a_request(ref=ref), world.ctx).code == "bad_request"
    assert world.cluster.evicted == []


# Owners


def test_an_owner_that_is_gone_means_that_nothing_is_evicted(world: d.PodWorld) -> None:
    world.cluster.main.metadata.uid = "uid-another"

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "owner_gone")
    assert "nobody would put another pod in its place" in outcome.reason
    assert world.cluster.evicted == []


def refer_to(world: d.PodWorld, kind: str, api_version: str) -> None:
    owner = world.cluster.main
    owner.kind, owner.api_version = kind, api_version
    reference = OwnerReference(kind, "web", owner.metadata.uid, api_version, controller=True)
    for pod in world.cluster.pods.values():
        pod.metadata.owner_references = [reference]


@pytest.mark.parametrize(("kind", "version"), [("Deployment", "apps/v1"), ("CronJob", "batch/v1"), ("Service", "v1")])
@pytest.mark.parametrize("bare_pods", [True, False])
def test_a_pod_that_refers_to_a_kind_which_creates_none_is_left_alone(
    world: d.PodWorld, kind: str, version: str, bare_pods: bool
) -> None:
    world.use({"repair": {"bare_pods": bare_pods, "custom_owners": True}})
    refer_to(world, kind, version)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "no_controller")
    assert world.cluster.evicted == []


@pytest.mark.parametrize("selector", [None, LabelSelector(match_labels={"app": "another"})])
def test_a_pod_that_its_owner_does_not_select_is_left_alone(world: d.PodWorld, selector: LabelSelector | None) -> None:
    world.cluster.main.spec.selector = selector

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "not_its_owner")
    assert world.cluster.evicted == []


def test_a_pod_of_a_custom_kind_needs_the_policys_word_and_a_sibling() -> None:
    world = d.a_world("CloneSet", desired=1)
    world.cluster.main.spec.selector = None  # it may have none that is known here

    assert repair(d.a_request(), world.ctx).code == "custom_owner"
    world.use({"repair": {"custom_owners": True}})
    assert repair(d.a_request(attempt=2), world.ctx).code == "custom_owner_unproven"
    assert world.cluster.evicted == []

    world.cluster.add(d.a_pod(1, marked=True, owner=world.cluster.main))
    world.clock.sleep(1.0)  # a list of its owner's pods is believed for less
    assert repair(d.a_request(attempt=3), world.ctx).result is Result.HEALED
    world.redis.close()


def test_an_owners_pods_are_listed_once_for_those_that_go_in_the_same_moment(
    world: d.PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.use({"repair": {"share": 1.0}})
    world.cluster.add(d.a_pod(1, owner=world.cluster.main))
    listed: list[str] = []
    pods_of = world.cluster.pods_of

    def noted(workload: Workload) -> list[Pod]:
        listed.append(workload.metadata.name)
        return pods_of(workload)

    monkeypatch.setattr(world.cluster, "pods_of", noted)

    assert [repair(d.a_request(number), world.ctx).result for number in (0, 1)] == [Result.HEALED] * 2
    assert len(listed) == 3  # before both, after the first, after the second


def test_an_owner_without_a_template_proves_nothing(world: d.PodWorld) -> None:
    world.cluster.main.spec.template = None

    assert repair(d.a_request(), world.ctx).code == "no_template"
    assert world.cluster.evicted == []


def old_revision(world: d.PodWorld) -> None:
    key = "deployment.kubernetes.io/revision"
    world.cluster.main.metadata.annotations = {key: "3"}
    assert world.cluster.above is not None
    world.cluster.above.metadata.annotations = {key: "4"}


def pause(world: d.PodWorld) -> None:
    assert world.cluster.above is not None
    world.cluster.above.spec.paused = True


def unseen_change(world: d.PodWorld) -> None:
    world.cluster.main.metadata.generation = 2


def scale_down(world: d.PodWorld) -> None:
    world.cluster.main.status.replicas = 9


def lose_deployment(world: d.PodWorld) -> None:
    world.cluster.above = None


@pytest.mark.parametrize("disturb", [old_revision, pause, unseen_change, scale_down, lose_deployment])
def test_an_owner_at_work_is_left_until_it_settles(world: d.PodWorld, disturb: Callable[[d.PodWorld], None]) -> None:
    disturb(world)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "owner_unsettled")
    assert outcome.reason
    assert world.cluster.evicted == []


def test_a_rollout_that_somebody_holds_back_is_not_done_by_evicting() -> None:
    ordered, daemons = d.a_world("StatefulSet"), d.a_world("DaemonSet")
    assert ordered.cluster.main.spec.update_strategy is not None
    ordered.cluster.main.spec.update_strategy.type = "OnDelete"
    ordered.cluster.main.status.update_revision = "web-2"
    change_pod(ordered, labels={"app": "web", "controller-revision-hash": "web-1"})
    assert daemons.cluster.main.spec.update_strategy is not None
    daemons.cluster.main.spec.update_strategy.type = "OnDelete"
    daemons.cluster.main.status.updated_number_scheduled = 2

    for world in (ordered, daemons):
        assert repair(d.a_request(), world.ctx).code == "owner_unsettled"
        assert world.cluster.evicted == []
        world.redis.close()


# Quarantine, cooldown, mode


def test_a_quarantined_owner_is_left_alone(world: d.PodWorld) -> None:
    world.ledger.quarantine("uid-web", "t-1", {"reason": "came back bare three times"})

    outcome = repair(d.a_request(on_demand=True), world.ctx)

    assert (outcome.result, outcome.code) == (Result.QUARANTINED, "quarantined")
    assert "came back bare three times" in outcome.reason
    assert world.cluster.evicted == []


def test_another_webhook_configuration_ends_a_quarantine(world: d.PodWorld) -> None:
    world.use({"repair": {"max_attempts": 1, "cooldown_seconds": 0}})
    world.cluster.obey = d.replaces(marked=False)
    assert repair(d.a_request(), world.ctx).result is Result.QUARANTINED
    world.cluster.obey = d.replaces()
    world.cluster.add(d.a_pod(8, owner=world.cluster.main))
    assert repair(d.a_request(8), world.ctx).code == "quarantined"

    world.view.found = d.hooks("linkerd")
    world.view.found[0] = (world.view.found[0][0], type(world.view.found[0][1])(**fields(world.view.found[0][1])))
    world.view.found[0][1].timeout_seconds = 7

    assert repair(d.a_request(8, attempt=2, on_demand=True), world.ctx).result is Result.HEALED
    assert [record.code for record in world.records(RecordType.NOTE)] == ["quarantine_ended"]
    assert world.ledger.quarantined("uid-web", "t-1") is None


def fields(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__struct_fields__}


def test_a_cooling_owner_is_skipped_unless_a_person_asks(world: d.PodWorld) -> None:
    world.ledger.record_failure("uid-web", "t-1", "came back bare")

    assert repair(d.a_request(), world.ctx).code == "cooling_down"
    assert repair(d.a_request(attempt=2, on_demand=True), world.ctx).result is Result.HEALED
    assert world.ledger.attempts("uid-web", "t-1") == 0


def test_mode_observe_touches_nothing(world: d.PodWorld) -> None:
    world.use({"mode": "observe"})

    assert repair(d.a_request(), world.ctx).code == "observe_mode"
    assert (world.cluster.evicted, world.cluster.tried) == ([], [])


# Share and order


def test_a_pod_waits_while_its_owners_share_is_taken(world: d.PodWorld) -> None:
    assert world.ledger.take_slot("uid-web", "uid-other", 1, 60) == []

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "share_taken")
    assert world.cluster.evicted == []


@pytest.mark.parametrize("how", ["not ready", "going", "missing"])
def test_pods_that_are_away_use_up_the_share(world: d.PodWorld, how: str) -> None:
    other = world.cluster.pods["web-3"]
    if how == "not ready":
        world.cluster.add(d.a_pod(3, owner=world.cluster.main, marked=True, ready=False))
    elif how == "going":
        other.metadata.deletion_timestamp = d.NEW
    else:
        del world.cluster.pods["web-3"]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.SKIPPED, "share_taken")
    assert world.cluster.evicted == []
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) == [], "its slot was given back"


def test_bare_pods_that_are_not_ready_do_not_keep_each_other_from_being_repaired() -> None:
    world = d.a_world(bare=0)
    for number in range(4):
        world.cluster.add(d.a_pod(number, owner=world.cluster.main, ready=False))

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    world.redis.close()


def test_the_share_is_full_while_a_replacement_is_not_ready(world: d.PodWorld) -> None:
    world.cluster.add(d.a_pod(1, owner=world.cluster.main))
    world.cluster.obey = d.replaces(ready=False)
    assert repair(d.a_request(), world.ctx).result is Result.INJECTED

    assert repair(d.a_request(1), world.ctx).code == "share_taken"
    assert world.cluster.evicted == ["uid-0"]


def test_the_policys_share_goes_before_the_owners(world: d.PodWorld) -> None:
    world.use({"repair": {"share": 0.5}})
    world.ledger.take_slot("uid-web", "uid-other", 2, 60)

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert world.records(RecordType.INTENT)[0].details["share"] == 2


def test_a_daemonset_gives_up_as_many_as_its_rolling_update_allows() -> None:
    world = d.a_world("DaemonSet", desired=12, bare=2)
    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    world.ledger.take_slot("uid-web", "uid-other", 1, 60)

    assert repair(d.a_request(1), world.ctx).code == "share_taken"
    world.redis.close()


def test_a_statefulset_is_repaired_from_the_highest_ordinal_down() -> None:
    world = d.a_world("StatefulSet", bare=3)
    world.cluster.obey = d.replaces_by_name()

    first = repair(d.a_request(0), world.ctx)
    assert (first.result, first.code) == (Result.SKIPPED, "not_its_turn")
    assert "web-2" in first.reason
    for number in (2, 1, 0):
        assert repair(d.a_request(number, attempt=2), world.ctx).result is Result.HEALED
    assert world.cluster.evicted == ["uid-2", "uid-1", "uid-0"]
    world.redis.close()


def test_a_pod_that_is_not_to_be_repaired_holds_no_turn() -> None:
    world = d.a_world("StatefulSet", bare=1)
    world.cluster.obey = d.replaces_by_name()
    world.cluster.add(d.a_pod(3, owner=world.cluster.main, annotations={"linkerd.io/inject": "disabled"}))

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    world.redis.close()


# Proof


def test_an_injector_that_answers_without_injecting_costs_no_pod(world: d.PodWorld) -> None:
    world.cluster.answers = [d.INJECTS_NOT]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.WAITING, "no_sidecar", False)
    assert world.types() == ["decision", "refusal", "outcome"]
    assert world.cluster.evicted == []
    assert world.ledger.attempts("uid-web", "t-1") == 0


UNSUPPORTED = 'admission webhook "linkerd-proxy-injector.linkerd.io" does not support dry run'
DENIED = 'admission webhook "linkerd-proxy-injector.linkerd.io" denied the request: no'


@pytest.mark.parametrize(
    ("answer", "result", "code"),
    [
        (d.answered("app", "linkerd-proxy", seconds=2.5), Result.WAITING, "too_slow"),
        (d.refused(Rejected("refused", status=500, message=REFUSED)), Result.WAITING, "webhook_connection_refused"),
        (d.refused(Rejected("refused", status=403, message=DENIED)), Result.REPORTED, "webhook_denied"),
        (d.refused(Rejected("refused", status=400, message=UNSUPPORTED)), Result.REPORTED, "dry_run_unsupported"),
        (d.refused(ClusterUnreachable("no connection")), Result.ERROR, "cluster_unreachable"),
        (d.refused(NotFound("gone", status=404)), Result.REPORTED, "owner_gone"),
        (d.refused(Forbidden("no right to create pods", status=403)), Result.ERROR, "not_allowed"),
    ],
)
def test_nothing_is_evicted_on_less_than_a_proof(world: d.PodWorld, answer: Any, result: Result, code: str) -> None:
    world.cluster.answers = [answer]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (result, code)
    assert world.cluster.evicted == []
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) == []


def test_each_expected_sidecar_has_to_be_in_the_reply(world: d.PodWorld) -> None:
    world.view.found += d.hooks("vault")
    world.cluster.add(d.a_pod(0, owner=world.cluster.main, marked=True, annotations=d.VAULT_ASKS))
    world.cluster.answers = [d.answered("app", annotations=d.VAULT_MARK), d.answered("app", "linkerd-proxy")]

    assert repair(d.a_request(), world.ctx).code == "no_sidecar", "Vault's would come, and Linkerd's be lost"
    world.clock.sleep(10)
    assert repair(d.a_request(attempt=2), world.ctx).code == "no_sidecar"
    assert world.cluster.evicted == []

    world.clock.sleep(10)
    world.cluster.answers = [d.answered("app", "linkerd-proxy", annotations=d.VAULT_MARK)]
    world.cluster.obey = d.replaces(annotations={**d.VAULT_ASKS, **d.VAULT_MARK})
    outcome = repair(d.a_request(attempt=3), world.ctx)
    assert outcome.result is Result.HEALED
    assert world.records(RecordType.INTENT)[0].details["sidecars"] == ["linkerd", "vault"]


def test_pods_of_one_owner_share_a_proof_for_a_moment(world: d.PodWorld) -> None:
    world.use({"repair": {"share": 1.0}})
    for number in (0, 1, 2):
        world.cluster.add(d.a_pod(number, owner=world.cluster.main))
        assert repair(d.a_request(number), world.ctx).result is Result.HEALED
    assert len(world.cluster.tried) == 1

    world.clock.sleep(2.1)
    world.cluster.add(d.a_pod(3, owner=world.cluster.main))
    assert repair(d.a_request(3), world.ctx).result is Result.HEALED
    assert len(world.cluster.tried) == 2


def test_a_proof_is_not_believed_under_another_configuration_or_template(world: d.PodWorld) -> None:
    world.use({"repair": {"share": 1.0}})
    for number, change in enumerate(
        (lambda: None, lambda: world.view.found.extend(d.hooks("istio")), retemplate(world))
    ):
        change()
        world.clock.sleep(0.6)  # an owner that was read is good for half a second
        world.cluster.add(d.a_pod(number, owner=world.cluster.main))
        assert repair(d.a_request(number), world.ctx).result is Result.HEALED
    assert len(world.cluster.tried) == 3


def retemplate(world: d.PodWorld) -> Callable[[], None]:
    def change() -> None:
        world.cluster.main.template_hash = "t-2"
        world.cluster.main.spec.template = PodTemplate()

    return change


def test_the_dry_run_is_made_in_the_controllers_name_only_where_the_policy_says_so(world: d.PodWorld) -> None:
    repair(d.a_request(), world.ctx)
    world.use({"repair": {"impersonate_controller": True}})
    world.cluster.add(d.a_pod(1, owner=world.cluster.main))
    world.clock.sleep(10)
    repair(d.a_request(1), world.ctx)

    assert [(str(ref), user) for ref, user, _ in world.cluster.tried] == [
        ("ReplicaSet/web -n shop", ""),
        ("ReplicaSet/web -n shop", "system:serviceaccount:kube-system:replicaset-controller"),
    ]


# Eviction


def budget(*said: str) -> Throttled:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return Throttled("come back", message=message, budgets=said)


def test_a_budget_in_the_way_is_named(world: d.PodWorld) -> None:
    world.cluster.evict_errors = [budget("The disruption budget steady needs 4 healthy pods and has 4 currently")]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.SKIPPED, "blocked_by_pdb", False)
    assert "PodDisruptionBudget/steady" in outcome.reason
    assert "needs 4 healthy pods" in outcome.reason
    assert world.types() == ["decision", "intent", "refusal", "outcome"]
    size = world.ledger.window_size("linkerd/linkerd-proxy-injector", world.policy.window)
    assert size == world.policy.window.initial, "a budget says nothing of the injector"
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) == []


def test_a_budget_that_the_answer_does_not_name_is_found_by_its_selector(world: d.PodWorld) -> None:
    world.cluster.budgets = ["steady"]
    world.cluster.evict_errors = [budget()]

    assert "PodDisruptionBudget/steady" in repair(d.a_request(), world.ctx).reason


def test_a_pod_of_several_budgets_is_reported(world: d.PodWorld) -> None:
    message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    world.cluster.budgets = ["one", "two"]
    world.cluster.evict_errors = [Rejected("refused", status=500, message=message)]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.REPORTED, "several_pdbs")
    assert "PodDisruptionBudget/one, PodDisruptionBudget/two" in outcome.reason


@pytest.mark.parametrize(
    ("error", "result", "code"),
    [
        (Throttled("busy", message="too many requests"), Result.ERROR, "cluster_unreachable"),
        (Conflict("another UID", status=409), Result.ERROR, "changed_meanwhile"),
        (NotFound("gone", status=404), Result.OBSOLETE, "gone"),
        (Forbidden("no right to evict", status=403), Result.ERROR, "not_allowed"),
        (Rejected("refused", status=403, message='admission webhook "guard.example" denied the request: no'),
         Result.REPORTED, "eviction_refused"),
        (Rejected("refused", status=500, message=REFUSED), Result.WAITING, "webhook_connection_refused"),
    ],
)  # fmt: skip
def test_an_eviction_that_fails_ends_with_what_it_means(
    world: d.PodWorld, error: Exception, result: Result, code: str
) -> None:
    world.cluster.evict_errors = [error]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (result, code)
    assert world.cluster.evicted == []
    assert world.ledger.attempts("uid-web", "t-1") == 0


# What came of it


def test_a_replacement_that_comes_back_bare_counts_against_owner_and_template(world: d.PodWorld) -> None:
    world.cluster.obey = d.replaces(marked=False)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.bare) == (Result.FAILED, "came_back_bare", 1)
    assert world.ledger.attempts("uid-web", "t-1") == 1
    assert world.ledger.attempts("uid-0", "t-1") == 0
    assert world.ledger.cooldown_left("uid-web", "t-1") > 0


def test_a_replacement_that_comes_back_bare_from_a_dead_injector_is_the_injectors_doing(world: d.PodWorld) -> None:
    world.cluster.obey = d.replaces(marked=False)
    world.cluster.answers = [d.INJECTS, d.INJECTS_NOT]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.WAITING, "no_sidecar", True)
    assert world.ledger.attempts("uid-web", "t-1") == 0
    size = world.ledger.window_size("linkerd/linkerd-proxy-injector", world.policy.window)
    assert size < world.policy.window.initial


def test_failures_of_one_burst_are_one_failure(world: d.PodWorld) -> None:
    world.use({"repair": {"share": 1.0, "max_attempts": 2}})
    world.cluster.add(d.a_pod(1, owner=world.cluster.main))

    def both_bare(cluster: d.FakePods, gone: Any) -> None:
        if gone.metadata.uid == "uid-0":
            cluster.obey = d.replaces(marked=False)
            repair(d.a_request(1), world.another_worker())  # evicted, and failed, while the first one is under way
        d.replaces(marked=False)(cluster, gone)

    world.cluster.obey = both_bare
    outcome = repair(d.a_request(), world.ctx)

    assert outcome.result is Result.FAILED
    assert world.ledger.attempts("uid-web", "t-1") == 1


def test_the_last_failure_allowed_means_quarantine_with_its_evidence(world: d.PodWorld) -> None:
    world.use({"repair": {"max_attempts": 2, "cooldown_seconds": 0}})
    world.cluster.obey = d.replaces(marked=False)
    results = []
    for number in (0, 8, 9):
        world.cluster.add(d.a_pod(number, owner=world.cluster.main))
        world.cluster.main.spec.replicas = len(world.cluster.pods)
        world.cluster.above = d.a_deployment(len(world.cluster.pods))
        results.append(repair(d.a_request(number), world.ctx).result)

    assert results == [Result.FAILED, Result.QUARANTINED, Result.QUARANTINED]
    held = world.ledger.quarantined("uid-web", "t-1")
    assert held is not None
    assert (held.evidence["code"], held.evidence["ref"]["name"]) == ("came_back_bare", "web")
    assert len(world.cluster.evicted) == 2


def test_a_replacement_that_is_not_ready_in_time_has_at_least_its_sidecar(world: d.PodWorld) -> None:
    world.cluster.obey = d.replaces(ready=False)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.created, outcome.ready) == (Result.INJECTED, "not_ready_yet", 1, 0)
    assert world.clock.passed >= world.policy.repair.verify_seconds


def test_a_controller_that_puts_nothing_in_its_place_is_a_failure(world: d.PodWorld) -> None:
    world.cluster.obey = d.vanishes

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.FAILED, "not_replaced")
    assert world.ledger.attempts("uid-web", "t-1") == 1


def test_an_injector_that_refuses_the_replacement_is_waited_for(world: d.PodWorld) -> None:
    world.cluster.obey = d.vanishes
    world.cluster.answers = [d.INJECTS, d.refused(Rejected("refused", status=500, message=REFUSED))]

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.WAITING, "webhook_connection_refused")
    assert world.clock.passed < world.policy.repair.verify_seconds
    assert world.ledger.attempts("uid-web", "t-1") == 0


def test_an_owner_scaled_down_meanwhile_wants_no_replacement(world: d.PodWorld) -> None:
    def scale_down(cluster: d.FakePods, gone: Any) -> None:
        d.vanishes(cluster, gone)
        cluster.main.spec.replicas = 3

    world.cluster.obey = scale_down

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code, outcome.acted) == (Result.OBSOLETE, "no_longer_wanted", True)


def test_an_owner_deleted_meanwhile_is_the_end_of_it(world: d.PodWorld) -> None:
    def delete(cluster: d.FakePods, gone: Any) -> None:
        cluster.pods.clear()
        cluster.main.metadata.uid = "uid-another"

    world.cluster.obey = delete

    assert repair(d.a_request(), world.ctx).result is Result.OBSOLETE


def test_a_pod_that_stops_slowly_is_looked_after_by_the_next_try(world: d.PodWorld) -> None:
    world.cluster.obey = d.lingers

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.result, outcome.code) == (Result.ERROR, "still_terminating")
    assert leaves_for_another_try(outcome)
    assert "outcome" not in world.types()
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) is None, "its slot is still taken"

    d.replaces()(world.cluster, world.cluster.pods["web-0"])
    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    assert world.cluster.evicted == ["uid-0"]
    assert world.ledger.take_slot("uid-web", "uid-next", 1, 60) == []


def test_an_api_server_that_is_away_for_a_while_is_waited_out(world: d.PodWorld) -> None:
    def restart(cluster: d.FakePods, gone: Any) -> None:
        d.replaces()(cluster, gone)
        cluster.read_errors = [ClusterUnreachable("restarting")] * 3

    world.cluster.obey = restart

    assert repair(d.a_request(), world.ctx).result is Result.HEALED


def test_each_of_two_evictions_has_a_replacement_of_its_own(world: d.PodWorld) -> None:
    """One new pod must not count twice: the second eviction's replacement never comes."""
    world.use({"repair": {"share": 1.0}})
    world.cluster.add(d.a_pod(1, owner=world.cluster.main))
    second: list[Any] = []

    def obey(cluster: d.FakePods, gone: Any) -> None:
        if gone.metadata.uid == "uid-0":
            cluster.obey = d.vanishes
            d.replaces()(cluster, gone)
            cluster.add(d.a_pod(1, owner=cluster.main))
        else:
            d.vanishes(cluster, gone)

    world.cluster.obey = obey
    first = repair(d.a_request(), world.ctx)
    world.cluster.main.metadata.generation = 1
    second.append(repair(d.a_request(1), world.another_worker()))

    assert (first.result, second[0].code) == (Result.HEALED, "not_replaced")


def test_the_window_learns_from_a_replacement_and_its_room_is_given_back(world: d.PodWorld) -> None:
    key = "linkerd/linkerd-proxy-injector"
    reserve(world.ledger, key, FINDING, 1, 32, 60)

    repair(d.a_request(), world.ctx)

    assert world.ledger.in_flight(key) == 0
    assert world.ledger.window_size(key, world.policy.window) > world.policy.window.initial


def test_a_native_sidecar_is_a_sidecar(world: d.PodWorld) -> None:
    world.cluster.pods["web-0"].spec.init_containers = [Container(name="linkerd-proxy", restart_policy="Always")]

    assert repair(d.a_request(), world.ctx).result is Result.ALREADY_HEALTHY


# While its dry run goes on


def relabel(world: d.PodWorld) -> None:
    change_pod(world, labels={"app": "debug"})


def new_template(world: d.PodWorld) -> None:
    world.cluster.main.template_hash = "t-2"


def roll_out(world: d.PodWorld) -> None:
    assert world.cluster.above is not None
    world.cluster.above.metadata.generation = 2


def vanish(world: d.PodWorld) -> None:
    del world.cluster.pods["web-0"]


def opt_namespace_out(world: d.PodWorld) -> None:
    world.view.annotations = {"linkerd.io/inject": "disabled"}


def disown(world: d.PodWorld) -> None:
    world.cluster.main.spec.selector = LabelSelector(match_labels={"app": "other"})


def lose_another(world: d.PodWorld) -> None:
    world.clock.passed += 0.1
    del world.cluster.pods["web-3"]


MEANWHILE: list[tuple[str, Callable[[d.PodWorld], None]]] = [
    ("changed_meanwhile", lambda world: change_pod(world, annotations={"linkerd.io/inject": "disabled"})),
    ("changed_meanwhile", relabel),
    ("changed_meanwhile", lambda world: change_pod(world, owner_references=None)),
    ("changed_meanwhile", lambda world: change_pod(world, deletion_timestamp=d.NEW)),
    ("changed_meanwhile", new_template),
    ("replaced", lambda world: change_pod(world, uid="uid-another")),
    ("gone", vanish),
    ("owner_unsettled", roll_out),
    ("opted_out", opt_namespace_out),
    ("not_its_owner", disown),
    ("share_taken", lose_another),
]


@pytest.mark.parametrize(
    ("code", "change"), MEANWHILE, ids=[f"{number}-{code}" for number, (code, _) in enumerate(MEANWHILE)]
)
def test_what_changes_while_the_dry_run_goes_on_keeps_the_pod(
    world: d.PodWorld, monkeypatch: pytest.MonkeyPatch, code: str, change: Callable[[d.PodWorld], None]
) -> None:
    dry_run = world.cluster.dry_run_pod

    def meanwhile(*asked: Any, **more: Any) -> Any:
        change(world)
        return dry_run(*asked, **more)

    monkeypatch.setattr(world.cluster, "dry_run_pod", meanwhile)

    outcome = repair(d.a_request(), world.ctx)

    assert (outcome.code, outcome.acted) == (code, False)
    assert world.cluster.evicted == []
    assert world.records(RecordType.INTENT) == []


def test_a_status_that_changes_while_the_dry_run_goes_on_is_no_reason(
    world: d.PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry_run = world.cluster.dry_run_pod

    def meanwhile(*asked: Any, **more: Any) -> Any:
        change_pod(world, resource_version="8")
        world.cluster.pods["web-0"].status.conditions = []
        return dry_run(*asked, **more)

    monkeypatch.setattr(world.cluster, "dry_run_pod", meanwhile)

    assert repair(d.a_request(), world.ctx).result is Result.HEALED
    (intent,) = world.records(RecordType.INTENT)
    assert intent.details["was_ready"] is False
