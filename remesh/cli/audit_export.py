"""`remesh audit export` without filters: the records' own bytes, with position, number and hash, for `audit verify`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from remesh.audit import Trail


def export(trail: "Trail", since: "timedelta | None") -> None:
    """Print one line per record. On a terminal, what could steer it is escaped, and the line then proves nothing."""
    from remesh.chain import to_line
    from remesh.cli.render import line
    from remesh.cli.text import plain

    seen = sys.stdout.isatty()
    for entry in trail.entries(since=since):
        text = to_line(entry)
        line(plain(text) if seen else text)
