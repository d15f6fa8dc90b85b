"""A short one of the long runs that `python -m tests.reliability long` makes."""

from pathlib import Path

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.reliability.long import play

pytestmark = pytest.mark.timeout(280)


def test_whatever_happens_in_a_cluster_all_is_well_once_its_injector_is(tmp_path: Path) -> None:
    with SimCluster.start(InjectorWear(timeout_seconds=2), controller_qps=200) as bed:
        report = play(bed, tmp_path, seed=5, minutes=0.4, owners=4)
    assert report.violations == [], report.table()
    assert report.findings > 0, report.table()
