"""What time it is, by what the API server's answers say and by the host's own clock."""

from email.utils import formatdate

import pytest

from remesh.kube.clock import ClusterClock

START = 1_796_000_000.0


class Hosts:
    """The API server's clock and this host's, as a test sets them."""

    def __init__(self, wrong_by: float = 0.0) -> None:
        self.passed = 0.0
        self.wrong_by = wrong_by
        self.server = START
        self.clock = ClusterClock(lambda: self.passed, lambda: START + self.passed + self.wrong_by)

    def asked(self, seconds: float = 0.01) -> None:
        sent = self.passed
        self.passed += seconds
        self.clock.hear(formatdate(self.server + self.passed, usegmt=True), sent)

    @property
    def off(self) -> float:
        """By how much it is wrong."""
        return self.clock.now().timestamp() - (self.server + self.passed)


def test_a_host_whose_clock_agrees_uses_it() -> None:
    hosts = Hosts(wrong_by=0.4)
    for _ in range(20):
        hosts.asked(0.3)
    assert hosts.off == pytest.approx(0.4)


@pytest.mark.parametrize("wrong_by", [86400.0, -86400.0, 5.0, -5.0])
def test_a_host_whose_clock_is_wrong_goes_by_the_answers(wrong_by: float) -> None:
    hosts = Hosts(wrong_by)
    assert hosts.off == wrong_by  # nobody has answered yet
    for _ in range(20):
        hosts.asked(0.33)
    assert abs(hosts.off) < 0.2


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_setting_the_hosts_clock_changes_nothing(by: float) -> None:
    hosts = Hosts()
    for _ in range(20):
        hosts.asked(0.33)
    before = hosts.clock.now()
    hosts.wrong_by = by
    assert abs(hosts.off) < 0.2
    assert hosts.clock.now() >= before


@pytest.mark.parametrize("by", [3600.0, -3600.0])
def test_the_api_servers_own_jump_is_followed(by: float) -> None:
    hosts = Hosts()
    hosts.asked()
    hosts.clock.now()
    hosts.server += by
    for _ in range(20):
        hosts.asked(0.33)
    assert abs(hosts.off) < 0.2


def test_rounding_alone_never_sets_it_back() -> None:
    hosts = Hosts(wrong_by=100.0)
    seen = []
    for _ in range(100):
        hosts.asked(0.07)
        seen.append(hosts.clock.now())
    assert seen == sorted(seen)


def test_what_is_no_date_is_left_out() -> None:
    hosts = Hosts()
    for header in (None, "", "yesterday", "Mon, 99 Foo 2026 25:61:00 GMT"):
        hosts.clock.hear(header, 0.0)
    assert hosts.off == 0
