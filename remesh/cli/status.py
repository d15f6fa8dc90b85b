"""`remesh status`: who is at work, and what a running watcher holds. Needs Redis and no cluster."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from remesh.cli.session import Session
    from remesh.ledger import GateState, OpenFinding
    from remesh.presence import WatcherSeen

COLUMNS = ("INJECTOR", "MESH", "GATE", "SINCE", "READY", "DRY-RUN", "WINDOW", "IN-FLIGHT", "WAITING", "REASON")
WORKER_SECONDS = 1.0  # a worker that is up answers a ping within milliseconds


@with_common_but("namespace", "all_namespaces")
def status(common: Common) -> None:
    """Show whether a watcher and workers are alive, gates, windows, findings by state, queues and quarantines."""
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
    from remesh.presence import Presence
    from remesh.queue import queue_lengths

    ledger, settings = session.ledger, session.settings
    watcher = Presence(session.redis, settings.cluster, settings.key_prefix).seen()
    findings = ledger.open_findings()
    gates = sorted(ledger.gates().items())
    return {
        "cluster": settings.cluster,
        "watcher": watcher.model_dump(mode="json") if watcher else None,
        "workers": _workers(session),
        "gates": [_gate(session, key, state, findings, watcher) for key, state in gates],
        "findings": dict(sorted(Counter(each.state for each in findings).items())),
        "queues": queue_lengths(session.redis, settings),
        "quarantined": len(ledger.quarantines()),
        "records": session.trail.length(),
    }


def _workers(session: "Session") -> list[str] | None:
    """Names of the workers that answer; None if nobody could be asked."""
    from kombu.exceptions import KombuError
    from redis.exceptions import RedisError

    try:
        answers = session.app.control.ping(timeout=WORKER_SECONDS)
    except (KombuError, RedisError, OSError, RuntimeError):
        return None
    return sorted(name for answer in answers or () for name in answer)


def _gate(
    session: "Session", key: str, state: "GateState", findings: "list[OpenFinding]", watcher: "WatcherSeen | None"
) -> dict[str, Any]:
    from datetime import timedelta

    from remesh.redisdb import CLOCK_SKEW_SECONDS

    behind = [each for each in findings if each.finding.injector is not None and each.finding.injector.key == key]
    # A gate is written when it changes, so only the watcher that wrote it makes it current.
    current = (
        watcher is not None
        and state.seen is not None
        and state.seen >= watcher.since - timedelta(seconds=CLOCK_SKEW_SECONDS)
    )
    return {
        "injector": key,
        **state.model_dump(mode="json"),
        "mesh": state.mesh or next((each.finding.mesh for each in behind), ""),
        "waiting": sum(1 for each in behind if each.state == "waiting"),
        "stale": not current,
        "window": session.ledger.window_size(key, session.policy.window),
        "in_flight": session.ledger.in_flight(key),
    }


def _show(document: dict[str, Any]) -> None:
    from remesh.cli.render import Table, line, print_table, say

    say(f"cluster      {document['cluster']}")
    say(f"watcher      {_watcher(document['watcher'])}")
    say(f"workers      {_worker_words(document['workers'])}")
    findings = ", ".join(f"{number} {state}" for state, number in document["findings"].items()) or "none"
    more = "; see `remesh scan -A` for what and why" if document["findings"].get("reported") else ""
    queues = ", ".join(f"{number} in {name}" for name, number in document["queues"].items())
    say(f"findings     {findings}{more}")
    say(f"queues       {queues}")
    say(f"quarantined  {document['quarantined']}")
    say(f"trail        {document['records']} records")
    gates = document["gates"]
    if gates:
        line()
        print_table(Table(COLUMNS, [_row(gate) for gate in gates]))
    elif document["watcher"]:
        say("gates        none: nothing waits for an injector")


def _watcher(seen: dict[str, Any] | None) -> str:
    from datetime import datetime

    from remesh.cli.session import utc_now
    from remesh.cli.text import age_of

    if seen is None:
        return "NONE: nobody is watching; start `remesh run`, or `python -m watcher` with its worker"
    since = age_of(datetime.fromisoformat(seen["since"]), utc_now())
    synced = "" if seen["synced"] else ", its first lists are still coming in"
    scope = f", only {', '.join(seen['namespaces'])}" if seen["namespaces"] else ""
    return f"alive for {since}, mode {seen['mode']}{scope}, version {seen['version']}{synced}"


def _worker_words(names: list[str] | None) -> str:
    if names is None:
        return "not known: the broker did not answer"
    return f"{len(names)}: {', '.join(names)}" if names else "NONE: no worker answers, so nothing is repaired"


def _row(gate: dict[str, Any]) -> list[str]:
    from datetime import datetime

    from remesh.cli.session import utc_now
    from remesh.cli.text import age_of, one_line

    total = "" if gate["total"] is None else f"/{gate['total']}"
    return [
        gate["injector"],
        gate["mesh"] or "-",
        ("open" if gate["open"] else "closed") + (" (stale)" if gate["stale"] else ""),
        age_of(datetime.fromisoformat(gate["since"]), utc_now()),
        "-" if gate["ready"] is None else f"{gate['ready']}{total}",
        "-" if gate["probe_ms"] is None else f"{gate['probe_ms']:.0f}ms",
        str(gate["window"]),
        str(gate["in_flight"]),
        str(gate["waiting"]),
        one_line(gate["reason"]),
    ]


app = one_command(status)
