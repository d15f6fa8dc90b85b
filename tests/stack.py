"""remesh's own processes for a test: each is started by the command that compose.yaml gives for it.

A stack is one Redis (embedded, AOF on), and as many watchers and workers as a test asks for. Everything that was
started is ended by `stop`, by its process id.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import SecretStr

from remesh import redisdb
from remesh.audit import Trail
from remesh.embedded import EmbeddedRedis
from remesh.ledger import Ledger
from remesh.models import AuditRecord, RecordType
from remesh.settings import Settings
from remesh.testbed import TestBed

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = "e2e"
T = TypeVar("T")


def compose_command(service: str) -> list[str]:
    """The command of one service in compose.yaml, run with this interpreter's environment."""
    document = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    command = [str(part) for part in document["services"][service]["command"]]
    tools = Path(sys.executable).parent
    return [str(tools / command[0]), *command[1:]]


def wait_until(check: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """Poll until `check` returns something true; AssertionError with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}; last seen: {value!r}")
        time.sleep(0.1)


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Process:
    """One started process and its log."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, words: str, seconds: float = 120.0) -> None:
        """Poll the log until `words` are in it."""

        def seen() -> bool:
            if self.popen.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.popen.returncode}:\n{self.text()[-3000:]}")
            return words in self.text()

        wait_until(seen, f"{self.name} says {words!r}", seconds)

    def kill(self) -> None:
        """SIGKILL, as an out-of-memory kill or a lost node would."""
        self.popen.kill()
        self.popen.wait()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing, and does not know."""
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.popen.send_signal(signal.SIGCONT)

    def terminate(self, seconds: float = 20.0) -> None:
        """SIGTERM, then SIGKILL if it does not end in time."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class Stack:
    """Redis and remesh's processes against one test bed."""

    bed: TestBed
    folder: Path
    settings_extra: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    cluster: str = CLUSTER
    redis_url: str = ""  # of a server that the test started and ends; without it, one of its own

    def __post_init__(self) -> None:
        self.redis = EmbeddedRedis(self.folder / "redis")
        if not self.redis_url:
            self.redis_url = self.redis.start().url
        self.settings = Settings(
            cluster=self.cluster,
            kubeconfig=self.bed.kubeconfig,
            redis_url=SecretStr(self.redis_url),
            key_prefix="remesh:",
        )
        self.connection = redisdb.connect(self.settings)
        self.trail = Trail(self.connection, self.cluster, self.settings.key_prefix)
        self.ledger = Ledger(self.connection, self.cluster, self.settings.key_prefix)

    @property
    def env(self) -> dict[str, str]:
        """Environment of every process."""
        return {
            **os.environ,
            "REMESH_CLUSTER": self.cluster,
            "REMESH_KUBECONFIG": str(self.bed.kubeconfig),
            "REMESH_REDIS_URL": self.redis_url,
            "REMESH_SIGNING_KEY": "a key of all workers of a test",
            "REMESH_HEARTBEAT": str(self.folder / "heartbeat.json"),
            "REMESH_METRICS_PORT": "0",  # several stacks run at once
            "PYTHONPATH": str(ROOT),
            **self.settings_extra,
        }

    def policy(self, text: str) -> None:
        """Use this policy file from the next start on."""
        path = self.folder / "policy.toml"
        path.write_text(text, encoding="utf-8")
        self.settings_extra["REMESH_POLICY"] = str(path)

    def start(self, service: str, *more: str, env: dict[str, str] | None = None) -> Process:
        """Start one service of compose.yaml."""
        number = sum(1 for each in self.processes if each.name.startswith(service))
        name = f"{service}-{number}"
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*compose_command(service), *more],
                cwd=self.folder,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        process = Process(name, popen, log)
        self.processes.append(process)
        return process

    def start_watcher(self, **env: str) -> Process:
        process = self.start("watcher", env=env)
        process.wait_for("synced")
        return process

    def start_worker(self, **env: str) -> Process:
        number = sum(1 for each in self.processes if each.name.startswith("worker"))
        process = self.start("worker", f"--hostname=worker-{number}@%h", env=env)
        process.wait_for("ready.")
        return process

    def expire_visibility(self) -> int:
        """As if the visibility time-out of every unacknowledged message were over; returns how many there are."""
        index = f"{self.settings.key_prefix}{{{self.settings.cluster}}}:celery:unacked_index"
        held: Any = self.connection.zrange(index, 0, -1)
        if held:
            self.connection.zadd(index, {str(tag): 1.0 for tag in held})
        return len(held)

    def records(self, **filters: Any) -> list[AuditRecord]:
        """The trail, oldest first."""
        return list(self.trail.read(**filters))

    def chain(self, name: str) -> list[AuditRecord]:
        """All records of the object with this name."""
        return [record for record in self.trail.read() if record.ref is not None and record.ref.name == name]

    def outcomes(self) -> list[AuditRecord]:
        return self.records(types=[RecordType.OUTCOME])

    def stop(self) -> None:
        """End everything that was started."""
        for process in reversed(self.processes):
            if process.popen.poll() is None:
                process.terminate()
        with suppress(Exception):
            self.connection.close()
        self.redis.stop()


def types(chain: list[AuditRecord]) -> list[str]:
    """The record types of a chain, in order."""
    return [record.type.value for record in chain]
