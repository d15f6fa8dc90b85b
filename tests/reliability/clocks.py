"""Wall clocks that a test sets: of one child process, at any moment, while what counts durations goes on as it is."""

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from remesh.embedded import EmbeddedRedis

SOURCE: Final = Path(__file__).with_name("offset.c")

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def built(folder: Path) -> Path:
    """The library that is preloaded. Needs a C compiler."""
    library = folder / "offset.so"
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class WallClock:
    """Of every process that is started with `env`."""

    def __init__(self, library: Path, path: Path, seconds: float = 0.0) -> None:
        self._path = path
        self._path.write_bytes(struct.pack("d", seconds))
        self.env = {"LD_PRELOAD": str(library), "REMESH_TEST_CLOCK": str(path)}

    def set(self, seconds: float) -> None:
        """From now on it is off by so much."""
        with self._path.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    def start(self, redis: EmbeddedRedis) -> EmbeddedRedis:
        """Start, or start again, a server by this clock."""
        redis.stop()
        with patch.dict(os.environ, self.env):
            return redis.start()


@contextmanager
def server(library: Path, folder: Path) -> Iterator[tuple[EmbeddedRedis, WallClock]]:
    """A Redis of one's own, and its clock."""
    clock = WallClock(library, folder / "clock")
    redis = EmbeddedRedis(folder / "redis")
    try:
        yield clock.start(redis), clock
    finally:
        redis.stop()
