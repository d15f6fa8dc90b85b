"""`remesh files`: the chart, manifests, dashboards, profiles and policy that come inside the package."""

from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from remesh.cli import completions
from remesh.cli.app import one_command
from remesh.cli.options import Common, with_common_but

LEFT_OUT = frozenset({"__init__.py", "__pycache__"})


# Nothing is asked of a cluster, a Redis or a policy.
@with_common_but("namespace", "all_namespaces", "context", "kubeconfig", "cluster", "policy", "meshes")
def files(
    common: Common,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Files or folders as listed; default: all.",
            show_default=False,
            autocompletion=completions.shipped,
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Copy them there instead of listing them.")
    ] = None,
) -> None:
    """List or copy the files that come with remesh: chart, manifests, dashboard, alerts, mesh profiles, policy.

    Examples: `remesh files chart --to .` and `helm install remesh ./chart`; `remesh files policy.toml --to .`.
    """
    from remesh.cli.render import Table, emit, say

    found = list(_chosen(names or []))
    if to is not None:
        _require_absent([to / path for path, _ in found])
        for path, item in found:
            _copy(item, to / path)
        say(f"copied {len(found)} files to {to}")
        return
    sizes = [(path, len(item.read_bytes())) for path, item in found]
    rows = [[path, str(size)] for path, size in sizes]
    items = [{"name": path, "bytes": size} for path, size in sizes]
    emit(common.format, items, Table(("NAME", "BYTES"), rows).shown(), empty="", kind="FileList")


def _chosen(names: list[str]) -> Iterator[tuple[str, Traversable]]:
    from importlib import resources

    from remesh.errors import UsageError

    everything = dict(_walk(resources.files("config"), ""))
    for name in names:
        if not any(_within(path, name) for path in everything):
            tops = ", ".join(sorted({path.split("/")[0] for path in everything}))
            raise UsageError(f"no shipped file or folder {name!r}; there are: {tops}")
    for path, item in everything.items():
        if not names or any(_within(path, name) for name in names):
            yield path, item


def _within(path: str, name: str) -> bool:
    name = name.strip("/")
    return path == name or path.startswith(name + "/")


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda each: each.name):
        if item.name in LEFT_OUT:
            continue
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        else:
            yield prefix + item.name, item


def _require_absent(targets: list[Path]) -> None:
    """What is there already is somebody's and stays; then nothing is copied at all. Raises UsageError."""
    from remesh.errors import UsageError

    for target in targets:
        if target.exists():
            raise UsageError(f"{target} is there already; move it away or choose another folder with --to")


def _copy(item: Traversable, target: Path) -> None:
    from remesh.errors import UsageError

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            out.write(item.read_bytes())
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose another folder with --to") from error


app = one_command(files)
