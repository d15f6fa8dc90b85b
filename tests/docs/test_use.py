"""The page on the command line repeats the README's tables, and knows every command."""

import re

from remesh.cli import exits
from remesh.cli.app import COMMANDS
from remesh.settings import Settings
from tests.docs.examples import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
NOT_TOLD = {"demo", "files"}  # the first page plays the one, Install copies with the other
LINK = re.compile(r"\[docs/([a-z-]+)\.md\]\(docs/\1\.md\)")


def table(text: str, head: str) -> str:
    found = re.search(rf"^\| {head} \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    assert found is not None, f"no table of {head}"
    return found[0]


def test_the_page_repeats_the_tables_of_the_readme() -> None:
    for head in ("variable", "code"):
        assert LINK.sub(r"[\1](\1.md)", table(README, head)) == table(PAGE, head)


def test_the_exit_codes_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table(PAGE, "code"), re.MULTILINE)
    assert [(int(code), meaning) for code, meaning in rows] == list(exits.TABLE)


def test_every_variable_is_a_setting() -> None:
    known = {f"REMESH_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"REMESH_[A-Z_]+", table(PAGE, "variable"))) <= known


def test_every_command_is_on_the_page() -> None:
    assert [name for name in COMMANDS if name not in NOT_TOLD and name not in PAGE] == []


def test_commands_on_the_pages_for_beginners_do_not_run_off_the_edge() -> None:
    for name in ("use.md", "install.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        inside = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert [line for block in inside for line in block.splitlines() if len(line) > 82] == []
