"""Logs: no value, name or foreign text steers a terminal, forges a line or ends the process."""

import io
import json
import logging
import sys
from collections.abc import Callable

import pytest

from remesh.logs import JsonFormatter, TextFormatter

HOSTILE = [
    "\x1b[2J",  # clears the screen
    "\x9b2J",  # the same in one 8-bit character
    "\u202egnp.exe",  # turns the direction of writing
    "\u2028ERROR remesh: forged",
    "\r\nERROR remesh: forged",
    "\x85forged",
    "\ud800",
    "\u200b\ufeff\x7f\x00",
]

FORMATTERS: list[Callable[[], logging.Formatter]] = [TextFormatter, JsonFormatter]


def formatted(formatter: logging.Formatter, text: str, *, raised: bool = False) -> str:
    record = logging.LogRecord("remesh.test", logging.WARNING, __file__, 1, "a text: %s", (text,), None)
    record.pairs = {"name": text, "many": [text], "of": ValueError(text)}
    if raised:
        try:
            raise ValueError(text)
        except ValueError:
            record.exc_info = sys.exc_info()
    return formatter.format(record)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("formatter", FORMATTERS)
def test_what_could_steer_a_terminal_is_escaped(formatter: Callable[[], logging.Formatter], text: str) -> None:
    assert formatted(formatter(), text).isprintable()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_traceback_is_escaped_line_by_line(text: str) -> None:
    rows = formatted(TextFormatter(), text, raised=True).split("\n")
    assert all(row.isprintable() for row in rows)
    assert all(row.startswith("  ") for row in rows[1:]), "none can be taken for a line of its own"
    assert formatted(JsonFormatter(), text, raised=True).isprintable()


@pytest.mark.parametrize("text", [*HOSTILE, "naïve café", "名"])
def test_a_json_line_says_what_was_logged(text: str) -> None:
    line = json.loads(formatted(JsonFormatter(), text))
    assert (line["name"], line["many"], line["of"]) == (text, [text], text)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("formatter", FORMATTERS)
def test_any_line_can_be_written_to_any_stream(formatter: Callable[[], logging.Formatter], text: str) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="utf-8")
    stream.write(formatted(formatter(), text, raised=True))
    stream.flush()
    assert written.getvalue()


def test_readable_text_stays_readable() -> None:
    line = formatted(TextFormatter(), "café")
    assert line.endswith("WARNING remesh.test: a text: café name=café many=['café'] of=café")
