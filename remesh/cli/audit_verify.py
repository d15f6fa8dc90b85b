"""`remesh audit verify`: proves the chain of the trail, or of files exported from it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from remesh.audit import Trail
    from remesh.chain import Link, Report, Verifier
    from remesh.cli.session import Session

EVERY = 1000  # records between two looks at the clock
PROGRESS_SECONDS = 2.0


@with_common_but("namespace", "all_namespaces")
def verify(
    common: Common,
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Exports, in their order, instead of the trail in Redis; `-` is standard input.",
            show_default=False,
        ),
    ] = None,
    anchors: Annotated[
        list[str] | None,
        typer.Option(
            "--anchor",
            help="number/position/hash as printed or logged before: this record must still be there. May be repeated.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Begin behind this position, which is taken as right.", show_default=False),
    ] = None,
) -> None:
    """Prove that no record was removed, altered or moved; say where one was, and end with exit code 1.

    Keep the head that is printed outside of Redis: without it as an `--anchor` nobody can tell a trail that was written
    anew from some record on. Seals are checked where REMESH_SIGNING_KEY is set.
    """
    from remesh.chain import parse_anchor
    from remesh.cli.session import Session

    session = Session(common, kept=True)
    known = [parse_anchor(text) for text in anchors or []]
    report = _files(session, files, known, after) if files else _trail(session, known, after)
    _print(report, common.format, _names(files) if files else f"trail of cluster {session.settings.cluster!r}")
    if not report.whole:
        raise typer.Exit(1)


def _verifier(session: "Session", anchors: "list[Link]", **more: Any) -> "Verifier":
    from remesh.chain import Verifier

    secret = session.settings.signing_key
    key = secret.get_secret_value().encode() if secret else b""
    return Verifier(anchors=anchors, key=key, cluster=session.settings.cluster, **more)


def _trail(session: "Session", anchors: "list[Link]", after: str | None) -> "Report":
    """Twice if something else pruned the trail meanwhile: what it removed would look like a theft."""
    trail = session.trail
    while True:
        oldest = _oldest(trail)
        report = _read(session, trail, anchors, after)
        if report.whole or _oldest(trail) == oldest:
            return report


def _read(session: "Session", trail: "Trail", anchors: "list[Link]", after: str | None) -> "Report":
    head = trail.head()  # first: what is written from now on may come or not
    begin = _begin(trail, after) if after else None
    verifier = _verifier(session, anchors, head=head, whole=after is None, after=begin)
    tell = _teller(trail.length())
    for number, entry in enumerate(trail.entries(after=after), 1):
        verifier.take(entry)
        tell(number)
    return verifier.end()


def _oldest(trail: "Trail") -> str:
    return next((entry.position for entry in trail.entries()), "")


def _begin(trail: "Trail", position: str) -> "Link | None":
    """The link at a position; None for a record without one."""
    from remesh.errors import NotFound

    entry = trail.entry(position)
    if entry is None:
        raise NotFound(f"there is no record at position {position}; see `remesh audit export`")
    return entry.link if entry.hash else None


def _files(session: "Session", files: list[Path], anchors: "list[Link]", after: str | None) -> "Report":
    from remesh.chain import check_lines
    from remesh.errors import UsageError

    if after:
        raise UsageError("--after is for the trail in Redis; of a file give the lines that you want")
    verifier = _verifier(session, anchors, whole=False)
    tell = _teller(0)
    done = 0
    for file in files:
        try:
            with _opened(file) as lines:
                for number, line in enumerate(lines, 1):
                    check_lines([line], verifier, number)
                    done += 1
                    tell(done)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror or error}; give a file from `remesh audit export`") from error
    return verifier.end()


def _opened(file: Path) -> Any:
    """Bytes that are no text become an altered line, not a crash."""
    if str(file) == "-":
        return open(sys.stdin.fileno(), encoding="utf-8", errors="replace", newline="\n", closefd=False)
    return file.open(encoding="utf-8", errors="replace", newline="\n")


def _teller(total: int) -> "Callable[[int], None]":
    """Progress on standard error, every few seconds, so that a short one says nothing."""
    began = time.monotonic()
    last = began

    def tell(done: int) -> None:
        nonlocal last
        if done % EVERY or time.monotonic() - last < PROGRESS_SECONDS:
            return
        last = time.monotonic()
        of = f" of {total:,}" if total else ""
        sys.stderr.write(f"verified {done:,}{of} records, {done / (last - began):,.0f} a second\n")
        sys.stderr.flush()

    return tell


def _names(files: list[Path]) -> str:
    return ", ".join("standard input" if str(file) == "-" else str(file) for file in files)


def _print(report: "Report", output: Output, what: str) -> None:
    from remesh.cli.render import emit_one, say

    if output is not Output.TABLE:
        emit_one(output, _document(report, what))
        return
    for problem in (*report.problems, *report.losses):
        say(f"WRONG  {problem}")
    if report.wrong > len(report.problems):
        say(f"WRONG  and {report.wrong - len(report.problems)} more")
    for note in report.notes:
        say(f"note   {note}")
    if report.sealed is not None:
        say(f"sealed {report.sealed}")
    if report.head is not None:
        say(f"head   {report.head}")
    say(_verdict(report, what))


def _verdict(report: "Report", what: str) -> str:
    from remesh.cli.text import count

    records = count(report.count, "record")
    if report.whole:
        return f"whole  {records} in the {what}" if what.startswith("trail") else f"whole  {records} in {what}"
    found = count(report.wrong + len(report.losses), "thing")
    return f"BROKEN {found} wrong among {records} in {what}; to go on behind one that is known: --after POSITION"


def _document(report: "Report", what: str) -> dict[str, Any]:
    return {
        "what": what,
        "whole": report.whole,
        "records": report.count,
        "unchained": report.unchained,
        "first": str(report.first) if report.first else None,
        "head": str(report.head) if report.head else None,
        "wrong": report.wrong,
        "problems": [{"where": each.where, "what": each.what} for each in report.problems],
        "losses": [{"where": each.where, "what": each.what} for each in report.losses],
        "notes": report.notes,
        "seals": report.seals,
        "sealed": str(report.sealed) if report.sealed else None,
    }


app = one_command(verify)
