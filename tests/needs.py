"""What a test cannot do without: missing, it is skipped with the reason; in continuous integration it fails."""

import os
from typing import Any

import pytest


def require(reason: str | None) -> None:
    """Go on only if there is no reason not to."""
    if reason and os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def need(there: Any, what: str) -> None:
    """Go on only if it is there."""
    require(None if there else f"missing on this machine: {what}")
