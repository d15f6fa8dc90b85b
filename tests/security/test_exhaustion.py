"""What one user's objects cost everybody else: turns, memory and records are bounded."""

import time
from collections.abc import Sized

import fakeredis
import pytest

from remesh.audit import Trail
from remesh.kube.sharing import ANNOTATIONS, VALUE_CHARACTERS, Siblings
from remesh.models import TEXT_CHARACTERS, AuditRecord, Outcome, RecordType, Result
from remesh.objects import ObjectMeta, Pod
from tests.watcher.test_findings import NOW, finding
from tests.watcher.test_runtime import DENIED, PASSES, World, heal_object, replica_set
from watcher import look
from watcher.findings import Tracked
from watcher.release import cost, probe_candidate
from watcher.turns import Turns

FLOOD = 10_000


def of(space: str, name: str, *, missing: int = 1, age: float = 0.0, priority: str = "") -> Tracked:
    made = finding(f"{space}-{name}", age=age, missing=missing, priority=priority)
    ref = made.ref.model_copy(update={"namespace": space})
    return Tracked(made.model_copy(update={"ref": ref}))


def flood_and_victim(**more: float) -> list[Tracked]:
    """Ten thousand old findings of one namespace, all system-critical by their own word, before one of another."""
    evil = [of("evil", str(n), age=9999, priority="system-node-critical") for n in range(FLOOD)]
    return [*evil, of("shop", "web")]


def test_a_flood_in_one_namespace_holds_up_nobody_elses_release() -> None:
    arranged = Turns(cost).arrange(flood_and_victim())
    place = [each.finding.ref.namespace for each in arranged].index("shop")
    assert place <= 1


def test_a_huge_workload_pays_for_its_size_before_it_has_another_turn() -> None:
    turns = Turns(cost)
    huge = [of("evil", str(n), missing=1000, age=99) for n in range(3)]
    small = [of("shop", str(n)) for n in range(50)]
    waiting, order = [*huge, *small], []
    while waiting:
        first = turns.arrange(waiting)[0]
        turns.served(first)
        waiting.remove(first)
        order.append(first.finding.ref.namespace)
    assert order[0] == "evil"
    assert order[1:51] == ["shop"] * 50


def test_who_comes_anew_waits_behind_nobody_and_has_no_credit() -> None:
    turns = Turns(cost)
    for number in range(100):
        turns.arrange([of("old", str(number))])
        turns.served(of("old", str(number)))
    arranged = turns.arrange([of("old", "x", age=9), of("old", "y", age=8), of("new", "a"), of("new", "b")])
    assert [each.finding.ref.namespace for each in arranged] == ["old", "new", "old", "new"]


def test_dry_runs_take_turns_among_namespaces() -> None:
    waiting = flood_and_victim()
    tried = [probe_candidate(waiting, turn) for turn in range(4)]
    assert [each.finding.ref.namespace for each in tried if each] == ["evil", "shop"] * 2


def test_templates_that_are_refused_do_not_keep_the_gate_shut_for_others(world: World) -> None:
    evil = [replica_set(f"evil-{n}") for n in range(60)]
    for each in evil:
        each.metadata.namespace = "evil"
    world.store.replace("ReplicaSet", [*evil, replica_set("web")])
    world.answer = lambda found: DENIED if found.ref.namespace == "evil" else PASSES
    world.rounds(30)
    assert "web" in [request.ref.name for request in world.sent]


def test_an_object_that_flaps_writes_no_more_records_than_its_bound(world: World) -> None:
    flaps = 5 * look.EPISODES
    began = time.monotonic()
    for _ in range(flaps):
        world.store.apply("Pod", "DELETED", Pod(metadata=ObjectMeta(uid="web-1", name="web-1", namespace="shop")))
        world.store.replace("ReplicaSet", [replica_set("web")])
        world.rounds(1)
        heal_object(world, "web")
        world.rounds(1)
    allowed = look.EPISODES + (time.monotonic() - began) / look.EPISODE_SECONDS + 1
    assert len(world.records(RecordType.FINDING)) <= allowed
    assert len(world.records()) <= 4 * allowed
    assert "web" in world.desk.due or not world.sent


def test_an_object_that_has_flapped_is_followed_again_when_it_may_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.watcher.looker._episodes["web"] = (float(look.EPISODES), time.monotonic())
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds(2)
    assert world.state("web") is None
    assert world.desk.due["web"] <= time.monotonic() + look.EPISODE_SECONDS
    monkeypatch.setattr(look, "EPISODE_SECONDS", 1e-9)
    world.desk.due["web"] = 0.0
    world.rounds(2)
    assert world.state("web") is not None


def test_nothing_is_remembered_of_an_object_that_is_gone(world: World) -> None:
    names = [f"web-{n}" for n in range(200)]
    world.store.replace("ReplicaSet", [replica_set(name) for name in names])
    world.rounds(2)
    world.store.replace("ReplicaSet", [])
    world.rounds(2)
    looker, desk = world.watcher.looker, world.desk
    left: list[Sized] = [
        looker._episodes,
        looker._lacking,
        looker._leftover,
        looker._said_flapping,
        desk.due,
        desk._noted,
    ]
    assert [len(each) for each in left] == [0] * len(left)
    assert len(desk.book) == 0
    assert world.ledger.open_findings() == []


def test_annotations_of_any_size_cost_a_bounded_amount() -> None:
    huge = {f"key-{n:05}": "x" * 260_000 for n in range(3)} | {f"z{n}": "y" for n in range(5000)}
    huge["linkerd.io/inject"] = "enabled"
    made = Pod(metadata=ObjectMeta(name="a", annotations=dict(sorted(huge.items()))))
    Siblings().share(made)
    kept = made.metadata.annotations or {}
    assert len(kept) <= ANNOTATIONS
    assert max(map(len, kept.values())) <= VALUE_CHARACTERS
    assert kept["linkerd.io/inject"] == "enabled"


def test_annotations_of_a_normal_size_stay_as_they_are() -> None:
    known = {"linkerd.io/inject": "enabled", "note": "x" * VALUE_CHARACTERS}
    made = Pod(metadata=ObjectMeta(name="a", annotations=known))
    Siblings().share(made)
    assert made.metadata.annotations is known


def test_a_finding_that_is_over_leaves_nothing_but_its_records_and_what_ends_by_itself(world: World) -> None:
    """So a million findings cost their records, which `remesh audit prune` and the policy's [trail] bound."""
    findings = 50
    world.store.replace("ReplicaSet", [replica_set(f"web-{n}") for n in range(findings)])
    world.rounds(3)
    world.store.replace("ReplicaSet", [])
    world.rounds(3)
    lasting = [key for key in world.redis.scan_iter() if world.redis.ttl(key) < 0]
    per_finding = [key for key in lasting if ":trail:f:" in key or ":trail:o:" in key]
    assert len(per_finding) <= 2 * findings
    assert len(lasting) - len(per_finding) <= 5
    assert max(len(record.model_dump_json()) for record in world.records()) < 4096


def test_a_denial_of_any_length_is_cut_in_trail_and_result() -> None:
    with fakeredis.FakeRedis(decode_responses=True) as server:
        outcome = Outcome(finding_id="f-1", result=Result.REPORTED, code="denied", reason="x" * 1_000_000)
        record = AuditRecord(
            record_id="r",
            type=RecordType.REFUSAL,
            at=NOW,
            cluster="c",
            reason="y" * 1_000_000,
            details={"message": "z" * 1_000_000, **outcome.model_dump(mode="json")},
        )
        Trail(server, "c").append(record)
        (found,) = Trail(server, "c").read()
        assert {len(found.reason), len(found.details["message"]), len(outcome.reason)} == {TEXT_CHARACTERS}
        assert len(found.model_dump_json()) < 10_000
