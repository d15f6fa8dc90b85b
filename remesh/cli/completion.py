"""`remesh completion SHELL`."""

from enum import StrEnum
from typing import Annotated

import typer

from remesh.cli.app import one_command


class Shell(StrEnum):
    """Shells that completion exists for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="Shell.", show_default=False)]) -> None:
    """Print the completion script of a shell; load it with `source <(remesh completion bash)`."""
    from typer._completion_shared import get_completion_script

    print(get_completion_script(prog_name="remesh", complete_var="_REMESH_COMPLETE", shell=shell.value))


app = one_command(completion)
