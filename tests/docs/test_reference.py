"""The pages that are rendered from the code are as the code is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs import mesh_pages, reference


def test_the_policy_reference_is_rendered_from_the_models() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.render(), (
        "docs/policy.md is out of date: run python -m tests.docs.reference"
    )


@pytest.mark.parametrize(("page", "rendered"), mesh_pages.PAGES.items(), ids=lambda each: getattr(each, "name", ""))
def test_pages_made_from_files_are_as_the_files_are(page: Path, rendered: Callable[[], str]) -> None:
    assert page.read_text(encoding="utf-8") == rendered(), (
        f"{page.name} is out of date: run python -m tests.docs.reference"
    )
