"""What `remesh status` shows, as plain data. Needs Redis and no cluster."""

from collections import Counter
from datetime import datetime
from typing import Any, Final

from remesh.cli.brake import document, shut_brakes
from remesh.cli.gates import is_current, only_observes
from remesh.cli.incident import Incident, last_incident, pace
from remesh.cli.session import Session, utc_now
from remesh.ledger import GateState, OpenFinding, Quarantine
from remesh.models import AuditRecord
from remesh.presence import Presence, WatcherSeen
from remesh.queue import queue_lengths
from watcher.findings import State

WORKER_SECONDS: Final = 1.0  # a worker that is up answers a ping within milliseconds
RECORDS: Final = 5000  # of the trail, from its end: read and judged in a tenth of a second
OBSERVED: Final = "the watcher only observes, so nothing will be repaired"
TO_REPAIR: Final = (State.WAITING.value, State.RELEASED.value, State.COOLING.value)


def gather(session: Session) -> dict[str, Any]:
    """Everything. Raises BrokerError."""
    ledger, settings = session.ledger, session.settings
    watchers = Presence(session.redis, settings.cluster, settings.key_prefix).everybody()
    findings = ledger.open_findings()
    quarantines = ledger.quarantines()
    gates = [_gate(session, key, state, findings, watchers) for key, state in sorted(ledger.gates().items())]
    records = session.trail.newest(RECORDS)
    states = Counter(each.state for each in findings)
    return {
        "cluster": settings.cluster,
        "watcher": watchers[0].model_dump(mode="json") if watchers else None,
        "watchers": [each.model_dump(mode="json") for each in watchers],
        "workers": _workers(session),
        "gates": gates,
        "findings": dict(sorted(states.items())),
        "repairs": _repairs(states, records, gates, observed=only_observes(watchers)),
        "incident": _incident(records),
        "queues": queue_lengths(session.redis, settings),
        "quarantined": len(quarantines),
        "quarantines": [_quarantine(each) for each in quarantines],
        "brakes": [document(each) for each in shut_brakes(session)],
        "records": session.trail.length(),
        "trail_head": str(session.trail.head()),
        "trail_lost": session.trail.lost(),
    }


def _workers(session: Session) -> list[str] | None:
    """Names of the workers that answer; None if nobody could be asked."""
    from kombu.exceptions import KombuError
    from redis.exceptions import RedisError

    try:
        answers = session.app.control.ping(timeout=WORKER_SECONDS)
    except (KombuError, RedisError, OSError, RuntimeError):
        return None
    return sorted(name for answer in answers or () for name in answer)


def _gate(
    session: Session, key: str, state: GateState, findings: list[OpenFinding], watchers: list[WatcherSeen]
) -> dict[str, Any]:
    behind = [each for each in findings if each.finding.injector is not None and each.finding.injector.key == key]
    return {
        "injector": key,
        **state.model_dump(mode="json"),
        "mesh": state.mesh or next((each.finding.mesh for each in behind), ""),
        "waiting": sum(1 for each in behind if each.state == State.WAITING),
        "stale": not is_current(state, watchers),
        "window": session.ledger.window_size(key, session.policy.window),
        "in_flight": session.ledger.in_flight(key),
        "brake_seconds": round(session.ledger.brakes.shut_for(key), 1),
    }


def _repairs(
    states: Counter[str], records: list[AuditRecord], gates: list[dict[str, Any]], *, observed: bool
) -> dict[str, Any]:
    """What is still to do, and when it will be done if it goes on as within the last minute."""
    left = sum(states[state] for state in TO_REPAIR)
    incident = last_incident(records)
    done = _done(incident, left) if incident is not None and left else 0
    wanted = [gate for gate in gates if gate["waiting"] or gate["in_flight"]] or gates
    told = pace(records, left, utc_now(), gate_open=any(gate["open"] for gate in wanted) or not gates)
    return {
        "waiting": states[State.WAITING.value],
        "running": states[State.RELEASED.value],
        "cooling": states[State.COOLING.value],
        "done": done,
        "total": done + left,
        "per_second": told.per_second,
        "eta_seconds": None if observed and left else told.eta_seconds,
        "eta_unknown": OBSERVED if observed and left else told.why_unknown,
    }


def _done(incident: Incident, left: int) -> int:
    """Ledger and trail are read one after the other, and repairs go on meanwhile: together they never exceed all."""
    return min(incident.healed, incident.objects - left) if left < incident.objects else 0


def _incident(records: list[AuditRecord]) -> dict[str, Any] | None:
    found = last_incident(records)
    if found is None:
        return None
    cut_off = len(records) == RECORDS and found.began <= _first_finding(records)
    return {**found.document(), "at_least": cut_off}


def _first_finding(records: list[AuditRecord]) -> datetime:
    return next(each.at for each in records if each.finding_id)


def _quarantine(quarantine: Quarantine) -> dict[str, Any]:
    ref = quarantine.evidence.get("ref") or {}
    name = "/".join(filter(None, (ref.get("namespace"), ref.get("kind"), ref.get("name")))) or quarantine.uid
    return {
        "object": name,
        "uid": quarantine.uid,
        "since": quarantine.since.isoformat(),
        "reason": str(quarantine.evidence.get("reason", "")),
    }
