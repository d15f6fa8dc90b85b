"""Fixtures of all tests: the simulated and the real cluster, one of each for the session."""

from collections.abc import Iterator

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear

pytest_plugins = ["tests.cluster.fixtures"]

# As tests/cluster/fixtures.py sets the real one.
WEBHOOK_TIMEOUT_SECONDS = 2
CONTROLLER_QPS = 200


@pytest.fixture(scope="session")
def sim_cluster() -> Iterator[SimCluster]:
    """A simulated cluster, set as the real one of the tests is."""
    wear = InjectorWear(timeout_seconds=WEBHOOK_TIMEOUT_SECONDS)
    with SimCluster.start(wear, controller_qps=CONTROLLER_QPS) as cluster:
        yield cluster
