"""The command line as a person meets it: arguments in, two streams and an exit code out."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from remesh.cli import main
from remesh.embedded import EmbeddedRedis
from remesh.sim import SimCluster
from remesh.testbed import InjectorWear

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "redis://127.0.0.1:1/0"  # port 1 is never open


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on standard error; fails where there is more or less, or a traceback."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("remesh: ")
        return lines[0]


class Remesh:
    """Runs the command line inside this process, with settings of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def set(self, **settings: str | Path) -> None:
        """Set variables, such as `REMESH_CLUSTER`."""
        for name, value in settings.items():
            self._monkeypatch.setenv(name, str(value))

    def __call__(self, *arguments: str | Path) -> Answer:
        self._capsys.readouterr()
        code = main.run([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)


@pytest.fixture
def remesh(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Remesh:
    """The command line with no settings but those of the test: no kubeconfig, no Redis."""
    for name in list(os.environ):
        if name.startswith(("REMESH_", "KUBE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runner = Remesh(monkeypatch, capsys)
    runner.set(REMESH_REDIS_URL=NOWHERE)
    return runner


def run_apart(*arguments: str, **environment: str) -> Answer:
    """The command line as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "remesh", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def sim() -> Iterator[SimCluster]:
    """A simulated cluster for tests that change nothing in it that lasts."""
    with SimCluster.start(InjectorWear(timeout_seconds=2)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server, with the settings that remesh asks for."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis")).start()
    yield server.url
    server.stop()


def kubeconfig(folder: Path, **changes: Any) -> Path:
    """A kubeconfig that is whole but for the changes: `server`, `token`, `current`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": changes.get("server", "http://127.0.0.1:1")}}],
        "users": [{"name": "u", "user": {"token": changes.get("token", "secret")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": changes.get("current", "x"),
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path
