"""The checks, their hints and their explanations in docs/check.md belong together, one to one."""

import re
from pathlib import Path

import pytest

from remesh.cli.check_catalogue import CATALOGUE, DOCS, link
from tests.cli.conftest import ROOT

PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
PARTS = ("**What it means.**", "**Why it matters.**", "**How to mend it.**")


def test_each_check_has_one_section_and_each_section_a_check() -> None:
    headings = re.findall(r"^### (\S+)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(CATALOGUE)


@pytest.mark.parametrize("check", CATALOGUE)
def test_a_section_says_what_it_means_why_it_matters_and_how_to_mend_it(check: str) -> None:
    text = SECTIONS[check]
    assert [text.count(part) for part in PARTS] == [1, 1, 1]
    assert text.index(PARTS[0]) < text.index(PARTS[1]) < text.index(PARTS[2])


@pytest.mark.parametrize("check", CATALOGUE)
def test_a_hint_is_one_line(check: str) -> None:
    hint = CATALOGUE[check].hint
    assert hint
    assert len(hint) <= 120
    assert "\n" not in hint


def test_every_check_that_the_code_makes_is_in_the_catalogue() -> None:
    made = set()
    for path in Path(ROOT / "remesh" / "cli").glob("check*.py"):
        code = path.read_text(encoding="utf-8")
        made |= set(re.findall(r'\b(?:ok|warn|fail|skip|failure|guarded|_tried|_safe|Check)\(\s*"([a-z-]+)"', code))
    assert made <= set(CATALOGUE)
    assert {"policy", "dry-run", "workers", "broker-eviction"} <= made


def test_a_link_leads_to_the_section() -> None:
    assert link("dry-run") == f"{DOCS}#dry-run"
