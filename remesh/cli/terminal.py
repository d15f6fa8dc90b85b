"""What the terminal can show: marks, colours, bars. Standard library only.

NO_COLOR (https://no-color.org) takes colours away; TERM=dumb takes colours and everything that moves.
"""

import os
import sys
from enum import StrEnum
from typing import TextIO

LEAST_ROOM = 20  # characters: what is narrower wraps by itself


class Colour(StrEnum):
    """The few that are used, as SGR parameters (ECMA-48)."""

    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    BOLD = "1"
    DIM = "2"


def speaks_unicode(stream: TextIO | None = None) -> bool:
    """True if ticks, crosses and blocks arrive as such."""
    # What redraws a terminal puts a stand-in before it that has no encoding of its own.
    encoding = getattr(stream or sys.stdout, "encoding", None) or getattr(sys.__stdout__, "encoding", None) or ""
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf16", "utf32", "utf8sig")


def moves(stream: TextIO | None = None) -> bool:
    """True if lines can be redrawn in place: a terminal, and no dumb one."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM", "") != "dumb"


def shows_colours(stream: TextIO | None = None) -> bool:
    """True for a terminal with colours, unless the person wants none."""
    return moves(stream) and not os.environ.get("NO_COLOR")


def coloured(text: str, *colours: Colour, stream: TextIO | None = None) -> str:
    """The text in colours, or as it is where there are none. `text` has to be harmless already."""
    if not colours or not shows_colours(stream):
        return text
    return f"\x1b[{';'.join(colours)}m{text}\x1b[0m"


def bar(part: int, total: int, width: int, stream: TextIO | None = None) -> str:
    """How much of `total` is done, in `width` characters."""
    full, rest = ("█", "░") if speaks_unicode(stream) else ("#", ".")
    length = width * min(part, total) // max(total, 1)
    return full * length + rest * (width - length)


def fitted(text: str, indent: int) -> list[str]:
    """On a terminal the lines that fit its width beside the indent; elsewhere one line, for grep."""
    from shutil import get_terminal_size
    from textwrap import wrap

    if not sys.stdout.isatty():
        return [text]
    room = max(get_terminal_size().columns - indent, LEAST_ROOM)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
