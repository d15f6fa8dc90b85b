"""Pytest fixtures for the real control plane; `tests/conftest.py` loads them.

`real_cluster` is one cluster for the whole session, `meshed_namespace` a fresh namespace in it for one test.
`istio_cluster` and `istio_namespace` are the same with the real Istio. A test that uses them is marked `real`.
"""

import contextlib
import secrets
from collections.abc import Generator, Iterator

import pytest

from remesh.testbed import InjectorWear
from tests.cluster import build
from tests.cluster.cluster import RealCluster
from tests.cluster.controlplane import Tuning
from tests.cluster.errors import ApiError, BinariesUnavailable, NetworkUnavailable
from tests.cluster.istio import IstioCluster, istio_wear
from tests.cluster.istio import unavailable_reason as istio_unavailable_reason
from tests.needs import require
from tests.wears import CONTROLLER_QPS, WEBHOOK_TIMEOUT_SECONDS


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests need before the first of them runs: a build takes longer than a test may."""
    if session.config.option.collectonly:
        return
    needed: tuple[build.Program, ...] = ()
    if any(item.get_closest_marker("real") for item in session.items):
        needed += build.PROGRAMS
    if any("istio_cluster" in getattr(item, "fixturenames", ()) for item in session.items):
        needed += build.ISTIO_PROGRAMS
    if any("deploy_tools" in getattr(item, "fixturenames", ()) for item in session.items):
        needed += build.DEPLOY_PROGRAMS
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext(),
        contextlib.suppress(BinariesUnavailable),  # the fixtures say why
    ):
        build.ensure(needed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """As `pytest_runtest_call`, for a fault that a fixture asks for."""
    with _reason_for_no_network():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """A fault that needs a network namespace skips its test where there is none, with the reason; in CI it fails."""
    with _reason_for_no_network():
        return (yield)


@contextlib.contextmanager
def _reason_for_no_network() -> Iterator[None]:
    reason = None
    try:
        yield
    except NetworkUnavailable as error:
        reason = str(error)
    require(reason)


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """A real control plane with a Linkerd-like injector, `failurePolicy: Fail`. Skips where there can be none."""
    require_control_plane()
    cluster = RealCluster.start(
        InjectorWear(timeout_seconds=WEBHOOK_TIMEOUT_SECONDS), tuning=Tuning(controller_qps=CONTROLLER_QPS)
    )
    yield cluster
    cluster.stop()


@pytest.fixture
def meshed_namespace(real_cluster: RealCluster) -> Iterator[str]:
    """The name of a fresh namespace whose pods get the sidecar. Afterwards faults are healed and it is deleted."""
    yield from _fresh_namespace(real_cluster)


@pytest.fixture(scope="session")
def istio_cluster() -> Iterator[IstioCluster]:
    """A real control plane with a real Istio, two istiods on two of three nodes. Skips where there can be none.

    Its webhook configuration is as Istio has it: `failurePolicy: Fail`, and 10 s for every call to a frozen istiod.
    """
    require(istio_unavailable_reason())
    cluster = IstioCluster.start(istio_wear(replicas=2), tuning=Tuning(controller_qps=CONTROLLER_QPS))
    yield cluster
    cluster.stop()


@pytest.fixture
def istio_namespace(istio_cluster: IstioCluster) -> Iterator[str]:
    """As `meshed_namespace`, in the cluster that has Istio."""
    yield from _fresh_namespace(istio_cluster)


@pytest.fixture(scope="session")
def deploy_tools() -> None:
    """helm and kubectl can be had; skips where they cannot."""
    require(build.unavailable_reason(build.DEPLOY_PROGRAMS))


def require_control_plane() -> None:
    """Skip the test, with the reason, where no control plane can be had; in CI fail it."""
    require(build.unavailable_reason())


def _fresh_namespace(cluster: RealCluster) -> Iterator[str]:
    name = cluster.create_namespace(f"test-{secrets.token_hex(4)}")
    yield name
    cluster.reset_webhook()
    cluster.heal()
    delete_namespace(cluster, name)


def delete_namespace(cluster: RealCluster, name: str) -> None:
    """Delete a namespace without waiting until it is gone; the test may have deleted it itself."""
    try:
        cluster.api.delete(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status not in (404, 409):
            raise
