"""The public cases: class, action now, and what may follow, for every one of them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remesh.classify import base_class, classify
from remesh.detect import explain_document, explain_line
from remesh.models import Action, FailureClass
from remesh.policy import Mode, Policy
from tests.unit.objects import PROFILES

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_all_cases_are_there() -> None:
    assert len(CASES) == 87
    assert sum(case["tier"] == "core" for case in CASES) == 39


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['situation']}")
def test_case_is_decided_rightly(case: dict[str, Any]) -> None:
    decision = explain_document(case, Policy(), PROFILES, NOW)
    assert decision.failure_class == case["expect_class"]
    assert base_class(decision.failure_class) == case["base_class"]
    assert decision.action == case["expect_action"]
    assert decision.after_recovery == case["after_recovery"]
    assert decision.reason


@pytest.mark.parametrize("case", [case for case in CASES if case["message"]], ids=lambda case: case["id"])
def test_text_alone_gives_the_class(case: dict[str, Any]) -> None:
    assert classify(case["message"]) == case["expect_class"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_names_decide_nothing(case: dict[str, Any]) -> None:
    """The answer is the same without id, situation, url and mesh, and with other names of namespace and workload."""
    text = json.dumps({"message": case["message"], "object": case["object"]})
    bare = json.loads(
        text.replace("app-ns", "orders").replace("app-59ff54b4c6", "till-7c9d").replace('"app"', '"till"')
    )
    decision = explain_document(bare, Policy(), PROFILES, NOW)
    assert (decision.failure_class, decision.action) == (case["expect_class"], case["expect_action"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_observing_never_acts(case: dict[str, Any]) -> None:
    decision = explain_document(case, Policy(mode=Mode.OBSERVE), PROFILES, NOW)
    assert decision.action not in (Action.NUDGE_OWNER, Action.RECREATE_POD)


def test_line_for_jsonl() -> None:
    case = CASES[0]
    decision = explain_document(case, Policy(), PROFILES, NOW)
    line = explain_line(case, decision)
    assert line == {
        "id": "C001",
        "class": FailureClass.WEBHOOK_TIMEOUT,
        "action": Action.NUDGE_OWNER,
        "reason": decision.reason,
    }
