"""A decision as sentences for people; the code words stay in the tables and documents that programs read."""

from remesh.models import Action, Decision, FailureClass

_CAUSES = {
    FailureClass.WEBHOOK_X509: "its webhook's certificate is not trusted",
    FailureClass.API_TIMEOUT: "the API server gave up on the request",
    FailureClass.MISSING_SIDECAR: "it runs without its sidecar",
    FailureClass.HAS_SIDECAR: "it has its sidecar",
    FailureClass.STUCK_SILENT: "it lacks pods, and nothing says why",
    FailureClass.HEALTHY: "it is healthy",
}
_NOW = {
    Action.NUDGE_OWNER: "would be nudged now",
    Action.RECREATE_POD: "would be replaced now",
    Action.WAIT_FOR_INJECTOR: "waits until its injector works",
    Action.REPORT_ONLY: "is only reported",
    Action.NEVER_TOUCH: "is never touched",
    Action.NONE: "needs nothing",
}
_LATER = {Action.NUDGE_OWNER: ", and is nudged then", Action.RECREATE_POD: ", and is replaced then"}


def trouble(decision: Decision) -> FailureClass:
    """What is wrong, for people.

    `not_applicable` is the word for a bare pod that is out of remesh's reach: what is wrong is that it is bare, and the
    reason tells why it is not touched.
    """
    bare = decision.failure_class is FailureClass.NOT_APPLICABLE and decision.sidecar_expected
    return FailureClass.MISSING_SIDECAR if bare else decision.failure_class


def cause(failure: FailureClass) -> str:
    """`webhook connection refused`, `quota exceeded`."""
    return _CAUSES.get(failure, failure.value.replace("_", " "))


def verdict(decision: Decision, *, not_now: str = "", in_cluster: bool = True, silent: bool = False) -> str:
    """One or two sentences: whether it is a finding, why, and what would be done.

    `silent`: the object itself says nothing of a cause; what the decision names was told by a dry run of now.
    """
    if decision.action is Action.NONE:
        if not in_cluster:
            return f"nothing is wrong with it that a manifest can show: {decision.reason}"
        return f"nothing is wrong with it: {decision.reason}"
    if decision.action is Action.NEVER_TOUCH:
        return f"left alone ({cause(trouble(decision))}): {decision.reason}"
    later = _LATER.get(decision.after_recovery, "")
    what = f"It {_NOW[decision.action]}{later}: {decision.reason}"
    if not_now:
        what = f"It would be replaced, but not now: {not_now}"
    why = cause(trouble(decision))
    if silent and decision.failure_class is not FailureClass.STUCK_SILENT:
        why = f"{cause(FailureClass.STUCK_SILENT)}; from a dry run: {why}"
    return f"a finding: {why}. {what}"
