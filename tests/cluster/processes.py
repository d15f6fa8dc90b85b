"""The parent's side of the supervisor: start, signal and watch the processes of one test cluster."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError, ProcessDied

PREFIX = "remesh-cluster-"
PROJECT = Path(__file__).resolve().parents[2]
# How much of a dead process's log goes into the error, in lines.
LOG_TAIL_LINES = 8


class Processes:
    """One supervisor with its children and its directory. All of it goes with `end`, or with this process."""

    def __init__(self) -> None:
        sweep_directories()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = threading.Lock()
        script = str(Path(__file__).with_name("supervisor.py"))
        # A session of its own: Ctrl-C in the terminal reaches the parent, which then ends this in good order.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(self.directory), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor; it lives in the cluster's network namespace."""
        return self._supervisor.pid

    def isolate(self, kind: str) -> int | None:
        """Move everything started from now on into a new network namespace; `kind` is "root" or "user".

        Returns the port of the way in on the host's loopback, for "user".
        """
        port: int | None = self._ask("isolate", kind=kind).get("port")
        return port

    def spawn(
        self, name: str, argv: list[str], *, pass_listener: bool = False, keep: bool = False, cwd: Path = PROJECT
    ) -> int:
        """Start a process under a name; its output goes to `NAME.log` in the directory. Returns its pid.

        With `keep` it is started again, within a second, when it ends by itself.
        """
        reply = self._ask(
            "spawn",
            name=name,
            argv=argv,
            log=str(self.log(name)),
            cwd=str(cwd),
            pass_listener=pass_listener,
            keep=keep,
        )
        pid: int = reply["pid"]
        return pid

    def run(self, *argv: str) -> str:
        """Run a command inside the namespace and return its output. Raises `ClusterError` when it fails."""
        reply = self._ask("run", argv=list(argv))
        if reply["code"] != 0:
            raise ClusterError(f"{' '.join(argv)}: {reply['err'].strip()}")
        out: str = reply["out"]
        return out

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process by name; to a dead one it does nothing. SIGKILL waits for the end."""
        self._ask("signal", name=name, number=int(number))

    def pids(self) -> dict[str, int]:
        """Process ids of the living, by name, the supervisor among them."""
        living = {name: p["pid"] for name, p in self._status().items() if p["code"] is None}
        return {"supervisor": self.supervisor_pid, **living}

    def raise_if_dead(self, *names: str) -> None:
        """Raise `ProcessDied`, with the end of its log, if one of these processes has ended."""
        status = self._status()
        for name in names:
            code = status[name]["code"]
            if code is not None:
                raise ProcessDied(f"{name} ended with code {code}: {self.log_tail(name)}")

    def log(self, name: str) -> Path:
        """The file with the output of a process."""
        return self.directory / f"{name}.log"

    def log_tail(self, name: str) -> str:
        """The last lines of a process's log, joined into one."""
        lines = self.log(name).read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-LOG_TAIL_LINES:])

    def end(self) -> None:
        """End every process and remove the directory. Calling it twice is harmless."""
        with self._lock:
            assert self._supervisor.stdin is not None
            assert self._supervisor.stdout is not None
            self._supervisor.stdin.close()
            self._supervisor.stdout.close()
            self._supervisor.wait()

    def _status(self) -> dict[str, dict[str, Any]]:
        processes: dict[str, dict[str, Any]] = self._ask("status")["processes"]
        return processes

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with self._lock:
            try:
                self._supervisor.stdin.write(json.dumps({"op": operation, **arguments}).encode() + b"\n")
                self._supervisor.stdin.flush()
                line = self._supervisor.stdout.readline()
            except (OSError, ValueError) as error:
                raise ProcessDied(f"the test cluster was stopped (asked to {operation})") from error
        if not line:
            raise ProcessDied(f"the supervisor ended with code {self._supervisor.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ClusterError(reply["error"])
        return reply


def sweep_directories() -> None:
    """Remove directories whose supervisor was killed before it could do so. Processes never survive that."""
    for directory in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            pid = int((directory / "supervisor.pid").read_text())
        except (OSError, ValueError):  # not yet written, or not ours to read
            continue
        if not Path("/proc", str(pid)).exists():
            shutil.rmtree(directory, ignore_errors=True)
