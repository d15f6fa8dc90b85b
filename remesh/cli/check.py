"""`remesh check`: everything that must be right before remesh can work, each with a hint where it is not."""

from typing import TYPE_CHECKING

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from remesh.cli.checks import Check


@with_common_but("namespace", "all_namespaces")
def check(common: Common) -> None:
    """Check configuration, cluster access, rights, webhooks, broker, persistence and workers.

    Only asks and reads. Exits with 0 if nothing failed; a warning is no failure.
    """
    from remesh.cli.checks import Checks
    from remesh.cli.session import Session

    found = Checks(Session(common)).run()
    if common.format is Output.TABLE:
        _show(found)
    else:
        _document(common.format, found)
    failed = [each for each in found if each.failed]
    if failed:
        raise typer.Exit(max(each.exit_code for each in failed[:1]))


def _document(output: Output, found: "list[Check]") -> None:
    from remesh.cli.render import emit_one, json_line, line

    items = [each.document() for each in found]
    if output is Output.JSONL:
        for item in items:
            line(json_line(item))
    else:
        emit_one(output, {"kind": "CheckList", "ok": not any(each.failed for each in found), "items": items})


def _show(found: "list[Check]") -> None:
    from remesh.cli.checks import State
    from remesh.cli.render import line, say
    from remesh.cli.text import count

    group = ""
    for each in found:
        if each.group != group:
            group = each.group
            line(("" if each is found[0] else "\n") + group)
        say(f"  {each.mark} {each.text}")
        if each.hint:
            say(f"      {each.hint}")
    failed = sum(1 for each in found if each.failed)
    warned = sum(1 for each in found if each.state is State.WARNING)
    asked = count(sum(1 for each in found if each.state is not State.SKIPPED), "check")
    more = f", {count(warned, 'warning')}" if warned else ""
    line(f"\n{failed or 'None'} of {asked} failed{more}.")


app = one_command(check)
