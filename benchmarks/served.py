"""Starting `benchmarks.apiserver`, talking to it, and looking at processes from outside."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")


class Served:
    """A generated cluster in a process of its own."""

    def __init__(self, pods: int, replica_sets: int | None = None, nodes: int = 40, answer_ms: float = 0) -> None:
        sets = pods // 10 if replica_sets is None else replica_sets
        command = [sys.executable, "-m", "benchmarks.apiserver", "--pods", str(pods)]
        command += ["--replica-sets", str(sets), "--nodes", str(nodes), "--answer-ms", str(answer_ms)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def ask(self, what: str) -> Any:
        """State (`state`), pods' versions (`pods`) or when failures were committed (`failures`)."""
        with urllib.request.urlopen(f"{self.url}/bench/{what}", timeout=60) as answer:
            return json.load(answer)

    def change(self, seconds: float, rate: float, failing: float = 0.0) -> None:
        """Let pods change, and return when they have."""
        self.begin(seconds, rate, failing)
        time.sleep(seconds)
        wait(lambda: not self.ask("state")["changing"], "the end of the changes")

    def begin(self, seconds: float, rate: float, failing: float = 0.0) -> None:
        """Let pods change from now on."""
        body = json.dumps({"seconds": seconds, "rate": rate, "failing": failing}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/bench/changes", body, method="POST"), timeout=10)

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig file for it, in that folder."""
        path = folder / "kubeconfig"
        cluster = {"name": "generated", "cluster": {"server": self.url}}
        context = {"name": "generated", "context": {"cluster": "generated", "user": "generated"}}
        user = {"name": "generated", "user": {"token": "generated"}}
        known: Mapping[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "generated"}
        path.write_text(json.dumps({**known, "clusters": [cluster], "contexts": [context], "users": [user]}))
        return path


def wait(check: Callable[[], Any], what: str, seconds: float = 120.0, pause: float = 0.05) -> Any:
    """Poll until `check` returns something true. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    return _kilobytes(pid, "VmRSS:") * 1024


def peak(pid: int) -> int:
    """Its highest so far, in bytes."""
    return _kilobytes(pid, "VmHWM:") * 1024


def _kilobytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def percentile(values: list[float], part: float) -> float:
    """The value below which that part of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0
