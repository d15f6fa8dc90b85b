"""Reading the trail that an ended `remesh run` has kept: its embedded server, started for the length of one command."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remesh.embedded import EmbeddedRedis

_started: "list[EmbeddedRedis]" = []


def is_kept(folder: Path) -> bool:
    """True if a server has written to this folder before."""
    return (folder / "appendonlydir").is_dir()


def serve(folder: Path) -> None:
    """Start a server on it; `end_all` ends it. Raises BrokerUnreachable: in use, no server program, unreadable."""
    from remesh.cli.render import note
    from remesh.embedded import EmbeddedRedis, FolderInUse
    from remesh.errors import BrokerUnreachable

    try:
        _started.append(EmbeddedRedis(folder).start())
    except FolderInUse as error:  # by a server that does not answer
        raise BrokerUnreachable(
            f"the `remesh run` that keeps its trail in {folder} is just starting or ending; try again in a moment"
        ) from error
    note(f"(no `remesh run` is active; read from what it has kept in {folder})")


def end_all() -> None:
    """End what this process has started."""
    while _started:
        _started.pop().stop()
