"""A few of the runs that `python -m tests.reliability crash` makes by the hundred."""

from pathlib import Path

import pytest

from remesh.testbed import TestBed
from tests.reliability.crash import Kill, play

pytestmark = pytest.mark.timeout(280)

KILLS = [
    [Kill("worker", "kube.POST.pods/eviction.after#1")],  # evicted, and nobody knows
    [Kill("worker", "kube.POST.pods.before#1"), Kill("watcher", "broker.send.after#3")],  # a lonely pod is gone
    [Kill("worker", "kube.PATCH.replicasets.after#1")],  # the annotation is on
    [Kill("watcher", "redis.EVALSHA.released.after#1")],  # marked as released, and never sent
]


@pytest.mark.parametrize("kills", KILLS, ids=lambda kills: " and ".join(map(str, kills)))
def test_whoever_dies_wherever_all_ends_well(sim_cluster: TestBed, tmp_path: Path, kills: list[Kill]) -> None:
    run = play(sim_cluster, tmp_path, 1, kills)
    assert run.violations == [], "\n".join(run.tail)
    assert len(run.died) == len(kills)


@pytest.mark.real
def test_the_same_on_the_real_control_plane(real_cluster: TestBed, tmp_path: Path) -> None:
    run = play(real_cluster, tmp_path, 1, KILLS[0])
    assert run.violations == [], "\n".join(run.tail)
    assert len(run.died) == 1
