"""The same scenarios on the simulated and on the real cluster, with remesh's own processes."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from remesh.testbed import TestBed
from tests.client import Client
from tests.stack import Stack

_numbers = count(1)


@pytest.fixture
def namespace(bed: TestBed, client: Client) -> Iterator[str]:
    """A new namespace whose pods ask for the sidecar."""
    name = f"shop-{next(_numbers)}"
    client.create_meshed_namespace(name, bed.wear)
    yield name
    client.delete_workloads(name)


@pytest.fixture
def stack(bed: TestBed, tmp_path: Path) -> Iterator[Stack]:
    """Redis and remesh's processes, started by the test."""
    started = Stack(bed, tmp_path)
    yield started
    started.stop()
