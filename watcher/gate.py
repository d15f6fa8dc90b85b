"""The gate of one injector: when does it count as working again?

Pure. A gate opens after `successes` dry runs in a row came back with the sidecar, each fast enough, while its Service
has ready endpoints at quorum. Readiness alone proves nothing (a wrong caBundle, a network policy and a missing port
all pass a readiness probe), so the dry run decides. A webhook that refuses dry runs because of side effects leaves
only readiness plus one canary repair.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from remesh.classify import base_class
from remesh.models import BaseClass, FailureClass, Probe
from remesh.policy import GatePolicy
from watcher.pace import AT_FIRST, Pace, anew

_OF_TEMPLATE = frozenset(
    {
        BaseClass.WEBHOOK_DENIED,
        BaseClass.QUOTA,
        BaseClass.POD_SECURITY,
        BaseClass.SERVICE_ACCOUNT,
        BaseClass.OTHER_API,
    }
)
_OF_SERVER = frozenset({FailureClass.API_TIMEOUT, FailureClass.UNKNOWN_API_ERROR})


class GateStatus(StrEnum):
    """States of a gate."""

    CLOSED = "closed"
    OPEN = "open"
    CANARY = "canary"  # dry runs are refused: one repair goes first, and its outcome decides


@dataclass(frozen=True, slots=True)
class Gate:
    """What is known of one injector. Replaced by the functions below, never changed."""

    key: str
    status: GateStatus = GateStatus.CLOSED
    passed: int = 0  # dry runs in a row that passed
    code: str = "not_probed"
    reason: str = "no dry run yet"
    probe_seconds: float | None = None
    ready: int | None = None  # ready endpoints; None for a webhook with a URL
    canary_passed: bool = False
    lost: tuple[str, ...] = ()  # nodes of endpoints that do not count
    pace: Pace = AT_FIRST  # of evictions; begins anew whenever the injector fails

    @property
    def releases(self) -> bool:
        """True if findings may go through."""
        return self.status is not GateStatus.CLOSED


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer of one dry run, as far as the gate cares."""

    probe: Probe
    code: str
    reason: str
    seconds: float | None = None


UNSUPPORTED = "dry_run_unsupported"
NO_SIDECAR = "no_sidecar"  # answered without the sidecar: perhaps to this template only


def after_probe(gate: Gate, seen: Seen, policy: GatePolicy) -> Gate:
    """The gate after one dry run."""
    if seen.code == UNSUPPORTED:
        return _without_dry_run(gate)
    if seen.probe is not Probe.PASSES:
        # An endpoint may stay in the slice and not answer: a lost node, a hung process. People should read both.
        looks = f"; {gate.ready} of its endpoints look ready all the same" if gate.ready else ""
        return replace(
            gate,
            status=GateStatus.CLOSED,
            passed=0,
            code=seen.code,
            reason=seen.reason + looks,
            probe_seconds=seen.seconds,
            pace=anew(gate.pace),
        )
    passed = gate.passed + 1
    if passed < policy.successes and gate.status is not GateStatus.OPEN:
        reason = f"{passed} of {policy.successes} dry runs in a row came back with the sidecar"
        return replace(gate, passed=passed, code="proving", reason=reason, probe_seconds=seen.seconds)
    reason = "dry runs come back with the sidecar"
    return replace(gate, status=GateStatus.OPEN, passed=passed, code="open", reason=reason, probe_seconds=seen.seconds)


def after_endpoints(gate: Gate, ready: int | None, policy: GatePolicy, lost: tuple[str, ...] = ()) -> Gate:
    """The gate after its Service's endpoints were counted. `ready` is None for a webhook without a Service.

    `lost` names nodes that have an endpoint and are not Ready: it does not count, and people are told.
    """
    if ready is None or ready >= policy.quorum:
        return replace(gate, ready=ready, lost=lost)
    where = f"; not counted: those on {', '.join(lost)}, which is not Ready" if lost else ""
    reason = f"{ready} ready endpoints, {policy.quorum} needed{where}"
    return replace(gate, status=GateStatus.CLOSED, passed=0, code="no_quorum", reason=reason, ready=ready, lost=lost)


def after_outcome(gate: Gate, *, injector_worked: bool) -> Gate:
    """The gate after a repair through it ended: a failure of the injector closes it, a success ends the canary."""
    if not injector_worked:
        reason = "a repair found the injector failing again"
        return replace(
            gate,
            status=GateStatus.CLOSED,
            passed=0,
            canary_passed=False,
            code="failed_again",
            reason=reason,
            pace=anew(gate.pace),
        )
    if gate.status is GateStatus.CANARY:
        reason = "the webhook refuses dry runs; endpoints are ready and the canary repair succeeded"
        return replace(gate, status=GateStatus.OPEN, canary_passed=True, code="canary_passed", reason=reason)
    return gate


def below_quorum(gate: Gate, policy: GatePolicy) -> bool:
    """True if a dry run would be pointless: the API server has nobody to call."""
    return gate.ready is not None and gate.ready < policy.quorum


def speaks_of_template(failure: FailureClass) -> bool:
    """True if a dry run's refusal is about the pod (denied, quota, pod security, invalid) and not about the call."""
    return base_class(failure) in _OF_TEMPLATE and failure not in _OF_SERVER


def _without_dry_run(gate: Gate) -> Gate:
    if gate.canary_passed:
        return replace(gate, status=GateStatus.OPEN)
    reason = (
        "the webhook refuses dry runs (it declares side effects); endpoints are ready, one canary repair goes first"
    )
    return replace(gate, status=GateStatus.CANARY, passed=0, code=UNSUPPORTED, reason=reason)
