"""`remesh check` where nothing asks for a mesh yet."""

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.cli.conftest import Remesh


def test_where_no_namespace_asks_the_dry_run_is_not_asked_and_said_so(remesh: Remesh) -> None:
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as cluster:
        answer = remesh("check", "--kubeconfig", cluster.kubeconfig)
    assert "not asked, no namespace asks for Linkerd yet" in answer.out
