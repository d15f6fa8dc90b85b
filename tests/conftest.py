"""Fixtures of all tests, the order in which they run, and what is said at the end of those that could not."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.again import EXIT_STATUS
from tests.order import arranged
from tests.wears import CONTROLLER_QPS, WEBHOOK_TIMEOUT_SECONDS

pytest_plugins = ["tests.beds", "tests.cluster.fixtures", "tests.containers.fixtures", "tests.fakes"]


@pytest.fixture(scope="session")
def sim_cluster() -> Iterator[SimCluster]:
    """A simulated cluster, set as the real one of the tests is."""
    wear = InjectorWear(timeout_seconds=WEBHOOK_TIMEOUT_SECONDS)
    with SimCluster.start(wear, controller_qps=CONTROLLER_QPS) as cluster:
        yield cluster


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers: the slow tests first and evenly, so that all workers end at about the same time."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = [items[index] for index in arranged([item.nodeid for item in items], workers)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once for each reason how many tests did not run."""
    reasons = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section(f"not run here: {reasons.total()} tests")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} skipped: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep how the session ended, for `tests.again`."""
    if not hasattr(session.config, "workerinput") and hasattr(session.config, "cache"):
        session.config.cache.set(EXIT_STATUS, int(exitstatus))


def reason_of(report: pytest.TestReport) -> str:
    """Why this test was skipped."""
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)
