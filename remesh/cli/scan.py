"""`remesh scan`: the findings of now. Reads; runs no dry run; needs no Redis, and with one it shows quarantine."""

from remesh.cli.app import one_command
from remesh.cli.options import Common, Mesh, with_common


@with_common
def scan(common: Common, mesh: Mesh = None) -> None:
    """Show the findings of now: what is broken, why, and what would be done.

    Looks at workloads that lack pods and at pods that lack their sidecar, in the namespace or in all with -A. Only
    reads. Exits with 0 whether there are findings or not.
    """
    from remesh.cli import findings_table
    from remesh.cli.held import hold_quarantined
    from remesh.cli.render import emit
    from remesh.cli.session import Session
    from remesh.cli.survey import Survey

    session = Session(common)
    survey = Survey(session)
    found = hold_quarantined(session, survey, survey.scan(session.scope, mesh))
    where = "any namespace" if session.scope is None else f"namespace {session.scope}"
    emit(
        common.format,
        findings_table.documents(survey, found),
        findings_table.table(found),
        empty=f"No findings in {where}.",
        kind="FindingList",
    )


app = one_command(scan)
