"""Who leads, and what a watcher that does not lead leaves alone; which namespaces a shard has."""

import threading
from collections.abc import Iterator

import fakeredis
import pytest

from remesh.errors import ConfigError
from remesh.ledger import GateState, Ledger
from remesh.meshes import load_profiles
from remesh.policy import Policy
from remesh.presence import Presence, Role, now_seen
from remesh.settings import Settings
from tests.watcher.test_runtime import PASSES, World, replica_set
from watcher.leader import Alone, Terms, _check_times, identity
from watcher.shard import Shard, parse_shard
from watcher.store import Store


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Policy(), load_profiles(), fakeredis.FakeRedis(decode_responses=True))
    made.answer = lambda _finding: PASSES
    yield made
    made.watcher.gatekeeper.close()


# Fencing


def test_nothing_is_released_without_a_fresh_lease(world: World) -> None:
    world.desk.leads = lambda: False
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds()
    assert world.sent == []
    assert world.ledger.in_flight("linkerd/linkerd-proxy-injector") == 0
    world.desk.leads = lambda: True
    world.rounds()
    assert len(world.sent) == 1


def test_a_lease_that_ends_between_mark_and_task_leaves_no_mark(world: World) -> None:
    answers = iter([True, False])
    world.desk.leads = lambda: next(answers, False)
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds()
    tracked = world.desk.book.get("web")
    assert tracked is not None
    assert world.sent == []
    assert world.ledger.released(tracked.finding.id) is None
    assert world.ledger.in_flight("linkerd/linkerd-proxy-injector") == 0


# Terms


class Switch(Alone):
    """Leads or not, as the test says."""

    on = False

    def leads(self) -> bool:
        return self.on

    def holder(self) -> str:
        return "somebody"


class Loop:
    """A term's loop that does nothing but look."""

    def __init__(self, began: list["Loop"], look: threading.Event) -> None:
        self.ended = threading.Event()
        self.look = look
        began.append(self)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.terms.look()
            self.look.wait(0.01)
        self.ended.set()

    terms: Terms


def test_each_term_begins_with_everything_and_a_loop_of_its_own() -> None:
    leadership, store, stop, began = Switch("me"), Store(), threading.Event(), list[Loop]()
    standby = threading.Event()

    def begin() -> Loop:
        loop = Loop(began, threading.Event())
        loop.terms = terms
        return loop

    terms = Terms(leadership, store, begin, standby.set)
    store.replace("ReplicaSet", [replica_set("web")])
    thread = threading.Thread(target=terms.run, args=(stop,))
    thread.start()
    try:
        assert standby.wait(5)
        for number in (1, 2):
            leadership.on = True
            _until(lambda number=number: len(began) == number)
            _until(lambda: store.take_dirty(10) == ["web"])
            leadership.on = False
            assert began[-1].ended.wait(5)
    finally:
        stop.set()
        thread.join(5)


def _until(state: "object") -> None:
    pause = threading.Event()
    for _ in range(500):
        if state():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("the state did not come in time")


def test_two_processes_of_one_pod_are_two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "watcher-0")
    assert identity().startswith("watcher-0_")
    assert identity() != identity()


@pytest.mark.parametrize(("duration", "deadline", "retry"), [(15, 15, 2), (15, 2, 2), (10, 12, 1)])
def test_times_that_would_let_two_lead_are_refused_by_name(duration: int, deadline: int, retry: int) -> None:
    values = {
        "lease_duration_seconds": duration,
        "lease_renew_deadline_seconds": deadline,
        "lease_retry_seconds": retry,
    }
    with pytest.raises(ConfigError, match="REMESH_LEASE_RENEW_DEADLINE_SECONDS"):
        _check_times(Settings.model_validate(values))


# Shards


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_namespace_is_in_exactly_one_shard(count: int) -> None:
    shards = [Shard(index, count) for index in range(count)]
    names = [f"team-{number}" for number in range(2000)]
    owners = [[shard.index for shard in shards if shard.owns(name)] for name in names]
    assert all(len(each) == 1 for each in owners)
    sizes = [sum(index in each for each in owners) for index in range(count)]
    assert min(sizes) > 0.8 * len(names) / count


def test_a_namespaces_shard_never_changes() -> None:
    assert [Shard(0, 2).owns(name) for name in ("shop", "bank", "kube-system")] == [False, False, True]


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2", "0/0", "1/2/3"])
def test_a_shard_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="REMESH_SHARD"):
        parse_shard(text)


def test_shards_find_each_finding_once(world: World) -> None:
    found = []
    for index in range(3):
        redis = fakeredis.FakeRedis(decode_responses=True)
        one = World(Policy(), load_profiles(), redis)
        one.desk.shard = Shard(index, 3)
        mine = [replica_set(f"web-{n}") for n in range(30) if one.desk.shard.owns(f"team-{n}")]
        one.store.replace("ReplicaSet", mine)
        one.rounds(2)
        found += [each.finding.ref.name for each in one.desk.book]
        one.watcher.gatekeeper.close()
    assert sorted(found) == sorted(f"web-{n}" for n in range(30))


def test_a_shard_leaves_the_others_open_findings_alone(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web")])
    world.rounds(2)
    assert len(world.ledger.open_findings()) == 1
    world.watcher.gatekeeper.close()
    world.start()
    world.desk.shard = next(Shard(i, 2) for i in range(2) if not Shard(i, 2).owns("shop"))
    world.store.replace("ReplicaSet", [])
    world.rounds(2)
    assert len(world.ledger.open_findings()) == 1


def test_a_gate_is_shown_as_closed_while_any_shards_is() -> None:
    redis = fakeredis.FakeRedis(decode_responses=True)
    whole, *parts = (Ledger(redis, "test", shard=shard) for shard in ("", "0/2", "1/2"))
    for ledger, is_open in zip(parts, (True, False), strict=True):
        ledger.set_gate("linkerd/injector", GateState(open=is_open, since=ledger._now()))
    assert [state.open for state in whole.gates().values()] == [False]
    parts[1].drop_gate("linkerd/injector")
    assert [state.open for state in whole.gates().values()] == [True]


# Presence


def test_leader_and_standby_are_both_seen_and_the_leader_first() -> None:
    redis = fakeredis.FakeRedis(decode_responses=True)
    presences = {name: Presence(redis, "test") for name in ("a", "b")}
    for name, role in (("a", Role.STANDBY), ("b", Role.LEADER)):
        seen = now_seen("repair", "1", (), name).model_copy(update={"synced": True, "role": role})
        presences[name].beat(seen)
    assert [(each.identity, each.role) for each in presences["a"].everybody()] == [
        ("b", Role.LEADER),
        ("a", Role.STANDBY),
    ]
    presences["b"].end()
    last = presences["a"].seen()
    assert last is not None
    assert last.identity == "a"
