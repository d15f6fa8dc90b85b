"""The two clusters that most scenarios run on, and raw access to them; `tests/conftest.py` loads these fixtures.

A test with a cluster of its own overrides `bed`.
"""

from collections.abc import Iterator

import pytest

from remesh.testbed import TestBed
from tests.client import Client


@pytest.fixture(params=["sim", pytest.param("real", marks=pytest.mark.real)])
def bed(request: pytest.FixtureRequest) -> Iterator[TestBed]:
    """A healthy cluster, the simulated one and then the real one; faults of a test end with it."""
    chosen: TestBed = request.getfixturevalue(f"{request.param}_cluster")
    yield chosen
    chosen.heal()


@pytest.fixture
def client(bed: TestBed) -> Iterator[Client]:
    """Raw access to the cluster, for what a user would do and see."""
    opened = Client(bed.kubeconfig)
    yield opened
    opened.close()
