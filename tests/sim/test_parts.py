"""The parts that decide by themselves: patches, selectors, the work queue, the rate of writes."""

import time
from typing import Any

import pytest

from remesh.sim.client import Throttle
from remesh.sim.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, apply_patch
from remesh.sim.selectors import label_selector, parse_label_selector
from remesh.sim.status import StatusError
from remesh.sim.workqueue import BackOff, WorkQueue

KEY = ("shop", "web")


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3], "b": {"c": "d"}}),
        ([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2], "b": {"c": "d"}}),
        ([{"op": "replace", "path": "/a/1", "value": 5}], {"a": [1, 5], "b": {"c": "d"}}),
        ([{"op": "remove", "path": "/b/c"}], {"a": [1, 2], "b": {}}),
        ([{"op": "copy", "from": "/b/c", "path": "/e"}], {"a": [1, 2], "b": {"c": "d"}, "e": "d"}),
        ([{"op": "move", "from": "/b/c", "path": "/e"}], {"a": [1, 2], "b": {}, "e": "d"}),
        ([{"op": "test", "path": "/a", "value": [1, 2]}], {"a": [1, 2], "b": {"c": "d"}}),
    ],
)
def test_json_patch(patch: Any, expected: Any) -> None:
    before = {"a": [1, 2], "b": {"c": "d"}}
    assert apply_patch(JSON_PATCH, before, patch) == expected
    assert before == {"a": [1, 2], "b": {"c": "d"}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/none", "value": None},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
    ],
)
def test_json_patch_that_does_not_apply(operation: Any) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(JSON_PATCH, {"a": 1, "list": []}, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize("kind", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
def test_patch_of_the_wrong_shape(kind: str) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(kind, {}, "text")
    assert refused.value.code == 400


def test_merge_patch_replaces_lists_and_removes_by_null() -> None:
    before = {"a": [1, 2], "b": {"c": 1, "d": 2}}
    assert apply_patch(MERGE_PATCH, before, {"a": [3], "b": {"c": None}}) == {"a": [3], "b": {"d": 2}}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"containers": [{"name": "a", "image": "2"}]}, [{"name": "a", "image": "2"}, {"name": "b", "image": "1"}]),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, [{"name": "b", "image": "1"}]),
        ({"containers": [{"name": "c"}, {"$patch": "replace"}]}, [{"name": "c"}]),
    ],
)
def test_strategic_patch_of_containers(patch: Any, expected: Any) -> None:
    before = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}
    assert apply_patch(STRATEGIC_PATCH, before, patch) == {"containers": expected}


def test_strategic_patch_of_plain_lists() -> None:
    before = {"args": ["a"], "finalizers": ["x", "y"]}
    patch = {"args": ["b"], "$deleteFromPrimitiveList/finalizers": ["x"]}
    assert apply_patch(STRATEGIC_PATCH, before, patch) == {"args": ["b"], "finalizers": ["y"]}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_label_selector_objects(selector: Any, selected: bool) -> None:
    assert label_selector(selector)({"a": "1"}) is selected


@pytest.mark.parametrize("text", ["a in 1", "=1", "a=b=c", "a in (1", "a b"])
def test_text_that_is_no_selector(text: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_label_selector(text)
    assert refused.value.code == 400


def taken(queue: WorkQueue) -> tuple[str, str]:
    key = queue.get()
    assert key is not None
    return key


def test_key_is_queued_once_and_worked_on_by_one() -> None:
    queue = WorkQueue()
    queue.add(KEY)
    queue.add(KEY)
    assert taken(queue) == KEY
    queue.add(KEY)  # while it is worked on: it comes back afterwards
    queue.add(("shop", "other"))
    assert taken(queue) == ("shop", "other")
    queue.done(KEY)
    assert taken(queue) == KEY


def test_back_off_doubles_until_success() -> None:
    queue = WorkQueue(BackOff(first=0.02, longest=0.1, bucket=False))
    waits = []
    for _ in range(5):
        began = time.monotonic()
        queue.retry(KEY)
        queue.done(taken(queue))
        waits.append(time.monotonic() - began)
    assert [wait >= least for wait, least in zip(waits, (0.02, 0.04, 0.08, 0.1, 0.1), strict=True)] == [True] * 5

    queue.forget(KEY)
    queue.retry(KEY)
    assert queue.waiting_seconds(KEY) <= 0.02


def test_added_key_does_not_wait_for_its_back_off() -> None:
    queue = WorkQueue(BackOff(first=1000.0))
    queue.retry(KEY)
    queue.add(KEY)
    assert taken(queue) == KEY


def test_a_key_waits_once_for_the_earliest_of_its_times() -> None:
    """With two waits of one key at once, each would bring forth another, and the pauses would not double any more."""
    queue = WorkQueue()
    queue.add_after(KEY, 0.05)
    queue.add_after(KEY, 0.01)
    queue.add_after(KEY, 0.03)
    queue.add_after(("shop", "later"), 0.1)
    assert [taken(queue), taken(queue)] == [KEY, ("shop", "later")]


def test_all_keys_share_ten_retries_a_second_after_a_hundred() -> None:
    queue = WorkQueue(BackOff(first=0.0, longest=0.0))
    for number in range(120):
        queue.retry(("shop", str(number)))
    waits = [queue.waiting_seconds(("shop", str(number))) for number in (99, 109, 119)]
    assert waits[0] < waits[1] < waits[2]
    assert waits[2] > 0.5


def test_closed_queue_ends_its_workers() -> None:
    queue = WorkQueue()
    queue.close()
    assert queue.get() is None


def test_throttle_lets_the_burst_pass_and_spaces_the_rest() -> None:
    throttle = Throttle(per_second=50, burst=5)
    began = time.monotonic()
    for _ in range(10):
        throttle.wait()
    assert time.monotonic() - began >= 0.09

    throttle.close()
    for _ in range(10_000):
        throttle.wait()
