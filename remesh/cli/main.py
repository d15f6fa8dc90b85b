"""Entry of `remesh` and `kubectl remesh`, and the edge where errors become one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from remesh.cli import exits


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code. Never prints a traceback for what a person did."""
    _survive_encodings()
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _survive_encodings() -> None:
    """A terminal or pipe that is not UTF-8 gets a question mark for what it cannot show, and not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if (stream.encoding or "").lower().replace("-", "") != "utf8" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; errors are printed to standard error as one line each."""
    try:
        code = _call(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except exits.Terminated:
        return exits.TERMINATED
    except BrokenPipeError:
        _forget_output()
        return exits.OK
    finally:
        if "remesh.cli.kept" in sys.modules:  # a command that read a kept trail has started its server
            sys.modules["remesh.cli.kept"].end_all()
    return code


def _call(arguments: list[str]) -> int:
    import typer

    from remesh.cli.app import build
    from remesh.errors import RemeshError

    try:
        return int(build().main(args=arguments, prog_name=_program(), standalone_mode=False) or exits.OK)
    except RemeshError as error:
        return _fail(f"{error}{_hint(error)}", error.exit_code)
    except typer.Abort:
        return exits.INTERRUPTED
    except BrokenPipeError:
        raise
    except SystemExit as end:  # typer's own way with a reader that has gone: exit code 1
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from end
        raise
    except Exception as error:
        if (code := _usage_problem(error)) is not None:
            return code
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """A mistake of remesh's own: one line, and the traceback only for whoever asks for it."""
    if os.environ.get("REMESH_LOG_LEVEL") == "DEBUG":
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return _fail(f"internal error: {what}; run with REMESH_LOG_LEVEL=DEBUG for the traceback", exits.FAILED)


def _hint(error: Exception) -> str:
    """What to do about a Redis without an answer; other errors say it themselves."""
    from remesh.errors import BrokerError

    if "REMESH_REDIS_URL" in str(error):
        return ""
    lost = type(error.__cause__).__name__ in ("ConnectionError", "TimeoutError", "OperationalError")
    return "; start it, set REMESH_REDIS_URL, or use `remesh run`" if isinstance(error, BrokerError) and lost else ""


def _usage_problem(error: Any) -> int | None:
    """Exit code of typer's own complaint about a command line, after printing it; None if it is not one."""
    if not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write((context.get_help() if context else "") + "\n")
        return exits.USAGE
    command = context.command_path if context else _program()
    from remesh.plain_words import plain_text

    return _fail(f"{plain_text(error.format_message()).rstrip('.')}; see `{command} --help`", exits.USAGE)


def _fail(line: str, code: int) -> int:
    from remesh.cli.text import one_line

    sys.stdout.flush()
    sys.stderr.write(f"remesh: {one_line(line, limit=2000)}\n")
    return code


def _program() -> str:
    return "kubectl remesh" if os.path.basename(sys.argv[0]).startswith("kubectl-") else "remesh"  # noqa: PTH119


def _forget_output() -> None:
    """Whoever read the output has gone; keep the interpreter from complaining when it flushes at exit."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, sys.stdout.fileno())


if __name__ == "__main__":
    main()
