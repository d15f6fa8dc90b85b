"""`remesh brake list` and `remesh brake clear`."""

from typing import TYPE_CHECKING, Annotated

import typer

from remesh.cli.app import new_app
from remesh.cli.options import Common, with_common_but

if TYPE_CHECKING:
    from remesh.cli.session import Session
    from remesh.ledger_brake import ShutBrake

LOST_SHOWN = 5

app = new_app(help="List or clear brakes that stop evictions after pods did not come back.", no_args_is_help=True)


@with_common_but("namespace", "all_namespaces")
def list_(common: Common) -> None:
    """List the injectors through which nothing is evicted now, with what was evicted and is not back."""
    from remesh.cli.render import Table, emit
    from remesh.cli.session import Session
    from remesh.cli.text import one_line

    found = shut_brakes(Session(common))
    rows = [
        [each.injector, still(each), str(each.bad), str(each.in_flight), one_line(lost_words(each) or "-")]
        for each in found
    ]
    emit(
        common.format,
        [document(each) for each in found],
        Table(("INJECTOR", "SHUT", "BAD", "ON-THEIR-WAY", "NOT-BACK"), rows).shown(hide=common.hidden),
        empty="No brake is shut.",
        kind="BrakeList",
    )


@with_common_but("namespace", "all_namespaces")
def clear(
    common: Common,
    injectors: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INJECTOR]...", help="As `remesh brake list` names them.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every brake of this cluster.")] = False,
) -> None:
    """Open brakes, because new pods become Ready again or nobody need wait for the old; your name goes into the trail.

    One pod is then evicted, and others only once it came back Ready; if it does not, the brake is shut again.
    """
    from remesh.cli.render import say
    from remesh.cli.session import Session
    from remesh.errors import UsageError

    if bool(injectors) == everything:
        raise UsageError("give injectors or --all, one of them")
    session = Session(common)
    for each in _chosen(session, injectors or []):
        _note(session, each)  # first, so that nothing is cleared that is not written down
        session.ledger.clear_brake(each.injector, session.policy.window)
        waits = f"; {each.in_flight} evicted before have to come back first" if each.in_flight else ""
        say(f"cleared: {each.injector}{waits}")


def shut_brakes(session: "Session") -> "list[ShutBrake]":
    """All that are shut, also those of a watcher that knows them by its gates alone. Raises BrokerError."""
    return session.ledger.brakes.all_shut(session.ledger.gates())


def still(brake: "ShutBrake") -> str:
    """For how long."""
    from remesh.cli.text import age

    if brake.seconds >= 1:
        return f"for {age(brake.seconds)}" + (", at least" if brake.lost else "")
    return "until they are back" if brake.lost else "for a moment"


def lost_words(brake: "ShutBrake") -> str:
    """Whose pods are not back; the first few."""
    names = lost_names(brake)
    more = f" and {len(names) - LOST_SHOWN} more" if len(names) > LOST_SHOWN else ""
    return ", ".join(names[:LOST_SHOWN]) + more


def lost_names(brake: "ShutBrake") -> list[str]:
    """Owners, or pods without one, whose evicted pod did not come back Ready."""
    from workers.recreate_lost import whose

    return sorted(whose(about) or f"the pod of UID {uid}" for uid, about in brake.lost.items())


def document(brake: "ShutBrake") -> dict[str, object]:
    """For `-o json` and for `remesh status`."""
    return {
        "injector": brake.injector,
        "seconds": round(brake.seconds, 1),
        "still": still(brake),
        "bad": brake.bad,
        "in_flight": brake.in_flight,
        "lost": lost_names(brake),
    }


def _chosen(session: "Session", injectors: list[str]) -> "list[ShutBrake]":
    from remesh.errors import NotFound

    found = {each.injector: each for each in shut_brakes(session)}
    for name in injectors:
        if name not in found:
            raise NotFound(f"the brake of {name} is not shut; see `remesh brake list`")
    return [found[name] for name in dict.fromkeys(injectors)] if injectors else list(found.values())


def _note(session: "Session", each: "ShutBrake") -> None:
    from remesh.audit import record
    from remesh.cli.session import utc_now
    from remesh.models import RecordType

    cleared = record(
        RecordType.NOTE,
        cluster=session.settings.cluster,
        at=utc_now(),
        actor=session.actor,
        code="brake_cleared",
        reason=f"the brake on evictions through {each.injector} was cleared on the command line",
        details=document(each),
    )
    session.trail.append(cleared)


app.command("list")(list_)
app.command("clear")(clear)
