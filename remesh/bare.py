"""The pod's half of `decide()`: pods refused at creation, and pods that came up without their sidecar. Pure.

The principles stand in `remesh.decide`, which calls this.
"""

from typing import Final

from remesh.classify import base_class, classify
from remesh.disruption import creates_pods
from remesh.meshes import Expect, Profiles
from remesh.models import Action, BaseClass, Decision, FailureClass, Observed, Probe
from remesh.objects import Pod
from remesh.policy import Policy
from remesh.refused import NUDGED_KINDS
from remesh.sidecars import Claim, asked_for, claims_of, named_injector, surroundings
from remesh.since import lost_something, requested_since
from remesh.tally import parse_time
from remesh.verdicts import PERSISTENT, answer, closed, denied_by_policy, leaving, short, terminating

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

_KEEPERS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers that put a new pod in the place of an evicted one, whatever its restartPolicy says."""

_INJECTED: Final = answer(
    FailureClass.HAS_SIDECAR, Action.NEVER_TOUCH, "injected", "it carries every sidecar that it should"
)


def of_pod(observed: Observed, pod: Pod, policy: Policy, profiles: Profiles) -> Decision:
    """What is wrong with one pod and what is right to do now."""
    if observed.message:
        return _of_refused(observed, pod, policy, profiles)
    untouchable = _untouchable(observed, pod)
    if untouchable:
        code, reason = untouchable
        return answer(FailureClass.NOT_APPLICABLE, Action.NEVER_TOUCH, code, reason)
    claims = claims_of(pod, observed.namespace, surroundings(observed, profiles))
    bare = [claim for claim in asked_for(claims) if not claim.profile.injected(pod)]
    if not bare:
        return _not_bare(pod, claims, policy)
    if pod.metadata.namespace in policy.scope.protected_namespaces:
        return _not_expected(Action.NEVER_TOUCH, "protected_namespace", f"{pod.metadata.namespace} is protected")
    return _of_bare(observed, pod, policy, bare[0], _served_by(pod, claims))


def _served_by(pod: Pod, claims: list[Claim]) -> str:
    """Title of the mesh whose injector the pod itself belongs to, whichever sidecar it lacks; "" if to none."""
    meta = pod.metadata
    served = (
        claim.profile.title
        for claim in claims
        if claim.profile.is_injector(meta.namespace, meta.labels, claim.injector.service_namespace)
    )
    return next(served, "")


def _untouchable(observed: Observed, pod: Pod) -> tuple[str, str] | None:
    """Code and reason if nobody but its own keeper may touch this pod."""
    meta = pod.metadata
    if meta.annotations and MIRROR_ANNOTATION in meta.annotations:
        return "mirror_pod", "it mirrors a static pod: its kubelet keeps it, not the API server"
    controller = meta.controller
    if controller is not None and controller.kind == "Node":
        return "mirror_pod", "it belongs to a node: its kubelet keeps it"
    if pod.status.phase in ("Succeeded", "Failed"):
        return "finished", "it has finished and runs nothing"
    if meta.deletion_timestamp is not None:
        return "terminating", "it is being deleted"
    if terminating(observed.namespace):
        return "namespace_terminating", "its namespace is being deleted"
    return None


def _not_bare(pod: Pod, claims: list[Claim], policy: Policy) -> Decision:
    """Nothing is missing: it is injected, or no sidecar is expected."""
    if any(claim.answer is Expect.YES or claim.profile.injected(pod) for claim in claims):
        return _INJECTED
    if pod.metadata.namespace in policy.scope.protected_namespaces:
        return _not_expected(Action.NEVER_TOUCH, "protected_namespace", f"{pod.metadata.namespace} is protected")
    if pod.spec.host_network:
        return _not_expected(Action.NEVER_TOUCH, "host_network", "it is on the host's network")
    refused = next((claim for claim in claims if claim.answer in (Expect.REFUSED, Expect.NEVER)), None)
    if refused is not None:
        code = "opted_out" if refused.answer is Expect.REFUSED else "never_injected"
        return _not_expected(Action.NEVER_TOUCH, code, refused.reason)
    return _not_expected(Action.REPORT_ONLY, "not_expected", _nobody_asks(claims))


def _nobody_asks(claims: list[Claim]) -> str:
    """Why the mesh that somebody meant does not inject it; else that nobody asked."""
    meant = (claim.reason for claim in claims if claim.said)
    return next(meant, "neither pod nor namespace asks any mesh for a sidecar")


def _not_expected(action: Action, code: str, reason: str) -> Decision:
    return answer(FailureClass.NOT_EXPECTED, action, code, reason)


def _of_bare(observed: Observed, pod: Pod, policy: Policy, claim: Claim, serves: str) -> Decision:
    """A pod that lacks a sidecar which a live webhook would have given it."""
    title, missing = claim.profile.title, FailureClass.MISSING_SIDECAR
    if not observed.exists:
        return answer(FailureClass.HEALTHY, Action.NONE, "not_created", f"{title} would inject it when it is created")
    if pod.spec.host_network:
        return _bare(missing, Action.NEVER_TOUCH, "host_network", "it is on the host's network", claim)
    if serves:
        reason = f"it belongs to {serves}'s injector itself"
        return _bare(FailureClass.NOT_APPLICABLE, Action.NEVER_TOUCH, "injector_itself", reason, claim)
    barred = _barred(observed, pod, policy, claim)
    if barred is not None:
        failure, code, reason = barred
        return _bare(failure, Action.REPORT_ONLY, code, reason, claim)
    return _gated(observed, claim)


def _barred(observed: Observed, pod: Pod, policy: Policy, claim: Claim) -> tuple[FailureClass, str, str] | None:
    """Why a bare pod is only reported, whatever its injector does."""
    scope, repair, controller = policy.scope, policy.repair, pod.metadata.controller
    missing, outside = FailureClass.MISSING_SIDECAR, FailureClass.NOT_APPLICABLE
    if scope.namespaces and pod.metadata.namespace not in scope.namespaces:
        return missing, "out_of_scope", f"{pod.metadata.namespace} is not among the policy's namespaces"
    if controller is None and not repair.bare_pods:
        return outside, "no_controller", "nobody would create it again: only with policy repair.bare_pods = true"
    if controller is not None and not creates_pods(controller):
        reason = f"its reference names a {controller.kind}, which creates no pods: nobody would create it again"
        return outside, "no_controller", reason
    if controller is not None and not repair.job_pods and _runs_once(controller.kind, pod):
        return outside, "job_pod", "evicting it fails or repeats its work: only with policy repair.job_pods = true"
    if not repair.older_pods and _older_than_request(observed, pod, claim):
        return missing, "older_than_mesh", "it is older than the webhook or the request: adopting it is a rollout"
    if not repair.older_pods and observed.webhook_older is None and lost_something(observed.namespace, pod):
        reason = (
            "something was taken away from its namespace since, perhaps an opt-out: it may be older than the request"
        )
        return missing, "older_than_mesh", reason
    if observed.attempts >= repair.max_attempts:
        return missing, "attempts_used_up", f"{observed.attempts} repairs failed"
    return None


def _older_than_request(observed: Observed, pod: Pod, claim: Claim) -> bool:
    """True if who is injected may have changed since the pod was created: then it missed nothing that is known."""
    if observed.webhook_older is not None:
        return not observed.webhook_older
    created = parse_time(pod.metadata.creation_timestamp)
    if created is None:
        return False
    configured = observed.configured.get(claim.injector.configuration)
    asked = requested_since(observed.namespace, claim.profile, observed.webhooks or ())
    return any(since is not None and created < since for since in (configured, asked))


def _runs_once(owner_kind: str, pod: Pod) -> bool:
    """True for Jobs and their like: a pod that may end by itself is not one to be replaced."""
    return owner_kind == "Job" or (owner_kind not in _KEEPERS and pod.spec.restart_policy in ("Never", "OnFailure"))


def _gated(observed: Observed, claim: Claim) -> Decision:
    health, title, missing = observed.health, claim.profile.title, FailureClass.MISSING_SIDECAR
    if health.probe is Probe.PASSES and not (observed.attempts and not health.own_template):
        reason = f"{claim.reason}, it has none, and {title}'s injector works now"
        return _bare(missing, Action.RECREATE_POD, "probe_passes", reason, claim)
    code, state = closed(observed)
    if observed.attempts and health.probe is not Probe.UNKNOWN:
        but = "works, for other pods at least" if health.probe is Probe.PASSES else state
        reason = f"{observed.attempts} repairs failed, and {title}'s injector {but}: another pod would be bare again"
        return _bare(missing, Action.REPORT_ONLY, "attempt_failed", reason, claim, after=Action.RECREATE_POD)
    reason = f"{claim.reason}, it has none, and {title}'s injector {state}"
    return _bare(missing, Action.WAIT_FOR_INJECTOR, code, reason, claim, after=Action.RECREATE_POD)


def _bare(
    failure: FailureClass, action: Action, code: str, reason: str, claim: Claim, *, after: Action = Action.NONE
) -> Decision:
    return Decision(
        failure_class=failure,
        action=action,
        code=code,
        reason=reason,
        after_recovery=after,
        injector=claim.injector,
        missing=1,
        sidecar_expected=True,
    )


def _of_refused(observed: Observed, pod: Pod, policy: Policy, profiles: Profiles) -> Decision:
    """A request about this pod failed: mostly its creation, and then it does not exist."""
    text = observed.message
    failure = classify(text)
    if failure is FailureClass.NAMESPACE_TERMINATING or terminating(observed.namespace):
        return leaving(failure)
    untouchable = _untouchable(observed, pod)
    if untouchable:
        return answer(failure, Action.NEVER_TOUCH, *untouchable)
    named = named_injector(text, observed, profiles)
    if failure is FailureClass.WEBHOOK_DENIED and named is None:
        return denied_by_policy(failure)
    if pod.metadata.namespace in policy.scope.protected_namespaces:
        return answer(failure, Action.NEVER_TOUCH, "protected_namespace", f"{pod.metadata.namespace} is protected")
    nudged = pod.metadata.controller is not None and pod.metadata.controller.kind in NUDGED_KINDS
    infra = named is not None and base_class(failure) is BaseClass.WEBHOOK_INFRA
    if named is None or observed.exists or not (nudged and infra):
        return answer(failure, Action.REPORT_ONLY, "no_owner_to_nudge", f"nobody to nudge: {short(text)}")
    scope, claims = policy.scope, claims_of(pod, observed.namespace, surroundings(observed, profiles))
    refused = next((each for each in claims if each.answer is Expect.REFUSED), None)
    if scope.namespaces and pod.metadata.namespace not in scope.namespaces:
        return answer(failure, Action.REPORT_ONLY, "out_of_scope", f"{pod.metadata.namespace} is not in scope")
    if pod.spec.host_network or refused is not None:
        reason = refused.reason if refused else "it is on the host's network"
        return answer(failure, Action.REPORT_ONLY, "opted_out" if refused else "host_network", reason)
    if observed.attempts >= policy.repair.max_attempts:
        return answer(failure, Action.REPORT_ONLY, "attempts_used_up", f"{observed.attempts} repairs failed")
    return _of_refused_child(observed, failure, named.profile.title)


def _of_refused_child(observed: Observed, failure: FailureClass, title: str) -> Decision:
    """Its controller tries again by itself, and sooner when nudged."""
    if observed.health.probe is Probe.PASSES:
        return answer(failure, Action.NUDGE_OWNER, "probe_passes", f"{title}'s injector works again")
    code, state = closed(observed)
    action = Action.REPORT_ONLY if failure in PERSISTENT else Action.WAIT_FOR_INJECTOR
    waiting = answer(failure, action, code, f"{title}'s injector {state}")
    return waiting.model_copy(update={"after_recovery": Action.NUDGE_OWNER})
