"""Words on a screen: names made harmless, ages and durations as kubectl writes them. Standard library only."""

import re
from datetime import datetime

MINUTE = 60
HOUR = 3600
DAY = 86400
_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")


def plain(text: str) -> str:
    """The text with everything escaped that could steer a terminal: control, format and unpaired characters.

    A name or message from a cluster is foreign; printed raw, an ESC or a right-to-left override in it could hide or
    forge a line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int = 500) -> str:
    """Harmless, on one line, and no longer than `limit` characters."""
    joined = plain(" ".join(text.split()))
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def age(seconds: float) -> str:
    """A span as kubectl writes ages: `45s`, `3m20s`, `5h10m`, `3d`. Negative spans count as none."""
    whole = max(0, int(seconds))
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 3 * HOUR:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 2 * DAY:
        return _two(whole, HOUR, "h", MINUTE, "m")
    return f"{whole // DAY}d"


def _two(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")


def age_of(moment: datetime | None, now: datetime) -> str:
    """Age of a moment, or `<unknown>` as kubectl has it."""
    return age((now - moment).total_seconds()) if moment else "<unknown>"


def clock(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def seconds_of(span: str) -> float:
    """Seconds of a span such as `90`, `90s`, `15m`, `2h`, `1d`, `1h30m`. Raises ValueError."""
    parts = _SPAN.findall(span)
    if not parts or "".join(number + unit for number, unit in parts) != span:
        raise ValueError(span)
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 pod`, `3 pods`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
