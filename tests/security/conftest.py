"""A watcher in memory, with a namespace of somebody who means harm beside another."""

from collections.abc import Iterator

import fakeredis
import pytest

from remesh.meshes import load_profiles
from remesh.policy import Policy
from tests.watcher.test_runtime import World, namespace


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Policy(), load_profiles(), fakeredis.FakeRedis(decode_responses=True))
    made.store.replace("Namespace", [namespace("shop"), namespace("evil")])
    yield made
    made.watcher.gatekeeper.close()
