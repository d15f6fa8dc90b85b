"""helm and kubectl for the tests: built once from a Go module of their own, as the control plane is."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import build

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "config" / "chart"
KUBERNETES = ROOT / "config" / "kubernetes"
NAMESPACE = "remesh"
# helm built from its module says that it renders for 1.20.
KUBE_VERSION = "1.36.3"

Object = dict[str, Any]


class ToolFailed(Exception):
    """helm or kubectl ended with an error; the text is what it said."""


def run(program: str, *arguments: str, stdin: str = "") -> str:
    """Standard output of one of the two. Raises ToolFailed, `BinariesUnavailable`."""
    paths = build.ensure(build.DEPLOY_PROGRAMS)
    done = subprocess.run(
        [str(paths[program]), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise ToolFailed(done.stderr.strip())
    return done.stdout


def render(values: Mapping[str, Any], *more: str, release: str = "remesh", namespace: str = NAMESPACE) -> list[Object]:
    """What the chart makes of these values. Raises ToolFailed."""
    return documents(_rendered(yaml.safe_dump(dict(values)), release, namespace, more))


@lru_cache
def _rendered(values: str, release: str, namespace: str, more: tuple[str, ...]) -> str:
    shape = ["template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBE_VERSION, "--values", "-"]
    return run("helm", *shape, *more, stdin=values)


def kustomize(overlay: Path) -> list[Object]:
    """What `kubectl kustomize` makes of a folder. Raises ToolFailed."""
    return documents(run("kubectl", "kustomize", str(overlay)))


def documents(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [each for each in yaml.safe_load_all(text) if each]


def key(found: Object) -> tuple[str, str, str]:
    """What tells one object from another."""
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def by_key(objects: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    """Objects by what tells them apart."""
    return {key(each): each for each in objects}


def named(objects: Iterable[Object], kind: str, name: str) -> Object:
    """The one object of this kind and name."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def kinds(objects: Sequence[Object], kind: str) -> list[Object]:
    """All objects of a kind."""
    return [each for each in objects if each["kind"] == kind]
