"""Runs between a process and its embedded server, and ends the server when told to or when that process is gone.

`remesh.embedded` starts it as a script, without site-packages: `embedded_watch.py LOCK PROGRAM ARGUMENTS…`. LOCK is the
descriptor that holds the folder's lock; the server inherits it, so that it is held for as long as the server lives. The
server's process id goes to standard output. The server is ended by SIGTERM as soon as

- a byte comes on standard input, or it ends: whoever held the pipe's other end is gone, whichever way it died; or
- the parent changes: the same, but a fork of it still holds the pipe.

PR_SET_PDEATHSIG alone would not do: it fires when the *thread* that started the child ends (prctl(2)), and macOS has
none. It is used only between this process and the server, for here the main thread lives to the end.
"""

import os
import select
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1  # prctl(2)


def follow() -> None:
    """In the server's process before it starts: end with this process, should even that be killed."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except (ImportError, AttributeError, OSError):
        return  # not Linux


def watch(server: "subprocess.Popen[bytes]", parent: int) -> None:
    """Wait for the word or for the parent's end; then end the server."""
    while not select.select([0], [], [], 1.0)[0] and os.getppid() == parent:
        pass
    server.terminate()


def main(lock: int, command: list[str]) -> int:
    """Start the server, say its process id, wait for its end; returns its exit code."""
    parent = os.getppid()
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, preexec_fn=follow, pass_fds=(lock,))  # noqa: PLW1509
    os.close(lock)
    os.write(1, b"%d\n" % server.pid)
    os.close(1)
    threading.Thread(target=watch, args=(server, parent), daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
