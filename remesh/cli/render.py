"""How answers are printed: one table, one JSON or YAML document, or one JSON object a line.

Everything that came from a cluster goes through `text.plain` here, and never through rich's markup. JSON and YAML are
written in ASCII, whose escapes are harmless by themselves.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remesh.cli.options import Output
from remesh.cli.text import plain

if TYPE_CHECKING:
    from rich.console import Console

GAP = "   "  # between columns, as kubectl has it


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
    """On a terminal the last column wraps; anywhere else every row is one line, for grep and awk."""
    rows = [[plain(cell) for cell in row] for row in table.rows]
    if sys.stdout.isatty():
        _rich_table(table.columns, rows)
        return
    widths = [max(len(row[index]) for row in [list(table.columns), *rows]) for index in range(len(table.columns))]
    for row in [list(table.columns), *rows]:
        line(GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, pad_edge=False, show_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(column, no_wrap=not last, overflow="fold", min_width=len(column))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def _simple(document: Any) -> Any:
    """Only what YAML's safe dumper knows."""
    return json.loads(json.dumps(document, default=str))
