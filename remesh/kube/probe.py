"""Does the injector inject this template now? One dry run, judged.

A reply without the sidecar proves nothing good: behind `failurePolicy: Ignore` a dead injector looks like success.
So only the sidecar's mark in the reply counts, and only if it came in time.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from remesh.classify import classify
from remesh.errors import ClusterUnreachable, Conflict, Forbidden, Gone, NotFound, RemeshError, Throttled, Unauthorized
from remesh.kube.api import Cluster, DryRun
from remesh.models import FailureClass, ObjectRef, Probe
from remesh.objects import Pod
from remesh.policy import GatePolicy

DRY_RUN_UNSUPPORTED = "dry_run_unsupported"

CONTROLLER_ACCOUNTS: Final = {
    "ReplicaSet": "replicaset-controller",
    "ReplicationController": "replication-controller",
    "StatefulSet": "statefulset-controller",
    "DaemonSet": "daemon-set-controller",
    "Job": "job-controller",
}
"""Service accounts in kube-system as which kube-controller-manager creates pods (--use-service-account-credentials)."""


class Injected(Protocol):
    """What a probe needs of a mesh profile."""

    @property
    def name(self) -> str:
        """Name of the mesh."""

    def injected(self, pod: Pod) -> bool:
        """True if the pod carries the marks that only the mesh's webhook writes."""


class AnyPod:
    """Where no sidecar is expected: the webhook lets these pods pass as they are, so success is proof enough."""

    name = ""

    def injected(self, pod: Pod) -> bool:  # noqa: ARG002  # the port's signature
        """Always true."""
        return True


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one dry run showed. `code` for machines, `reason` for people, `message` from the API server."""

    probe: Probe
    seconds: float
    code: str
    reason: str
    message: str = ""
    failure_class: FailureClass = FailureClass.HEALTHY


def account_of(kind: str) -> str:
    """The user as whom the controller of a kind creates pods; "" if it is not known."""
    name = CONTROLLER_ACCOUNTS.get(kind)
    return f"system:serviceaccount:kube-system:{name}" if name else ""


def probe(
    cluster: Cluster, ref: ObjectRef, profile: Injected, gate: GatePolicy, *, impersonate: bool = False
) -> ProbeResult:
    """Dry-run a pod of `ref`'s own template and look for `profile`'s sidecar in the reply.

    `impersonate`: as the controller that would create the pod. Takes about `gate.latency_seconds` plus a second at
    most. Raises nothing: what failed is in the result.
    """
    account = account_of(ref.kind) if impersonate else ""
    # One second past the bound is enough to know; a hung webhook would hold the API server for its own time-out.
    answer = cluster.dry_run_pod(ref, timeout=gate.latency_seconds + 1, impersonate=account)
    return judge(answer, profile, gate.latency_seconds)


def judge(answer: DryRun, profile: Injected, latency_seconds: float) -> ProbeResult:
    """Judge the answer to a dry run. Pure."""
    if answer.unsupported:
        reason = "a webhook declares side effects, so the API server refuses dry runs through it"
        return _unknown(answer, DRY_RUN_UNSUPPORTED, reason)
    if answer.error is not None:
        return _failed(answer, answer.error)
    if answer.pod is None or not profile.injected(answer.pod):
        reason = f"the dry run was answered without the {profile.name} sidecar"
        return ProbeResult(Probe.FAILS, answer.seconds, "no_sidecar", reason, "", FailureClass.MISSING_SIDECAR)
    if answer.seconds > latency_seconds:
        reason = f"the sidecar came after {answer.seconds:.1f} s, later than {latency_seconds:g} s"
        return ProbeResult(Probe.FAILS, answer.seconds, "too_slow", reason, "", FailureClass.WEBHOOK_TIMEOUT)
    reason = f"the dry run came back with the {profile.name} sidecar in {answer.seconds * 1000:.0f} ms"
    return ProbeResult(Probe.PASSES, answer.seconds, "sidecar_in_reply", reason)


_INCONCLUSIVE: tuple[tuple[type[RemeshError], str, str], ...] = (
    (NotFound, "owner_gone", "the object is gone, so there is no template to try"),
    (Forbidden, "no_right", "the right to dry-run pods is missing"),
    (Unauthorized, "no_credentials", "the API server refused the credentials"),
    (Throttled, "throttled", "the API server is busy"),
    (Conflict, "conflict", "the API server asked to try again"),
    (Gone, "conflict", "the API server asked to try again"),
)


def _failed(answer: DryRun, error: RemeshError) -> ProbeResult:
    for kind, code, reason in _INCONCLUSIVE:
        if isinstance(error, kind):
            return _unknown(answer, code, reason)
    found = classify(answer.message)
    if isinstance(error, ClusterUnreachable):
        if error.status != 504:
            return _unknown(answer, "api_unreachable", str(error))
        # The deadline that remesh set passed while a webhook was waited for; the text does not say which.
        reason = f"no answer to the dry run within {answer.seconds:.0f} s"
        return ProbeResult(Probe.FAILS, answer.seconds, "too_slow", reason, answer.message, found)
    reason = f"the dry run was refused: {found.value.replace('_', ' ')}"
    return ProbeResult(Probe.FAILS, answer.seconds, found.value, reason, answer.message, found)


def _unknown(answer: DryRun, code: str, reason: str) -> ProbeResult:
    found = FailureClass.UNKNOWN_API_ERROR
    return ProbeResult(Probe.UNKNOWN, answer.seconds, code, reason, answer.message, found)
