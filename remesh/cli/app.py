"""The tree of commands. Each command's module is imported only when it is the one that runs.

A command's module holds `app`, a `typer.Typer` with one command, or with several for a group such as `quarantine`.
"""

import inspect
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from remesh.cli import examples, exits
from remesh.cli.options import PARAMETERS, Common

SUMMARY = (
    "Finds workloads that a sidecar injector's outage left broken, and repairs them gently once it works again.\n\n"
    "Nothing is written to a cluster except by `repair`, `run` and the workers."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and its one line in `--help`."""

    module: str
    help: str


COMMANDS = {
    "scan": Entry("remesh.cli.scan", "Show the findings of now: what is broken, and what would be done."),
    "explain": Entry("remesh.cli.explain", "Say step by step why an object is a finding, or is not."),
    "plan": Entry("remesh.cli.plan", "Show what `repair` would do, proven by dry runs; nothing is written."),
    "repair": Entry("remesh.cli.repair", "Repair targets or every finding through the workers."),
    "audit": Entry("remesh.cli.audit", "Read the audit trail: who did what, when and why."),
    "audit verify": Entry("remesh.cli.audit_verify", "Prove that nothing in the trail was removed, altered or moved."),
    "audit prune": Entry("remesh.cli.audit_prune", "Export what is old, prove the export, then remove it."),
    "quarantine": Entry("remesh.cli.quarantine", "List or clear owners that are left alone after failed repairs."),
    "brake": Entry("remesh.cli.brake", "List or clear brakes that stop evictions after pods did not come back."),
    "status": Entry("remesh.cli.status", "Show the state of gates, queues, worker and trail."),
    "check": Entry("remesh.cli.check", "Check access, rights, webhooks, broker and persistence."),
    "run": Entry("remesh.cli.run", "Run watcher, worker and an embedded Valkey in one command."),
    "demo": Entry("remesh.cli.demo", "Play an injector's outage and its repair, without a cluster of your own."),
    "files": Entry("remesh.cli.files", "List or copy what comes with remesh: chart, manifests, dashboard, profiles."),
    "completion": Entry("remesh.cli.completion", "Print the completion script of a shell."),
    "version": Entry("remesh.cli.version", "Print the version."),
}


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  typer's signature
        """Names of one word, in the order of the help."""
        return [name for name in COMMANDS if " " not in name]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command, imported now; None for an unknown name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = typer.main.get_command(import_module(entry.module).app)
        command.name = cmd_name
        command.epilog = "\n\n".join(filter(None, (_further(cmd_name), examples.epilog(cmd_name)))) or None
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The list of commands from the table above, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does, with every known name at hand for its suggestions. A name may have two words."""
        self.commands = dict.fromkeys(COMMANDS, TyperCommand(name="known"))
        if " ".join(args[:2]) in COMMANDS:
            args = [" ".join(args[:2]), *args[2:]]
        return super().resolve_command(ctx, args)


def _further(name: str) -> str:
    """The commands of two words that begin with this one, for the end of its help."""
    found = {each: entry.help for each, entry in COMMANDS.items() if each.startswith(f"{name} ")}
    width = max((len(each) for each in found), default=0)
    lines = [f"  remesh {each.ljust(width)}  {text}" for each, text in found.items()]
    return "\b\nFurther commands:\n" + "\n".join(lines) if lines else ""


def _print_version(wanted: bool) -> None:
    if wanted:
        from remesh import __version__

        print(f"remesh {__version__}")
        raise typer.Exit


VERSION = inspect.Parameter(
    "version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ],
)


def root_callback(ctx: typer.Context, **given: Any) -> None:
    """Keep the common options that stand before the command's name."""
    given.pop("version")
    ctx.obj = Common(**given)


def build() -> Any:
    """The command line as a callable group."""
    _spell_out(root_callback)
    app = typer.Typer(
        name="remesh",
        cls=LazyGroup,
        help=SUMMARY,
        epilog=exits.epilog(),
        no_args_is_help=True,
        add_completion=False,  # `remesh completion` prints the script; nobody's files are written
        rich_markup_mode=None,
        context_settings=CONTEXT_SETTINGS,
        pretty_exceptions_enable=False,
    )
    app.callback()(root_callback)
    if "_REMESH_COMPLETE" in os.environ:  # without install options of its own, typer knows no shell unasked
        from typer._completion_classes import completion_init

        completion_init()
    return typer.main.get_command(app)


CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def one_command(function: Any, **settings: Any) -> typer.Typer:
    """A `typer.Typer` of one command, with the settings that every command shares."""
    app = new_app()
    app.command(context_settings=CONTEXT_SETTINGS, **settings)(function)
    return app


def new_app(**settings: Any) -> typer.Typer:
    """A `typer.Typer` without markup, tracebacks of its own and completion options."""
    return typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT_SETTINGS,
        **settings,
    )


def _spell_out(callback: Any) -> None:
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *PARAMETERS, VERSION]
    callback.__signature__ = inspect.Signature(parameters)
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
