"""Version in one place, and a hosted CI that does what any machine does."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import remesh

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_the_hosted_ci_calls_the_same_commands() -> None:
    run = [str(step["run"]) for step in steps() if "run" in step]
    assert any(".ci/run" in each for each in run)
    targets = re.findall(r"make ([a-z]+)", "\n".join(run))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_readmes_test_command_is_what_ci_runs() -> None:
    assert "$ make test\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^make test$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "remesh.__version__"}
    chart = yaml.safe_load((ROOT / "config/chart/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (remesh.__version__, remesh.__version__)


def test_every_file_that_a_cache_key_names_is_there() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    named = re.findall(r"(?:go-version-file|cache-dependency-path): (\S+)", text)
    assert named
    assert all((ROOT / name).is_file() for name in named)
