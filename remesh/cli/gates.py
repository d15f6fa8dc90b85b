"""What the watcher knows of injectors and findings, for commands that ask nothing of an injector themselves.

Only what a live watcher has written counts. Without a Redis, or without a watcher, nothing is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from remesh.cli.session import Session, running_embedded
from remesh.cli.text import one_line
from remesh.errors import BrokerError
from remesh.policy import Mode

if TYPE_CHECKING:  # a scan without Redis does not import its client
    from remesh.cli.survey import Judged, Survey
    from remesh.ledger import GateState
    from remesh.presence import WatcherSeen

REASON_CHARACTERS: Final = 160


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known from the watcher."""

    gates: dict[str, "GateState"] = field(default_factory=dict)  # by the injector's key; only current ones
    first_seen: dict[str, datetime] = field(default_factory=dict)  # of each open finding, by the object's UID
    only_observes: bool = False

    def gate_of(self, judged: "Judged") -> "GateState | None":
        """The gate that a repair of it has to pass."""
        injector = judged.decision.injector
        return self.gates.get(injector.key) if injector else None


def is_current(state: "GateState", watchers: "list[WatcherSeen]") -> bool:
    """A gate is written when it changes, so only the watcher that wrote it makes it current."""
    from remesh.presence import Role
    from remesh.redisdb import CLOCK_SKEW_SECONDS

    if state.seen is None:
        return False
    slack = timedelta(seconds=CLOCK_SKEW_SECONDS)
    return any(each.role is not Role.STANDBY and state.seen >= each.since - slack for each in watchers)


def only_observes(watchers: "list[WatcherSeen]") -> bool:
    """True if whoever watches does so in observe mode: what waits, waits for nothing."""
    return bool(watchers) and all(each.mode == Mode.OBSERVE.value for each in watchers)


def watched(session: Session) -> Watched:
    """Ask Redis, where one is named or a `remesh run` has one. One that does not answer knows nothing."""
    if not (session.names_redis or running_embedded(session.data_folder)):
        return Watched()
    from remesh.presence import Presence

    try:
        settings = session.settings
        watchers = Presence(session.redis, settings.cluster, settings.key_prefix).everybody()
        gates = {key: state for key, state in session.ledger.gates().items() if is_current(state, watchers)}
        seen = {each.finding.ref.uid: each.finding.first_seen for each in session.ledger.open_findings()}
    except BrokerError:  # `hold_quarantined` says it
        return Watched()
    return Watched(gates, seen, only_observes(watchers))


def as_watched(survey: "Survey", all_judged: "Iterable[Judged]", known: Watched) -> "list[Judged]":
    """The same findings, decided as the watcher does where it has a gate open."""
    found = []
    for judged in all_judged:
        gate = known.gate_of(judged)
        if gate is not None and gate.open:
            judged = survey.behind_open_gate(judged)  # noqa: PLW2901
        found.append(replace(judged, first_seen=known.first_seen.get(judged.ref.uid)))
    return found


def remarks(known: Watched, found: "Iterable[Judged]") -> list[str]:
    """What the table cannot show: where the state of each gate comes from."""
    keys = {each.decision.injector.key for each in found if each.repairable and each.decision.injector}
    lines = [_remark(key, known.gates[key]) for key in sorted(keys & known.gates.keys())]
    if lines and known.only_observes:
        lines.append("The watcher only observes, so nothing is repaired by itself.")
    return lines


def _remark(key: str, state: "GateState") -> str:
    word = "open" if state.open else "closed"
    reason = f": {one_line(state.reason, REASON_CHARACTERS)}" if state.reason else ""
    return f"The watcher has the gate of {key} {word}{reason}."
