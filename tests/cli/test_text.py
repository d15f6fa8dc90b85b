from datetime import UTC, datetime, timedelta

import pytest

from remesh.cli.text import age, age_of, count, one_line, plain, seconds_of


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("app-59ff54b4c6", "app-59ff54b4c6"),
        ("größer als 3 µs", "größer als 3 µs"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\nc", "a\\rb\\nc"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("lone \udcff", "lone \\udcff"),
    ],
)
def test_what_could_steer_a_terminal_is_escaped(text: str, harmless: str) -> None:
    assert plain(text) == harmless


def test_one_line_joins_and_shortens() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 600, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (200, "3m20s"), (180, "3m"), (5 * 3600 + 600, "5h10m"), (3 * 86400, "3d")],
)
def test_ages_are_written_as_kubectl_does(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_an_unknown_moment_has_no_age() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age_of(None, now) == "<unknown>"
    assert age_of(now - timedelta(seconds=61), now) == "61s"


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("0.5s", 0.5)],
)
def test_spans_of_time(span: str, seconds: float) -> None:
    assert seconds_of(span) == seconds


@pytest.mark.parametrize("span", ["", "h", "1w", "-5m", "1h x", "1.2.3s", "ten"])
def test_what_is_no_span_is_refused(span: str) -> None:
    with pytest.raises(ValueError):
        seconds_of(span)


def test_counts_have_their_plural() -> None:
    assert (count(1, "pod"), count(2, "pod"), count(0, "reply", "replies")) == ("1 pod", "2 pods", "0 replies")
