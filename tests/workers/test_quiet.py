"""What Flower logs is lines."""

import logging

import pytest

from workers.quiet import in_single_lines, to_single_line


def logged(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    trouble = (type(error), error, None) if error else None
    return logging.LogRecord("tornado.application", logging.ERROR, "web.py", 1, message, arguments, trouble)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            logged("Uncaught %s\n%r", "GET /", "request", error=ValueError("no\nnumber")),
            "Uncaught GET /: ValueError: no",
        ),
        (logged("plain %d%%", 5), "plain 5%"),
    ],
)
def test_an_error_with_its_traceback_is_one_line(record: logging.LogRecord, line: str) -> None:
    assert to_single_line(record)
    assert logging.Formatter("%(message)s").format(record) == line


def test_it_holds_for_every_logger(caplog: pytest.LogCaptureFixture) -> None:
    in_single_lines()
    try:
        logging.getLogger("tornado.application").error("oh\nno", exc_info=ValueError("bad"))
    finally:
        for handler in logging.getLogger().handlers:
            handler.removeFilter(to_single_line)
    assert caplog.messages == ["oh: ValueError: bad"]
