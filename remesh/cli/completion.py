"""`remesh completion SHELL`, and what kubectl calls to complete `kubectl remesh …`."""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from remesh.cli.app import one_command

VARIABLE = "_REMESH_COMPLETE"
NO_FILES = 4  # kubectl's directive (cobra's): complete nothing else; 2 as well: no space behind it
NO_SPACE = 2

# Typer's own script ends each candidate with a space, also `rs/`, behind which a name has to follow.
_BASH = """\
_remesh_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" _REMESH_COMPLETE=complete_bash "$1"))
    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _remesh_completion remesh"""


class Shell(StrEnum):
    """Shells that completion exists for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="Shell.", show_default=False)]) -> None:
    """Print the completion script of a shell: commands, options, meshes, kinds and formats.

    `kubectl remesh` is completed by kubectl itself (1.26 and later) once its own completion is loaded: it calls
    kubectl_complete-remesh, which is installed beside remesh.
    """
    print(script(shell))


def script(shell: Shell) -> str:
    """The script."""
    if shell is Shell.BASH:
        return _BASH
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="remesh", complete_var=VARIABLE, shell=shell.value)


def kubectl() -> None:
    """Entry of `kubectl_complete-remesh`: candidates for the last argument, then a line with kubectl's directive."""
    found = candidates(sys.argv[1:])
    space = NO_SPACE if any(each.endswith("/") for each in found) else 0
    print("\n".join([*found, f":{NO_FILES | space}"]))


def candidates(words: list[str]) -> list[str]:
    """What may stand in the place of the last word, which may be empty."""
    import io
    from contextlib import redirect_stdout, suppress

    from remesh.cli.app import build

    os.environ |= {
        VARIABLE: "complete_bash",
        "COMP_WORDS": "\n".join(["remesh", *words]),
        "COMP_CWORD": str(len(words)),
    }
    answer = io.StringIO()
    with redirect_stdout(answer), suppress(SystemExit):
        build().main(args=[], prog_name="remesh", standalone_mode=False)
    return answer.getvalue().splitlines()


app = one_command(completion)
