"""`python -m benchmarks [NAME …] [--json FILE]`: run benchmarks, each in a process of its own.

Without names: all but the long ones, which need a real control plane. With one name, what follows goes to that
benchmark; `python -m benchmarks NAME --help` shows its options. `--json FILE` collects all figures in one file.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import facts

ALL = {
    "decode": "a list of pods becomes objects: projection, json, pydantic, lightkube, official models",
    "watch": "10,000 pods listed, held and followed: remesh, client-go, lightkube, kr8s, kopf, official",
    "synced": "150,000 pods, 30,000 ReplicaSets, 5,000 nodes until the watcher has synced",
    "latency": "from a failure's commit to its finding, beside a loop that polls",
    "tasks": "from finding to started task, a thousand at once, beside plain Celery",
    "workers": "tasks a second of 1, 2 and 4 workers, where the API server takes its time",
    "audit": "records appended to the trail, AOF everysec and always; SQLite and Kubernetes Events beside them",
    "cli": "remesh --help and scan, beside kubectl",
    "idle": "a watcher while nothing is wrong, and with changes: CPU, memory, dry runs",
    "growth": "how cost grows from 1,000 to 100,000 objects",
}
LONG = {
    "istio": "1,000 pods that came up bare on the real Istio: remesh, a rollout, deleting at once, 20 a minute",
    "stuck": "85 stuck ReplicaSets after the injector is back: remesh, and Kubernetes alone",
    "stuck_by_hand": "85 stuck Deployments: kubectl rollout restart, and a loop that deletes ReplicaSets",
}


def main(arguments: list[str]) -> int:
    """Exit code: the first that was not 0, else 0."""
    names, options, file = _parse(arguments)
    unknown = [name for name in names if name not in ALL | LONG]
    if unknown or (not names and {"--help", "-h"} & set(options)):
        print(__doc__, *(f"  {name:13} {what}" for name, what in (ALL | LONG).items()), sep="\n")
        return 2 if unknown else 0
    print(f"machine: {facts()}\n", flush=True)
    worst, figures = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or ALL:
            print(f"== {name}: {(ALL | LONG)[name]}", flush=True)
            own = Path(folder, f"{name}.json")
            command = [sys.executable, "-m", f"benchmarks.{name}", *options, *(["--json", str(own)] if file else [])]
            code = subprocess.run(command, cwd=Path(__file__).parent.parent, check=False).returncode
            worst = worst or code
            figures.append(_figures(name, own, code))
            print(flush=True)
    if file:
        file.write_text(json.dumps({"machine": facts(), "benchmarks": figures}, indent=2) + "\n", encoding="utf-8")
    return worst


def _parse(arguments: list[str]) -> tuple[list[str], list[str], Path | None]:
    """Names, options for one benchmark, and the file for all figures."""
    rest, file = list(arguments), None
    if "--json" in rest[:-1]:
        at = rest.index("--json")
        file = Path(rest[at + 1])
        del rest[at : at + 2]
    names: list[str] = []
    while rest and not rest[0].startswith("-") and (not names or rest[0] in ALL | LONG):
        names.append(rest.pop(0))
    return names, rest, file


def _figures(name: str, file: Path, code: int) -> dict[str, Any]:
    found: Any = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known = found if isinstance(found, dict) else {"figures": found}
    return {"benchmark": name, "exit_code": code, **known}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
