"""The pace of evictions: by what the injector takes at rest, never beyond what the policy allows."""

from remesh.policy import WindowPolicy
from watcher.pace import AT_FIRST, SPREAD, Pace, Spread, anew, at_rest, at_work, spacing

WINDOW = WindowPolicy(maximum=100)
REST, SLOW = 0.05, 0.5


def after(pace: Pace, *seconds: float, under_way: int | None = None) -> Pace:
    """Samples while as many evictions are under way as may be, unless said otherwise."""
    for each in seconds:
        count = int(pace.limit) if under_way is None else under_way
        pace = at_work(pace, each, under_way=count, window=WINDOW)
    return pace


def known() -> Pace:
    return at_rest(AT_FIRST, REST)


def test_it_doubles_until_it_is_slow_then_halves_then_grows_by_one() -> None:
    pace = known()
    limits: list[int] = []
    for seconds in (REST, REST, REST, SLOW, SLOW, REST, REST, REST, REST):
        pace = after(pace, seconds)
        limits.append(int(pace.limit))
    assert limits == [4, 8, 16, 16, 8, 8, 9, 10, 11]


def test_slow_is_more_than_twice_the_fastest_at_rest() -> None:
    pace = at_rest(at_rest(known(), 0.2), 0.06)
    assert pace.rest == REST
    assert after(pace, 0.09, 0.09).limit == 8
    assert after(pace, *[0.11] * 5).limit < 2


def test_a_few_milliseconds_are_chance() -> None:
    pace = at_rest(AT_FIRST, 0.004)
    assert after(pace, 0.02, 0.02).limit == 8
    assert after(pace, *[0.03] * 9).limit < 2


def test_one_slow_answer_among_fast_ones_is_chance() -> None:
    assert not after(known(), REST, REST, SLOW, REST, REST, SLOW, REST).cuts
    assert after(known(), REST, SLOW, SLOW).cuts == 1


def test_what_was_heard_before_it_was_lowered_does_not_lower_it_again() -> None:
    pace = after(known(), REST, REST, REST, SLOW, SLOW)
    assert after(pace, SLOW).limit == pace.limit
    assert after(pace, SLOW, SLOW).limit == pace.limit / 2


def test_it_halves_what_was_really_under_way() -> None:
    pace = after(known(), REST, REST, REST)
    assert after(pace, SLOW, SLOW, under_way=4).limit == 2


def test_it_does_not_grow_while_it_is_not_used() -> None:
    assert after(known(), REST, REST, under_way=0).limit == 2
    assert after(known(), REST, REST, REST, under_way=1).limit == 4


def test_it_stays_within_the_policy_and_never_ends() -> None:
    assert after(known(), *[REST] * 20).limit == 100
    assert after(known(), *[SLOW] * 20).limit == 1
    only_one = WindowPolicy(initial=1, maximum=1)
    assert at_work(known(), REST, under_way=2, window=only_one).limit == 1


def test_a_failure_begins_anew_and_keeps_what_is_known_of_rest() -> None:
    assert anew(after(known(), REST, REST, SLOW)) == Pace(rest=REST)


def test_without_a_time_at_rest_the_fastest_so_far_has_to_do() -> None:
    pace = after(AT_FIRST, 0.1)
    assert (pace.limit, pace.rest) == (2, 0.1)
    assert after(pace, 0.1).limit == 4


def test_evictions_follow_one_another_by_what_an_admission_takes_and_by_more_when_it_takes_longer() -> None:
    assert spacing(AT_FIRST) == 0
    assert spacing(known()) == SPREAD * REST
    assert spacing(after(known(), 0.08, 0.09)) == SPREAD * 0.08
    assert spacing(after(known(), REST / 2, REST / 2)) == SPREAD * REST
    assert spacing(after(known(), SLOW, SLOW)) == SPREAD * REST, "what was slow was answered by half as many"
    assert spacing(at_rest(AT_FIRST, SLOW)) == 1.0


def gone(spread: Spread, *rounds: float, seconds: float = 1.0) -> list[float]:
    """When evictions go in rounds at these times, if there are always some that wait."""
    times = []
    for now in rounds:
        spread.begin({"a", "b"}, now)
        while spread.free("a"):
            spread.took("a", seconds)
            times.append(now)
    return times


def test_one_goes_at_a_time_and_a_late_round_makes_up_for_less_than_one() -> None:
    assert gone(Spread(), 10.0, 10.5, 11.0, 11.2, 12.7, 13.0) == [10.0, 11.0, 12.7, 13.0]
    assert gone(Spread(), 10.0, 500.0, 500.1) == [10.0, 500.0]


def test_gates_do_not_wait_for_one_another_and_the_next_turn_is_the_first_that_is_held() -> None:
    spread = Spread()
    assert gone(spread, 10.0) == [10.0]
    assert spread.next_turn() == 11.0
    assert spread.free("b")
    spread.took("b", 0.5)
    assert not spread.free("b")
    assert spread.next_turn() == 10.5
    spread.begin({"a"}, 10.6)
    assert spread.next_turn() is None, "nobody waits any more"
    assert not spread.free("a")
    spread.begin({"a", "b"}, 10.7)
    assert spread.free("b"), "a gate that was gone begins anew"
