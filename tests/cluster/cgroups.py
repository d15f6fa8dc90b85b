"""Control groups for what tests run in containers: a name of their own, and nothing left of it.

The name ends in the process id of the cluster's supervisor. What a killed test leaves is empty, and the next one
removes it.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster.errors import NotInTime
from tests.cluster.wait import wait_for

ROOT = Path("/sys/fs/cgroup")
PREFIX = "remesh-tests-"
EMPTY_SECONDS = 10.0


def make(purpose: str, supervisor_pid: int) -> str:
    """Make a group in every hierarchy. Returns its name."""
    _sweep()
    name = f"{PREFIX}{purpose}-{supervisor_pid}"
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
    return name


def remove(name: str) -> None:
    """Remove the groups of this name once their processes, which have been killed, are gone."""
    with suppress(NotInTime):
        wait_for(lambda: not _left(name), f"the control groups {name} to be empty", timeout=EMPTY_SECONDS)


def _sweep() -> None:
    names = {group.name for hierarchy in _hierarchies() for group in hierarchy.glob(f"{PREFIX}*")}
    for name in names:
        if not Path("/proc", name.rpartition("-")[2]).exists():
            _left(name)


def _left(name: str) -> list[Path]:
    groups = [hierarchy / name for hierarchy in _hierarchies() if (hierarchy / name).is_dir()]
    for group in groups:
        folders = sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True)
        for folder in (*folders, group):
            with suppress(OSError):
                folder.rmdir()
    return [group for group in groups if group.exists()]


def _hierarchies() -> Iterator[Path]:
    if (ROOT / "cgroup.controllers").exists():  # version 2: one for everything
        yield ROOT
        return
    yield from (path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())
