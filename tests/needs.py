"""What a test cannot do without: missing, it is skipped with the reason; in continuous integration it fails."""

import os
from typing import Any

import pytest

ALL_FAULTS = bool(os.environ.get("REMESH_ALL_FAULTS"))
"""True: also the faults that take long, or that the tests' stand-in for kubelets does not always bear."""


def require(reason: str | None) -> None:
    """Go on only if there is no reason not to."""
    if reason and os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def need(there: Any, what: str) -> None:
    """Go on only if it is there."""
    require(None if there else f"missing on this machine: {what}")
