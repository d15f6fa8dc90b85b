"""The image that the Dockerfile makes: what is in it, who runs it, and that its commands need nothing else."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from remesh import __version__
from tests.containers.engine import DockerError, Engine
from tests.containers.images import ROOT
from tests.stack import compose_command

pytestmark = [pytest.mark.real, pytest.mark.timeout(590)]

# As compose.yaml and the manifests start it: nothing to write to but /tmp, no capability, no network.
HARDENED = (
    "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none",
)  # fmt: skip
LARGEST_MEGABYTES = 250


def inspected(engine: Engine, image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(engine.docker("image", "inspect", image))[0]
    return found


def files(engine: Engine, image: str, folder: Path) -> set[str]:
    """The paths of all files of an image."""
    name = engine.docker("create", image).strip()
    tar = folder / "files.tar"
    engine.docker("export", "--output", str(tar), name)
    engine.docker("rm", name)
    with tarfile.open(tar) as opened:
        return {f"/{member.name}" for member in opened if not member.isdir()}


def test_labels_say_what_it_is_and_which_version(engine: Engine, image: str) -> None:
    labels = inspected(engine, image)["Config"]["Labels"]
    kept = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert kept["title"] == "remesh"
    assert kept["version"] == __version__
    assert kept["licenses"] == "Apache-2.0"
    assert kept["source"].startswith("https://")
    assert kept["description"]


def test_it_is_small(engine: Engine, image: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = inspected(engine, image)["Size"] / 1e6
    base = inspected(engine, "runtime")["Size"] / 1e6
    with capsys.disabled():
        print(f"\nimage: {whole:.0f} MB, of which the base with Python is {base:.0f} MB")
    assert whole < LARGEST_MEGABYTES


def test_there_is_no_shell_no_package_manager_and_nothing_of_the_build_in_it(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    there = files(engine, image, tmp_path)
    commands = {Path(name).name for name in there if Path(name).parent.name in ("bin", "sbin")}
    assert not commands & {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "perl", "pip", "pip3"}
    assert "/etc/pip.conf" not in there
    assert not {name for name in there if name.startswith(("/src", "/wheel", "/opt/build"))}
    assert {"/opt/remesh/bin/python", "/opt/remesh/bin/celery", "/opt/remesh/bin/remesh"} <= there
    assert "find-links" not in engine.docker("history", "--no-trunc", image)


def test_it_runs_without_root_rights_and_with_a_read_only_root(engine: Engine, image: str) -> None:
    told = json.loads(
        engine.docker(
            "run", "--rm", *HARDENED, image, "python", "-c",
            "import json, os; from pathlib import Path; status = Path('/proc/self/status').read_text();"
            "print(json.dumps([os.getuid(), os.getgid(), os.access('/opt/remesh', os.W_OK), status]))",
        )
    )  # fmt: skip
    uid, gid, may_write, status = told
    assert (uid, gid, may_write) == (65532, 65532, False)
    assert re.search(r"^CapEff:\s*0+$", status, flags=re.MULTILINE)
    assert inspected(engine, image)["Config"]["User"] == "65532:65532"


def test_the_command_line_and_what_belongs_to_the_package_are_in_it(engine: Engine, image: str) -> None:
    def run(*command: str) -> str:
        return engine.docker("run", "--rm", *HARDENED, image, *command)

    assert run("remesh", "--version").strip() == f"remesh {__version__}"
    assert run("kubectl-remesh", "--version").strip() == f"remesh {__version__}"
    profiles = run("python", "-c", "from remesh.meshes import load_profiles; print(len(load_profiles().all))")
    assert int(profiles) == len(list((ROOT / "config" / "meshes").glob("*.toml")))


@pytest.mark.parametrize(
    ("service", "complaint"),
    [("watcher", "no kubeconfig found"), ("worker", "no kubeconfig found"), ("flower", "FLOWER_BASIC_AUTH")],
)
def test_each_part_says_in_one_line_what_it_lacks(engine: Engine, image: str, service: str, complaint: str) -> None:
    program, *arguments = compose_command(service)

    with pytest.raises(DockerError, match=rf"ended with 2: (.*\n)*.*{complaint}") as caught:
        engine.docker("run", "--rm", *HARDENED, image, Path(program).name, *arguments)

    assert "Traceback" not in str(caught.value)


def test_the_version_in_the_dockerfile_is_the_package_s() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG VERSION=(.*)$", dockerfile, flags=re.MULTILINE) == [__version__]
