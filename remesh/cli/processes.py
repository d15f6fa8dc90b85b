"""Processes that a command starts and ends: the watcher, the worker, Flower. Used by `run` and the demo.

Each runs in a session of its own, so that Ctrl-C reaches only this process, which then ends them in order. None
outlives it: on Linux the kernel ends them if it is killed.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO

from remesh.cli import exits
from remesh.errors import UsageError

# Becomes the program itself, after asking the kernel to end it when the parent's main thread ends (prctl(2): the
# setting survives execve). By SIGKILL, which the repairs are made to survive: the embedded server goes at the same
# moment, and a worker that is asked to end then tries to reach it first, for ever. Elsewhere than on Linux it only
# becomes the program.
_FOLLOW = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except Exception:
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

GRACE_SECONDS = 20.0  # a worker ends its running tasks first; a killed one leaves them to be redelivered

WATCHER = ("-m", "watcher")
WORKER = ("-m", "celery", "--quiet", "-A", "workers.app", "worker", "--pool", "threads", "-E")
# Its start lists the tasks that every worker knows, and warns of each question that the worker, still starting, does
# not answer yet; it asks again.
FLOWER = ("-m", "celery", "-A", "workers.app", "flower", "--logging=error")

# In a container everything runs as root, and Celery's word of warning about it is several lines long.
_AS_ROOT = "ignore:You're running the worker with superuser privileges"

Sink = Callable[[str, str], None]
"""Takes a process's name and one line of its output."""


@dataclass(slots=True)
class Child:
    """One running process."""

    name: str
    process: subprocess.Popen[str]
    reader: threading.Thread
    stopping: bool = False

    @property
    def code(self) -> int | None:
        """Exit code as a shell has it (128 + signal), or None while it runs."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code


@dataclass(slots=True)
class Processes:
    """Some processes, their output given line by line to `sink`. A context manager: leaving it ends them all."""

    sink: Sink
    children: list[Child] = field(default_factory=list)

    def start_python(self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Child:
        """Start this Python with arguments. Call it from the main thread: the kernel watches that one."""
        follow = [sys.executable, "-c", _FOLLOW, str(os.getpid()), sys.executable, *arguments]
        process = subprocess.Popen(
            follow,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": _AS_ROOT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101
        reader = threading.Thread(target=self._read, args=(name, process.stdout), name=f"log of {name}", daemon=True)
        reader.start()
        child = Child(name, process, reader)
        self.children.append(child)
        return child

    def ended(self) -> Child | None:
        """The first process that has ended by itself, or None."""
        return next((child for child in self.children if not child.stopping and child.code is not None), None)

    def wait(self, meanwhile: Callable[[], None] = lambda: None, pause: float = 0.2) -> Child:
        """Wait until one of them ends by itself. `meanwhile` is called again and again; what it raises ends it, too."""
        while (child := self.ended()) is None:
            meanwhile()
            time.sleep(pause)
        child.reader.join(timeout=2)
        return child

    def stop(self) -> None:
        """End all, the last started first; kill what has not ended in time. Calling it twice is harmless."""
        for child in reversed(self.children):
            self.stop_one(child)

    def stop_one(self, child: Child, grace: float = GRACE_SECONDS) -> None:
        """End one."""
        child.stopping = True
        if child.code is None:
            child.process.terminate()
        try:
            child.process.wait(grace)
        except subprocess.TimeoutExpired:
            _kill_session(child.process.pid)
            child.process.wait()
        child.reader.join(timeout=2)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for text in stream:
                self.sink(name, text.rstrip("\n"))


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that its children are ended too."""

    def interrupt(_number: int, _frame: object) -> None:
        raise exits.Terminated

    signal.signal(signal.SIGTERM, interrupt)


def free_port(preferred: int) -> int:
    """The preferred port on loopback if nobody has it, else any free one."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UsageError("no free port on loopback; end what holds them")
