"""The ledger lets one do what two must not, forgets in time, and says so when it cannot."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from remesh.errors import BrokerError, BrokerUnreachable
from remesh.ledger import ATTEMPTS_SECONDS, DAY, GateState, Ledger, Quarantine
from remesh.ledger_window import Admitted, Asked
from remesh.models import Outcome, Result
from remesh.policy import WindowPolicy
from remesh.redisdb import VISIBILITY_TIMEOUT_SECONDS, RedisClient, connect_url
from tests.redis.conftest import AT, finding, reserve, until

BASE = "remesh:{test}:"
WINDOW = WindowPolicy(initial=8, minimum=2, maximum=64)
INJECTOR = "istio-system/istiod"


# Findings


def test_an_open_finding_keeps_its_id_over_a_restart(ledger: Ledger) -> None:
    assert ledger.open_finding("u1", "f-1") == "f-1"
    assert ledger.open_finding("u1", "f-2") == "f-1"
    assert ledger.open_finding("u2", "f-2") == "f-2"


def test_a_closed_finding_makes_room_for_the_next(ledger: Ledger) -> None:
    ledger.open_finding("u1", "f-1")
    assert ledger.close_finding("u1", "f-1")
    assert not ledger.close_finding("u1", "f-1")
    assert ledger.open_finding("u1", "f-2") == "f-2"


def test_closing_an_old_finding_leaves_the_new_one_open(ledger: Ledger) -> None:
    ledger.open_finding("u1", "f-2")
    assert not ledger.close_finding("u1", "f-1")
    assert ledger.open_finding("u1", "f-3") == "f-2"


def test_an_open_finding_ends_with_its_time_and_each_sight_starts_it_anew(redis: RedisClient, ledger: Ledger) -> None:
    ledger.open_finding("u1", "f-1", ttl=0.05)
    ledger.open_finding("u1", "f-1", ttl=60)
    assert int(redis.pttl(f"{BASE}finding:u1")) > 50_000
    ledger.open_finding("u2", "f-2", ttl=0.05)
    until(lambda: redis.exists(f"{BASE}finding:u2") == 0)
    assert ledger.open_finding("u2", "f-3") == "f-3"


def test_open_findings_are_listed_oldest_first_until_closed(ledger: Ledger) -> None:
    old, new = finding(1), finding(2, first_seen=AT + timedelta(minutes=1))
    ledger.open_finding(old.ref.uid, old.id)
    ledger.note_findings([(new, "waiting"), (old, "waiting")])
    ledger.note_findings([(old, "released")])
    ledger.note_findings([])
    assert [(row.finding, row.state) for row in ledger.open_findings()] == [(old, "released"), (new, "waiting")]
    ledger.close_finding(old.ref.uid, old.id)
    assert [row.finding.id for row in ledger.open_findings()] == [new.id]


def test_findings_of_a_watcher_that_is_gone_vanish(redis: RedisClient, ledger: Ledger) -> None:
    ledger.note_findings([(finding(1), "waiting")], ttl=0.01)
    until(lambda: ledger.open_findings() == [])
    assert redis.hlen(f"{BASE}findings") == 0


def test_a_finding_is_released_once_until_its_deadline(ledger: Ledger) -> None:
    assert ledger.released("f-1") is None
    assert ledger.mark_released("f-1", 1, "task-1", 60)
    assert not ledger.mark_released("f-1", 2, "task-2", 60)
    known = ledger.released("f-1")
    assert known is not None
    assert (known.attempt, known.task_id, known.overdue) == (1, "task-1", False)
    assert known.deadline - known.at == timedelta(seconds=60)


def test_a_release_past_its_deadline_is_remembered_and_may_be_repeated(redis: RedisClient, ledger: Ledger) -> None:
    ledger.mark_released("f-1", 1, "task-1", 0.02)
    until(lambda: (known := ledger.released("f-1")) is not None and known.overdue)
    assert ledger.mark_released("f-1", 2, "task-2", 60)
    known = ledger.released("f-1")
    assert known is not None
    assert (known.attempt, known.overdue) == (2, False)
    assert DAY * 1000 < int(redis.pttl(f"{BASE}released:f-1")) <= (DAY + 60) * 1000


def test_a_cleared_release_may_be_repeated_at_once(ledger: Ledger) -> None:
    ledger.mark_released("f-1", 1, "task-1", 60)
    ledger.clear_released("f-1")
    assert ledger.released("f-1") is None
    assert ledger.mark_released("f-1", 2, "task-2", 60)


def test_attempts_are_numbered_upwards_whoever_asks(real: RedisClient) -> None:
    ledger = Ledger(real, "test")
    with ThreadPoolExecutor(8) as askers:
        numbers = list(askers.map(lambda _: ledger.next_attempt("f-1"), range(40)))
    assert sorted(numbers) == list(range(1, 41))
    ledger.clear_released("f-1")
    assert ledger.next_attempt("f-1") == 41
    assert ledger.next_attempt("f-2") == 1


def test_of_many_watchers_one_releases(real: RedisClient) -> None:
    ledger = Ledger(real, "test")
    with ThreadPoolExecutor(16) as watchers:
        answers = list(watchers.map(lambda number: ledger.mark_released("f-1", number, f"t-{number}", 60), range(64)))
    assert answers.count(True) == 1


def test_the_last_outcome_is_kept_for_a_day(redis: RedisClient, ledger: Ledger) -> None:
    assert ledger.outcome("f-1") is None
    outcome = Outcome(finding_id="f-1", result=Result.HEALED, code="healed", reason="All pods are there.", created=3)
    ledger.set_outcome(outcome)
    assert ledger.outcome("f-1") == outcome
    assert 0 < int(redis.ttl(f"{BASE}outcome:f-1")) <= DAY


# Leases


def test_one_holds_an_object_and_another_gets_it_after_release(ledger: Ledger) -> None:
    lease = ledger.lease("u1", 30)
    assert lease is not None
    assert ledger.lease("u1", 30) is None
    assert ledger.lease("u2", 30) is not None
    with lease:
        assert lease.renew()
    assert ledger.lease("u1", 30) is not None


def test_a_lease_ends_by_itself_and_its_late_holder_learns_it(ledger: Ledger) -> None:
    late = ledger.lease("u1", 0.02)
    assert late is not None
    until(lambda: (taken := ledger.lease("u1", 30)) is not None and taken.token != late.token)
    assert not late.renew()
    assert not late.release()
    assert ledger.lease("u1", 30) is None, "the late holder's release must not end another's lease"


def test_renewing_starts_the_time_anew(redis: RedisClient, ledger: Ledger) -> None:
    lease = ledger.lease("u1", 5)
    assert lease is not None
    assert lease.renew(100)
    assert int(redis.pttl(f"{BASE}lease:u1")) > 50_000


@pytest.mark.parametrize("seconds", [0, -1, VISIBILITY_TIMEOUT_SECONDS])
def test_a_lease_is_shorter_than_the_visibility_timeout(ledger: Ledger, seconds: float) -> None:
    with pytest.raises(ValueError, match="shorter"):
        ledger.lease("u1", seconds)


def test_of_many_workers_one_gets_the_lease(real: RedisClient) -> None:
    ledger = Ledger(real, "test")
    with ThreadPoolExecutor(16) as workers:
        leases = list(workers.map(lambda _: ledger.lease("u1", 30), range(64)))
    assert sum(lease is not None for lease in leases) == 1


# Attempts and quarantine


def test_failures_are_counted_per_owner_and_template_until_a_success(ledger: Ledger) -> None:
    assert ledger.attempts("u1", "t1") == 0
    assert ledger.record_failure("u1", "t1", "no pods came") == 1
    assert ledger.record_failure("u1", "t1", "pods came bare") == 2
    assert ledger.attempts("u1", "t1") == 2
    assert (ledger.attempts("u1", "t2"), ledger.attempts("u2", "t1")) == (0, 0)
    known = ledger.failures("u1", "t1")
    assert (known.count, known.reason) == (2, "pods came bare")
    ledger.record_success("u1", "t1")
    assert ledger.attempts("u1", "t1") == 0


def test_the_same_attempt_is_not_counted_twice(ledger: Ledger) -> None:
    assert ledger.record_failure("u1", "t1", "bare", token="task-1") == 1
    assert ledger.record_failure("u1", "t1", "bare", token="task-1") == 1
    assert ledger.record_failure("u1", "t1", "bare", token="task-2") == 2


def test_the_cooldown_runs_out(ledger: Ledger) -> None:
    assert ledger.cooldown_left("u1", "t1") == 0
    ledger.record_failure("u1", "t1", "bare", cooldown_seconds=60)
    assert 50 < ledger.cooldown_left("u1", "t1") <= 60
    ledger.record_failure("u1", "t1", "bare", cooldown_seconds=0)
    until(lambda: ledger.cooldown_left("u1", "t1") == 0)
    assert ledger.attempts("u1", "t1") == 2


def test_attempts_are_forgotten_in_the_end(redis: RedisClient, ledger: Ledger) -> None:
    ledger.record_failure("u1", "t1", "bare")
    assert 0 < int(redis.ttl(f"{BASE}attempts:u1:t1")) <= ATTEMPTS_SECONDS + 60


def test_a_quarantine_holds_its_evidence_until_cleared(ledger: Ledger) -> None:
    ledger.record_failure("u1", "t1", "bare")
    assert ledger.quarantined("u1", "t1") is None
    entry = ledger.quarantine("u1", "t1", {"webhook": "abc", "bare": 3})
    assert ledger.quarantined("u1", "t1") == entry
    assert entry.evidence == {"webhook": "abc", "bare": 3}
    assert ledger.quarantined("u1", "t2") is None, "another template is another matter"
    ledger.quarantine("u2", "t1", {})
    assert [row.uid for row in ledger.quarantines()] == ["u1", "u2"]
    assert ledger.clear_quarantine("u1", "t1")
    assert not ledger.clear_quarantine("u1", "t1")
    assert ledger.quarantined("u1", "t1") is None
    assert ledger.attempts("u1", "t1") == 0


def test_quarantines_of_owners_long_gone_are_dropped(redis: RedisClient, ledger: Ledger) -> None:
    old = Quarantine(uid="u1", template_hash="t1", since=datetime.now(UTC) - timedelta(days=31))
    redis.hset(f"{BASE}quarantine", "u1:t1", old.model_dump_json())
    ledger.quarantine("u2", "t1", {})
    assert [row.uid for row in ledger.quarantines()] == ["u2"]
    assert redis.hlen(f"{BASE}quarantine") == 1


def test_a_value_of_another_version_is_as_good_as_none(redis: RedisClient, ledger: Ledger) -> None:
    redis.hset(f"{BASE}gates", mapping={INJECTOR: '{"open":"perhaps"}', "other": "no json"})
    redis.set(f"{BASE}outcome:f-1", "{}")
    assert ledger.gates() == {}
    assert ledger.outcome("f-1") is None


# Window


def test_reservations_add_up_to_the_limit(ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "f-1", 6, 10, 60)
    assert not reserve(ledger, INJECTOR, "f-2", 5, 10, 60)
    assert reserve(ledger, INJECTOR, "f-3", 4, 10, 60)
    assert ledger.in_flight(INJECTOR) == 10
    assert reserve(ledger, "other/injector", "f-2", 5, 10, 60)
    ledger.release_reservation(INJECTOR, "f-1")
    assert ledger.in_flight(INJECTOR) == 4
    assert reserve(ledger, INJECTOR, "f-2", 5, 10, 60)


def test_the_same_holder_replaces_its_reservation(ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "f-1", 6, 10, 60)
    assert reserve(ledger, INJECTOR, "f-1", 8, 10, 60)
    assert ledger.in_flight(INJECTOR) == 8


def test_a_workload_larger_than_the_window_goes_alone(ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "f-1", 500, 10, 60)
    assert not reserve(ledger, INJECTOR, "f-2", 1, 10, 60)
    ledger.release_reservation(INJECTOR, "f-1")
    assert reserve(ledger, INJECTOR, "f-2", 1, 10, 60)
    assert not reserve(ledger, INJECTOR, "f-1", 500, 10, 60)


def test_the_room_of_a_dead_holder_comes_back(redis: RedisClient, ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "f-1", 10, 10, 0.02)
    until(lambda: reserve(ledger, INJECTOR, "f-2", 10, 10, 60))
    assert ledger.in_flight(INJECTOR) == 10
    assert set(redis.hkeys(f"{BASE}flight:{INJECTOR}")) == {"f-2", ""}
    assert 0 < int(redis.pttl(f"{BASE}flight:{INJECTOR}")) <= 60_000


def test_what_an_earlier_attempt_gives_back_late_is_kept_for_the_later_one(ledger: Ledger) -> None:
    """A worker writes the outcome first; the watcher may have read it and released anew before the room comes back."""
    assert reserve(ledger, INJECTOR, "f-1", 6, 10, 60)
    ledger.clear_released("f-1")
    assert reserve(ledger, INJECTOR, "f-1", 6, 10, 60)
    ledger.release_reservation(INJECTOR, "f-1", 1)
    assert ledger.in_flight(INJECTOR) == 6
    ledger.release_reservation(INJECTOR, "f-1", 2)
    assert ledger.in_flight(INJECTOR) == 0


def test_the_sum_of_the_window_is_made_anew_if_it_was_lost(redis: RedisClient, ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "f-1", 3, 10, 60)
    assert reserve(ledger, INJECTOR, "f-2", 4, 10, 60)
    redis.hdel(f"{BASE}flight:{INJECTOR}", "")
    assert ledger.in_flight(INJECTOR) == 7
    assert not reserve(ledger, INJECTOR, "f-3", 4, 10, 60)
    ledger.release_reservation(INJECTOR, "f-1")
    ledger.release_reservation(INJECTOR, "f-1")
    assert ledger.in_flight(INJECTOR) == 4
    ledger.release_reservation(INJECTOR, "f-2")
    assert not redis.exists(f"{BASE}flight:{INJECTOR}", f"{BASE}flight-end:{INJECTOR}")


def asked(number: int, pods: int) -> Asked:
    return Asked(f"f-{number}", f"stem-{number}-", pods)


def test_admission_reserves_numbers_and_marks_up_to_the_first_without_room(ledger: Ledger) -> None:
    wanted = [asked(1, 4), asked(2, 2), asked(3, 4), asked(4, 1)]
    assert ledger.admit(INJECTOR, wanted, 60, WINDOW) == [Admitted(1), Admitted(1)]
    assert ledger.released("f-3") is None
    assert ledger.next_attempt("f-3") == 1
    assert ledger.in_flight(INJECTOR) == 6
    standing = ledger.released("f-1")
    assert standing is not None
    assert (standing.attempt, standing.task_id) == (1, "stem-1-1")
    (again,) = ledger.admit(INJECTOR, [asked(1, 4)], 60, WINDOW)
    assert again.attempt == 0
    assert again.standing is not None
    assert again.standing.model_dump(exclude={"left"}) == standing.model_dump(exclude={"left"})
    assert 0 < again.standing.left <= 60
    ledger.clear_released("f-1")
    assert ledger.admit("", [asked(1, 0)], 60, WINDOW) == [Admitted(2)]
    assert ledger.in_flight(INJECTOR) == 6


def test_releases_at_the_same_time_are_one(real: RedisClient) -> None:
    ledger = Ledger(real, "test")
    with ThreadPoolExecutor(16) as watchers:
        answers = list(watchers.map(lambda _: ledger.admit(INJECTOR, [asked(1, 2)], 60, WINDOW), range(32)))
    assert sorted(each.attempt for (each,) in answers) == [0] * 31 + [1]
    assert ledger.in_flight(INJECTOR) == 2


def test_to_begin_a_finding_tells_what_is_known_of_it(ledger: Ledger) -> None:
    new = ledger.begin_finding("u1", "f-1", "owner", "hash")
    assert (new.id, new.released, new.quarantine) == ("f-1", None, None)
    ledger.mark_released("f-1", 1, "task-1", 60)
    held = ledger.quarantine("owner", "hash", {})
    again = ledger.begin_finding("u1", "f-2", "owner", "hash")
    assert (again.id, again.quarantine) == ("f-1", held)
    assert again.released is not None
    assert (again.released.attempt, again.released.task_id) == (1, "task-1")
    assert ledger.begin_finding("u2", "f-3", "owner", "other").quarantine is None


def test_a_short_reservation_does_not_shorten_a_long_one(ledger: Ledger) -> None:
    assert reserve(ledger, INJECTOR, "long", 3, 10, 60)
    assert reserve(ledger, INJECTOR, "short", 3, 10, 0.02)
    until(lambda: ledger.in_flight(INJECTOR) == 3)
    assert ledger.in_flight(INJECTOR) == 3


def test_reservations_at_the_same_time_never_exceed_the_limit(real: RedisClient) -> None:
    ledger = Ledger(real, "test")
    with ThreadPoolExecutor(16) as watchers:
        answers = list(watchers.map(lambda number: reserve(ledger, INJECTOR, f"f-{number}", 3, 20, 60), range(64)))
    assert answers.count(True) == 6
    assert ledger.in_flight(INJECTOR) == 18


def test_a_full_window_that_went_well_doubles_it_up_to_the_maximum(ledger: Ledger) -> None:
    assert ledger.window_size(INJECTOR, WINDOW) == 8
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=8) == 16
    assert [ledger.window_feedback(INJECTOR, True, WINDOW) for _ in range(16)][-1] == 32
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=32) == 64
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=64) == 64
    assert ledger.window_size(INJECTOR, WINDOW) == 64
    assert ledger.window_size("other/injector", WINDOW) == 8


def test_one_large_workload_at_most_doubles_the_window(ledger: Ledger) -> None:
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=500) == 16


def test_a_failure_halves_the_window_once_per_burst(ledger: Ledger) -> None:
    assert ledger.window_feedback(INJECTOR, False, WINDOW) == 4
    assert [ledger.window_feedback(INJECTOR, False, WINDOW) for _ in range(20)] == [4] * 20


def test_after_a_failure_the_window_grows_by_one_per_full_window(redis: RedisClient, ledger: Ledger) -> None:
    ledger.window_feedback(INJECTOR, False, WINDOW)
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=4) == 5
    assert ledger.window_feedback(INJECTOR, True, WINDOW, pods=5) == 6


def test_repeated_failures_stop_at_the_minimum(redis: RedisClient, ledger: Ledger) -> None:
    for _ in range(6):
        ledger.window_feedback(INJECTOR, False, WINDOW)
        redis.hset(f"{BASE}window:{INJECTOR}", "halved", "0")
    assert ledger.window_size(INJECTOR, WINDOW) == 2


def test_a_window_learned_under_another_policy_stays_within_this_one(ledger: Ledger) -> None:
    ledger.window_feedback(INJECTOR, True, WINDOW, pods=8)
    assert ledger.window_size(INJECTOR, WindowPolicy(initial=4, minimum=1, maximum=10)) == 10
    assert ledger.window_size(INJECTOR, WindowPolicy(initial=30, minimum=20, maximum=100)) == 20


def test_what_the_window_learned_is_forgotten_after_an_hour(redis: RedisClient, ledger: Ledger) -> None:
    ledger.window_feedback(INJECTOR, True, WINDOW)
    assert 0 < int(redis.ttl(f"{BASE}window:{INJECTOR}")) <= 3600


# Gates


def test_gates_are_seen_by_all_processes(ledger: Ledger) -> None:
    closed = GateState(open=False, since=AT, reason="no ready endpoint", mesh="istio", ready=0, total=2, waiting=85)
    ledger.set_gate(INJECTOR, closed)
    ledger.set_gate("linkerd/linkerd-proxy-injector", GateState(open=True, since=AT, probe_ms=12.5))
    gates = ledger.gates()
    assert gates[INJECTOR].model_copy(update={"seen": None}) == closed
    assert gates[INJECTOR].seen is not None
    assert gates["linkerd/linkerd-proxy-injector"].open
    ledger.drop_gate(INJECTOR)
    assert list(ledger.gates()) == ["linkerd/linkerd-proxy-injector"]


# Whatever goes wrong


def test_clusters_share_a_server_and_nothing_else(redis: RedisClient) -> None:
    one, two = Ledger(redis, "one"), Ledger(redis, "two")
    one.open_finding("u1", "f-1")
    assert two.open_finding("u1", "f-2") == "f-2"
    assert one.lease("u1", 30) is not None
    assert two.lease("u1", 30) is not None


def test_every_key_but_the_three_shared_tables_has_an_end(redis: RedisClient, ledger: Ledger) -> None:
    ledger.open_finding("u1", "f-1")
    ledger.note_findings([(finding(1), "waiting")])
    ledger.mark_released("f-1", ledger.next_attempt("f-1"), "t", 60)
    ledger.set_outcome(Outcome(finding_id="f-1", result=Result.HEALED, code="healed", reason="Healed."))
    ledger.lease("u1", 30)
    ledger.record_failure("u1", "t1", "bare")
    ledger.quarantine("u1", "t1", {})
    reserve(ledger, INJECTOR, "f-1", 1, 10, 60)
    ledger.window_feedback(INJECTOR, True, WINDOW)
    ledger.set_gate(INJECTOR, GateState(open=True, since=AT))
    keys = [str(key) for key in redis.keys("*")]
    assert all(key.startswith(BASE) for key in keys)
    assert {key.removeprefix(BASE) for key in keys if int(redis.ttl(key)) < 0} == {"findings", "quarantine", "gates"}


def test_no_server_is_one_clear_line() -> None:
    with connect_url("redis://:hunter2@127.0.0.1:1/0") as client, pytest.raises(BrokerUnreachable) as caught:
        Ledger(client, "test").lease("u1", 30)
    assert str(caught.value) == "cannot take a lease: Redis at 127.0.0.1:1: connection refused"


def test_a_full_server_is_one_clear_line(real: RedisClient) -> None:
    real.set("filler", "x")
    real.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(BrokerError, match=r"cannot take a lease: .*Redis is full"):
            Ledger(real, "test").lease("u1", 30)
    finally:
        real.config_set("maxmemory", "0")
