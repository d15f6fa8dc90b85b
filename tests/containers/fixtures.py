"""Pytest fixtures for the project's image; `tests/conftest.py` loads them.

`image_archive` is built once for all workers of a run. `engine` is a Docker engine in the network of the session's
`real_cluster`, and `image` the tag of the image in it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh import __version__
from tests.cluster import RealCluster, build
from tests.containers import needs
from tests.containers.engine import REDIS, Engine
from tests.needs import require

# As the chart calls it where nobody says otherwise.
IMAGE = f"remesh:{__version__}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """What takes minutes the first time is made before the first test."""
    wanted = any({"engine", "image_archive"} & set(getattr(item, "fixturenames", ())) for item in session.items)
    if wanted and not session.config.option.collectonly and needs.unavailable_reason() is None:
        needs.make_everything()


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A Docker engine. Skips, with the reason, where there can be none; in CI that fails."""
    require(needs.unavailable_reason())
    cluster: RealCluster = request.getfixturevalue("real_cluster")
    started = Engine(cluster.processes).start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def image_archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`docker save` of the project's image, built from its Dockerfile, of what it is based on, and of a Redis."""
    require(needs.unavailable_reason())
    folder = tmp_path_factory.getbasetemp()
    archive = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "images.tar"
    with needs.one_at_a_time(archive.with_suffix(".lock")):
        if not archive.exists():
            engine: Engine = request.getfixturevalue("engine")
            engine.import_bases()
            engine.import_redis()
            engine.build(IMAGE)
            engine.docker("save", "--output", str(archive), IMAGE, "runtime", REDIS)
    return archive


@pytest.fixture(scope="session")
def image(engine: Engine, image_archive: Path) -> str:
    """The tag of the project's image, in the engine."""
    engine.docker("load", "--input", str(image_archive))
    return IMAGE


@pytest.fixture(scope="session")
def compose_program() -> Path:
    """docker compose, built from its Go module."""
    return build.ensure(needs.COMPOSE_PROGRAMS)["docker-compose"]
