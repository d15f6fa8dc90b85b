"""`remesh version`."""

from remesh import __version__
from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common


@with_common
def version(common: Common) -> None:
    """Print the version of remesh."""
    if common.format is Output.TABLE:
        print(f"remesh {__version__}")
    else:
        from remesh.cli.render import emit_one

        emit_one(common.format, {"version": __version__})


app = one_command(version)
