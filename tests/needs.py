"""What a test cannot do without: missing, it is skipped with the reason; in continuous integration it fails."""

import os
from typing import Any

import pytest


def need(there: Any, what: str) -> None:
    """Go on only if it is there."""
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(f"missing on this machine: {what}", pytrace=False)
    pytest.skip(f"missing on this machine: {what}")
