"""What comes with remesh can be had from the installed package, and what is a person's own is not overwritten."""

import json
import subprocess
import sys
from pathlib import Path

from remesh.policy import load_policy
from tests.cli.conftest import ROOT, Remesh


def test_the_list_names_every_shipped_file(remesh: Remesh) -> None:
    answer = remesh("files", "-o", "json")
    listed = {item["name"] for item in json.loads(answer.out)["items"]}
    there = {
        str(path.relative_to(ROOT / "config"))
        for path in (ROOT / "config").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "__init__.py"
    }
    assert answer.code == 0
    assert listed == there


def test_copied_files_are_the_shipped_ones(remesh: Remesh, tmp_path: Path) -> None:
    answer = remesh("files", "policy.toml", "meshes", "--to", tmp_path / "mine")
    copied = sorted((tmp_path / "mine" / "meshes").iterdir())
    assert answer.code == 0
    assert [path.name for path in copied] == sorted(p.name for p in (ROOT / "config/meshes").glob("*.toml"))
    assert load_policy(tmp_path / "mine" / "policy.toml") == load_policy(None)


def test_nothing_is_overwritten_and_nothing_half_copied(remesh: Remesh, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("mine", encoding="utf-8")
    answer = remesh("files", "meshes", "policy.toml", "--to", tmp_path)
    assert answer.code == 2
    assert "is there already" in answer.line
    assert (tmp_path / "policy.toml").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "meshes").exists()


def test_an_unknown_name_and_a_folder_that_cannot_be(remesh: Remesh, tmp_path: Path) -> None:
    unknown = remesh("files", "charts")
    assert (unknown.code, "there are" in unknown.line) == (2, True)
    (tmp_path / "file").touch()
    blocked = remesh("files", "policy.toml", "--to", tmp_path / "file" / "below")
    assert (blocked.code, "cannot be written" in blocked.line) == (2, True)


def test_options_that_mean_nothing_to_it_are_not_listed(remesh: Remesh) -> None:
    out = remesh("files", "--help").out
    assert "--to" in out
    assert "--namespace" not in out
    assert "--context" not in out
    assert remesh("--context", "x", "files").code == 2


def test_a_reader_that_goes_early_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "remesh", "files", "-o", "json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == b""
    assert listing.returncode == 0
