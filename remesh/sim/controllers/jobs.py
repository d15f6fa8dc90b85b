"""Job: pods that run to an end. It has no condition that tells of a failed creation."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.controllers.base import BURST_REPLICAS, PodOwner
from remesh.sim.objects import (
    Obj,
    condition,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    now,
)
from remesh.sim.status import StatusError
from remesh.sim.workqueue import BackOff, Key

_FINALIZER = "batch.kubernetes.io/job-tracking"
# kube-controller-manager syncs a Job at most once in this time, seconds (syncJobBatchPeriod).
_SYNC_SECONDS = 1.0


class JobController(PodOwner):
    """Retries failed creations after 1 s doubling to 60 s, unlike the other controllers."""

    name = "job-controller"
    workers = 5
    resource = res.JOBS
    back_off = BackOff(first=1.0, longest=60.0, bucket=False)

    def watch(self) -> None:
        """Watch what makes a sync necessary."""
        self.store.listen(res.JOBS, lambda change: self._enqueue(change.key, at_once=change.type == "ADDED"))
        self.watch_owned(res.PODS, res.JOBS)

    def _enqueue(self, key: Key, *, at_once: bool) -> None:
        self.queue.add_after(key, 0.0 if at_once else _SYNC_SECONDS)

    def sync(self, key: Key) -> None:
        """Pods until there are enough successes, and the numbers."""
        job = self.find(self.resource, key)
        if job is None:
            return
        pods = self.pods_of(job)
        job = self._account(job, pods)
        if is_terminating(job) or _is_done(job):
            return
        active = [pod for pod in pods if is_active(pod)]
        failure = None
        if not job["spec"].get("suspend"):
            failure = self._manage(job, active)
        self._write_status(job)
        if failure is not None:
            raise failure

    def _account(self, job: Obj, pods: list[Obj]) -> Obj:
        """Count finished pods once, and let go of them (their finalizer says that they are not yet counted)."""
        counted = {"succeeded": 0, "failed": 0}
        let_go = []
        for pod in pods:
            if _FINALIZER not in (pod["metadata"].get("finalizers") or ()):
                continue
            if is_finished(pod) or is_terminating(pod):
                let_go.append(pod)
                counted["succeeded" if pod["status"].get("phase") == "Succeeded" else "failed"] += 1
        if let_go:
            job = self._count(job, counted)
        for pod in let_go:
            self._let_go(pod)
        return job

    def _count(self, job: Obj, counted: dict[str, int]) -> Obj:
        status = dict(job.get("status") or {})
        for key, number in counted.items():
            if number:
                status[key] = status.get(key, 0) + number
        return self.set_status(self.resource, job, status)

    def _let_go(self, pod: Obj) -> None:
        def released(current: Obj) -> Obj:
            finalizers = current["metadata"].get("finalizers") or []
            current["metadata"]["finalizers"] = [name for name in finalizers if name != _FINALIZER]
            return current

        try:
            self.client.change(res.PODS, namespace_of(pod), name_of(pod), released)
        except StatusError as error:
            if error.code != 404:
                raise

    def _manage(self, job: Obj, active: list[Obj]) -> StatusError | None:
        if job.get("status", {}).get("failed", 0) > job["spec"]["backoffLimit"]:
            for pod in active:
                self.delete_pod(job, pod)
            return None
        missing = _wanted(job, len(active)) - len(active)
        for pod in active[: max(0, -missing)]:
            self.delete_pod(job, pod)
        if missing <= 0:
            return None
        pod = self.new_pod(job, job["spec"]["template"])
        pod["metadata"]["finalizers"] = [*pod["metadata"]["finalizers"], _FINALIZER]
        return self.slow_start(min(missing, BURST_REPLICAS), lambda _: self.create_pod(job, pod))

    def _write_status(self, job: Obj) -> None:
        pods = self.pods_of(job)
        active = [pod for pod in pods if is_active(pod)]
        before = job.get("status") or {}
        status: dict[str, Any] = {
            "conditions": before.get("conditions"),
            "startTime": before.get("startTime") or now(),
            "active": len(active) or None,
            "succeeded": before.get("succeeded"),
            "failed": before.get("failed"),
            "uncountedTerminatedPods": {},
            "ready": sum(1 for pod in active if is_ready(pod)),
            "terminating": sum(1 for pod in pods if is_terminating(pod) and not is_finished(pod)),
        }
        if not active:
            self._conclude(job, status)
        self.set_status(self.resource, job, status)

    def _conclude(self, job: Obj, status: Obj) -> None:
        succeeded, completions = status["succeeded"] or 0, job["spec"].get("completions")
        if (status["failed"] or 0) > job["spec"]["backoffLimit"]:
            status["conditions"] = _ended(
                ("FailureTarget", "Failed"), "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        elif succeeded and (completions is None or succeeded >= completions):
            status["completionTime"] = now()
            message = "Reached expected number of succeeded pods"
            status["conditions"] = _ended(("SuccessCriteriaMet", "Complete"), "CompletionsReached", message)
            self.recorder.record(self.resource, job, "Normal", "Completed", "Job completed")


def _is_done(job: Obj) -> bool:
    return condition(job, "Complete") is not None or condition(job, "Failed") is not None


def _wanted(job: Obj, active: int) -> int:
    parallelism: int = job["spec"]["parallelism"]
    completions: int | None = job["spec"].get("completions")
    succeeded: int = job.get("status", {}).get("succeeded", 0)
    if completions is None:
        return active if succeeded else parallelism
    return max(0, min(parallelism, completions - succeeded))


def _ended(kinds: tuple[str, str], reason: str, message: str) -> list[Obj]:
    return [
        {
            "type": kind,
            "status": "True",
            "lastProbeTime": now(),
            "lastTransitionTime": now(),
            "reason": reason,
            "message": message,
        }
        for kind in kinds
    ]
