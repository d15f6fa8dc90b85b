"""Exit codes, in one table: `--help` prints it, the README repeats it, `remesh.errors` raises by it."""

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM came. No KeyboardInterrupt, which typer would turn into exit code 130."""


TABLE = (
    (0, "done; whatever was to be repaired is healed, or nothing was to do"),
    (1, "a check or the demo failed; a target was not repaired, or not in time; an internal error"),
    (2, "a command line, policy, mesh profile, setting or kubeconfig that cannot be right"),
    (3, "the cluster cannot be reached, or did not do what was asked"),
    (4, "credentials are missing or expired, or a right is missing"),
    (5, "Redis or the broker cannot be reached or is not safe, or the trail cannot be written"),
    (6, "the target is not there"),
    (130, "interrupted by Ctrl-C"),
    (143, "ended by SIGTERM"),
)


def epilog() -> str:
    """The table as the end of a help text; the backspace keeps its lines as they are."""
    return "\b\nExit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in TABLE)
