"""Where the time of each hot path goes: `python -m benchmarks.profiles [--size 5000] [--folder benchmarks/profiles]`.

What `growth` measures, under Python's profiler: one file for each hot path, its functions by the time spent in each
alone and with all that it called. The profiler makes small functions look dearer than they are; `growth` has the true
costs. The README in this folder says what was read from them.
"""

import argparse
import cProfile
import io
import pstats
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.growth import WHAT, Bench
from benchmarks.report import facts
from remesh.embedded import EmbeddedRedis
from remesh.redisdb import connect_url

FUNCTIONS: Final = 25  # of each order
ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = Path(__file__).parent / "profiles"


class Profiled(Bench):
    """One size; what is timed is profiled, too."""

    profile = cProfile.Profile()

    def timed(self, work: Callable[[], Any]) -> float:
        """As ever, and kept; of what is done several times the last one."""
        self.profile = cProfile.Profile()
        return super().timed(lambda: self.profile.runcall(work))


def text(profile: cProfile.Profile) -> str:
    """Both orders, without this machine's paths."""
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(FUNCTIONS)
    lines = out.getvalue().replace(f"{ROOT}/", "").splitlines()
    return "\n".join(re.sub(r"(\s)/\S*/(?=[^/\s]+/[^/\s]+$)", r"\1", line).rstrip() for line in lines).strip() + "\n"


def main() -> None:
    """Profile every hot path and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=5_000, help="objects")
    parser.add_argument("--what", default=",".join(WHAT), help="hot paths, as growth names them")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write one file for each")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedRedis() as server, connect_url(server.url) as client:
        bench = Profiled(client, server.pid, options.size)
        for name in options.what.split(","):
            getattr(bench, name)()
            head = f"{name}, {options.size} objects; {facts()}\n\n"
            file = options.folder / f"{name}.txt"
            file.write_text(head + text(bench.profile), encoding="utf-8")
            print(f"{name}: written to {file}", flush=True)


if __name__ == "__main__":
    main()
