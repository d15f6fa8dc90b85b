"""The pages that are rendered from the code are as the code is."""

from tests.docs import reference


def test_the_policy_reference_is_rendered_from_the_models() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.render(), (
        "docs/policy.md is out of date: run python -m tests.docs.reference"
    )
