"""When does an injector count as working again?"""

import pytest

from remesh.models import Probe
from remesh.policy import GatePolicy
from watcher.gate import Gate, GateStatus, Seen, after_endpoints, after_outcome, after_probe, below_quorum

POLICY = GatePolicy(successes=3, quorum=2)
PASS = Seen(Probe.PASSES, "passes", "came back with the sidecar", 0.02)
FAIL = Seen(Probe.FAILS, "webhook_timeout", "the webhook does not answer", 2.0)
NO_DRY_RUN = Seen(Probe.UNKNOWN, "dry_run_unsupported", "side effects")


def after(*seen: Seen, gate: Gate | None = None) -> Gate:
    state = gate or Gate("linkerd/linkerd-proxy-injector")
    for each in seen:
        state = after_probe(state, each, POLICY)
    return state


def test_a_new_gate_is_closed() -> None:
    assert not Gate("x").releases


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_fewer_dry_runs_in_a_row_than_asked_for_do_not_open_it(passes: int) -> None:
    assert not after(*[PASS] * passes).releases


def test_enough_dry_runs_in_a_row_open_it() -> None:
    assert after(PASS, PASS, PASS).status is GateStatus.OPEN


def test_a_failure_in_between_starts_the_count_anew() -> None:
    assert not after(PASS, PASS, FAIL, PASS, PASS).releases
    assert after(PASS, PASS, FAIL, PASS, PASS, PASS).releases


def test_one_failed_dry_run_closes_an_open_gate() -> None:
    closed = after(PASS, PASS, PASS, FAIL)
    assert closed.status is GateStatus.CLOSED
    assert closed.code == "webhook_timeout"
    assert closed.passed == 0


def test_it_stays_open_while_dry_runs_pass() -> None:
    assert after(PASS, PASS, PASS, PASS).status is GateStatus.OPEN


def test_too_few_endpoints_close_it_however_well_dry_runs_went() -> None:
    closed = after_endpoints(after(PASS, PASS, PASS), 1, POLICY)
    assert closed.status is GateStatus.CLOSED
    assert below_quorum(closed, POLICY)
    assert "1 ready endpoints, 2 needed" in closed.reason


def test_a_webhook_with_a_url_has_no_endpoints_to_count() -> None:
    gate = after_endpoints(after(PASS, PASS, PASS), None, POLICY)
    assert gate.releases
    assert not below_quorum(gate, POLICY)


def test_a_webhook_that_refuses_dry_runs_gets_a_canary_and_says_so() -> None:
    gate = after(NO_DRY_RUN)
    assert gate.status is GateStatus.CANARY
    assert gate.releases
    assert "canary" in gate.reason


def test_the_canary_opens_the_gate_or_closes_it() -> None:
    assert after_outcome(after(NO_DRY_RUN), injector_worked=True).status is GateStatus.OPEN
    assert after_outcome(after(NO_DRY_RUN), injector_worked=False).status is GateStatus.CLOSED


def test_after_a_good_canary_a_refused_dry_run_does_not_ask_for_another() -> None:
    opened = after_outcome(after(NO_DRY_RUN), injector_worked=True)
    assert after(NO_DRY_RUN, gate=opened).status is GateStatus.OPEN


def test_a_repair_that_meets_a_failing_injector_closes_the_gate() -> None:
    closed = after_outcome(after(PASS, PASS, PASS), injector_worked=False)
    assert closed.status is GateStatus.CLOSED
    assert closed.code == "failed_again"


def test_endpoints_that_look_ready_and_do_not_answer_are_named() -> None:
    counted = after_endpoints(Gate("x"), 2, POLICY)
    assert "2 of its endpoints look ready" in after(FAIL, gate=counted).reason
