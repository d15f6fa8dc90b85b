"""The watcher's rounds, on a store filled by hand, with trail and ledger on fakeredis and an injector that obeys."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import fakeredis
import pytest

from remesh.audit import Trail
from remesh.errors import BrokerUnreachable
from remesh.fingerprint import fingerprint_around
from remesh.kube.probe import ProbeResult
from remesh.ledger import Ledger
from remesh.meshes import Profiles, load_profiles
from remesh.models import (
    Action,
    AuditRecord,
    FailureClass,
    Finding,
    ObjectRef,
    Outcome,
    Probe,
    RecordType,
    RepairRequest,
    Result,
)
from remesh.objects import (
    Condition,
    ConfigurationMeta,
    Container,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    LabelSelector,
    MatchCondition,
    Namespace,
    NamespaceMeta,
    Node,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    RuleWithOperations,
    SelectorRequirement,
    ServiceReference,
    TemplateMeta,
    Webhook,
    WebhookClientConfig,
    WebhookConfiguration,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from remesh.policy import Policy
from watcher.desk import Desk
from watcher.findings import State
from watcher.gatekeeper import Keeper
from watcher.pace import SPREAD, Spread
from watcher.runtime import Watcher
from watcher.store import Store

CLUSTER = "test"
SERVICE = ("linkerd", "linkerd-proxy-injector")
REFUSED = (
    'Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": failed to call webhook: '
    'Post "https://linkerd-proxy-injector.linkerd.svc:443/?timeout=10s": dial tcp 10.0.0.1:8443: '
    "connect: connection refused"
)
QUOTA = 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0'
PASSES = ProbeResult(Probe.PASSES, 0.02, "sidecar_in_reply", "came back with the sidecar")
DEAD = ProbeResult(
    Probe.FAILS, 0.01, "webhook_connection_refused", "refused", "", FailureClass.WEBHOOK_CONNECTION_REFUSED
)
DENIED = ProbeResult(Probe.FAILS, 0.01, "webhook_denied", "denied", "", FailureClass.WEBHOOK_DENIED)
NO_DRY_RUN = ProbeResult(Probe.UNKNOWN, 0.01, "dry_run_unsupported", "side effects")
NO_SIDECAR = ProbeResult(Probe.FAILS, 0.01, "no_sidecar", "without", "", FailureClass.MISSING_SIDECAR)


@dataclass
class World:
    """A watcher and everything around it that a test turns."""

    policy: Policy
    profiles: Profiles
    redis: "fakeredis.FakeRedis"
    clock: datetime = field(default_factory=lambda: datetime.now(UTC))
    answer: Callable[[Finding], ProbeResult] = lambda _finding: DEAD
    sent: list[RepairRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store()
        self.trail = Trail(self.redis, CLUSTER)
        self.ledger = Ledger(self.redis, CLUSTER)
        # An evicted pod has come back before, so that several may go at a time.
        self.ledger.brakes.tell("/".join(SERVICE), "earlier", good=True, shut_seconds=60)
        self.start()
        self.store.replace("Namespace", [namespace("shop")])
        self.store.replace("MutatingWebhookConfiguration", [configuration()])
        self.store.replace("Node", [node("True")])
        self.endpoints(1)

    def start(self) -> None:
        """A new watcher on the same store, trail and ledger."""
        self.desk = Desk(
            cluster=CLUSTER,
            policy=self.policy,
            profiles=self.profiles,
            store=self.store,
            trail=self.trail,
            ledger=self.ledger,
            now=lambda: self.clock,
            steady=lambda: self.clock,
        )
        self.watcher = Watcher(self.desk, self.send, self.probe)

    def send(self, request: RepairRequest) -> str:
        self.sent.append(request)
        return request.task_id

    def probe(self, finding: Finding) -> ProbeResult:
        return self.answer(finding)

    def endpoints(self, ready: int, node: str = "node-a") -> None:
        found = [
            Endpoint(addresses=[f"10.0.0.{n}"], conditions=EndpointConditions(ready=True), node_name=node)
            for n in range(ready)
        ]
        self.store.replace_slices(*SERVICE, [EndpointSlice(metadata=ObjectMeta(uid="s"), endpoints=found)])

    def rounds(self, count: int = 12) -> None:
        """Several rounds, with the dry runs of each finished before the next."""
        for _ in range(count):
            self.watcher.tick()
            deadline = time.monotonic() + 5
            while any(k.probing for k in self.keepers()) and time.monotonic() < deadline:
                self.watcher.gatekeeper.take_results()
            for keeper in self.keepers():
                keeper.next_probe = 0.0
            self.watcher.releaser.spread = Spread()  # time has passed

    def keepers(self) -> list[Keeper]:
        return list(self.watcher.gatekeeper.keepers.values())

    def ended(self, request: RepairRequest, result: Result, code: str = "") -> None:
        """The outcome that a worker would have written."""
        outcome = Outcome(finding_id=request.finding_id, result=result, code=code or result.value, reason="r")
        self.watcher._outcomes.put(
            AuditRecord(
                record_id=f"{request.finding_id}:outcome:{request.attempt}",
                type=RecordType.OUTCOME,
                at=self.clock,
                cluster=CLUSTER,
                finding_id=request.finding_id,
                ref=request.ref,
                task_id=request.task_id,
                details=outcome.model_dump(mode="json"),
            )
        )
        self.ledger.close_finding(request.ref.uid, request.finding_id)

    def records(self, *types: RecordType) -> list[AuditRecord]:
        return list(self.trail.read(types=types or None))

    def state(self, uid: str) -> State | None:
        tracked = self.desk.book.get(uid)
        return tracked.state if tracked else None


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


LONG_AGO = stamp(datetime.now(UTC) - timedelta(hours=1))


def namespace(name: str) -> Namespace:
    return Namespace(metadata=NamespaceMeta(name=name, uid=name, annotations={"linkerd.io/inject": "enabled"}))


def node(ready: str, *, version: str = "1") -> Node:
    meta = ObjectMeta(name="node-a", uid="n", resource_version=version)
    return Node(metadata=meta, status=NodeStatus(conditions=[Condition("Ready", ready)]))


def configuration(version: str = "1", timeout_seconds: int = 10) -> WebhookConfiguration:
    webhook = Webhook(
        timeout_seconds=timeout_seconds,
        name="linkerd-proxy-injector.linkerd.io",
        client_config=WebhookClientConfig(service=ServiceReference(namespace=SERVICE[0], name=SERVICE[1], path="/")),
        rules=[RuleWithOperations(operations=["CREATE"], api_groups=[""], api_versions=["v1"], resources=["pods"])],
    )
    meta = ConfigurationMeta(name="linkerd-proxy-injector-webhook-config", uid="w", resource_version=version)
    return WebhookConfiguration(metadata=meta, webhooks=[webhook])


def replica_set(name: str, *, replicas: int = 1, current: int = 0, message: str = REFUSED) -> Workload:
    conditions = [Condition("ReplicaFailure", "True", "FailedCreate", message, LONG_AGO)] if message else None
    return Workload(
        kind="ReplicaSet",
        api_version="apps/v1",
        metadata=ObjectMeta(name=name, namespace="shop", uid=name, generation=1, creation_timestamp=LONG_AGO),
        spec=WorkloadSpec(replicas=replicas, template=PodTemplate(metadata=TemplateMeta())),
        status=WorkloadStatus(replicas=current, observed_generation=1, conditions=conditions),
        template_hash="t1",
    )


def pod(name: str, owner: str, *, injected: bool = False) -> Pod:
    containers = [Container(name="app"), *([Container(name="linkerd-proxy")] if injected else [])]
    annotations = {"linkerd.io/proxy-version": "1"} if injected else None
    reference = OwnerReference(kind="ReplicaSet", name=owner, uid=owner, api_version="apps/v1", controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid=name,
            creation_timestamp=LONG_AGO,
            annotations=annotations,
            owner_references=[reference],
        ),
        spec=PodSpec(containers=containers),
        status=PodStatus(phase="Running", conditions=[Condition("Ready", "True")]),
    )


@pytest.fixture
def profiles() -> Profiles:
    return load_profiles()


@pytest.fixture
def world(profiles: Profiles) -> Iterator[World]:
    made = World(Policy(), profiles, fakeredis.FakeRedis(decode_responses=True))
    yield made
    made.watcher.gatekeeper.close()


def heal_object(world: World, name: str) -> None:
    world.store.apply("ReplicaSet", "MODIFIED", replica_set(name, current=1, message=""))
    world.store.apply("Pod", "ADDED", pod(f"{name}-1", name, injected=True))


def test_a_stuck_replicaset_waits_while_its_injector_is_dead(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds()
    assert world.state("web") is State.WAITING
    assert world.sent == []
    wait = world.records(RecordType.WAIT)
    assert [record.code for record in wait] == ["webhook_connection_refused"]


def test_it_is_released_once_when_the_dry_runs_pass(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=2)])
    world.answer = lambda _finding: PASSES
    world.rounds(20)
    assert [request.action for request in world.sent] == [Action.NUDGE_OWNER]
    assert world.state("web") is State.RELEASED
    assert world.ledger.in_flight("linkerd/linkerd-proxy-injector") == 2


def test_without_an_outcome_it_is_released_again_after_the_deadline(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    world.clock += timedelta(seconds=world.policy.repair.release_deadline_seconds + 1)
    world.rounds()
    assert [request.attempt for request in world.sent] == [1, 2]
    assert len({request.task_id for request in world.sent}) == 2
    assert [record.code for record in world.records(RecordType.NOTE)] == ["no_outcome"]


def test_a_healed_one_is_forgotten_and_gives_its_room_back(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    heal_object(world, "web")
    world.ended(world.sent[0], Result.HEALED)
    world.rounds()
    assert world.state("web") is None
    assert len(world.sent) == 1
    assert world.ledger.in_flight("linkerd/linkerd-proxy-injector") == 0
    assert world.keepers() == []


def test_one_that_kubernetes_heals_first_gets_an_outcome_of_its_own(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds(2)
    heal_object(world, "web")
    world.rounds(2)
    outcome = world.records(RecordType.OUTCOME)
    assert [record.code for record in outcome] == ["recovered"]
    assert world.state("web") is None


def test_a_quota_is_reported_and_never_released(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("greedy", message=QUOTA)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.state("greedy") is State.REPORTED
    assert world.sent == []
    assert [record.cause for record in world.records(RecordType.REFUSAL)] == ["quota_exceeded"]


def test_a_restarted_watcher_keeps_id_and_release(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    first = world.desk.book.get("web")
    assert first is not None
    world.watcher.gatekeeper.close()
    world.start()
    world.store.apply("ReplicaSet", "MODIFIED", replica_set("web"))
    world.rounds()
    second = world.desk.book.get("web")
    assert second is not None
    assert second.finding.id == first.finding.id
    assert second.state is State.RELEASED
    assert len(world.sent) == 1
    assert len(world.records(RecordType.FINDING)) == 1


def test_a_finding_whose_trouble_ended_between_two_watchers_gets_an_end(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds(2)
    world.watcher.gatekeeper.close()
    heal_object(world, "web")
    world.start()
    world.rounds(2)
    assert [record.code for record in world.records(RecordType.OUTCOME)] == ["recovered"]
    assert world.ledger.open_findings() == []


def test_a_silent_finding_goes_on_over_a_restart_although_its_age_begins_anew(world: World) -> None:
    silent = Workload(
        kind="StatefulSet",
        api_version="apps/v1",
        metadata=ObjectMeta(name="db", namespace="shop", uid="db", generation=1, creation_timestamp=LONG_AGO),
        spec=WorkloadSpec(replicas=2, template=PodTemplate(metadata=TemplateMeta())),
        status=WorkloadStatus(replicas=0, observed_generation=1),
        template_hash="t1",
    )
    world.store.replace("StatefulSet", [silent])
    world.rounds(1)
    world.clock += timedelta(seconds=world.policy.detection.no_condition_seconds + 1)
    world.desk.due["db"] = 0.0
    world.rounds(2)
    first = world.desk.book.get("db")
    assert first is not None
    world.watcher.gatekeeper.close()
    world.start()
    world.store.apply("StatefulSet", "MODIFIED", silent)
    world.rounds(3)
    second = world.desk.book.get("db")
    assert second is not None
    assert second.finding.id == first.finding.id
    assert world.records(RecordType.OUTCOME) == []


def test_a_gate_is_not_judged_before_its_endpoints_are_listed(world: World) -> None:
    world.store._slices.clear()
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.records(RecordType.GATE) == []
    world.endpoints(1)
    world.rounds()
    assert [record.code for record in world.records(RecordType.GATE)] == ["open"]


def test_no_more_pods_are_on_their_way_than_the_window_holds(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set(f"web-{n}", replicas=3) for n in range(40)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert len(world.sent) == world.policy.window.initial // 3


def test_in_mode_observe_nothing_is_released_and_the_trail_says_so(profiles: Profiles) -> None:
    watched = World(Policy.model_validate({"mode": "observe"}), profiles, fakeredis.FakeRedis(decode_responses=True))
    watched.store.replace("ReplicaSet", [replica_set("web")])
    watched.answer = lambda _finding: PASSES
    watched.rounds()
    assert watched.sent == []
    assert {record.code for record in watched.records(RecordType.REFUSAL)} == {"observe_mode"}
    watched.watcher.gatekeeper.close()


def test_behind_a_webhook_that_refuses_dry_runs_one_canary_goes_first(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("a"), replica_set("b"), replica_set("c")])
    world.answer = lambda _finding: NO_DRY_RUN
    world.rounds()
    assert len(world.sent) == 1
    heal_object(world, world.sent[0].ref.name)
    world.ended(world.sent[0], Result.HEALED)
    world.rounds()
    assert len(world.sent) == 3
    assert "canary" in " ".join(record.reason for record in world.records(RecordType.GATE))


def test_a_template_that_is_denied_holds_up_nobody_else(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("denied"), replica_set("sound")])
    world.answer = lambda finding: DENIED if finding.ref.name == "denied" else PASSES
    world.rounds(20)
    assert {request.ref.name for request in world.sent} == {"sound"}
    assert world.state("denied") is State.COOLING
    assert [record.code for record in world.records(RecordType.REFUSAL)] == ["webhook_denied"]


def test_a_template_that_is_not_injected_holds_up_nobody_else(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("odd"), replica_set("sound"), replica_set("well")])
    world.answer = lambda finding: NO_SIDECAR if finding.ref.name == "odd" else PASSES
    world.rounds(20)
    assert {"sound", "well"} <= {request.ref.name for request in world.sent}


def test_a_repair_that_meets_a_dead_injector_closes_the_gate(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set(f"web-{n}", replicas=30) for n in range(3)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert len(world.sent) == 1
    world.answer = lambda _finding: DEAD
    world.ended(world.sent[0], Result.WAITING, "webhook_connection_refused")
    world.rounds(3)
    assert len(world.sent) == 1
    assert world.state(world.sent[0].ref.uid) is State.WAITING


def test_endpoints_on_a_node_that_is_not_ready_do_not_count(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.store.replace("Node", [node("Unknown", version="2")])
    world.rounds()
    assert world.sent == []
    assert any("node-a" in record.reason for record in world.records(RecordType.GATE))


def test_of_an_owners_bare_pods_only_its_share_goes_at_a_time(world: World) -> None:
    owner = replica_set("web", replicas=8, current=8, message="")
    world.store.replace("ReplicaSet", [owner])
    world.store.replace("Pod", [pod(f"web-{n}", "web", injected=n >= 4) for n in range(8)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert [request.action for request in world.sent] == [Action.RECREATE_POD] * 2
    assert {request.ref.uid for request in world.sent} <= {f"web-{n}" for n in range(4)}
    world.ended(world.sent[0], Result.HEALED)
    world.store.apply("Pod", "DELETED", pod(world.sent[0].ref.name, "web"))
    world.rounds()
    assert len(world.sent) == 3


def test_a_slow_injector_slows_evictions_down_and_nothing_else(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=100, current=100, message="")])
    world.store.replace("Pod", [pod(f"web-{n}", "web") for n in range(100)])

    def answer(_finding: Finding) -> ProbeResult:
        return replace(PASSES, seconds=1.0 if world.sent else 0.01)

    world.answer = answer
    world.rounds()
    let_go = len(world.sent)
    assert let_go <= 8, "gently at first, and no more while it is slow"
    world.store.apply("ReplicaSet", "ADDED", replica_set("stuck"))
    world.rounds()
    assert [each.action for each in world.sent] == [Action.RECREATE_POD] * let_go + [Action.NUDGE_OWNER]
    world.answer = lambda _finding: PASSES
    for request in world.sent[:let_go]:
        world.ended(request, Result.HEALED)
        world.store.apply("Pod", "DELETED", pod(request.ref.name, "web"))
    world.rounds()
    assert len(world.sent) > let_go + 1


def test_evictions_of_one_round_do_not_go_at_the_same_moment(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=100, current=100, message=""), replica_set("stuck")])
    world.store.replace("Pod", [pod(f"web-{n}", "web") for n in range(100)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    evictions = [each for each in world.sent if each.action is Action.RECREATE_POD]
    assert len(evictions) > 2
    began, before = time.monotonic(), len(world.sent)
    world.watcher.tick()
    assert len(world.sent) == before + 1
    world.watcher.tick()
    assert len(world.sent) == before + 1
    due = world.watcher.releaser.next_turn()
    assert due is not None
    assert due >= began + SPREAD * PASSES.seconds
    assert world.watcher._pause() <= due - began


def test_what_a_worker_saw_of_the_injectors_speed_counts_too(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=100, current=100, message="")])
    world.store.replace("Pod", [pod(f"web-{n}", "web") for n in range(100)])
    world.answer = lambda _finding: PASSES
    world.rounds(4)
    keeper = world.watcher.gatekeeper.keepers["/".join(SERVICE)]
    before = keeper.gate.pace.limit
    told = {"injector": "/".join(SERVICE), "dry_run_ms": 1500, "dry_run_new": True}
    for number in range(3):
        intent = AuditRecord(
            record_id=f"intent-{number}", type=RecordType.INTENT, at=world.clock, cluster=CLUSTER, details=told
        )
        world.watcher._outcomes.put(intent)
    world.watcher._take_outcomes()
    assert keeper.gate.pace.limit < before


def test_until_an_evicted_pod_has_come_back_one_goes_at_a_time_whatever_the_share_allows(world: World) -> None:
    world.redis.flushall()
    owners = [replica_set(name, replicas=8, current=8, message="") for name in ("web", "api")]
    names = [each.metadata.name for each in owners]
    world.store.replace("ReplicaSet", [*owners, replica_set("stuck")])
    world.store.replace("Pod", [pod(f"{name}-{n}", name) for name in names for n in (1, 2)])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert sorted(request.action for request in world.sent) == [Action.NUDGE_OWNER, Action.RECREATE_POD]
    first = next(request for request in world.sent if request.action is Action.RECREATE_POD)
    world.ledger.brakes.tell("/".join(SERVICE), first.ref.uid, good=True, shut_seconds=60)
    world.ended(first, Result.HEALED)
    world.store.apply("Pod", "DELETED", pod(first.ref.name, first.ref.name.partition("-")[0]))
    world.rounds()
    assert len({request.ref.uid for request in world.sent}) == 5


def test_pods_of_one_template_that_is_not_injected_are_one_suspicion(world: World) -> None:
    broken, sound = (replica_set(name, replicas=4, current=4, message="") for name in ("broken", "sound"))
    world.store.replace("ReplicaSet", [broken, sound])
    world.store.replace("Pod", [pod(f"broken-{n}", "broken") for n in range(4)])
    world.rounds(1)
    world.clock += timedelta(seconds=1)  # so that the broken ones, being older, are asked about first
    for n in range(4):
        world.store.apply("Pod", "ADDED", pod(f"sound-{n}", "sound"))
    asked: list[str] = []

    def answer(finding: Finding) -> ProbeResult:
        asked.append(finding.ref.name)
        return NO_SIDECAR if finding.ref.name.startswith("broken") else PASSES

    world.answer = answer
    world.rounds()
    assert sum(name.startswith("broken") for name in asked) == 1
    assert {request.ref.name.partition("-")[0] for request in world.sent} == {"sound"}


def test_an_injector_that_injects_nobody_is_said_to_after_one_dry_run_of_each_template(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=8, current=8, message="")])
    world.store.replace("Pod", [pod(f"web-{n}", "web") for n in range(8)])
    world.answer = lambda _finding: NO_SIDECAR
    world.rounds(2)
    assert [record.code for record in world.records(RecordType.GATE)] == ["no_sidecar"]


def test_a_quarantined_owner_is_left_alone_until_somebody_clears_it(world: World) -> None:
    world.ledger.quarantine("web", "t1", {"reason": "came back bare"})
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.state("web") is State.QUARANTINED
    assert world.sent == []
    world.ledger.clear_quarantine("web", "t1")
    world.store.apply("ReplicaSet", "MODIFIED", replica_set("web"))
    world.rounds()
    assert len(world.sent) == 1


@pytest.mark.parametrize("bare", [True, False], ids=["bare pod", "stuck owner"])
def test_a_quarantine_ends_with_the_webhook_configuration_under_which_it_began(world: World, bare: bool) -> None:
    owner = replica_set("web", current=1, message="") if bare else replica_set("web")
    uid, subject = ("web-1", pod("web-1", "web")) if bare else ("web", owner)
    world.store.replace("ReplicaSet", [owner])
    world.store.replace("Pod", [pod("web-1", "web")] if bare else [])
    begun = fingerprint_around(subject, world.store, world.profiles)
    world.ledger.quarantine("web", "t1", {"reason": "came back bare", "webhooks": begun})
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.state(uid) is State.QUARANTINED
    world.store.apply("MutatingWebhookConfiguration", "MODIFIED", configuration("2", timeout_seconds=7))
    world.rounds()
    assert [request.ref.uid for request in world.sent] == [uid]
    assert "quarantine_ended" in {record.code for record in world.records(RecordType.NOTE)}
    assert world.ledger.quarantines() == []


def test_the_records_of_a_bare_pod_are_found_by_the_deployment_above_its_owner(world: World) -> None:
    owner = replica_set("web", current=1, message="")
    above = OwnerReference(kind="Deployment", name="shop-web", uid="d", api_version="apps/v1", controller=True)
    owner.metadata.owner_references = [above]
    world.store.replace("ReplicaSet", [owner])
    world.store.replace("Pod", [pod("web-1", "web")])
    world.rounds()
    found = world.trail.history(ObjectRef(api_version="", kind="Deployment", namespace="shop", name="shop-web"))
    assert {each.ref.name for each in found if each.ref} == {"web-1"}
    assert [each.type for each in found if each.finding_id][:1] == [RecordType.FINDING]


def test_a_bare_pods_quarantine_does_not_hold_for_another_template_of_its_owner(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", current=1, message="")])
    world.store.replace("Pod", [pod("web-1", "web")])
    world.ledger.quarantine("web", "t1", {"reason": "came back bare"})
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.state("web-1") is State.QUARANTINED
    changed = replica_set("web", current=1, message="")
    changed.template_hash = "t2"
    world.store.apply("ReplicaSet", "MODIFIED", changed)
    world.desk.due["web-1"] = 0.0
    world.rounds()
    assert [request.ref.uid for request in world.sent] == ["web-1"]


def test_a_quarantine_that_only_the_worker_knows_makes_no_tight_loop(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    for _ in range(5):
        world.rounds()
        world.ended(world.sent[-1], Result.QUARANTINED)
        world.rounds(2)
    assert len(world.sent) == 1


def test_an_outcome_from_between_two_watchers_is_taken_in(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    request = world.sent[0]
    outcome = Outcome(finding_id=request.finding_id, result=Result.FAILED, code="nothing_created", reason="r")
    record = AuditRecord(
        record_id="o", type=RecordType.OUTCOME, at=world.clock, cluster=CLUSTER, finding_id=request.finding_id,
        ref=request.ref, task_id=request.task_id, details=outcome.model_dump(mode="json"),
    )  # fmt: skip
    world.trail.append(record)
    world.watcher.gatekeeper.close()
    world.start()
    world.store.apply("ReplicaSet", "MODIFIED", replica_set("web"))
    world.rounds(3)
    assert world.state("web") is State.COOLING


def test_an_odd_object_keeps_nobody_else_from_being_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = world.watcher.looker._judge

    def fails_for_odd(obj: Workload | Pod) -> object:
        if obj.metadata.name == "odd":
            raise ValueError("odd")
        return judge(obj)

    monkeypatch.setattr(world.watcher.looker, "_judge", fails_for_odd)
    world.store.replace("ReplicaSet", [replica_set("odd"), replica_set("web")])
    world.rounds(2)
    assert world.state("web") is State.WAITING


def test_a_namespace_that_is_deleted_midway_ends_its_findings_untouched(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds(2)
    assert world.state("web") is State.WAITING
    leaving = namespace("shop")
    leaving.metadata.deletion_timestamp = LONG_AGO
    leaving.metadata.resource_version = "2"
    world.store.apply("Namespace", "MODIFIED", leaving)
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.sent == []
    assert world.state("web") in (None, State.REPORTED)


def test_somebody_elses_malformed_webhook_stops_nothing(world: World) -> None:
    odd = Webhook(
        name="odd.example.com",
        client_config=WebhookClientConfig(service=ServiceReference(namespace="odd", name="odd")),
        rules=[RuleWithOperations(operations=["CREATE"], api_groups=[""], api_versions=["v1"], resources=["pods"])],
        namespace_selector=LabelSelector(match_expressions=[SelectorRequirement("a", "Resembles", ["b"])]),
        object_selector=LabelSelector(match_expressions=[SelectorRequirement("", "In", None)]),
        match_conditions=[MatchCondition("broken", "request.((")],
    )
    meta = ConfigurationMeta(name="odd", uid="odd", resource_version="1")
    world.store.apply("MutatingWebhookConfiguration", "ADDED", WebhookConfiguration(metadata=meta, webhooks=[odd]))
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert [request.ref.name for request in world.sent] == ["web"]


def test_an_injector_whose_selector_cannot_be_judged_evicts_nothing_without_its_dry_run(world: World) -> None:
    ours = configuration()
    assert ours.webhooks
    ours.webhooks[0].object_selector = LabelSelector(match_expressions=[SelectorRequirement("a", "Resembles", ["b"])])
    ours.metadata.resource_version = "2"
    world.store.apply("MutatingWebhookConfiguration", "MODIFIED", ours)
    world.store.replace("ReplicaSet", [replica_set("web", current=1, message="")])
    world.store.replace("Pod", [pod("bare", "web")])
    world.answer = lambda _finding: NO_SIDECAR
    world.rounds()
    assert world.sent == []


# Latin with a Cyrillic і, full width, with a joiner or an override inside, other cases: none is Linkerd's container.
LOOK_ALIKES = [
    "l\u0456nkerd-proxy",
    "\uff4cinkerd-proxy",
    "linkerd\u200d-proxy",
    "\u202elinkerd-proxy",
    "Linkerd-Proxy",
]


@pytest.mark.parametrize("name", ["контейнер", "容器", "حاوية", "\ud83d", "", "a" * 100_000, "\0\n", *LOOK_ALIKES])
def test_a_container_name_in_another_alphabet_is_nobodys_sidecar_and_stops_nothing(world: World, name: str) -> None:
    pods = [pod(f"web-{n}", "web", injected=n >= 4) for n in range(8)]
    for bare in pods[:4]:
        assert bare.spec.containers
        bare.spec.containers.append(Container(name=name))
        bare.spec.init_containers = [Container(name=name, restart_policy="Always")]
    world.store.replace("ReplicaSet", [replica_set("web", replicas=8, current=8, message="")])
    world.store.replace("Pod", pods)
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert [request.action for request in world.sent] == [Action.RECREATE_POD] * 2
    assert {request.ref.uid for request in world.sent} <= {f"web-{n}" for n in range(4)}
    assert all(len(record.model_dump_json()) < 20_000 for record in world.trail.read())


def test_an_owner_reference_of_any_length_is_cut(world: World) -> None:
    bare = pod("long", "web")
    bare.metadata.owner_references = [
        OwnerReference(kind="K" * 300, name="n" * 300, uid="u" * 100, api_version="v" * 300, controller=True)
    ]
    world.store.replace("Pod", [bare])
    world.rounds(2)
    assert world.desk.book.get("long") is not None


def test_when_redis_fails_nothing_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> str:
        raise BrokerUnreachable("redis is away")

    world.store.replace("ReplicaSet", [replica_set("web")])
    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "begin_finding", broken)
        with pytest.raises(BrokerUnreachable):
            world.watcher.tick()
        assert world.state("web") is None
    world.desk.due = dict.fromkeys(world.desk.due, 0.0)
    world.rounds(2)
    assert world.state("web") is State.WAITING


def test_a_nudge_that_a_dead_worker_left_behind_is_sent_to_be_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.look.LEFTOVER_SECONDS", 0.0)
    left = replica_set("web", current=1, message="")
    left.metadata.annotations = {"remesh.dev/nudge": "f-0123456789ab"}
    world.store.replace("Pod", [pod("web-1", "web", injected=True)])
    world.store.replace("ReplicaSet", [left])
    world.rounds(2)
    assert [request.ref.name for request in world.sent] == ["web"]
