"""`python -m remesh.sim up`: a simulated cluster to look at by hand, with faults typed on standard input."""

import argparse
import sys

from remesh.sim.cluster import SimCluster
from remesh.testbed import Fault, InjectorWear

_HELP = (
    f"""commands: heal, quit, or a fault ({", ".join(fault.value for fault in Fault)}; `slow MS` takes milliseconds)"""
)


def main() -> int:
    """Run until `quit`, end of input or Ctrl-C. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m remesh.sim", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a simulated cluster and wait")
    up.add_argument("--nodes", type=int, default=3, help="number of nodes (3)")
    up.add_argument("--replicas", type=int, default=1, help="replicas of the injector (1)")
    arguments = parser.parse_args()
    with SimCluster.start(InjectorWear(replicas=arguments.replicas), nodes=arguments.nodes) as cluster:
        print(f"simulated cluster at {cluster.url}\nexport KUBECONFIG={cluster.kubeconfig}")
        print(f"kubectl --server={cluster.kubectl_url} get pods -A\n{_HELP}", flush=True)
        try:
            _obey(cluster)
        except KeyboardInterrupt:
            return 130
    return 0


def _obey(cluster: SimCluster) -> None:
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "quit":
            return
        if not word:
            continue
        try:
            _act(cluster, word, argument)
        except ValueError:
            print(_HELP, flush=True)
        else:
            print(f"done: {word}", flush=True)


def _act(cluster: SimCluster, word: str, argument: str) -> None:
    if word == "heal":
        cluster.heal()
    else:
        cluster.inject_fault(Fault(word), delay_ms=int(argument or 0))


if __name__ == "__main__":
    sys.exit(main())
