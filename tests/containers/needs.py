"""What the tests with containers need of the machine, and the words for what is missing."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.cluster import build, network, real_node

COMPOSE_PROGRAMS: tuple[build.Program, ...] = (
    build.Program("docker-compose", "compose", "github.com/docker/compose/v2/cmd"),
)
# Debian's own client speaks to its engine, BuildKit included, without plugins; another one may be first on PATH.
PLACES = os.pathsep.join(("/usr/bin", "/usr/sbin", "/sbin", os.environ.get("PATH", "")))
ENGINE_COMMANDS = ("dockerd", "docker", "containerd", "runc", "iptables", "unshare", "debootstrap", "redis-server")


class Unavailable(Exception):
    """Something that a test with containers needs is not there; one line says what to install."""


def command(name: str) -> str:
    """The path of a command. Raises `Unavailable`."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        raise Unavailable(f"no containers here: the command {name} is missing; .ci/packages installs it")
    return found


def unavailable_reason(commands: Iterable[str] = ENGINE_COMMANDS) -> str | None:
    """Why there can be no containers here, or None if there can be."""
    if os.geteuid() != 0:
        return "no containers here: only root can start an engine"
    if network.choose_kind() != "root":
        return "no containers here: no network namespace can be made and joined to this machine's network"
    try:
        for name in commands:
            command(name)
    except Unavailable as error:
        return str(error)
    return build.unavailable_reason(build.PROGRAMS + programs())


def programs() -> tuple[build.Program, ...]:
    """What Go builds for them."""
    return COMPOSE_PROGRAMS + real_node.NODE_PROGRAMS + build.DEPLOY_PROGRAMS


def make_everything(say: TextIO = sys.stderr) -> dict[str, Path]:
    """Everything that takes minutes the first time, by name. Raises `Unavailable` or `BinariesUnavailable`."""
    from tests.containers import images

    folder = images.root_file_systems(say)
    version = (folder / "version").read_text(encoding="utf-8")
    return {"base images": folder, "wheels": images.wheels(version, say), **build.ensure(programs(), out=say)}


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock file; other processes of the tests wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
