"""`python -m benchmarks [NAME …]`: run benchmarks, each in a process of its own, with the machine's facts.

Without names: all. `python -m benchmarks NAME --help` shows one's own options.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

ALL = {
    "decode": "a list of pods becomes objects: projection, json, pydantic, official models",
    "audit": "records appended to the trail: one by one, pipelined, SQLite beside them",
    "istio": "1,000 pods that came up bare on the real Istio: remesh, a rollout, deleting at once, 20 a minute",
    "stuck": "85 stuck ReplicaSets after the injector is back: remesh, and Kubernetes alone",
}


def facts() -> str:
    """The machine in one line; times mean little without it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, {sys.version.split()[0]}"
    )


def main(arguments: list[str]) -> int:
    """Exit code: the first that was not 0, else 0."""
    names = [name for name in arguments if not name.startswith("-")]
    unknown = [name for name in names[:1] if name not in ALL]
    if unknown or "--help" in arguments[:1] or "-h" in arguments[:1]:
        print(__doc__, *(f"  {name:8} {what}" for name, what in ALL.items()), sep="\n")
        return 2 if unknown else 0
    print(f"machine: {facts()}\n", flush=True)
    worst = 0
    chosen = [[names[0], *[a for a in arguments if a != names[0]]]] if names else [[name] for name in ALL]
    for name, *options in chosen:
        print(f"== {name}: {ALL[name]}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *options]
        worst = worst or subprocess.run(command, cwd=Path(__file__).parent.parent, check=False).returncode
        print(flush=True)
    return worst


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
