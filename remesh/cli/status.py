"""`remesh status`: one screen that says who is at work, what is open, and how the last incident went."""

import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remesh.cli.session import Session

COLUMNS = ("INJECTOR", "MESH", "GATE", "SINCE", "READY", "DRY-RUN", "WINDOW", "IN-FLIGHT", "WAITING", "BRAKE", "REASON")
BAR = 30  # characters
NAME = 13  # characters
QUARANTINES_SHOWN = 5
AGAIN_SECONDS = 2.0


@with_common_but("namespace", "all_namespaces")
def status(
    common: Common,
    *,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Show it again every two seconds, until Ctrl-C.")
    ] = False,
) -> None:
    """Show watchers, workers, gates, repairs with their progress, quarantines, brakes and the last incident.

    With --watch a terminal is redrawn; anywhere else one screen follows the other, and `-o jsonl` prints one line each.
    """
    from remesh.cli.session import Session
    from remesh.errors import UsageError

    if watch and common.format not in (Output.TABLE, Output.JSONL):
        raise UsageError("--watch prints one document after the other; use it with -o jsonl, or without -o")
    session = Session(common, kept=True)
    if watch:
        _watch(session, common.format)
    _print(common.format, _gather(session))


def _gather(session: "Session") -> dict[str, Any]:
    from remesh.cli.status_facts import gather

    return gather(session)


def _print(output: Output, document: dict[str, Any]) -> None:
    from remesh.cli.render import emit_one

    if output is Output.TABLE:
        _show(document)
    else:
        emit_one(output, document)


def _watch(session: "Session", output: Output) -> None:
    """Until Ctrl-C. A Redis that goes away meanwhile is said, and asked again."""
    import sys

    from remesh.cli.terminal import moves
    from remesh.errors import BrokerError

    document: dict[str, Any] | BrokerError = _gather(session)  # what cannot be right from the start ends it
    while True:
        if output is Output.TABLE:
            sys.stdout.write("\x1b[H\x1b[2J" if moves() else "")
        if isinstance(document, dict):
            _print(output, document)
        else:
            _say_lost(document)
        if output is Output.TABLE and not moves():
            sys.stdout.write("\n")
        sys.stdout.flush()
        time.sleep(AGAIN_SECONDS)
        try:
            document = _gather(session)
        except BrokerError as error:
            document = error


def _say_lost(error: Exception) -> None:
    from remesh.cli.render import note
    from remesh.cli.text import one_line

    note(f"remesh: {one_line(str(error))}")


def _show(document: dict[str, Any]) -> None:
    from remesh.cli.render import Table, line, print_table
    from remesh.cli.session import utc_now
    from remesh.cli.terminal import Colour, coloured, fitted
    from remesh.cli.text import plain

    now = utc_now()
    for name, text in _rows(document, now):
        colours = [Colour.RED] if name.isupper() or text.startswith("NONE") else []
        for number, piece in enumerate(fitted(plain(text), NAME)):
            line(coloured(f"{'' if number else name:<{NAME}}{piece}".rstrip(), *colours))
    gates = document["gates"]
    if gates:
        line()
        print_table(Table(COLUMNS, [_gate_row(gate, now) for gate in gates]))


def _rows(document: dict[str, Any], now: datetime) -> "Iterator[tuple[str, str]]":
    """Names and what is to be said of each."""
    from remesh.cli.text import count

    yield "cluster", document["cluster"]
    yield "watcher", _watcher(document["watchers"], now)
    yield "workers", _workers(document["workers"])
    yield "findings", _findings(document["findings"])
    if document["repairs"]["total"]:
        yield "repairs", _repairs(document["repairs"])
    yield "queues", ", ".join(f"{number} in {name}" for name, number in document["queues"].items())
    yield "quarantined", str(document["quarantined"])
    yield from _quarantines(document["quarantines"], now)
    for brake in document["brakes"]:
        yield "BRAKE", _brake(brake)
    yield "incident", _incident(document["incident"], now)
    yield "trail", f"{count(document['records'], 'record')}, head {document['trail_head']}"
    if document["trail_lost"]:
        yield "TRAIL LOST", document["trail_lost"]
    if not document["gates"] and document["watchers"]:
        yield "gates", "none: nothing waits for an injector"


def _watcher(seen: list[dict[str, Any]], now: datetime) -> str:
    from remesh.cli.text import age_of

    if not seen:
        return "NONE: nobody is watching; start `remesh run`, or `python -m watcher` with its worker"
    first = seen[0]
    since = age_of(datetime.fromisoformat(first["since"]), now)
    synced = "" if first["synced"] else ", its first lists are still coming in"
    scope = f", only {', '.join(first['namespaces'])}" if first["namespaces"] else ""
    text = f"alive for {since}, mode {first['mode']}{scope}, version {first['version']}{synced}"
    return text + (f"; {_roles(seen)}" if len(seen) > 1 or first["role"] != "leader" else "")


def _roles(seen: list[dict[str, Any]]) -> str:
    """Who leads, by shard, and who stands by."""
    names: dict[str, list[str]] = {}
    for each in seen:
        shard = f" (shard {each['shard']})" if each["shard"] else ""
        names.setdefault(each["role"], []).append(f"{each['identity'] or 'unnamed'}{shard}")
    words = (("leader", "leads"), ("standby", "on standby"), ("starting", "starting"))
    said = [f"{word}: {', '.join(names[role])}" for role, word in words if role in names]
    return "; ".join(said if "leader" in names else ["nobody leads", *said])


def _workers(names: list[str] | None) -> str:
    if names is None:
        return "not known: the broker did not answer"
    return f"{len(names)}: {', '.join(names)}" if names else "NONE: no worker answers, so nothing is repaired"


def _findings(states: dict[str, int]) -> str:
    found = ", ".join(f"{number} {state}" for state, number in states.items()) or "none"
    return found + ("; see `remesh scan -A` for what and why" if states.get("reported") else "")


def _repairs(repairs: dict[str, Any]) -> str:
    from remesh.cli.terminal import bar

    parts = [f"{repairs['running']} running", f"{repairs['waiting']} waiting"]
    parts += [f"{repairs['cooling']} cooling down"] if repairs["cooling"] else []
    shown = bar(repairs["done"], repairs["total"], BAR)
    return f"{shown} {repairs['done']} of {repairs['total']} healed, {', '.join(parts)}; {_eta(repairs)}"


def _eta(repairs: dict[str, Any]) -> str:
    from remesh.cli.status_facts import OBSERVED
    from remesh.cli.text import age

    if repairs["eta_unknown"] == OBSERVED:
        return OBSERVED
    if repairs["eta_seconds"] is None:
        return f"end not known: {repairs['eta_unknown']}"
    return f"done in about {age(max(1, repairs['eta_seconds']))}, at {repairs['per_second']:.1f} a second"


def _quarantines(found: list[dict[str, Any]], now: datetime) -> "Iterator[tuple[str, str]]":
    from remesh.cli.text import age_of, one_line

    for each in found[:QUARANTINES_SHOWN]:
        since = age_of(datetime.fromisoformat(each["since"]), now)
        yield "", one_line(f"{each['object']} since {since}: {each['reason']}", 160)
    if len(found) > QUARANTINES_SHOWN:
        yield "", f"and {len(found) - QUARANTINES_SHOWN} more; see `remesh quarantine list`"


def _brake(brake: dict[str, Any]) -> str:
    from remesh.cli.text import count, one_line

    lost = f", {count(len(brake['lost']), 'evicted pod')} not back: {', '.join(brake['lost'])}" if brake["lost"] else ""
    return one_line(f"{brake['injector']}: shut {brake['still']}{lost}", 160) + "; see `remesh brake list`"


def _incident(found: dict[str, Any] | None, now: datetime) -> str:
    """When, how many, healed, in how long."""
    from remesh.cli.text import age, age_of, clock, count

    if found is None:
        return "none in the trail"
    began = datetime.fromisoformat(found["began"])
    least = "at least " if found["at_least"] else ""
    what = f"{least}{count(found['objects'], 'object')} of {', '.join(found['meshes']) or 'no known mesh'}"
    parts = [f"{clock(began)} ({age_of(began, now)} ago): {what}, {found['healed']} healed"]
    if found["seconds"] is not None:
        parts.append(f"within {age(found['seconds'])}")
    if found["repair_seconds"] is not None:
        parts.append(f"{found['repair_seconds']:.1f} s after the gate opened")
    parts += [f"{found['not_ready']} replaced, not Ready yet"] if found["not_ready"] else []
    parts += [f"{found['quarantined']} quarantined"] if found["quarantined"] else []
    parts += [f"{found['left']} still open"] if found["left"] else []
    return ", ".join(parts)


def _gate_row(gate: dict[str, Any], now: datetime) -> list[str]:
    from remesh.cli.text import age_of, one_line

    total = "" if gate["total"] is None else f"/{gate['total']}"
    return [
        gate["injector"],
        gate["mesh"] or "-",
        ("open" if gate["open"] else "closed") + (" (stale)" if gate["stale"] else ""),
        age_of(datetime.fromisoformat(gate["since"]), now),
        "-" if gate["ready"] is None else f"{gate['ready']}{total}",
        "-" if gate["probe_ms"] is None else f"{gate['probe_ms']:.0f}ms",
        str(gate["window"]),
        str(gate["in_flight"]),
        str(gate["waiting"]),
        "shut" if gate["brake_seconds"] else "-",
        one_line(gate["reason"]),
    ]


app = one_command(status)
