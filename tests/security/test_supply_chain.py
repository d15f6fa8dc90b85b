"""What remesh is made of: pinned by hash, listed, and under licences that permit its use."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security import licences
from tests.security.licences import ROOT

LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def requirements(name: str) -> list[str]:
    """The entries of a lock file, each with its hashes, as one line."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("name", LOCKS)
def test_each_requirement_of_each_lock_is_one_version_with_its_hashes(name: str) -> None:
    found = requirements(name)
    assert found
    assert [each for each in found if not re.match(r"[\w.\-\[\],]+==[^\s*]+\s", each) or not HASH.search(each)] == []


def test_nothing_is_installed_but_by_hash() -> None:
    """Each `pip install` takes a lock with --require-hashes, or nothing but remesh itself."""
    for name in ("Makefile", "Dockerfile", ".ci/release", ".ci/sbom"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        installs = re.findall(r"(?:pip\b|\$\(PIP\))[^\n&]*\binstall\b([^\n&]*)", text)
        assert installs, name
        for words in installs:
            itself = "--no-deps" in words and not re.search(r"-r\b", words)
            assert itself or "--require-hashes" in words, f"{name}: {words}"


def test_the_image_takes_nothing_from_an_index_for_remesh_itself() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"wheel --no-deps --no-index", text)
    assert re.search(r"install --no-deps --no-index", text)


def test_each_licence_permits_use() -> None:
    names = [name for found in licences.packages().values() for name in found]
    assert {name: licences.licence(name) for name in names if not licences.acceptable(licences.licence(name))} == {}


@pytest.mark.parametrize("wrong", ["", "GPL-3.0-only", "Apache-2.0 AND SSPL-1.0", "Proprietary", "CC-BY-NC-4.0"])
def test_a_licence_that_is_not_on_the_list_is_noticed(wrong: str) -> None:
    assert not licences.acceptable(wrong)


def test_the_page_of_licences_is_up_to_date() -> None:
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(), "run python -m tests.security.licences"


def test_the_bill_of_materials_names_what_is_locked(tmp_path: Path) -> None:
    """Of the lock itself here; of what was really installed in `make sbom`, which checks the same."""
    made = tmp_path / "sbom.json"
    tool = [sys.executable, "-m", "cyclonedx_py", "requirements", str(ROOT / "requirements.lock")]
    subprocess.run([*tool, "--output-reproducible", "--validate", "-o", str(made)], check=True, timeout=120)
    components = json.loads(made.read_text(encoding="utf-8"))["components"]
    assert {each["name"]: each["version"] for each in components} == licences.locked(licences.RUNTIME)
    assert "sbom: $(DEV)" in (ROOT / "Makefile").read_text(encoding="utf-8")
