"""How many pods a workload wants and has, and since when it lacks some, as its own status tells. Pure.

Source: the status fields of each kind in the Kubernetes API reference.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from remesh.objects import Pod, Workload

COUNTED_KINDS: Final = frozenset(
    {"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Deployment"}
)
"""Kinds whose status says how many pods are missing."""


class Counts(NamedTuple):
    """Pods that should exist, exist, and are Ready."""

    desired: int
    current: int
    ready: int

    @property
    def missing(self) -> int:
        """Pods that should exist and do not."""
        return max(0, self.desired - self.current)


def counts(workload: Workload, current: int | None = None) -> Counts:
    """Pods of a workload by kind. `current`: its pods as counted by the caller, which beats its status."""
    spec, status = workload.spec, workload.status
    if workload.kind == "DaemonSet":
        found = Counts(
            status.desired_number_scheduled or 0, status.current_number_scheduled or 0, status.number_ready or 0
        )
    elif workload.kind == "Job":
        found = _of_job(workload)
    elif workload.kind in COUNTED_KINDS:
        desired = 1 if spec.replicas is None else spec.replicas
        found = Counts(desired, status.replicas or 0, status.ready_replicas or 0)
    else:
        found = Counts(0, 0, 0)
    return found if current is None else found._replace(current=current)


def _of_job(job: Workload) -> Counts:
    """A Job wants as many pods at a time as its parallelism, but no more than it still has to complete.

    Without `completions` it is a work queue: once one pod has succeeded, no new ones are created.
    """
    spec, status = job.spec, job.status
    running, succeeded = (status.active or 0) + (status.terminating or 0), status.succeeded or 0
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.suspend or _finished(job):
        desired = 0
    elif spec.completions is not None:
        desired = min(parallelism, max(0, spec.completions - succeeded))
    elif spec.parallelism is None:  # neither given: one pod, once
        desired = 0 if succeeded else 1
    else:
        desired = running if succeeded else parallelism
    return Counts(desired, running, status.ready or 0)


def _finished(job: Workload) -> bool:
    ends = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
    return any(each.type in ends and each.status == "True" for each in job.status.conditions or ())


def failure_text(workload: Workload) -> str:
    """Message of the condition ReplicaFailure if creation failed, else "". It is that of the *first* failure."""
    for condition in workload.status.conditions or ():
        if condition.type == "ReplicaFailure" and condition.status == "True" and condition.reason != "FailedDelete":
            return condition.message
    return ""


def stuck_reference(workload: Workload) -> datetime | None:
    """Since when the workload lacks pods, as far as its state tells; None if it does not.

    The condition's time if there is one; for an object that its controller never looked at, its creation; for a Job
    without any pod, its start.
    """
    for condition in workload.status.conditions or ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return parse_time(condition.last_transition_time)
    if workload.status.observed_generation is None and workload.kind != "Job":
        return parse_time(workload.metadata.creation_timestamp)
    if workload.kind == "Job" and not (workload.status.succeeded or workload.status.failed):
        return parse_time(workload.status.start_time) or parse_time(workload.metadata.creation_timestamp)
    return None


def never_looked_at(workload: Workload) -> bool:
    """True if its controller has not seen this generation yet."""
    observed = workload.status.observed_generation
    return observed is None or observed < workload.metadata.generation


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 time of the API server; None if there is none or it cannot be read."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def active(pod: Pod) -> bool:
    """True for a pod that its controller counts: neither finished nor going."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def counted(workload: Workload, pods: Iterable[Pod]) -> int | None:
    """Its pods as they are now, which its status tells only later. None for a Job: finished pods may be gone."""
    return None if workload.kind == "Job" else sum(1 for pod in pods if active(pod))
