"""A stage for pods that must stay, on the simulated and on the real cluster."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from remesh.kube.api import Cluster
from remesh.redisdb import RedisClient
from remesh.testbed import TestBed
from tests.agreement.conftest import redis
from tests.client import Client
from tests.cluster import workloads as w
from tests.harm.stage import MeddlingClient, Stage

__all__ = ["redis", "stage"]

Opened = Callable[..., Stage]


@pytest.fixture
def stage(bed: TestBed, client: Client, redis: RedisClient) -> Iterator[Opened]:
    """Opens namespaces, with labels and annotations as given or else such that ask for the sidecar."""
    meddling = MeddlingClient(bed.kubeconfig)
    names: list[str] = []

    def opened(**metadata: dict[str, str]) -> Stage:
        name = f"harm-{secrets.token_hex(3)}"
        names.append(name)
        body = w.namespace(name, **metadata) if metadata else w.meshed_namespace(name, bed.wear)
        client.create_namespace(body)
        return Stage(bed, client, name, meddling, Cluster(meddling), redis)

    yield opened
    for name in names:
        client.delete_workloads(name)
    meddling.close()
