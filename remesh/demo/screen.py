"""What the demo shows: steps as lines, and in between one block that is kept up to date.

On a terminal the block is redrawn by rich; anywhere else, and on a dumb terminal, a line is printed once a second if
its numbers have changed, and every 10 s if not. A quiet screen shows the summary only.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remesh.cli.render import console, say
from remesh.cli.terminal import bar, moves
from remesh.cli.text import one_line, plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

BAR = 40  # characters
NAME = 12  # characters
LINE_SECONDS = 1.0  # between two plain lines
QUIET_SECONDS = 10.0  # after so long the same numbers are printed again: it is still at work


@dataclass(frozen=True, slots=True)
class Scene:
    """The numbers of one moment."""

    total: int
    stuck: int
    healed: int
    gate: str  # open or closed, and why
    findings: str  # by state
    seconds: float  # since the act began

    @property
    def key(self) -> tuple[int, int, str, str]:
        """What has to change for a new line."""
        return (self.stuck, self.healed, self.gate, self.findings)


class Screen:
    """Prints to standard output."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._console: Console | None = console() if moves() else None
        self._shown: Scene | None = None
        self._latest: Scene | None = None

    def step(self, text: str) -> None:
        """One line that stays."""
        if not self._quiet:
            self._say(text)

    def _say(self, text: str) -> None:
        if self._console is not None:
            self._console.print(plain(text))
        else:
            say(text)
        sys.stdout.flush()

    def summary(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and what is to be said of each; on a terminal long texts wrap beside their names."""
        if self._console is None:
            for name, text in rows:
                self._say(f"{name:<{NAME}}{text}")
            return
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, text in rows:
            table.add_row(Text(name, style="bold"), Text(plain(text)))
        self._console.print(table)

    def blank(self) -> None:
        """An empty line."""
        self.step("")

    @contextmanager
    def block(self) -> Iterator[None]:
        """While inside, `show` keeps one block up to date."""
        self._shown = self._latest = None
        if self._console is None or self._quiet:
            yield
            self._print_latest()
            return
        from rich.live import Live

        with Live(console=self._console, refresh_per_second=8, transient=False) as self._live:
            yield
        self._live = None

    def show(self, scene: Scene) -> None:
        """The numbers of now."""
        if self._live is not None:
            self._live.update(_block(scene))
        else:
            self._latest = scene
            since = scene.seconds - self._shown.seconds if self._shown is not None else QUIET_SECONDS
            if since >= LINE_SECONDS:
                self._print_latest(again=since >= QUIET_SECONDS)

    def _print_latest(self, *, again: bool = False) -> None:
        scene = self._latest
        if scene is not None and (again or self._shown is None or scene.key != self._shown.key):
            self._shown = scene
            self.step(_line(scene))


def _line(scene: Scene) -> str:
    parts = (
        f"{scene.seconds:6.1f} s",
        f"stuck {scene.stuck}/{scene.total}",
        f"healed {scene.healed}/{scene.total}",
        f"gate {scene.gate}",
        f"findings {scene.findings}",
    )
    return "  " + " | ".join(parts)


def _block(scene: Scene) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    rows = (
        ("stuck", _bar(scene.stuck, scene.total, "red")),
        ("healed", _bar(scene.healed, scene.total, "green")),
        ("gate", Text(one_line(scene.gate, 100), style="green" if scene.gate.startswith("open") else "yellow")),
        ("findings", Text(scene.findings)),
        ("time", Text(f"{scene.seconds:.1f} s")),
    )
    for name, value in rows:
        table.add_row(Text("  " + name, style="bold"), value)
    return table


def _bar(part: int, total: int, style: str) -> "RenderableType":
    from rich.text import Text

    full = BAR * min(part, total) // max(total, 1)
    shown = bar(part, total, BAR)
    return Text.assemble((shown[:full], style), (shown[full:], "dim"), f" {part}/{total}")
