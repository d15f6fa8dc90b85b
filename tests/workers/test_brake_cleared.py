"""A brake that a person clears: it opens at once, for one pod, and the first that does not come back shuts it again."""

from remesh.ledger import Ledger
from remesh.policy import WindowPolicy
from tests.workers import recreate_doubles as d
from tests.workers.test_brake import (
    KEY,
    find_all,
    let_the_time_pass,
    of_owners,
    pending_for_good,
    take,
    tell,
    two_lost_one_on_its_way,
)
from workers.recreate_lost import whose
from workers.repair import repair

WINDOW = WindowPolicy()


def shut(ledger: Ledger) -> None:
    for holder in "ab":
        assert take(ledger, holder) == "free"
        tell(ledger, holder, good=False)


def test_a_brake_that_is_shut_is_listed_with_what_is_lost(ledger: Ledger) -> None:
    assert ledger.brakes.all_shut([KEY]) == []
    shut(ledger)
    (found,) = ledger.brakes.all_shut()
    assert (found.injector, found.bad, found.in_flight, set(found.lost)) == (KEY, 2, 0, {"a", "b"})
    assert 50 < found.seconds <= 60

    let_the_time_pass(ledger)
    assert ledger.brakes.all_shut()[0].seconds == 0
    find_all(ledger)
    assert ledger.brakes.all_shut() == []
    assert not ledger.clear_brake(KEY, WINDOW)


def test_to_ask_is_to_hear_what_taking_would_say_and_to_take_nothing(ledger: Ledger) -> None:
    def same(holder: str) -> str:
        asked = ledger.brakes.ask(KEY, holder).code
        assert asked == ledger.brakes.ask(KEY, holder).code == take(ledger, holder)
        return asked

    assert [same("a"), same("b"), same("a")] == ["free", "canary", "free"]
    tell(ledger, "a", good=False)
    assert same("b") == "free"
    tell(ledger, "b", good=False)
    assert same("c") == "shut"
    let_the_time_pass(ledger)
    assert same("c") == "lost"
    assert ledger.brakes.ask(KEY, "c", all_back=True).code == "free"
    find_all(ledger)
    assert [same("c"), same("d")] == ["free", "canary"]
    tell(ledger, "c", good=True)
    assert [same("d"), same("e")] == ["free", "free"]


def test_once_cleared_one_goes_and_others_only_when_it_is_back(ledger: Ledger) -> None:
    shut(ledger)
    assert ledger.clear_brake(KEY, WINDOW)
    assert (ledger.brakes.all_shut([KEY]), ledger.brakes.lost(KEY)) == ([], {})
    assert [take(ledger, "c"), take(ledger, "d")] == ["free", "canary"]
    tell(ledger, "c", good=True)
    assert [take(ledger, "d"), take(ledger, "e")] == ["free", "free"]


def test_once_cleared_the_window_is_at_its_smallest_and_grows_by_what_goes_well(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.window_feedback(KEY, True, WINDOW, 100)
    assert ledger.window_size(KEY, WINDOW) > WINDOW.initial
    shut(ledger)
    ledger.clear_brake(KEY, WINDOW)
    assert ledger.window_size(KEY, WINDOW) == WINDOW.minimum
    assert ledger.window_feedback(KEY, True, WINDOW) == 2 * WINDOW.minimum


def test_a_brake_cleared_too_early_is_shut_again_by_the_first_that_fails_and_for_longer(ledger: Ledger) -> None:
    shut(ledger)
    ledger.clear_brake(KEY, WINDOW)
    assert take(ledger, "c") == "free"
    tell(ledger, "c", good=False)
    assert 110 < ledger.brakes.take(KEY, "d", 60).number <= 120


def test_what_was_on_its_way_has_to_end_before_another_goes(ledger: Ledger) -> None:
    two_lost_one_on_its_way(ledger)
    assert ledger.brakes.all_shut()[0].in_flight == 1
    ledger.clear_brake(KEY, WINDOW)
    assert take(ledger, "d") == "canary"
    tell(ledger, "c", good=True)
    assert take(ledger, "d") == "free"


def test_of_eight_owners_one_more_loses_its_pod_when_it_was_cleared_too_early() -> None:
    world = of_owners(8)
    pending_for_good(world)
    lost = {whose(about) for about in world.ledger.brakes.lost(KEY).values()}
    assert lost == {"shop/ReplicaSet/web"}
    world.ledger.clear_brake(KEY, world.policy.window)
    world.cluster.obey = d.vanishes

    codes = [repair(d.a_request(number), world.another_worker()).code for number in range(4, 8)]

    assert (codes[0], set(codes[1:])) == ("not_replaced", {"brake_shut"})
    assert len(world.cluster.evicted) == 3
    world.redis.close()
