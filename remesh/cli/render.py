"""How answers are printed: one table, one JSON or YAML document, or one JSON object a line.

Everything that came from a cluster goes through `text.plain` here, and never through rich's markup. JSON and YAML are
written in ASCII, whose escapes are harmless by themselves.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from remesh.cli.options import Output
from remesh.cli.text import plain

if TYPE_CHECKING:
    from rich.console import Console

GAP = "   "  # between columns, as kubectl has it
LAST_ROOM = 30  # characters: the last column gets lines of its own rather than fewer than these


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under upper-case heads. The last column may be long: it wraps on a terminal."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def shown(self, *, hide: Iterable[str] = ()) -> "Table":
        """Without some columns."""
        hidden = set(hide)
        keep = [index for index, column in enumerate(self.columns) if column not in hidden]
        rows = [[row[index] for index in keep] for row in self.rows]
        return Table([self.columns[index] for index in keep], rows)


def emit(output: Output, items: Sequence[Mapping[str, Any]], table: Table, *, empty: str, kind: str) -> None:
    """Print a list: `items` as documents, or `table` for people; `empty` on standard error where there is nothing.

    `kind` names the list in JSON and YAML: `{"kind": "FindingList", "items": […]}`.
    """
    if output is Output.JSONL:
        for item in items:
            line(json_line(item))
    elif output is not Output.TABLE:
        emit_one(output, {"kind": kind, "items": list(items)})
    elif table.rows:
        print_table(table)
    else:
        note(empty)


def emit_one(output: Output, document: Mapping[str, Any]) -> None:
    """Print one document as JSON, YAML or a JSON line."""
    if output is Output.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(_simple(document), sort_keys=False, default_flow_style=False))
    elif output is Output.JSONL:
        line(json_line(document))
    else:
        line(json.dumps(document, indent=2, default=str))


def json_line(document: Mapping[str, Any]) -> str:
    """One JSON object on one line."""
    return json.dumps(document, default=str)


def print_table(table: Table) -> None:
    """On a terminal everything fits its width, and nothing is ever cut; elsewhere every row is one line, for grep."""
    columns = list(table.columns)
    rows = [[plain(cell) for cell in row] for row in table.rows]
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            line(_aligned(row, widths))
        return
    room = get_terminal_size().columns
    for text in terminal_lines(columns, rows, widths, room):
        line(text)


def terminal_lines(columns: list[str], rows: list[list[str]], widths: list[int], room: int) -> Iterator[str]:
    """The table in `room` characters: the last column wraps beside the others or, where that is too tight, below them.

    Where even the others are too wide, each row becomes a few lines of `HEAD value`. Only spaces are broken at, so that
    names, ids and times stay whole and can be copied.
    """
    beside = sum(width + len(GAP) for width in widths[:-1])
    if beside + min(widths[-1], LAST_ROOM) <= room:
        for row in [columns, *rows]:
            yield from _wrapped(_aligned([*row[:-1], ""], widths, beside), row[-1], room)
    elif beside - len(GAP) <= room:
        yield _aligned(columns[:-1], widths)
        for row in rows:
            yield _aligned(row[:-1], widths)
            yield from _wrapped("    ", row[-1], room)
    else:
        for row in rows:
            yield from _card(columns, row, room)


def _aligned(row: Sequence[str], widths: Sequence[int], least: int = 0) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip().ljust(least)


def _wrapped(start: str, text: str, room: int) -> Iterator[str]:
    """The text behind `start`, and its further lines below where it began."""
    if not text:
        yield start.rstrip()
        return
    pieces = wrap(text, max(room - len(start), 1), break_long_words=False, break_on_hyphens=False)
    for number, piece in enumerate(pieces):
        yield (start if not number else " " * len(start)) + piece


def _card(columns: list[str], row: list[str], room: int) -> Iterator[str]:
    """One row as lines: its first two cells, then as many `HEAD value` as fit a line, then the last cell."""
    yield "  ".join(row[:2])
    text = ""
    for head, cell in zip(columns[2:-1], row[2:-1], strict=True):
        pair = f"{head} {cell}"
        if text and len(text) + len(pair) + 2 > room - 4:
            yield "    " + text
            text = ""
        text += ("  " if text else "") + pair
    if text:
        yield "    " + text
    yield from _wrapped("    ", row[-1], room)


def line(text: str = "") -> None:
    """One line on standard output, as it is."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """One line for people on standard output, made harmless."""
    line(plain(text))


def note(text: str) -> None:
    """A remark that is no answer: on standard error, so that pipes stay clean."""
    sys.stdout.flush()
    sys.stderr.write(plain(text) + "\n")


def console(*, to_stderr: bool = False) -> "Console":
    """A rich console without markup, emoji or guesses at what to colour. Honours NO_COLOR."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, stderr=to_stderr)


def _simple(document: Any) -> Any:
    """Only what YAML's safe dumper knows."""
    return json.loads(json.dumps(document, default=str))
