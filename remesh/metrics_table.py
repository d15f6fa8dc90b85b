"""Every metric there is: name, meaning, labels, and which process has it. Pure; docs/metrics.md is made from it.

The label `cluster` comes first in each and is not named here.
"""

from dataclasses import dataclass
from typing import Final

WATCHER: Final = "watcher"
WORKER: Final = "worker"
_BOTH: Final = (WATCHER, WORKER)

# From a nudge right after the gate opened, over Kubernetes' longest back-off (16 min), to a night.
_HEAL_BUCKETS: Final = (1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 2400, 3600, 7200, 14400, 43200)
# A healthy injector answers in milliseconds; `gate.latency_seconds` is 2 by default, a webhook's longest time-out 30.
_DRY_RUN_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30)
_REPAIR_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90)


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. `buckets` makes it a histogram; `state` says that it comes from a source."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    on: tuple[str, ...] = (WATCHER,)
    buckets: tuple[float, ...] = ()
    state: bool = True

    @property
    def type(self) -> str:
        """Counter, gauge or histogram."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _event(name: str, text: str, labels: tuple[str, ...], on: tuple[str, ...], *buckets: float) -> Spec:
    return Spec(name, text, labels, on, buckets, state=False)


SPECS: Final = (
    Spec(
        "remesh_build_info", "1, with version, process and the policy's mode.", ("version", "component", "mode"), _BOTH
    ),
    Spec("remesh_leader", "1 while this watcher leads; those that do not only stand by.", ("shard",)),
    Spec("remesh_synced", "1 if every kind has been listed and none has been silent for longer than a watch may be."),
    Spec("remesh_loop_staleness_seconds", "Seconds since the main loop last went round."),
    Spec("remesh_watch_staleness_seconds", "Seconds since the last watch event or bookmark of a kind.", ("kind",)),
    Spec(
        "remesh_watch_lists_total",
        "Complete lists of a kind: one at the start, others after a watch was too old.",
        ("kind",),
    ),
    Spec("remesh_objects", "Objects that the watcher holds.", ("kind",)),
    Spec("remesh_findings", "Findings now, by cause, mesh and state.", ("cause", "mesh", "state")),
    Spec("remesh_oldest_finding_seconds", "Age of the oldest finding in a state; 0 if there is none.", ("state",)),
    Spec(
        "remesh_gate_status",
        "1 for the status that an injector's gate has, 0 for the others.",
        ("mesh", "injector", "status"),
    ),
    Spec("remesh_gate_ready_endpoints", "Ready endpoints behind an injector's gate.", ("mesh", "injector")),
    Spec("remesh_gate_waiting_findings", "Findings that wait behind a gate.", ("mesh", "injector")),
    Spec(
        "remesh_gate_oldest_waiting_seconds",
        "Age of the oldest finding that waits behind a gate.",
        ("mesh", "injector"),
    ),
    Spec(
        "remesh_gate_evictions_at_once",
        "Evictions that may be under way through a gate, by how fast its injector answers.",
        ("mesh", "injector"),
    ),
    Spec("remesh_window_size_pods", "Pods that may be about to be created through an injector.", ("injector",)),
    Spec("remesh_window_in_use_pods", "Pods that are about to be created through an injector.", ("injector",)),
    Spec(
        "remesh_brake_engaged",
        "1 while no bare pod is evicted because replacements did not become Ready.",
        ("injector",),
    ),
    Spec("remesh_quarantined_owners", "Owners that are left alone because their repairs failed too often."),
    Spec("remesh_trail_records", "Records in the audit trail."),
    Spec(
        "remesh_trail_tail_behind_records", "Records of the trail that the watcher has not followed yet, 1000 at most."
    ),
    Spec(
        "remesh_trail_tail_behind_seconds",
        "Age of the oldest record of the trail that the watcher has not followed yet.",
    ),
    Spec("remesh_queued_tasks", "Tasks in a queue that no worker has fetched.", ("queue",)),
    Spec("remesh_redis_up", "1 if the Redis of trail and ledger answered last time it was asked.", (), _BOTH),
    Spec("remesh_broker_up", "1 if the broker could be reached last time it was tried.", (), (WORKER,)),
    Spec("remesh_running_tasks", "Tasks that this worker runs.", (), (WORKER,)),
    _event("remesh_findings_detected_total", "Findings seen for the first time.", ("cause", "mesh"), (WATCHER,)),
    _event("remesh_findings_ended_total", "Findings that are over, by how they ended.", ("mesh", "result"), (WATCHER,)),
    _event("remesh_releases_total", "Findings handed to the workers.", ("action",), (WATCHER,)),
    _event(
        "remesh_heal_seconds",
        "Time from the failure until all pods were there with their sidecar.",
        ("mesh",),
        (WATCHER,),
        *_HEAL_BUCKETS,
    ),
    _event("remesh_dry_runs_total", "Dry runs, by outcome and what they showed.", ("mesh", "outcome", "code"), _BOTH),
    _event("remesh_dry_run_seconds", "Duration of dry runs.", ("mesh",), _BOTH, *_DRY_RUN_BUCKETS),
    _event("remesh_repairs_total", "Repairs that ended, by action and result.", ("action", "result"), (WORKER,)),
    _event("remesh_repair_seconds", "Duration of one try of a repair.", ("action",), (WORKER,), *_REPAIR_BUCKETS),
    _event("remesh_task_retries_total", "Tasks that are tried again soon.", ("action",), (WORKER,)),
    _event("remesh_tasks_refused_total", "Tasks whose payload was no request of this cluster.", (), (WORKER,)),
    _event(
        "remesh_kubernetes_events_total",
        "Kubernetes Events on repaired owners: sent, dropped, failed.",
        ("result",),
        (WORKER,),
    ),
    _event("remesh_trail_appends_total", "Records written to the audit trail.", (), _BOTH),
    _event("remesh_trail_append_failures_total", "Times that the audit trail could not be written.", (), _BOTH),
)
"""Every metric, in the order of the documentation."""
