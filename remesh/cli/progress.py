"""Progress on standard error: a bar on a terminal, plain lines anywhere else, nothing where it is to be quiet."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from remesh.cli.terminal import moves
from remesh.cli.text import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Counter:
    """Counts things up to a total. A context manager."""

    def __init__(self, what: str, total: int, *, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._total = total
        self._done = 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._total and not self._quiet and moves(sys.stderr):
            self._progress = _bars()
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, line: str) -> None:
        """One more is done; `line` says which and how."""
        self._done += 1
        if self._quiet:
            return
        if self._progress is not None and self._task is not None:
            self._progress.console.print(one_line(line))
            self._progress.advance(self._task)
        else:
            sys.stderr.write(f"{self._what} {self._done}/{self._total}  {one_line(line)}\n")
            sys.stderr.flush()


def _bars() -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from remesh.cli.render import console

    what = TextColumn("{task.description}", markup=False)
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), Remaining())
    return Progress(*columns, console=console(to_stderr=True))
