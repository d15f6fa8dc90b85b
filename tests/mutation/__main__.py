"""`python -m tests.mutation --texts 1000000 --objects 100000 --seed N`: mutants by the number, with counts.

Without a number for anything: a thousand of each kind. The exit code is 1 if anything did not hold.

Last full run, 2026-11-30, seed 20261130: 1,000,000 texts (in parts, by `--first`) and 100,000 objects, 0 did not hold.
"""

import argparse
import logging
import signal
import sys
import time

from tests.mutation.run import ALL


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    for name in ALL:
        parser.add_argument(f"--{name}", type=int, default=None, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first mutant: runs in parts")
    options = parser.parse_args()
    given = {name: getattr(options, name) for name in ALL}
    numbers = {name: number or 0 for name, number in given.items()} if any(given.values()) else dict.fromkeys(ALL, 1000)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logging.disable(logging.CRITICAL)  # each refusal is logged; here only counts matter
    failed = 0
    for name, number in numbers.items():
        if not number:
            continue
        began = time.monotonic()
        tally = ALL[name](number, options.seed, _tell, options.first)
        print(*tally.lines(), f"    {time.monotonic() - began:.0f} s", sep="\n", flush=True)
        failed += tally.failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
