"""Completion as the shells do it: bash, zsh, fish, and kubectl for its plugins."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remesh.cli.app import COMMANDS
from remesh.cli.completion import Shell, candidates, script
from remesh.cli.completions import meshes, targets
from remesh.meshes import load_profiles
from tests.cli.conftest import ROOT
from tests.cluster import build
from tests.needs import need

# Not pydantic: typer itself converts parameters with it.
HEAVY = "{'kubernetes', 'celery', 'redis', 'rich', 'yaml', 'urllib3', 'msgspec'}"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which remesh and kubectl's helper are, as an installation puts them there."""
    for name, entry in (
        ("remesh", "main import main"),
        ("kubectl_complete-remesh", "completion import kubectl as main"),
    ):
        file = tmp_path / name
        file.write_text(f"#!{sys.executable}\nfrom remesh.cli.{entry}\nmain()\n")
        file.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def shell(name: str, code: str, path: str, home: Path) -> str:
    need(shutil.which(name), name)
    environment = {**os.environ, "PATH": path, "HOME": str(home), "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    done = subprocess.run(
        [name, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=home
    )
    assert done.stderr == "", done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("remesh sca", ["scan"]),
        ("remesh scan --mesh li", ["linkerd"]),
        ("remesh repair deplo", ["deployment/", "deployments/", "deploy/"]),
        ("remesh status -o js", ["json", "jsonl"]),
        ("remesh quarantine ", ["list", "clear"]),
        ("remesh demo --fault wr", ["wrong-ca"]),
        ("remesh audit v", ["verify"]),
        ("remesh files po", ["policy.toml"]),
    ],
)
def test_bash(line: str, found: list[str], path: str, tmp_path: Path) -> None:
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    code = f"""
        source <(remesh completion bash)
        compopt() {{ echo compopt; }}
        COMP_WORDS=({listed}) COMP_CWORD={len(words) - 1}
        _remesh_completion remesh
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    lines = shell("bash", code, path, tmp_path).splitlines()
    spaced = ["compopt"] if found[0].endswith("/") else []
    assert lines == [*spaced, *found]


def test_fish(path: str, tmp_path: Path) -> None:
    code = 'remesh completion fish | source; complete -C "remesh qua"; complete -C "remesh scan --mesh is"'
    lines = shell("fish", code, path, tmp_path).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["quarantine", "istio"]


def test_zsh(path: str, tmp_path: Path) -> None:
    code = """
        compdef() { print -r -- "compdef $*"; }
        source <(remesh completion zsh)
        _arguments() { print -r -- "$@"; }
        words=(remesh scan --mesh is) CURRENT=4
        _remesh_completion
    """
    out = shell("zsh", code, path, tmp_path)
    assert "compdef _remesh_completion remesh" in out
    assert "istio" in out


def test_kubectl_asks_the_plugins_own_helper(path: str, tmp_path: Path) -> None:
    out = shell("bash", "kubectl_complete-remesh scan --mesh li; kubectl_complete-remesh repair dep", path, tmp_path)
    assert out.splitlines() == ["linkerd", ":4", "deployment/", "deployments/", "deploy/", ":6"]


@pytest.mark.real
def test_kubectl_completes_the_plugin(path: str, tmp_path: Path, deploy_tools: None) -> None:
    kubectl = build.ensure(build.DEPLOY_PROGRAMS)["kubectl"]
    plugin = tmp_path / "kubectl-remesh"
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [kubectl, "__complete", "remesh", "sca"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.stdout.splitlines() == ["scan", ":4"]


def test_the_entry_of_kubectls_helper_is_installed() -> None:
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["kubectl_complete-remesh"] == "remesh.cli.completion:kubectl"


@pytest.mark.parametrize("words", [[""], ["scan", "--mesh", ""], ["repair", ""], ["scan", "-o", ""]])
def test_completing_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        f"import sys; from remesh.cli.completion import candidates; assert candidates({words!r});"
        f"heavy = {HEAVY} & set(sys.modules); sys.exit(f'imported {{heavy}}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_is_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_REMESH_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    assert set(candidates([""])) == {name for name in COMMANDS if " " not in name}


def test_meshes_are_those_of_the_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REMESH_MESHES", raising=False)
    assert meshes("") == sorted(profile.name for profile in load_profiles().all)
    (tmp_path / "mine.toml").touch()
    monkeypatch.setenv("REMESH_MESHES", str(tmp_path))
    assert meshes("mi") == ["mine"]


def test_kinds_are_completed_by_any_of_their_names() -> None:
    assert "rs/" in targets("")
    assert targets("stateful") == ["statefulset/", "statefulsets/"]
    assert targets("nothing") == []


@pytest.mark.parametrize("each", Shell)
def test_each_shell_has_a_script(each: Shell) -> None:
    assert "remesh" in script(each)
