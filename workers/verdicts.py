"""What an error, a dry run or a count of pods means for a repair. Pure."""

from dataclasses import dataclass
from typing import Final

from remesh.classify import base_class, classify
from remesh.errors import (
    BrokerError,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    RemeshError,
    Throttled,
    TrailUnavailable,
    Unauthorized,
    UsageError,
)
from remesh.kube.probe import DRY_RUN_UNSUPPORTED, ProbeResult
from remesh.models import REVOKED, BaseClass, FailureClass, Outcome, Probe, Result


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a repair ends, or why it does not begin."""

    result: Result
    code: str
    reason: str


NOT_READY_YET: Final = "not_ready_yet"  # what came has its sidecar; whether it ever runs is not known
NOT_AVAILABLE_YET: Final = "not_available_yet"  # what came is Ready, but not yet for as long as its owner asks
NO_LONGER_WANTED: Final = "no_longer_wanted"  # evicted, and its owner says that it wants fewer
NOT_REPLACED: Final = "not_replaced"  # evicted, and nothing came
STILL_TERMINATING: Final = "still_terminating"  # evicted, and nothing can be seen of a replacement yet
RESTORE_PENDING: Final = "restore_pending"  # evicted, and remesh itself has to create it again

PERSON_NEEDED: Final = "person_needed"  # evicted, and remesh will not or cannot create it again
MANIFEST_LOST: Final = "manifest_lost"  # evicted, and nobody knows any more what it was

# Soon over, and not the object's fault: tried again by the same task before anybody else hears of it.
_PASSING: Final = frozenset(
    {
        "held_elsewhere",
        "lease_lost",
        "cluster_unreachable",
        "cluster_failed",
        "changed_meanwhile",
        "trail_unavailable",
        "broker_failed",
        STILL_TERMINATING,
        RESTORE_PENDING,
    }
)


# 2 + 4 + 8 + 16 + 30 s: longer than a lease lasts after its worker died, or than a repair takes that holds it.
RETRIES: Final = 5
# A pod that was evicted and that nobody else would create is not given up in an hour (30 s between two tries).
RESTORE_RETRIES: Final = 120


def revoked() -> Verdict:
    """A person has revoked the task, as Flower does it, and nothing had been done yet."""
    return Verdict(Result.REPORTED, REVOKED, "its task was revoked before anything was done")


def retries_for(outcome: Outcome) -> int:
    """How often the same task tries again before it ends like this."""
    return RESTORE_RETRIES if outcome.code == RESTORE_PENDING else RETRIES


def leaves_for_another_try(outcome: Outcome | Verdict) -> bool:
    """True if the same task should try again soon instead of ending like this."""
    return outcome.result in (Result.ERROR, Result.SKIPPED) and outcome.code in _PASSING


_BY_ERROR: Final[tuple[tuple[type[RemeshError], Result, str], ...]] = (
    (NotFound, Result.OBSOLETE, "gone"),
    # Another UID, or a write that crossed ours: reading again tells which.
    (Conflict, Result.ERROR, "changed_meanwhile"),
    (Throttled, Result.ERROR, "cluster_unreachable"),
    (ClusterUnreachable, Result.ERROR, "cluster_unreachable"),
    (Unauthorized, Result.ERROR, "not_allowed"),
    (Forbidden, Result.ERROR, "not_allowed"),
    (TrailUnavailable, Result.ERROR, "trail_unavailable"),
    (BrokerError, Result.ERROR, "broker_failed"),
    (UsageError, Result.REPORTED, "bad_request"),
)


def from_error(error: RemeshError) -> Verdict:
    """How a repair ends that ran into `error`."""
    if isinstance(error, Rejected):
        return _refused_write(error)
    for kind, result, code in _BY_ERROR:
        if isinstance(error, kind):
            return Verdict(result, code, str(error))
    return Verdict(Result.ERROR, "cluster_failed", str(error))


def _refused_write(error: Rejected) -> Verdict:
    """A webhook that also sees updates can refuse the nudge itself, or be down."""
    found = classify(error.message)
    if works_again_later(found):
        return Verdict(Result.WAITING, found.value, f"the nudge was refused, its webhook fails: {error}")
    return Verdict(Result.REPORTED, "nudge_refused", f"the nudge was refused: {error}")


def works_again_later(failure_class: FailureClass) -> bool:
    """True if the trouble is the injector's, or an overloaded API server's, and ends with it."""
    family = base_class(failure_class)
    return family in (BaseClass.WEBHOOK_INFRA, BaseClass.MISSING_SIDECAR) or failure_class is FailureClass.API_TIMEOUT


_BY_PROBE: Final[dict[str, tuple[Result, str]]] = {
    "owner_gone": (Result.OBSOLETE, "gone"),
    "no_right": (Result.ERROR, "not_allowed"),
    "no_credentials": (Result.ERROR, "not_allowed"),
}


def from_probe(seen: ProbeResult, *, at_quorum: bool) -> Verdict | None:
    """Why not to nudge after this dry run, or None to go on.

    Where dry runs are refused because of side effects, ready endpoints at quorum have to do (`at_quorum`).
    """
    if seen.probe is Probe.PASSES:
        return None
    if seen.code == DRY_RUN_UNSUPPORTED:
        if at_quorum:
            return None
        return Verdict(Result.WAITING, "no_quorum", f"{seen.reason}; too few of its endpoints are ready")
    if seen.probe is Probe.UNKNOWN:
        result, code = _BY_PROBE.get(seen.code, (Result.ERROR, "cluster_unreachable"))
        return Verdict(result, code, seen.reason)
    if works_again_later(seen.failure_class or FailureClass.UNKNOWN_API_ERROR):
        return Verdict(Result.WAITING, seen.code, seen.reason)
    said = f": {seen.message}" if seen.message else ""
    return Verdict(Result.REPORTED, seen.code, seen.reason + said)
