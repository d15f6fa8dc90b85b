"""One Docker engine for the tests of a session, in the network of the session's real cluster."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RealCluster, build
from tests.containers import needs
from tests.containers.engine import Engine

IMAGE = "remesh:test"


def pytest_collection_finish(session: pytest.Session) -> None:
    """What takes minutes the first time is made before the first test."""
    wanted = any("engine" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly and needs.unavailable_reason() is None:
        needs.make_everything()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A Docker engine. Skips, with the reason, where there can be none; in CI that fails."""
    if reason := needs.unavailable_reason():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    cluster: RealCluster = request.getfixturevalue("real_cluster")
    started = Engine(cluster.processes).start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tag of the project's image, built from its Dockerfile once for all workers of a run."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with needs.one_at_a_time(shared / "image.lock"):
        built = shared / "image.tar"
        if built.exists():
            engine.docker("load", "--input", str(built))
        else:
            engine.import_bases()
            engine.build(IMAGE)
            engine.docker("save", "--output", str(built), IMAGE, "base", "runtime")
    return IMAGE


@pytest.fixture(scope="session")
def compose_program() -> Path:
    """docker compose, built from its Go module."""
    return build.ensure(needs.COMPOSE_PROGRAMS)["docker-compose"]
