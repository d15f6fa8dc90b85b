"""`remesh demo`: plays an outage and its repair, and ends with what happened."""

from typing import Annotated

import typer

from remesh.cli.app import one_command
from remesh.demo.options import Cause, On


def demo(
    *,
    on: Annotated[
        On, typer.Option("--on", help="Cluster: a real control plane, or the simulated API server.")
    ] = On.AUTO,
    count: Annotated[int, typer.Option("--count", help="Deployments behind the injector.", min=1, max=1000)] = 40,
    replicas: Annotated[int, typer.Option("--replicas", help="Pods of each.", min=1, max=100)] = 1,
    outage: Annotated[
        float, typer.Option("--outage", help="How long the injector is away, in seconds, at least.", min=1)
    ] = 40.0,
    fault: Annotated[Cause, typer.Option("--fault", help="How the injector fails.")] = Cause.KILLED,
    flower: Annotated[bool, typer.Option("--flower", help="Show the tasks in Flower, and stay up at the end.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the summary at the end.")] = False,
) -> None:
    """Play an injector's outage and its repair through the real watcher, worker and an embedded Valkey.

    Needs no cluster, no Redis and no Docker. Exits with 1 if not everything was healed.
    """
    from remesh.cli.processes import interrupt_on_sigterm
    from remesh.demo.play import Play, Plot
    from remesh.testbed import Fault

    interrupt_on_sigterm()
    plot = Plot(on=on, count=count, replicas=replicas, outage=outage, fault=Fault(fault.value), flower=flower)
    with Play(plot, quiet=quiet) as play:
        play.run()


app = one_command(demo)
