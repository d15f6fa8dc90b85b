"""Logs: a constant message with key and value pairs, as text or JSON lines.

Used by every process as `log = logs.get("watcher.gate")`, then `log.info("gate opened", injector=key)`.
"""

import json
import logging
import re
import sys
import threading
import time
from typing import Any, Final

_FINDING: Final = re.compile(r"\b(f-[0-9a-f]{12})\b")


class Log:
    """A logger whose calls take a constant message and key-value pairs."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"remesh.{name}")

    def debug(self, message: str, **pairs: Any) -> None:
        self._emit(logging.DEBUG, message, pairs)

    def info(self, message: str, **pairs: Any) -> None:
        self._emit(logging.INFO, message, pairs)

    def warning(self, message: str, **pairs: Any) -> None:
        self._emit(logging.WARNING, message, pairs)

    def error(self, message: str, **pairs: Any) -> None:
        self._emit(logging.ERROR, message, pairs)

    def exception(self, message: str, **pairs: Any) -> None:
        """Error with the traceback; only at a process's edge."""
        self._logger.error(message, extra={"pairs": pairs}, exc_info=True)

    def _emit(self, level: int, message: str, pairs: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"pairs": pairs})


class TextFormatter(logging.Formatter):
    """`TIME LEVEL logger: message key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback indented below it. Whatever could steer a terminal or forge a line is escaped.

        That is: control and format characters, line separators, half characters. A traceback may quote foreign text.
        """
        pairs = getattr(record, "pairs", {})
        tail = "".join(f" {key}={_plain(value)}" for key, value in pairs.items() if value not in (None, ""))
        head = f"{_stamp(record.created)} {record.levelname} {record.name}: {_escaped(record.getMessage())}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n  ".join((head + tail, *map(_escaped, trace)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Keys `at`, `level`, `logger`, `message`, and the pairs. ASCII: any reader and any terminal takes it."""
        line: dict[str, Any] = {
            "at": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        pairs = getattr(record, "pairs", None)
        line.update(_finding_in(line["message"]) if pairs is None else pairs)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=True)


def _finding_in(message: str) -> dict[str, str]:
    """The finding that another library's line names: Celery's lines have the task's id, and that ends with it."""
    found = _FINDING.search(message)
    return {"finding": found.group(1)} if found else {}


def json_line(logger: str, message: str) -> str:
    """One line for what is said past all logging."""
    return json.dumps({"at": _stamp(time.time()), "level": "info", "logger": logger, "message": message})


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def _plain(value: object) -> str:
    text = str(value)
    if text.isprintable() and " " not in text:
        return text
    return json.dumps(text, ensure_ascii=True)


def _escaped(text: str) -> str:
    """Everything escaped that is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def take_over(style: str) -> None:
    """Other libraries' warnings, Python's own, and errors that nobody catches: as log lines, too.

    For a process that is remesh's from end to end; `configure` comes before.
    """
    ours = logging.getLogger("remesh").handlers
    root = logging.getLogger()
    root.handlers[:] = ours
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    if style == "json":  # a traceback as one line is for machines; people read Python's own more easily
        sys.excepthook = lambda *error: _uncaught(error)
        threading.excepthook = lambda failed: _uncaught((failed.exc_type, failed.exc_value, failed.exc_traceback))


def _uncaught(error: Any) -> None:
    logging.getLogger("remesh").error("an error that nobody expected", exc_info=error)


def get(name: str) -> Log:
    """Logger of one part, such as "watcher.gate"."""
    return Log(name)


def configure(*, style: str = "text", level: str = "INFO") -> None:
    """Send remesh's logs to standard error. `style` is "text" or "json"."""
    target = logging.StreamHandler(sys.stderr)
    target.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger("remesh")
    root.handlers[:] = [target]
    root.setLevel(level)
    root.propagate = False
