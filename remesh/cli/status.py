"""`remesh status`: what a running watcher holds, as the ledger shows it. Needs Redis and no cluster."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from remesh.cli.session import Session
    from remesh.ledger import GateState

COLUMNS = ("INJECTOR", "MESH", "GATE", "SINCE", "READY", "DRY-RUN", "WINDOW", "IN-FLIGHT", "WAITING", "REASON")


@with_common_but("namespace", "all_namespaces")
def status(common: Common) -> None:
    """Show gates, windows, findings by state, queues and quarantines, as watcher and workers last wrote them."""
    from remesh.cli.render import emit_one
    from remesh.cli.session import Session

    session = Session(common)
    document = gather(session)
    if common.format is Output.TABLE:
        _show(document)
    else:
        emit_one(common.format, document)


def gather(session: "Session") -> dict[str, Any]:
    """Everything, as plain data."""
    from remesh.queue import queue_lengths

    ledger, settings = session.ledger, session.settings
    states = Counter(each.state for each in ledger.open_findings())
    return {
        "cluster": settings.cluster,
        "gates": [_gate(session, key, state) for key, state in sorted(ledger.gates().items())],
        "findings": dict(sorted(states.items())),
        "queues": queue_lengths(session.redis, settings),
        "quarantined": len(ledger.quarantines()),
        "records": session.trail.length(),
    }


def _gate(session: "Session", key: str, state: "GateState") -> dict[str, Any]:
    return {
        "injector": key,
        **state.model_dump(mode="json"),
        "window": session.ledger.window_size(key, session.policy.window),
        "in_flight": session.ledger.in_flight(key),
    }


def _show(document: dict[str, Any]) -> None:
    from remesh.cli.render import Table, print_table, say

    gates = document["gates"]
    if gates:
        print_table(Table(COLUMNS, [_row(gate) for gate in gates]))
    else:
        say("No gate: nothing waits for an injector, or no watcher runs.")
    findings = ", ".join(f"{number} {state}" for state, number in document["findings"].items()) or "none"
    queues = ", ".join(f"{number} in {name}" for name, number in document["queues"].items())
    say(f"findings     {findings}")
    say(f"queues       {queues}")
    say(f"quarantined  {document['quarantined']}")
    say(f"trail        {document['records']} records")


def _row(gate: dict[str, Any]) -> list[str]:
    from datetime import datetime

    from remesh.cli.session import utc_now
    from remesh.cli.text import age_of, one_line

    ready = "-" if gate["ready"] is None else f"{gate['ready']}/{gate['total'] if gate['total'] is not None else '?'}"
    return [
        gate["injector"],
        gate["mesh"] or "-",
        "open" if gate["open"] else "closed",
        age_of(datetime.fromisoformat(gate["since"]), utc_now()),
        ready,
        "-" if gate["probe_ms"] is None else f"{gate['probe_ms']:.0f}ms",
        str(gate["window"]),
        str(gate["in_flight"]),
        str(gate["waiting"]),
        one_line(gate["reason"]),
    ]


app = one_command(status)
