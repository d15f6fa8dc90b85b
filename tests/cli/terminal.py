"""A program on a terminal of its own (a pseudo-terminal), and what it wrote there."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.cli.conftest import ROOT


def on_terminal(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, *, columns: int = 100, seconds: float = 60
) -> str:
    """Everything that this Python wrote to its terminal, as it came."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**clean, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = bytearray()
    try:
        while chunk := _read(master):
            written += chunk
        process.wait(seconds)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return written.decode("utf-8", "replace").replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # EIO: the other side is closed
        return b""
