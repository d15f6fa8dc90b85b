"""The lock under the official client's election: two candidates, clocks that jump, an API server that is away."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes.leaderelection import electionconfig, leaderelection

from remesh.errors import ClusterUnreachable
from remesh.kube.config import load_access
from remesh.kube.election import LEASE, Ended, LeaseLock, Terms
from remesh.kube.transport import KubeClient
from remesh.testbed import TestBed


@pytest.fixture(params=["sim", pytest.param("real", marks=pytest.mark.real)])
def client(request: pytest.FixtureRequest) -> Iterator[KubeClient]:
    bed: TestBed = request.getfixturevalue(f"{request.param}_cluster")
    opened = KubeClient(load_access(bed.kubeconfig))
    yield opened
    opened.close()


@dataclass
class Clock:
    """Monotonic time that a test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class _Clocked:
    """The module `time` as one process sees it whose clock was set."""

    def __init__(self, jump: float) -> None:
        self._jump = jump

    def time(self) -> float:
        return time.time() + self._jump


@dataclass
class Candidate:
    """One lock, and one step of the official client's election on it."""

    client: Any
    name: str
    identity: str
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        terms = Terms("default", self.name, self.identity, 15, 10, 2)
        self.lock = LeaseLock(self.client, terms, self.clock)
        untyped: Any = electionconfig.Config
        config = untyped(self.lock, 15, 10, 2, lambda: None, lambda: None)
        election: Any = leaderelection.LeaderElection
        self.election = election(config)

    def asks(self) -> bool:
        return bool(self.election.try_acquire_or_renew())


@pytest.fixture
def pair(client: KubeClient) -> Iterator[tuple[Candidate, Candidate]]:
    name = f"remesh-watcher-{secrets.token_hex(3)}"
    yield Candidate(client, name, "first"), Candidate(client, name, "second")
    client.request("DELETE", LEASE.path("default", name))


def spec(candidate: Candidate) -> dict[str, Any]:
    found: dict[str, Any] = candidate.client.get(LEASE.path("default", candidate.name))["spec"]
    return found


def test_one_leads_and_the_other_waits_for_the_whole_lease(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    assert first.asks()
    assert not second.asks()
    assert (first.lock.leads(), second.lock.leads()) == (True, False)
    assert second.lock.holder == "first"
    second.clock.now += 14.9
    assert not second.asks()
    second.clock.now += 0.2
    assert second.asks()
    assert second.lock.leads()
    assert (spec(second)["holderIdentity"], spec(second)["leaseTransitions"]) == ("second", 1)


def test_a_renewal_starts_the_wait_anew(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.asks()
    second.asks()
    acquired = spec(first)["acquireTime"]
    assert first.asks()
    assert spec(first)["acquireTime"] == acquired
    second.clock.now += 10
    second.asks()
    second.clock.now += 10
    assert not second.asks()


def test_a_leader_stops_before_anybody_else_may_begin(pair: tuple[Candidate, Candidate]) -> None:
    first, _ = pair
    first.asks()
    first.clock.now += 9.9
    assert first.lock.leads()
    first.clock.now += 0.2
    assert not first.lock.leads()


def test_a_leader_that_was_replaced_knows_at_its_next_look(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.asks()
    second.asks()
    second.clock.now += 16
    assert second.asks()
    assert not first.asks()
    assert not first.lock.leads()
    assert first.lock.holder == "second"


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forwards", "backwards"])
def test_a_clock_that_jumps_changes_nothing(
    pair: tuple[Candidate, Candidate], jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    first.asks()
    second.asks()
    real, official = time.time, _Clocked(jump)
    monkeypatch.setattr(leaderelection, "time", official)
    assert abs(official.time() - real() - jump) < 60
    assert not second.asks()
    assert first.lock.leads()
    second.clock.now += 16
    assert second.asks()


def test_a_lease_that_was_given_back_is_free_at_once(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.asks()
    second.asks()
    first.lock.close()
    assert not first.lock.leads()
    assert "holderIdentity" not in spec(first)
    assert second.asks()
    with pytest.raises(Ended):
        first.asks()


def test_one_that_never_led_gives_nothing_back(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.asks()
    second.asks()
    second.lock.close()
    assert spec(first)["holderIdentity"] == "first"


def test_an_api_server_that_is_away_is_no_renewal_and_no_end(pair: tuple[Candidate, Candidate]) -> None:
    first, _ = pair
    first.asks()
    there = first.client

    class Away:
        access = there.access

        def get(self, *_: Any, **__: Any) -> Any:
            raise ClusterUnreachable("no connection")

        request = get

    first.lock._client = Away()  # type: ignore[assignment]
    first.clock.now += 5
    assert not first.asks()
    assert first.lock.leads()
    first.clock.now += 6
    assert not first.lock.leads()
    first.lock._client = there
    assert first.asks()
    assert first.lock.leads()


def test_of_two_at_once_one_wins(pair: tuple[Candidate, Candidate]) -> None:
    first, second = pair
    first.asks()
    first.lock.close()
    third = Candidate(second.client, second.name, "third")
    second.lock.get(second.name, "default")
    third.lock.get(third.name, "default")
    assert second.lock.update(second.name, "default", None)
    assert not third.lock.update(third.name, "default", None)
    assert (second.lock.leads(), third.lock.leads()) == (True, False)
