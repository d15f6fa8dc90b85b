"""`remesh explain`: why an object is a finding or is not, step by step; live, or offline for a file."""

from pathlib import Path
from typing import Annotated

import typer

from remesh.cli import completions
from remesh.cli.app import one_command
from remesh.cli.options import Common, with_common


@with_common
def explain(
    common: Common,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND/NAME]...", help="Targets.", show_default=False, autocompletion=completions.targets
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--filename", help="A manifest or a cases file instead of a cluster; - is standard input."),
    ] = None,
) -> None:
    """Say step by step why an object is a finding or is not, and what would be done.

    With a cluster the steps end with a dry run of the object's own template and what the ledger knows. With -f nothing
    is asked of any cluster: the file is a manifest (YAML or JSON, any number of documents) or a cases file (JSON
    lines), and `-o jsonl` prints one object with id, class, action and reason for each.
    """
    from remesh.errors import UsageError

    if (file is None) == (not targets):
        raise UsageError("give targets (KIND/NAME …) or a file with -f, one of them")
    if file is not None:
        from remesh.cli import offline

        offline.explain_file(common, file)
    else:
        from remesh.cli import live

        live.explain_targets(common, targets or [])


app = one_command(explain)
