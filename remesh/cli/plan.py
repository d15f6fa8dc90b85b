"""`remesh plan`: what `repair` would do, by the same decision and a dry run of each template. Nothing is written."""

from typing import TYPE_CHECKING, Annotated

import typer

from remesh.cli import completions
from remesh.cli.app import one_command
from remesh.cli.options import Common, Mesh, Output, with_common

if TYPE_CHECKING:
    from remesh.cli.survey import Judged, Survey


@with_common
def plan(
    common: Common,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND/NAME]...",
            help="Targets; default: every finding.",
            show_default=False,
            autocompletion=completions.targets,
        ),
    ] = None,
    mesh: Mesh = None,
) -> None:
    """Show what `repair` would do to targets or to every finding, proven by dry runs; nothing is written."""
    from remesh.cli.held import hold_quarantined
    from remesh.cli.session import Session
    from remesh.cli.survey import Survey
    from remesh.cli.targets import parse_targets

    wanted = parse_targets(targets or [])
    session = Session(common)
    survey = Survey(session)
    proven = survey.prove_all(survey.choose(wanted, session, mesh))
    show(common.format, survey, hold_quarantined(session, survey, proven))


def show(output: Output, survey: "Survey", proven: "list[Judged]") -> None:
    """Print judged and proven objects."""
    from remesh.cli import findings_table
    from remesh.cli.render import emit

    emit(
        output,
        findings_table.documents(survey, proven),
        findings_table.table(proven),
        empty="Nothing to repair.",
        kind="PlanList",
    )


app = one_command(plan)
