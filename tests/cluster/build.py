"""The test cluster's programs: found where they are, built from Go modules where they are not.

Looked for in this order: `KUBEBUILDER_ASSETS` (a directory, the convention of Kubernetes' own test environments),
the cache, Go. Go is the command that `REMESH_GO` names, else the `go` on PATH, beside this Python or in
/usr/local/go; `REMESH_GO=none` does without. What Go builds is cached outside the source tree in
`${REMESH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/remesh}/testcluster/MODULE-HASH/`, where the hash is that of the
module's go.mod and go.sum: a changed version builds anew, an unchanged one never does.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tests.cluster.errors import BinariesUnavailable

GO_MODULES = Path(__file__).parent / "go"
# How often a running build says that it is alive. Linking kube-apiserver alone can take a minute or two.
SIGN_OF_LIFE_SECONDS = 30.0
# `REMESH_GO` set to this: there is no Go here, wherever it may be installed.
NO_GO = "none"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the test cluster, the Go module of ours that pins it, and its package."""

    name: str
    module: str
    package: str


PROGRAMS: tuple[Program, ...] = (
    Program("etcd", "controlplane", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "controlplane", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", "controlplane", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", "controlplane", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)
# Only for tests against the real Istio injector; istioctl renders its manifests, which it carries inside.
ISTIO_PROGRAMS: tuple[Program, ...] = (
    Program("pilot-discovery", "istio", "istio.io/istio/pilot/cmd/pilot-discovery"),
    Program("istioctl", "istio", "istio.io/istio/istioctl/cmd/istioctl"),
)
# What people install with: for tests of the chart and the manifests.
DEPLOY_PROGRAMS: tuple[Program, ...] = (
    Program("helm", "deploy", "helm.sh/helm/v3/cmd/helm"),
    Program("kubectl", "deploy", "k8s.io/kubernetes/cmd/kubectl"),
)


def cache_root() -> Path:
    """The directory for everything that may be thrown away and made again."""
    if own := os.environ.get("REMESH_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "remesh"


def cache_directory(module: str) -> Path:
    """Where the programs of one Go module are cached. The name changes with its pinned versions and its own code."""
    digest = hashlib.sha256(_linker_flags(module).encode())
    folder = GO_MODULES / module
    for path in (folder / "go.mod", folder / "go.sum", *sorted(folder.rglob("*.go"))):
        digest.update(path.read_bytes())
    return cache_root() / "testcluster" / f"{module}-{digest.hexdigest()[:12]}"


def find(program: Program) -> Path | None:
    """The program's path, if it is there already."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(assets)] if assets else []
    for place in (*places, cache_directory(program.module)):
        path = place / program.name
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def ensure(programs: tuple[Program, ...] = PROGRAMS, *, out: TextIO | None = None) -> Mapping[str, Path]:
    """Paths of all programs by name; builds those that are missing and says so on `out` (default: stderr).

    Raises `BinariesUnavailable` where a program is missing and Go is too, or where the build fails.
    """
    say = out or sys.stderr
    missing = [program for program in programs if find(program) is None]
    if missing:
        go = _go_command(missing)
        with _build_lock(say):
            _build_missing(go, missing, say)
    return {program.name: _found(program) for program in programs}


def unavailable_reason(programs: tuple[Program, ...] = PROGRAMS) -> str | None:
    """Why these programs cannot be had here, or None if they can: they are there, or Go is to build them."""
    missing = [program for program in programs if find(program) is None]
    try:
        if missing:
            _go_command(missing)
    except BinariesUnavailable as error:
        return str(error)
    return None


def _found(program: Program) -> Path:
    path = find(program)
    if path is None:
        raise BinariesUnavailable(f"{program.name} was built and is gone again from {cache_root()}; run it once more")
    return path


def _go_command(missing: list[Program]) -> str:
    names = ", ".join(program.name for program in missing)
    named = os.environ.get("REMESH_GO")
    if named == NO_GO:
        raise BinariesUnavailable(
            f"no test cluster: {names} not found, and REMESH_GO={NO_GO} forbids to build them; unset it, "
            "or set KUBEBUILDER_ASSETS to a directory that has them"
        )
    # Next to the interpreter: where a Go toolchain installed into the virtual environment has its command.
    beside = Path(sys.executable).parent
    path = os.pathsep.join([os.environ.get("PATH", ""), str(beside), "/usr/local/go/bin"])
    go = shutil.which(named or "go", path=path)
    if go is None and named:
        raise BinariesUnavailable(f"no test cluster: REMESH_GO names {named}, and there is no such command; correct it")
    if go is None:
        raise BinariesUnavailable(
            f"no test cluster: {names} not found; install Go 1.26 or later to have them built, "
            "or set KUBEBUILDER_ASSETS to a directory that has them"
        )
    return go


@contextmanager
def _build_lock(say: TextIO) -> Iterator[None]:
    path = cache_root() / "testcluster" / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("test cluster: another session is building, waiting for it", file=say, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_missing(go: str, missing: list[Program], say: TextIO) -> None:
    for number, program in enumerate(missing, start=1):
        if find(program) is not None:  # another session built it while this one waited
            continue
        print(
            f"test cluster: building {program.name} ({number} of {len(missing)}), the first time takes minutes",
            file=say,
            flush=True,
        )
        _build(go, program, say)


def _build(go: str, program: Program, say: TextIO) -> None:
    directory = cache_directory(program.module)
    directory.mkdir(parents=True, exist_ok=True)
    for killed in directory.glob(".building-*"):  # only one session builds at a time
        shutil.rmtree(killed)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory) as scratch:
        target = Path(scratch) / program.name
        _run_go(go, program, target, say)
        target.replace(directory / program.name)


def _linker_flags(module: str) -> str:
    """No debug information; and Kubernetes' version, which its programs otherwise report as v0.0.0-master."""
    found = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\S+)", (GO_MODULES / module / "go.mod").read_text())
    if found is None:
        return "-s -w"
    values = zip(("gitVersion", "gitMajor", "gitMinor"), found.groups(), strict=True)
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values)])


def _run_go(go: str, program: Program, target: Path, say: TextIO) -> None:
    command = [go, "build", f"-ldflags={_linker_flags(program.module)}", "-o", str(target), program.package]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=GO_MODULES / program.module, env=environment, stdout=output, stderr=output
        )
        try:
            _wait_aloud(process, program, started, say)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode != 0:
            output.seek(0)
            lines = output.read().strip().splitlines()
            raise BinariesUnavailable(f"go build of {program.name} failed: {' | '.join(lines[-5:])}")


def _wait_aloud(process: subprocess.Popen[bytes], program: Program, started: float, say: TextIO) -> None:
    while True:
        try:
            process.wait(timeout=SIGN_OF_LIFE_SECONDS)
            return
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            print(f"test cluster: still building {program.name}, {elapsed:.0f} s", file=say, flush=True)
