"""Fixtures of the scenarios: `testbed` is once the simulated cluster and once the real one."""

import secrets
from collections.abc import Iterator

import pytest

from remesh.testbed import TestBed
from tests.cluster.workloads import meshed_namespace
from tests.testbed.http import Http


@pytest.fixture(scope="session", params=["sim", pytest.param("real", marks=pytest.mark.real)])
def testbed(request: pytest.FixtureRequest) -> TestBed:
    """Every kind of test bed in turn."""
    bed: TestBed = request.getfixturevalue(f"{request.param}_cluster")
    return bed


@pytest.fixture(scope="session")
def http(testbed: TestBed) -> Iterator[Http]:
    """Raw requests to the test bed's API server."""
    client = Http.of(testbed.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def namespace(testbed: TestBed, http: Http) -> Iterator[str]:
    """A fresh namespace whose pods get the sidecar. Afterwards the injector works again, and the namespace goes."""
    name = f"scenario-{secrets.token_hex(4)}"
    http.post("/api/v1/namespaces", meshed_namespace(name, testbed.wear)).ok()
    http.wait(lambda: http.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").code == 200, "its account")
    yield name
    testbed.heal()
    http.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def plain_namespace(http: Http) -> Iterator[str]:
    """A fresh namespace whose pods ask for no sidecar."""
    name = f"plain-{secrets.token_hex(4)}"
    http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    http.wait(lambda: http.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").code == 200, "its account")
    yield name
    http.delete(f"/api/v1/namespaces/{name}")
