"""`remesh scan`: the findings of now. Reads; runs no dry run; needs no Redis, and with one it shows quarantine."""

from typing import TYPE_CHECKING

from remesh.cli.app import one_command
from remesh.cli.options import Common, Mesh, Output, with_common

if TYPE_CHECKING:
    from remesh.cli.survey import Survey


@with_common
def scan(common: Common, mesh: Mesh = None) -> None:
    """Show the findings of now: what is broken, why, and what would be done.

    Looks at workloads that lack pods and at pods that lack their sidecar, in the namespace or in all with -A. Only
    reads: whether an injector works is taken from a live watcher's gate, and tried by `plan` and `explain`. Exits with
    0 whether there are findings or not, and with 6 if the namespace is not there.
    """
    from remesh.cli import findings_table, gates
    from remesh.cli.held import hold_quarantined
    from remesh.cli.render import emit, note
    from remesh.cli.session import Session
    from remesh.cli.survey import Survey

    session = Session(common)
    survey = Survey(session)
    found = survey.scan(session.scope, mesh)
    known = gates.watched(session) if found else gates.Watched()
    found = hold_quarantined(session, survey, gates.as_watched(survey, found, known))
    if not found and session.scope is not None:
        _require_namespace(survey, session.scope)
    where = "any namespace" if session.scope is None else f"namespace {session.scope}"
    emit(
        common.format,
        findings_table.documents(survey, found),
        findings_table.table(found),
        empty=f"No findings in {where}.",
        kind="FindingList",
    )
    for line in gates.remarks(known, found) if common.format is Output.TABLE else []:
        note(line)
    # Whoever named the namespace meant it, and a program reads no hints: neither waits for a look at everything.
    unasked = session.scope is not None and common.namespace is None
    if not found and unasked and common.format is Output.TABLE and (hint := _elsewhere(survey, mesh)):
        note(hint)


def _require_namespace(survey: "Survey", name: str) -> None:
    """Raises NotFound. Whoever may not read namespaces is told nothing about them."""
    from remesh.errors import ClusterError, NotFound

    try:
        there = survey.view.namespace(name) is not None
    except ClusterError:
        return
    if not there:
        raise NotFound(f"namespace {name} is not there; check the name, -n and --context", status=404)


def _elsewhere(survey: "Survey", mesh: str | None) -> str:
    """What a look at every namespace would show; empty if nothing, or if it may not be looked at."""
    from remesh.cli.text import count
    from remesh.errors import ClusterError

    try:
        found = survey.scan(None, mesh)
    except ClusterError:
        return ""
    if not found:
        return ""
    places = count(len({each.ref.namespace for each in found}), "other namespace")
    return f"Elsewhere: {count(len(found), 'finding')} in {places}; `remesh scan -A` shows what is there."


app = one_command(scan)
