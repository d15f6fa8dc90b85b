"""The book of findings, and the order of release."""

from datetime import UTC, datetime, timedelta

from remesh.models import Action, FailureClass, Finding, InjectorRef, ObjectRef, finding_id
from watcher.findings import Book, State, Tracked, to_cooling, to_released, to_rest, to_waiting
from watcher.gate import Gate, GateStatus
from watcher.release import candidates, cost, probe_candidate

NOW = datetime(2026, 5, 1, tzinfo=UTC)
INJECTOR = InjectorRef(mesh="linkerd", service_namespace="linkerd", service_name="linkerd-proxy-injector")
OPEN = Gate(INJECTOR.key, status=GateStatus.OPEN)
CANARY = Gate(INJECTOR.key, status=GateStatus.CANARY)


def finding(name: str, *, age: float = 0, priority: str = "", missing: int = 1) -> Finding:
    return Finding(
        id=finding_id("c", name, "t", "e"),
        cluster="c",
        ref=ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name=name, uid=name),
        mesh="linkerd",
        injector=INJECTOR,
        failure_class=FailureClass.WEBHOOK_TIMEOUT,
        action=Action.WAIT_FOR_INJECTOR,
        after_recovery=Action.NUDGE_OWNER,
        code="injector_not_proven",
        reason="r",
        missing=missing,
        priority_class=priority,
        first_seen=NOW - timedelta(seconds=age),
    )


def book(*findings: Finding) -> Book:
    filled = Book()
    for each in findings:
        filled.add(each)
    return filled


def names(tracked: list[Tracked]) -> list[str]:
    return [each.finding.ref.name for each in tracked]


def test_system_critical_goes_first_then_the_oldest() -> None:
    held = book(finding("young"), finding("old", age=60), finding("dns", priority="system-cluster-critical"))
    assert names(held.waiting(INJECTOR.key)) == ["dns", "old", "young"]


def test_only_waiting_findings_wait() -> None:
    held = book(finding("a"), finding("b"), finding("c"), finding("d"))
    to_released(held.get("b") or Tracked(finding("b")), 1, NOW)
    to_cooling(held.get("c") or Tracked(finding("c")), NOW, 5)
    to_rest(held.get("d") or Tracked(finding("d")), State.REPORTED)
    assert names(held.waiting(INJECTOR.key)) == ["a"]


def test_a_released_finding_expires_at_its_deadline() -> None:
    held = book(finding("a"))
    tracked = held.get("a")
    assert tracked is not None
    to_released(tracked, 1, NOW + timedelta(seconds=10))
    assert held.expired(NOW + timedelta(seconds=9)) == []
    assert held.expired(NOW + timedelta(seconds=10)) == [tracked]
    to_waiting(tracked)
    assert held.next_expiry() is None


def test_a_finding_is_found_by_id_until_it_is_dropped() -> None:
    one = finding("a")
    held = book(one)
    assert held.by_id(one.id) is held.get("a")
    held.drop("a")
    assert held.by_id(one.id) is None
    assert len(held) == 0


def test_gates_exist_for_what_waits_or_is_under_way() -> None:
    held = book(finding("a"))
    assert set(held.gates()) == {INJECTOR.key}
    to_rest(held.get("a") or Tracked(finding("a")), State.QUARANTINED)
    assert held.gates() == {}


def test_a_repair_costs_the_pods_it_makes_the_controller_create() -> None:
    assert cost(Tracked(finding("a", missing=1000))) == 1000
    assert cost(Tracked(finding("a", missing=0))) == 1


def test_nothing_goes_through_a_closed_gate() -> None:
    assert candidates(Gate(INJECTOR.key), [Tracked(finding("a"))], 0) == []


def test_everything_may_go_through_an_open_one() -> None:
    assert len(candidates(OPEN, [Tracked(finding("a")), Tracked(finding("b"))], 5)) == 2


def test_behind_a_canary_one_goes_and_no_second_while_it_is_under_way() -> None:
    waiting = [Tracked(finding("a")), Tracked(finding("b"))]
    assert names(candidates(CANARY, waiting, 0)) == ["a"]
    assert candidates(CANARY, waiting, 1) == []


def test_dry_runs_take_turns_and_prefer_templates_without_suspicion() -> None:
    odd, sound = Tracked(finding("odd"), suspect=True), Tracked(finding("sound"))
    assert probe_candidate([odd, sound], 0) is sound
    assert probe_candidate([odd, sound], 1) is sound
    assert probe_candidate([odd], 7) is odd
    assert probe_candidate([], 0) is None
