"""Answers that both halves of `decide()` give, and the words for them. Pure."""

from typing import Final

from remesh.classify import gist
from remesh.models import Action, Decision, FailureClass, Observed, Probe
from remesh.objects import Namespace

PERSISTENT: Final = frozenset({FailureClass.WEBHOOK_X509, FailureClass.WEBHOOK_BAD_RESPONSE})
"""Faults that somebody has to correct; they are reported at once."""


def answer(failure: FailureClass, action: Action, code: str, reason: str) -> Decision:
    """A decision that leads nowhere else."""
    return Decision(failure_class=failure, action=action, code=code, reason=reason)


def leaving(failure: FailureClass) -> Decision:
    """The namespace is being deleted."""
    reason = "its namespace is being deleted: nothing is created, nudged or evicted there"
    return answer(failure, Action.NEVER_TOUCH, "namespace_terminating", reason)


def denied_by_policy(failure: FailureClass) -> Decision:
    """Denied by a webhook that is no injector."""
    reason = "an admission policy said no, and it is no injector: that is the policy at work"
    return answer(failure, Action.NEVER_TOUCH, "denied_by_policy", reason)


def terminating(namespace: Namespace | None) -> bool:
    """True if the namespace is known to be going away."""
    return namespace is not None and namespace.terminating


def closed(observed: Observed) -> tuple[str, str]:
    """Why nothing is done yet: a code, and words that follow `X's injector`."""
    if observed.health.ready is False:
        return "injector_not_ready", "has no ready endpoints"
    if observed.health.probe is Probe.FAILS:
        return "probe_fails", "cannot be used by the API server, whatever its readiness says"
    return "not_proven", "has not been shown to work yet"


def short(text: str) -> str:
    """What a failure text comes down to, in one line of at most 200 characters."""
    line = " ".join(gist(text)[:600].split())
    return line if len(line) <= 200 else line[:199] + "…"
