"""Progress: bars on a terminal, plain lines on a dumb one and in a pipe, nothing where it is to be quiet."""

import subprocess
import sys

import pytest

from remesh.cli.progress import Counter
from remesh.demo.screen import Scene, Screen
from tests.cli.conftest import NOWHERE, ROOT
from tests.cli.terminal import on_terminal

COUNTING = """
from remesh.cli.progress import Counter
with Counter("ended", 2) as counter:
    counter.step("shop/rs/web: healed")
    counter.step("shop/rs/api: healed [red]")
"""
PLAYING = """
from remesh.demo.screen import Scene, Screen
screen = Screen()
screen.step("1. It fails.")
with screen.block():
    screen.show(Scene(total=2, stuck=1, healed=1, gate="closed", findings="1 waiting", seconds=1.0))
screen.summary([("healed", "all")])
"""
CHECK = ("-m", "remesh", "check")
SURROUNDINGS = {"REMESH_KUBECONFIG": "/nowhere", "REMESH_REDIS_URL": NOWHERE}


def test_a_terminal_gets_a_bar_and_the_lines_above_it() -> None:
    written = on_terminal(["-c", COUNTING])
    assert "shop/rs/web: healed" in written
    assert "shop/rs/api: healed [red]" in written
    assert "2/2" in written
    assert "━" in written
    assert "\x1b[" in written


@pytest.mark.parametrize("code", [COUNTING, PLAYING])
def test_a_dumb_terminal_gets_plain_lines(code: str) -> None:
    written = on_terminal(["-c", code], {"TERM": "dumb"})
    assert "\x1b" not in written
    assert "healed" in written


@pytest.mark.parametrize("code", [COUNTING, PLAYING])
def test_no_color_takes_the_colours_and_leaves_the_bar(code: str) -> None:
    plain, coloured = on_terminal(["-c", code], {"NO_COLOR": "1"}), on_terminal(["-c", code])
    assert not any(f"\x1b[{sgr}" in plain for sgr in ("3", "9", "1;3", "38"))
    assert any(f"\x1b[{sgr}" in coloured for sgr in ("3", "9", "1;3", "38"))


def test_a_pipe_gets_one_line_for_each() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == "ended 1/2  shop/rs/web: healed\nended 2/2  shop/rs/api: healed [red]\n"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Counter("ended", 1, quiet=True) as counter:
        counter.step("shop/rs/web: healed")
    screen = Screen(quiet=True)
    screen.step("1. It fails.")
    with screen.block():
        screen.show(Scene(total=2, stuck=1, healed=1, gate="closed", findings="1 waiting", seconds=1.0))
    screen.blank()
    screen.summary([("healed", "all")])
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("healed      all\n", "")


def test_check_is_coloured_on_a_terminal_only_and_not_against_a_persons_will() -> None:
    coloured = on_terminal(CHECK, SURROUNDINGS)
    assert "\x1b[32m✓\x1b[0m" in coloured
    for plain in (
        on_terminal(CHECK, {**SURROUNDINGS, "NO_COLOR": "1"}),
        on_terminal(CHECK, {**SURROUNDINGS, "TERM": "dumb"}),
    ):
        assert "\x1b" not in plain
        assert "  ✓ policy: mode repair" in plain


def test_an_encoding_that_lacks_a_character_is_no_traceback() -> None:
    written = on_terminal(["-m", "remesh", "explain", "rs/ä…✓"], {**SURROUNDINGS, "PYTHONIOENCODING": "ascii"})
    assert "Traceback" not in written
    assert written.startswith("remesh: ")
