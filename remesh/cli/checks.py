"""What a check of `remesh check` is, and all of them in the order in which they build on each other.

Each asks one thing and says what it found; none writes anything. What cannot be asked from where the command runs is
said to be not checked, never passed over.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remesh.cli.check_catalogue import CATALOGUE, link
from remesh.cli.session import Session
from remesh.cli.text import one_line
from remesh.errors import Forbidden, RemeshError

TEXT_CHARACTERS = 700


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"  # could not be asked from here, or did not apply


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was asked."""

    id: str  # of the catalogue
    state: State
    text: str
    subject: str = ""  # the injector or the like that it is about
    more: str = ""  # a hint that fits better than the catalogue's
    exit_code: int = 1  # for the process, if it failed

    @property
    def group(self) -> str:
        """Head under which it is shown."""
        return " ".join(filter(None, (CATALOGUE[self.id].group, self.subject)))

    @property
    def hint(self) -> str:
        """What to do, in one line."""
        return self.more or CATALOGUE[self.id].hint

    @property
    def failed(self) -> bool:
        """True if remesh, or an injector, cannot work like this."""
        return self.state is State.FAILED

    @property
    def wants_attention(self) -> bool:
        """True of a failure and of a warning."""
        return self.state in (State.FAILED, State.WARNING)

    def document(self) -> dict[str, Any]:
        """For JSON and YAML."""
        return {
            "group": self.group,
            "name": self.id,
            "subject": self.subject,
            "state": self.state.value,
            "text": self.text,
            "hint": self.hint,
            "docs": link(self.id),
        }


def ok(check: str, text: str, subject: str = "") -> Check:
    """It is right."""
    return Check(check, State.OK, one_line(text, TEXT_CHARACTERS), subject)


def warn(check: str, text: str, subject: str = "", hint: str = "") -> Check:
    """It works, and could hurt some day."""
    return Check(check, State.WARNING, one_line(text, TEXT_CHARACTERS), subject, hint)


def fail(check: str, text: str, subject: str = "", hint: str = "", exit_code: int = 1) -> Check:
    """It is wrong."""
    return Check(check, State.FAILED, one_line(text, TEXT_CHARACTERS), subject, hint, exit_code)


def skip(check: str, text: str, subject: str = "") -> Check:
    """It was not asked, and why not."""
    return Check(check, State.SKIPPED, one_line(text, TEXT_CHARACTERS), subject)


def failure(check: str, error: RemeshError, subject: str = "", hint: str = "") -> Check:
    """It could not be asked. A missing right is no fault of what was to be looked at."""
    if isinstance(error, Forbidden):
        return skip(check, f"not checked: {error}", subject)
    return fail(check, str(error), subject, hint, error.exit_code)


def guarded(check: str, ask: Callable[[], Iterable[Check]], subject: str = "") -> list[Check]:
    """The answers, or the error in their place."""
    try:
        return list(ask())
    except RemeshError as error:
        return [failure(check, error, subject)]


class Checks:
    """All checks of one session."""

    def __init__(self, session: Session, *, direct: bool = False) -> None:
        self._session = session
        self._direct = direct

    def run(self) -> Iterator[Check]:
        """Every check, as its answer comes in."""
        from remesh.cli.check_access import cluster, configuration, rights
        from remesh.cli.check_injectors import injectors
        from remesh.cli.check_parts import broker, parts

        session = self._session
        yield from configuration(session)
        reached = cluster(session)
        yield from reached
        if reached[0].failed:
            yield skip("rights-observe", "not checked: the cluster cannot be used")
            yield skip("injectors-found", "not checked: the cluster cannot be used")
        else:
            yield from rights(session)
            yield from guarded("injectors-found", lambda: injectors(session, direct=self._direct))
        connected = broker(session)
        yield from connected
        if connected[0].state is State.OK:
            yield from parts(session)
        else:
            yield skip("watcher", "not checked: there is no Redis to ask")
