"""`remesh check`: everything that must be right before remesh can work, each with a hint and a link where it is not."""

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from remesh.cli.checks import Check

AGAIN_SECONDS = 2.0  # between two rounds of --wait


@with_common_but("namespace", "all_namespaces")
def check(
    common: Common,
    *,
    wait: Annotated[
        float | None,
        typer.Option("--wait", help="Check again for so many seconds until nothing fails.", min=1, show_default=False),
    ] = None,
    direct: Annotated[
        bool,
        typer.Option("--direct", help="Pods' addresses can be reached from here: look at injectors' certificates."),
    ] = False,
) -> None:
    """Check configuration, cluster, rights, injectors, broker, watcher and workers.

    Only asks and reads. Exits with 0 if nothing failed; a warning is no failure. `-o wide` links every line to its
    explanation.
    """
    from remesh.cli.checks import Checks
    from remesh.cli.session import Session

    end = time.monotonic() + (wait or 0)
    while True:
        checks = Checks(Session(common), direct=direct).run()
        last = wait is None or time.monotonic() + AGAIN_SECONDS > end
        if last and common.format is Output.TABLE:
            found = _show(checks, wide=common.output is Output.WIDE)
            break
        found = list(checks)
        if last or not any(each.failed for each in found):
            _print(common, found)
            break
        _say_again(found)
        time.sleep(AGAIN_SECONDS)
    failed = [each for each in found if each.failed]
    if failed:
        raise typer.Exit(failed[0].exit_code)


def _say_again(found: "list[Check]") -> None:
    from remesh.cli.render import note

    failed = [each for each in found if each.failed]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    note(f"waiting: {failed[0].id}: {failed[0].text}{more}")


def _print(common: Common, found: "list[Check]") -> None:
    if common.format is Output.TABLE:
        _show(found, wide=common.output is Output.WIDE)
    else:
        _document(common.format, found)


def _document(output: Output, found: "list[Check]") -> None:
    from remesh.cli.render import emit_one, json_line, line

    items = [each.document() for each in found]
    if output is Output.JSONL:
        for item in items:
            line(json_line(item))
    else:
        emit_one(output, {"kind": "CheckList", "ok": not any(each.failed for each in found), "items": items})


def _show(checks: "Iterable[Check]", *, wide: bool) -> "list[Check]":
    """Each line as its answer comes in; returns them all."""
    from remesh.cli.check_catalogue import link
    from remesh.cli.render import line
    from remesh.cli.terminal import Colour, coloured, fitted
    from remesh.cli.text import plain

    group, found = "", []
    for each in checks:
        if each.group != group:
            line(("\n" if group else "") + coloured(plain(each.group), Colour.BOLD))
            group = each.group
        for number, text in enumerate(fitted(plain(each.text), 4)):
            line(f"    {text}" if number else f"  {mark(each)} {text}")
        if each.wants_attention:
            for text in fitted(plain(each.hint), 6):
                line(f"      {text}")
        if each.wants_attention or wide:
            line(coloured(f"      see {link(each.id)}", Colour.DIM))
        sys.stdout.flush()
        found.append(each)
    line("\n" + summary(found))
    return found


def mark(each: "Check") -> str:
    """A tick, a cross, a warning or a dash, in its colour; in ASCII where nothing else would arrive."""
    from remesh.cli.checks import State
    from remesh.cli.terminal import Colour, coloured, speaks_unicode

    known = {
        State.OK: ("✓", "+", Colour.GREEN),
        State.WARNING: ("!", "!", Colour.YELLOW),
        State.FAILED: ("✗", "x", Colour.RED),
        State.SKIPPED: ("-", "-", Colour.DIM),
    }
    sign, ascii_sign, colour = known[each.state]
    return coloured(sign if speaks_unicode() else ascii_sign, colour)


def summary(found: "list[Check]") -> str:
    """`1 of 30 checks failed, 2 warnings, 3 not checked.`"""
    from remesh.cli.checks import State
    from remesh.cli.text import count

    numbers = {state: sum(1 for each in found if each.state is state) for state in State}
    asked = count(len(found) - numbers[State.SKIPPED], "check")
    parts = [f"{numbers[State.FAILED] or 'None'} of {asked} failed"]
    if numbers[State.WARNING]:
        parts.append(count(numbers[State.WARNING], "warning"))
    if numbers[State.SKIPPED]:
        parts.append(f"{numbers[State.SKIPPED]} not checked")
    return ", ".join(parts) + "."


app = one_command(check)
