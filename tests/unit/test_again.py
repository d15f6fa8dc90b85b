"""What may be run once more, alone."""

import pytest

from tests.again import MOST, refusal

FEW = ["tests/e2e/test_ha.py::test_one"]
MANY = [f"tests/e2e/test_ha.py::test_{number}" for number in range(MOST + 1)]


def test_a_few_failures_of_a_whole_run_may_be_tried_again() -> None:
    assert refusal(1, FEW) == ""
    assert refusal(1, MANY[:MOST]) == ""


@pytest.mark.parametrize("exit_status", [None, 0, 2, 3, 4, 5])
def test_a_run_without_an_end_is_not_made_good_by_its_failures(exit_status: int | None) -> None:
    assert "did not come to its end" in refusal(exit_status, FEW)


def test_many_failures_and_none_are_no_lost_race() -> None:
    assert f"more than the {MOST}" in refusal(1, MANY)
    assert refusal(1, [])
