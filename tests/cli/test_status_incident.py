"""The last incident and the pace of repairs, from made-up trails."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remesh.cli.incident import last_incident, pace
from remesh.models import Action, AuditRecord, RecordType, Result

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def record(kind: RecordType, seconds: float, finding: str = "", **fields: object) -> AuditRecord:
    known = {"record_id": f"{finding}:{kind}:{seconds}", "type": kind, "at": at(seconds), "cluster": "c"}
    return AuditRecord.model_validate({**known, "finding_id": finding, **fields})


def found(finding: str, seconds: float, action: Action = Action.WAIT_FOR_INJECTOR) -> AuditRecord:
    return record(RecordType.FINDING, seconds, finding, mesh="linkerd", cause="webhook_timeout", action=action.value)


def outcome(finding: str, seconds: float, result: Result = Result.HEALED) -> AuditRecord:
    return record(RecordType.OUTCOME, seconds, finding, details={"result": result.value})


def gate(seconds: float, status: str = "open") -> AuditRecord:
    return record(RecordType.GATE, seconds, details={"status": status})


def test_without_anything_to_repair_there_was_no_incident() -> None:
    assert last_incident([]) is None
    assert last_incident([gate(1), found("a", 2, Action.REPORT_ONLY)]) is None


def test_what_is_reported_at_first_counts_once_it_waits() -> None:
    trail = [found("a", 0, Action.REPORT_ONLY), record(RecordType.WAIT, 1, "a"), outcome("a", 9)]
    incident = last_incident(trail)
    assert incident is not None
    assert (incident.objects, incident.healed) == (1, 1)


def test_an_incident_from_the_first_finding_to_the_last_healed() -> None:
    trail = [found("a", 0), found("b", 10), gate(0, "closed"), gate(60), outcome("a", 62), outcome("b", 70)]
    incident = last_incident(trail)
    assert incident is not None
    assert (incident.objects, incident.healed, incident.left) == (2, 2, 0)
    assert (incident.began, incident.ended) == (at(0), at(70))
    assert (incident.seconds, incident.repair_seconds) == (70.0, 10.0)
    assert (incident.meshes, incident.causes) == (("linkerd",), ("webhook_timeout",))


def test_an_hour_later_it_is_another_one() -> None:
    trail = [found("a", 0), outcome("a", 20), found("b", 3600), outcome("b", 3605, Result.FAILED)]
    incident = last_incident(trail)
    assert incident is not None
    assert (incident.began, incident.ended, incident.left) == (at(3600), None, 1)
    assert incident.seconds is None


def test_what_is_only_observed_stays_open_until_somebody_repairs_it() -> None:
    seen = found("a", 0, Action.REPORT_ONLY).model_copy(update={"code": "observe_only"})
    refused = outcome("a", 5, Result.REPORTED).model_copy(update={"code": "observe_mode"})
    incident = last_incident([seen, found("b", 1), refused])
    assert incident is not None
    assert (incident.objects, incident.left, incident.ended) == (2, 2, None)
    repaired = last_incident([seen, refused, outcome("a", 9)])
    assert repaired is not None
    assert (repaired.healed, repaired.left) == (1, 0)


def test_what_waits_for_long_keeps_its_incident_together() -> None:
    trail = [found("a", 0), found("b", 1), outcome("a", 1000), found("c", 1200), outcome("b", 1300), outcome("c", 1301)]
    incident = last_incident(trail)
    assert incident is not None
    assert (incident.began, incident.objects) == (at(0), 3)


@pytest.mark.parametrize(
    ("result", "healed", "quarantined", "left"),
    [(Result.QUARANTINED, 0, 1, 0), (Result.OBSOLETE, 0, 0, 0), (Result.WAITING, 0, 0, 1), (Result.INJECTED, 0, 0, 0)],
)
def test_how_it_ended_is_told(result: Result, healed: int, quarantined: int, left: int) -> None:
    incident = last_incident([found("a", 0), outcome("a", 5, result)])
    assert incident is not None
    assert (incident.healed, incident.quarantined, incident.left) == (healed, quarantined, left)


def test_what_is_replaced_and_not_ready_is_not_told_as_healed() -> None:
    incident = last_incident([found("a", 0), found("b", 0), outcome("a", 5, Result.INJECTED), outcome("b", 6)])
    assert incident is not None
    assert (incident.healed, incident.not_ready, incident.objects) == (1, 1, 2)
    assert incident.document()["not_ready"] == 1


def test_the_end_is_told_from_the_measured_rate() -> None:
    trail = [outcome(str(number), 100 + number) for number in range(10)]
    told = pace(trail, 20, at(110), gate_open=True)
    assert told.per_second == pytest.approx(1.0)
    assert told.eta_seconds == pytest.approx(20.0)


def test_what_is_not_known_is_said_so() -> None:
    trail = [outcome("a", 100), outcome("b", 101)]
    assert pace(trail, 5, at(110), gate_open=False).why_unknown == "the gate is closed"
    assert pace(trail, 5, at(101), gate_open=True).eta_seconds is None
    assert pace(trail, 5, at(500), gate_open=True).eta_seconds is None
    assert pace([], 5, at(500), gate_open=True).why_unknown.startswith("too few")
    assert pace([], 0, at(500), gate_open=False).eta_seconds == 0.0


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["found", *Result]),
        st.integers(0, 5000),
    ),
    max_size=40,
)


@given(EVENTS)
def test_numbers_always_add_up(events: list[tuple[str, str, int]]) -> None:
    trail = [
        found(name, seconds) if kind == "found" else outcome(name, seconds, Result(kind))
        for name, kind, seconds in events
    ]
    incident = last_incident(trail)
    if incident is None:
        assert not any(kind == "found" for _, kind, _ in events)
        return
    assert 0 <= incident.healed + incident.not_ready + incident.quarantined + incident.left <= incident.objects <= 6
    assert (incident.ended is None) == (incident.left > 0)
