"""A clock that jumps is told of once, and one that goes to and fro once a minute at most."""

from datetime import UTC, datetime

from watcher.clocks import JUMP_SECONDS, QUIET_SECONDS, Clocks


class Host:
    """A steady clock, and another one that a test sets."""

    def __init__(self) -> None:
        self.passed = 1000.0
        self.ahead = 0.0
        self.clocks = Clocks({"Redis'": self.read}, lambda: self.passed)

    def read(self) -> datetime:
        return datetime.fromtimestamp(1_796_000_000 + self.passed + self.ahead, UTC)

    def seen(self, ahead: float, seconds: float = 5.0) -> list[str]:
        self.passed += seconds
        self.ahead = ahead
        return [str(jump) for jump in self.clocks.look()]


def test_a_jump_is_told_of_once() -> None:
    host = Host()
    assert [host.seen(0), host.seen(0), host.seen(-3600), host.seen(-3600)] == [
        [],
        [],
        ["Redis' clock went back by 3600 s"],
        [],
    ]


def test_a_clock_that_is_slewed_does_not_jump() -> None:
    host = Host()
    assert [host.seen(step * 0.5 * JUMP_SECONDS) for step in range(20)] == [[]] * 20


def test_clocks_that_disagree_and_answer_in_turn_are_told_of_once_a_minute_at_most() -> None:
    host = Host()
    host.seen(0)
    told = [jump for step in range(48) for jump in host.seen(100.0 * (step % 2))]
    assert len(told) <= 48 * 5 / QUIET_SECONDS + 1


def test_a_jump_soon_after_another_is_told_of_in_the_end() -> None:
    host = Host()
    host.seen(0)
    assert host.seen(100) == ["Redis' clock went forward by 100 s"]
    assert host.seen(300) == []
    assert host.seen(300, QUIET_SECONDS) == ["Redis' clock went forward by 200 s"]
