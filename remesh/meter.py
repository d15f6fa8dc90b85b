"""What happens, told to whoever counts it: the port between watcher, workers and their metrics. Pure.

Every method here does nothing, so that whoever has nobody to tell needs no special case; `remesh.metrics` counts.
"""

from remesh.models import Action, Finding, Result


class Meter:
    """Nobody counts. Thread-safe; no method raises or waits for anything."""

    def found(self, finding: Finding) -> None:
        """The watcher has a new finding."""

    def released(self, action: Action) -> None:
        """A finding was handed to the workers."""

    def ended(self, finding: Finding, result: Result, seconds: float | None) -> None:
        """A finding is over, `seconds` after the failure began; None: when it began is not known."""

    def dry_run(self, mesh: str, outcome: str, code: str, seconds: float) -> None:
        """A dry run was answered: `outcome` is that of `remesh.models.Probe`, `code` what it showed."""

    def repaired(self, action: Action, result: Result, seconds: float) -> None:
        """A task has ended with an outcome, after `seconds` of work."""

    def retried(self, action: Action) -> None:
        """A task will be tried again soon."""

    def refused(self) -> None:
        """A task's payload was no request of this cluster."""

    def task_began(self) -> None:
        """A task runs."""

    def task_over(self) -> None:
        """It does not run any more."""

    def appended(self, records: int) -> None:
        """Records were written to the trail."""

    def append_failed(self) -> None:
        """The trail could not be written."""

    def announced(self, result: str) -> None:
        """A Kubernetes Event was "sent", "dropped" for being one too many, or "failed"."""


NOBODY = Meter()
