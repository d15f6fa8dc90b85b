"""Options that every command has, before or after its name, as kubectl has them.

`with_common` adds them to a command's signature, so that each command declares only its own.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from remesh.cli import completions

P = ParamSpec("P")


class Output(StrEnum):
    """How a command prints its answer."""

    TABLE = "table"
    WIDE = "wide"  # the table with long ids
    JSON = "json"
    YAML = "yaml"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Common:
    """The common options as given; None where they were not."""

    namespace: str | None = None
    all_namespaces: bool | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    cluster: str | None = None
    policy: Path | None = None
    meshes: Path | None = None
    output: Output | None = None

    @property
    def format(self) -> Output:
        """The output asked for, a table by default; a wide one is a table, too."""
        return Output.TABLE if self.output in (None, Output.WIDE) else self.output

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns of long ids, which only a wide table shows."""
        return () if self.output is Output.WIDE else ("TASK", "UID", "TEMPLATE")


_PANEL = "Common options"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, show_default=False, **more)


_ANNOTATIONS: dict[str, Any] = {
    "namespace": Annotated[str | None, _option("-n", "--namespace", help="Namespace; default: the context's.")],
    "all_namespaces": Annotated[bool | None, _option("-A", "--all-namespaces", help="Every namespace.")],
    "context": Annotated[str | None, _option("--context", help="Context of the kubeconfig; default: its current one.")],
    "kubeconfig": Annotated[
        Path | None, _option("--kubeconfig", help="kubeconfig file; default: KUBECONFIG, then ~/.kube/config.")
    ],
    "cluster": Annotated[str | None, _option("--cluster", help="This cluster's name in trail and tasks.")],
    "policy": Annotated[Path | None, _option("--policy", help="Policy file; default: the shipped one.")],
    "meshes": Annotated[Path | None, _option("--meshes", help="Folder of mesh profiles that add to the shipped ones.")],
    "output": Annotated[
        Output | None, _option("-o", "--output", help="How to print: table, wide, json, yaml or jsonl.")
    ],
}

Mesh = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        help="Only findings of this mesh, by its profile's name.",
        show_default=False,
        autocompletion=completions.meshes,
    ),
]

PARAMETERS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in _ANNOTATIONS.items()
]


def with_common(function: Callable[Concatenate[Common, P], None]) -> Callable[..., None]:
    """A command whose first parameter is `Common`, as typer can call it: with every common option spelled out."""
    return _spelled_out(function, ())


def with_common_but(
    *dropped: str,
) -> Callable[[Callable[Concatenate[Common, P], None]], Callable[..., None]]:
    """The same without the options that mean nothing to a command: given all the same, they end it with exit code 2."""
    return lambda function: _spelled_out(function, dropped)


def _spelled_out(function: Callable[Concatenate[Common, P], None], dropped: tuple[str, ...]) -> Callable[..., None]:
    own = list(inspect.signature(function).parameters.values())[1:]
    refused = [name for name in dropped if name not in {parameter.name for parameter in own}]
    kept = [parameter for parameter in PARAMETERS if parameter.name not in dropped]

    def command(ctx: typer.Context, **given: Any) -> None:
        given_after = {parameter.name: given.pop(parameter.name) for parameter in kept}
        common = merged(ctx.find_root().obj, given_after)
        _refuse(common, refused, ctx.command.name or "")
        function(common, **given)  # type: ignore[call-arg]

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *kept]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    return command


def _refuse(common: Common, refused: list[str], command: str) -> None:
    """Options before the command's name are read by no command in particular, so it is said here."""
    from remesh.errors import UsageError

    for name in refused:
        if getattr(common, name) is not None:
            raise UsageError(f"`remesh {command}` takes no --{name.replace('_', '-')}; leave it out")


def merged(before: Common | None, after: dict[str, Any]) -> Common:
    """Options given before the command's name, overridden by those after it."""
    base = {field.name: getattr(before, field.name) for field in fields(Common)} if before else {}
    base.update({name: value for name, value in after.items() if value is not None})
    return Common(**base)
