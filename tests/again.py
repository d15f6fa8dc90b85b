"""`python -m tests.again`: what failed beside other tests in the last run is run once more, alone.

Tests that race a control plane's own retries can lose the race on a machine that does several things at once. Alone
each has to pass; what fails twice has failed, and so has a run in which many failed or that did not come to its end.
See docs/decisions/0013-once-more-alone.md.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CACHE = Path(".pytest_cache/v")
# Kept by tests/conftest.py: how the last session ended, as pytest's exit code.
EXIT_STATUS = "remesh/exitstatus"
TESTS_FAILED = 1
MOST = 6


def refusal(exit_status: int | None, failed: list[str]) -> str:
    """Why the last run's failures may not be tried again; empty if they may."""
    if exit_status != TESTS_FAILED or not failed:
        return f"the last run did not come to its end (exit status {exit_status}): nothing is tried again"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than the {MOST} that may be tried again alone"
    return ""


def _kept(name: str, otherwise: Any) -> Any:
    path = CACHE / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise


def main() -> int:
    """Run them; 0 if each passed, 1 if not or if they may not be tried."""
    failed = sorted(_kept("cache/lastfailed", {}))
    why_not = refusal(_kept(EXIT_STATUS, None), failed)
    if why_not:
        print(why_not, file=sys.stderr)
        return 1
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-v", "--last-failed", "--last-failed-no-failures", "none"], check=False
    )
    again = "all of them passed alone" if ended.returncode == 0 else "not all of them passed alone"
    print(f"\nfailed beside other tests, and were run once more; {again}:")
    print("\n".join(f"  {name}" for name in failed))
    return int(ended.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
