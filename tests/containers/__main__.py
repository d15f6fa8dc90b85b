"""`python -m tests.containers build`: make everything that takes minutes the first time."""

import sys

from tests.cluster.errors import ClusterError
from tests.containers import needs


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, or nothing to do where there can be no containers; 1 it failed; 2 wrong use."""
    if arguments != ["build"]:
        print("usage: python -m tests.containers build", file=sys.stderr)
        return 2
    if reason := needs.unavailable_reason():
        print(f"tests.containers: {reason}")
        return 0
    try:
        for name, path in needs.make_everything().items():
            print(f"{name}: {path}")
    except (needs.Unavailable, ClusterError) as error:
        print(f"tests.containers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
