"""`python -m tests.cluster`: a real control plane for a person to play with."""

import argparse
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from remesh.demo.stage import meshed_namespace
from remesh.testbed import Fault, InjectorWear
from tests.cluster import build, control
from tests.cluster.cluster import DEFAULT_NODES, RealCluster
from tests.cluster.errors import ClusterError
from tests.cluster.istio import ISTIO_WEAR, IstioCluster


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 it could not be done, 2 wrong use."""
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = chosen.command
    try:
        command(chosen)
    except ClusterError as error:
        print(f"tests.cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=OneLineParser)
    up = commands.add_parser("up", help="start a cluster and keep it until Ctrl-C")
    up.add_argument("--nodes", type=_positive, default=DEFAULT_NODES, help="how many (default: %(default)s)")
    up.add_argument("--replicas", type=_positive, default=1, help="of the injector (default: %(default)s)")
    up.add_argument("--istio", action="store_true", help="the real Istio in the controllable injector's place")
    up.add_argument("--failure-policy", choices=["Fail", "Ignore"], default="Fail", help="(default: %(default)s)")
    up.add_argument("--json", action="store_true", help="say where it is as one line of JSON")
    up.set_defaults(command=_up)
    commands.add_parser("build", help="build the programs that are missing").set_defaults(command=_build)
    fault = commands.add_parser("fault", help="break the injector; faults add up")
    fault.add_argument("fault", metavar="NAME", type=_fault, help=", ".join(Fault))
    fault.add_argument("--delay-ms", type=_positive, help="for the fault slow")
    fault.set_defaults(command=_fault_command)
    commands.add_parser("heal", help="end all faults").set_defaults(command=_heal)
    commands.add_parser("down", help="end the cluster").set_defaults(command=_down)
    commands.add_parser("status", help="say where it is and what runs, as JSON").set_defaults(command=_status)
    for name, command in commands.choices.items():
        if name != "build":
            command.add_argument("--name", default="default", help="of the cluster, where there are several")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _fault(text: str) -> Fault:
    try:
        return Fault(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"there is no fault {text!r}; there are {', '.join(Fault)}") from None


def _up(arguments: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with control.Socket(arguments.name) as socket:
        kind, clothes = (IstioCluster, ISTIO_WEAR) if arguments.istio else (RealCluster, InjectorWear())
        wear = replace(clothes, replicas=arguments.replicas, failure_policy=arguments.failure_policy)
        cluster = kind.start(wear, nodes=arguments.nodes)
        try:
            _announce(arguments, control.describe(arguments.name, cluster), wear)
            socket.serve(cluster)
        finally:
            cluster.stop()


def _announce(arguments: argparse.Namespace, facts: dict[str, Any], wear: InjectorWear) -> None:
    if arguments.json:
        print(json.dumps(facts), flush=True)
        return
    print(f"export KUBECONFIG={facts['kubeconfig']}")
    for line in guide(arguments.name, wear):
        print(f"# {line}")
    print(f"# API server {facts['server']}, {arguments.nodes} nodes. Ctrl-C ends it.", flush=True)


def guide(name: str, wear: InjectorWear) -> list[str]:
    """What somebody does next: a namespace whose pods get the sidecar, a fault, and its end."""
    meta = meshed_namespace("shop", wear)["metadata"]
    asks = [f"kubectl label namespace shop {key}={value}" for key, value in meta["labels"].items()]
    asks += [f"kubectl annotate namespace shop {key}={value}" for key, value in meta["annotations"].items()]
    this = "python -m tests.cluster"
    which = "" if name == "default" else f" --name {name}"
    return [
        f"A namespace whose pods get {wear.mesh}'s sidecar: kubectl create namespace shop; {'; '.join(asks)}",
        f"Break the injector: `{this} fault killed{which}` ({', '.join(Fault)}); mend it: `{this} heal{which}`",
    ]


def _build(_: argparse.Namespace) -> None:
    for name, path in build.ensure(build.PROGRAMS + build.ISTIO_PROGRAMS + build.DEPLOY_PROGRAMS).items():
        print(f"{name}: {path}")


def _fault_command(arguments: argparse.Namespace) -> None:
    if (arguments.fault is Fault.SLOW) != (arguments.delay_ms is not None):
        raise ClusterError("the fault slow needs --delay-ms N, and no other fault takes it")
    control.ask(arguments.name, command="fault", fault=arguments.fault, delay_ms=arguments.delay_ms or 0)
    print(f"in force: {arguments.fault}")


def _heal(arguments: argparse.Namespace) -> None:
    control.ask(arguments.name, command="heal")
    print("healed: the injector injects")


def _down(arguments: argparse.Namespace) -> None:
    control.ask(arguments.name, command="down")
    print("down")


def _status(arguments: argparse.Namespace) -> None:
    print(json.dumps(control.ask(arguments.name, command="status"), indent=1))


if __name__ == "__main__":
    sys.exit(main())
