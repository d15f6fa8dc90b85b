"""Runs the processes of one test cluster, and ends them when the process that asked for them ends, however it ends.

Started by `tests.cluster.processes`, as a script, with the standard library only. It takes one JSON request a line
on its standard input and answers each with one JSON line.

Nothing is left behind, in three layers:
- the pipe closes, or the parent's pidfd becomes readable (a forked child of the parent may hold the pipe open for
  longer): all children are killed, the directory is removed, the supervisor ends;
- the supervisor itself is killed: every child has asked the kernel to be killed with it (PR_SET_PDEATHSIG);
- the network namespace has no name: it goes, with its interfaces, when the last process in it goes.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
REVIVE_MILLISECONDS = 1000

libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """The children by name, and one method for each request."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.kept: dict[str, dict[str, Any]] = {}  # how to start again what is to run whatever happens to it
        self.listener: socket.socket | None = None

    def isolate(self, kind: str) -> dict[str, Any]:
        """Move into a network namespace of our own; `user` also makes a user namespace, which needs no root.

        The listener is made before: a socket stays in the namespace where it was created, so a process of the
        new namespace can serve connections of the old one through it.
        """
        flags = CLONE_NEWNET
        reply: dict[str, Any] = {}
        if kind == "user":
            flags |= CLONE_NEWUSER
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
            reply["port"] = self.listener.getsockname()[1]
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(flags) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace: " + os.strerror(ctypes.get_errno()))
        if kind == "user":
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        return reply

    def spawn(
        self, name: str, argv: list[str], log: str, cwd: str, pass_listener: bool = False, keep: bool = False
    ) -> dict[str, Any]:
        """Start a process. Its output goes to the end of the file `log`. `{listener}` in argv is the listener's fd.

        With `keep` it is started again when it ends by itself, as a kubelet does it.
        """
        if keep:
            self.kept[name] = {"argv": argv, "log": log, "cwd": cwd, "pass_listener": pass_listener}
        fds: tuple[int, ...] = ()
        if pass_listener and self.listener is not None:
            fds = (self.listener.fileno(),)
            argv = [part.replace("{listener}", str(fds[0])) for part in argv]
        with Path(log).open("ab") as output:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=fds,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (there is one thread)
            )
        self.children[name] = child
        return {"pid": child.pid}

    def run(self, argv: list[str]) -> dict[str, Any]:
        """Run a short command to its end, inside the namespace."""
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}

    def signal(self, name: str, number: int) -> dict[str, Any]:
        """Send a signal; after SIGKILL, wait until the process is gone. What it ends stays so until it is spawned."""
        child = self.children[name]
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.kept.pop(name, None)
        if child.poll() is None:
            child.send_signal(number)
            if number == signal.SIGKILL:
                child.wait()
        return {"code": child.poll()}

    def revive(self) -> None:
        """Start again what is to be kept and has ended."""
        for name, how in self.kept.items():
            if self.children[name].poll() is not None:
                with contextlib.suppress(OSError):  # the next look tries again
                    self.spawn(name, **how)

    def status(self) -> dict[str, Any]:
        """Exit code by name: None while it runs, negative for a signal."""
        return {"processes": {n: {"pid": c.pid, "code": c.poll()} for n, c in self.children.items()}}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request; a failure is a reply too."""
        operation = request.pop("op")
        methods: dict[str, Callable[..., dict[str, Any]]] = {
            "isolate": self.isolate,
            "spawn": self.spawn,
            "run": self.run,
            "signal": self.signal,
            "status": self.status,
        }
        try:
            return methods[operation](**request)
        except (OSError, KeyError) as error:
            return {"error": f"{operation}: {error}"}

    def end(self) -> None:
        """Kill every child, wait for each, remove the directory. Sockets close before the namespace goes."""
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
        for child in self.children.values():
            child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _die_with_parent() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent's ignored signals would be inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _serve(supervisor: Supervisor, parent: int) -> None:
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(os.pidfd_open(parent), select.POLLIN)
    buffer = b""
    while True:
        ready = [fd for fd, _ in poll.poll(REVIVE_MILLISECONDS)]
        supervisor.revive()
        if not ready:
            continue
        if 0 not in ready:
            return  # only the parent's pidfd: it is gone
        chunk = os.read(0, 65536)
        if not chunk:
            return
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            reply = supervisor.answer(json.loads(line))
            os.write(1, json.dumps(reply).encode() + b"\n")


def main(directory: str, parent: int) -> None:
    """Serve requests until the parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(directory)
    Path(directory, "supervisor.pid").write_text(str(os.getpid()))
    try:
        _serve(supervisor, parent)
    except (BrokenPipeError, ProcessLookupError):
        pass
    finally:
        supervisor.end()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
