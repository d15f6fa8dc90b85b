"""How many of an owner's pods may go, and in which order. And answers that many threads share."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remesh.objects import Pod, UpdateStrategy
from remesh.policy import RepairPolicy
from tests.workers import recreate_doubles as d
from workers.recent import Recent
from workers.recreate_census import Census, dear
from workers.recreate_share import goes_first, held_back, ordinal, room

KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")


def marked(pod: Pod) -> bool:
    return any(each.name == "linkerd-proxy" for each in pod.spec.containers or ())


@given(
    kind=st.sampled_from(KINDS),
    states=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30),
    extra=st.integers(0, 5),
    share=st.one_of(st.none(), st.floats(0.01, 1.0)),
)
def test_what_is_allowed_never_leaves_more_pods_away_than_the_share(
    kind: str, states: list[tuple[bool, bool, bool, bool]], extra: int, share: float | None
) -> None:
    """Count independently: Ready pods that are left when this one and all who came earlier are gone."""
    owner = d.an_owner(kind, len(states) + extra)
    pods, earlier = [], set()
    for number, (ready, injected, going, about_to_go) in enumerate(states):
        pod = d.a_pod(number, ready=ready, marked=injected, owner=owner)
        pod.metadata.deletion_timestamp = d.NEW if going and number else None
        pods.append(pod)
        if about_to_go and number:
            earlier.add(pod.metadata.uid)
    subject = pods[0]

    found = room(owner, None, RepairPolicy(share=share), pods, subject, earlier=earlier, marked=marked)

    assert found.limit >= 1
    if found.free and subject.ready:
        left = [
            each
            for each in pods[1:]
            if each.ready and each.metadata.deletion_timestamp is None and each.metadata.uid not in earlier
        ]
        assert len(left) >= len(states) + extra - found.limit


def test_a_statefulsets_pods_go_from_the_highest_ordinal_by_number_and_not_by_text() -> None:
    owner = d.an_owner("StatefulSet", 12)
    pods = [d.a_pod(number, owner=owner) for number in (2, 10, 9)]

    first = goes_first(owner, pods[0], pods[1:])

    assert first is not None
    assert first.metadata.name == "web-10"
    assert goes_first(owner, pods[1], [pods[0], pods[2]]) is None
    assert goes_first(d.an_owner("ReplicaSet"), pods[0], pods[1:]) is None


@pytest.mark.parametrize(("name", "number"), [("web-3", 3), ("web", -1), ("web-", -1), ("web-x", -1), ("web-٣", 3)])
def test_names_in_any_alphabet_have_an_ordinal_or_none(name: str, number: int) -> None:
    assert ordinal(d.a_pod(0, name=name)) == number


def test_a_settled_owner_holds_nothing_back() -> None:
    for kind in KINDS:
        assert held_back(d.an_owner(kind), d.a_pod(0)) == ""
    daemons = d.an_owner("DaemonSet")
    daemons.spec.update_strategy = UpdateStrategy("OnDelete")
    assert held_back(daemons, d.a_pod(0)) == ""
    daemons.status.updated_number_scheduled = 1
    assert "OnDelete" in held_back(daemons, d.a_pod(0))


# Answers for a moment


def test_many_threads_ask_once() -> None:
    recent, asked, started = Recent(), [], threading.Barrier(8)

    def ask() -> int:
        asked.append(1)
        return 7

    def come(_: int) -> int:
        started.wait()
        return recent.recall(("proof", "a"), 60, ask, lambda: 0.0)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(come, range(8))) == {7}
    assert len(asked) == 1


def test_an_answer_ends_with_its_time_and_is_forgotten_by_kind() -> None:
    recent, now = Recent(), [0.0]
    answers = iter(range(99))

    def recall(*key: str) -> int:
        return recent.recall(key, 2, lambda: next(answers), lambda: now[0])

    assert [recall("proof", "a"), recall("proof", "b"), recall("proof", "a"), recall("pods", "a")] == [0, 1, 0, 2]
    now[0] = 2.1
    assert recall("proof", "a") == 3
    recent.forget("proof")
    assert [recall("proof", "a"), recall("pods", "b")] == [4, 5]
    now[0] = 100.0
    assert recall("pods", "b") == 6


@pytest.mark.parametrize(("took", "lasts"), [(0.01, 0.5), (0.1, 1.0), (5.0, 2.0)])
def test_an_answer_that_took_long_is_believed_for_longer_but_never_for_long(took: float, lasts: float) -> None:
    recent, now, asked = Recent(), [0.0], []

    def ask() -> int:
        asked.append(1)
        now[0] += took
        return len(asked)

    def recall() -> int:
        return recent.recall(("pods", "a"), 0.5, ask, lambda: now[0], dear=lambda _: 10.0)

    assert recall() == 1
    now[0] += lasts - 0.01
    assert recall() == 1
    now[0] += 0.02
    assert recall() == 2


@pytest.mark.parametrize(("pods", "times"), [(0, 0.0), (99, 0.0), (100, 10.0), (1000, 10.0)])
def test_only_a_list_of_many_pods_is_believed_because_it_took_long(pods: int, times: float) -> None:
    assert dear(Census({str(number): Pod() for number in range(pods)}, {}, 0)) == times


def test_an_answer_that_does_not_last_is_only_for_those_who_waited_for_it() -> None:
    recent, asking, came = Recent(), threading.Event(), threading.Event()
    answers = iter(["first", "second"])

    def ask() -> str:
        asking.set()
        came.wait(10)
        return next(answers)

    def arriving() -> float:
        now = time.monotonic()
        came.set()
        return now

    def recall(monotonic: Callable[[], float]) -> str:
        return recent.recall(("proof",), 60, ask, monotonic, lasts=lambda _: False)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(recall, time.monotonic)
        asking.wait(10)
        second = pool.submit(recall, arriving)
        assert [first.result(), second.result()] == ["first", "first"]
    assert recall(time.monotonic) == "second"


def test_a_failed_question_is_asked_again() -> None:
    recent = Recent()

    def fail() -> int:
        raise RuntimeError("no answer")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            recent.recall(("proof",), 60, fail, lambda: 0.0)
    assert recent.recall(("proof",), 60, lambda: 1, lambda: 0.0) == 1
