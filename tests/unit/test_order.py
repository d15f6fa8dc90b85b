"""The order of tests for several workers: nothing is lost, the slow ones come first and are spread."""

import pytest

from tests.order import arranged, seconds, stretches, together

QUICK = [f"tests/unit/test_decide.py::test_{number}" for number in range(90)]
SLOW = [f"tests/e2e/test_main_job.py::test_{number}" for number in range(8)]
CONTAINERS = [f"tests/containers/test_image.py::test_{number}" for number in range(3)]
ISTIO = [f"tests/e2e/test_istio.py::test_{number}" for number in range(2)]


@pytest.mark.parametrize("names", [[], QUICK[:1], QUICK, SLOW, ISTIO, QUICK + SLOW + ISTIO], ids=len)
@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_every_test_is_run_once(names: list[str], workers: int) -> None:
    assert sorted(arranged(names, workers)) == list(range(len(names)))


def test_each_worker_begins_with_its_part_of_the_slow_ones() -> None:
    names = QUICK + SLOW + ISTIO
    queues = [[names[index] for index in queue] for queue in cut(arranged(names, 4), 4)]

    assert all(seconds(queue[0]) for queue in queues)
    assert [sum(together(name) is not None for name in queue) for queue in queues] == [2, 0, 0, 0]
    work = [sum(seconds(name) for name in queue) for queue in queues]
    assert max(work) - min(work) <= max(map(seconds, names))
    for queue in queues:
        quick = [not seconds(name) for name in queue]
        assert quick == sorted(quick)


def test_each_group_stays_with_one_worker() -> None:
    names = QUICK + SLOW + ISTIO + CONTAINERS
    queues = [[names[index] for index in queue] for queue in cut(arranged(names, 4), 4)]

    groups = [{together(name) for name in queue} - {None} for queue in queues]
    assert groups == [{0}, {1}, set(), set()]


def test_stretches_are_cut_as_the_scheduler_cuts_them() -> None:
    assert stretches(10, 4) == [2, 2, 3, 3]
    assert stretches(3, 4) == [0, 1, 1, 1]


def cut(order: list[int], workers: int) -> list[list[int]]:
    sizes = stretches(len(order), workers)
    starts = [sum(sizes[:number]) for number in range(workers)]
    return [order[start : start + size] for start, size in zip(starts, sizes, strict=True)]
