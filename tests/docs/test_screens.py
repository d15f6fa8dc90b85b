"""The pictures of the terminal: how they are made, and that those in the documentation fetch nothing."""

import re
from pathlib import Path

import pytest

from tests.docs.screens import IMAGES, final, impersonal, svg


def test_lines_that_were_redrawn_in_place_are_there_once() -> None:
    written = "start\n0/2\r\x1b[2K1/2\n\x1b[1A\r\x1b[2K2/2\nend\n"
    assert final(written) == "start\n2/2\nend"


def test_colours_stay_and_the_cursors_hiding_does_not() -> None:
    assert final("\x1b[?25l\x1b[32m✓\x1b[0m fine\x1b[?25h\n") == "\x1b[32m✓\x1b[0m fine"


def test_names_of_the_machine_are_left_out() -> None:
    text = "Redis at /tmp/xyz/redis.sock, context c at http://127.0.0.1:4711"
    assert (
        impersonal(text, Path("/nowhere")) == "Redis at /var/lib/remesh/redis.sock, context c at https://10.0.0.1:6443"
    )


@pytest.mark.parametrize("drawn", [svg("remesh check", "\x1b[31m✗\x1b[0m wrong", "remesh check")])
def test_a_picture_shows_the_text_and_fetches_nothing(drawn: str) -> None:
    assert "wrong" in drawn
    assert "✗" in drawn
    assert _fetched(drawn) == []


@pytest.mark.parametrize("name", ["check", "status", "demo"])
def test_the_pictures_of_the_documentation_fetch_nothing(name: str) -> None:
    assert _fetched((IMAGES / f"{name}.svg").read_text(encoding="utf-8")) == []


def _fetched(drawn: str) -> list[str]:
    return re.findall(r"(?:url\(|href=|src=|@import)\s*['\"]?\s*(?:https?:)?//[^\s)]*", drawn)
