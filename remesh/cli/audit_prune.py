"""`remesh audit prune`: takes what is old out of the trail, after an export that was proven."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common_but

if TYPE_CHECKING:
    from datetime import timedelta

    from remesh.retention import Cut, Pruned


@with_common_but("namespace", "all_namespaces")
def prune(
    common: Common,
    *,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="What is older than this span, such as 90d.", show_default=False),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="What is more than so many records.", show_default=False)
    ] = None,
    export: Annotated[
        Path, typer.Option("--export", metavar="FILE", help="New file for what is removed, as JSON lines.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    although_broken: Annotated[
        bool, typer.Option("--although-broken", help="Also where the chain does not hold; the trail then says so.")
    ] = False,
) -> None:
    """Move old records into a file: written, synced, read back and proven before any is removed.

    The trail keeps a record of it, with the hash from which the chain goes on, so that `remesh audit verify` still
    passes. A finding whose repair is begun keeps its chain, and whatever came after its beginning, for 30 days at most;
    one that waits for its repair now for 7 days at most.
    """
    from remesh.cli.session import Session
    from remesh.errors import UsageError
    from remesh.retention import Pruned, Retention

    if older_than is None and keep is None:
        raise UsageError("give --older-than or --keep, or both: with neither nothing would be removed")
    session = Session(common, kept=True)
    retention = Retention(session.redis, session.trail, session.settings.cluster, session.settings.key_prefix)
    cut = retention.cut(older_than=_span(older_than), keep=keep)
    if dry_run or not cut.count:
        _print(Pruned(cut), common.format, done=not dry_run)
        return
    pruned = retention.prune(
        cut, export.absolute(), actor=session.actor, although_broken=although_broken, progress=_tell
    )
    _print(pruned, common.format, done=True)


def _span(text: str | None) -> "timedelta | None":
    from datetime import timedelta

    from remesh.cli.text import seconds_of
    from remesh.errors import UsageError

    if text is None:
        return None
    try:
        return timedelta(seconds=seconds_of(text))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--older-than {text!r} is no span of time; write 12h or 90d") from error


def _tell(done: int) -> None:
    sys.stderr.write(f"exported {done:,} records\n")
    sys.stderr.flush()


def _print(pruned: "Pruned", output: Output, *, done: bool) -> None:
    from remesh.cli.render import emit_one, say
    from remesh.cli.text import count

    cut = pruned.cut
    if output is not Output.TABLE:
        emit_one(output, _document(pruned, done=done))
        return
    if pruned.export is not None:
        say(f"export  {pruned.export.path}: {pruned.export.size:,} bytes, SHA-256 {pruned.export.sha256}")
        say(f"anchor  {pruned.link}")
    verb = "removed" if done else "would be removed"
    if cut.count:
        say(f"trail   {count(cut.count, 'record')} {verb}, from {cut.first} to {cut.last}")
    else:
        why = "" if cut.held_by else ": no record is older, or more, than what is kept; the last minute always is"
        say(f"trail   nothing {'was' if done else 'would be'} removed{why}")
    if cut.held_by:
        say(f"held    {'more stays' if cut.count else 'all of it stays'}: {_held(cut)}")


def _held(cut: "Cut") -> str:
    return f"finding {cut.held_by}, whose chain begins at {cut.held_at}, {cut.held_because}"


def _document(pruned: "Pruned", *, done: bool) -> dict[str, Any]:
    cut, export = pruned.cut, pruned.export
    return {
        "removed": cut.count if done else 0,
        "would_remove": cut.count,
        "first": cut.first,
        "last": cut.last,
        "held_by": cut.held_by,
        "held_at": cut.held_at,
        "held_because": cut.held_because,
        "export": str(export.path) if export else None,
        "sha256": export.sha256 if export else None,
        "anchor": str(pruned.link) if pruned.link else None,
    }


app = one_command(prune)
