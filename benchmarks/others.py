"""The clients to compare with, had on demand: Python ones in an environment of its own, client-go's built by Go.

Both are kept beside the test cluster's programs, outside the source tree, under a name that changes with their
pinned versions.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

from tests.cluster.build import cache_root

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-bench.lock"
INFORMER = Path(__file__).parent / "go" / "informer"


@cache
def python_with_clients() -> Path:
    """The Python of an environment with kopf, kr8s and lightkube. `REMESH_BENCH_PYTHON` names another one."""
    if named := os.environ.get("REMESH_BENCH_PYTHON"):
        return Path(named)
    folder = cache_root() / "benchmarks" / f"clients-{_digest(LOCK)}-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if (folder / ".complete").exists():
        return python
    print(f"   installing the other clients into {folder}, once", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, clear=True)
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--require-hashes"]
    subprocess.run([*install, "-r", str(LOCK)], check=True)
    (folder / ".complete").touch()
    return python


@cache
def informer() -> Path:
    """The program in benchmarks/go/informer. Raises FileNotFoundError where it is missing and Go is too."""
    files = [*sorted(INFORMER.glob("*.go")), INFORMER / "go.mod", INFORMER / "go.sum"]
    program = cache_root() / "benchmarks" / f"informer-{_digest(*files)}"
    if program.exists():
        return program
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise FileNotFoundError("client-go's informer has to be built, and there is no Go here")
    print("   building client-go's informer, once", file=sys.stderr, flush=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    scratch = program.with_suffix(".building")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    build = [go, "build", "-ldflags=-s -w", "-o", str(scratch), "."]
    subprocess.run(build, cwd=INFORMER, env=environment, check=True)
    scratch.replace(program)
    return program


def _digest(*files: Path) -> str:
    made = hashlib.sha256()
    for file in files:
        made.update(file.read_bytes())
    return made.hexdigest()[:12]
