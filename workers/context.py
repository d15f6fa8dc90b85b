"""What a repair works with: the ports to cluster, trail and ledger, and the one set of them in each worker process.

Used by every module of `workers`. The ports name only what a repair needs, so that its logic can be run against
doubles in memory.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from remesh import crash, redisdb
from remesh.kube.api import Cluster, DryRun, ReadyEndpoints
from remesh.kube.config import load_access
from remesh.kube.live import LiveView
from remesh.kube.probe import Injected, ProbeResult, probe
from remesh.kube.transport import KubeClient
from remesh.ledger import Failures, Ledger, Quarantine
from remesh.ledger_brake import Brakes
from remesh.ledger_owed import Owed
from remesh.meshes import Profiles, load_profiles
from remesh.meter import NOBODY, Meter
from remesh.metered import MeteredTrail
from remesh.models import AuditRecord, ObjectRef, Outcome
from remesh.objects import Node, OwnerReference, Pod, Workload
from remesh.observe import View
from remesh.policy import Policy, WindowPolicy, load_policy
from remesh.settings import Settings
from workers.announce import Announce, Announcer, say_nothing
from workers.following import Following
from workers.recent import Recent
from workers.trust import Memory

VIEW_SECONDS = 2.0  # age up to which namespaces and webhook configurations are believed; repairs come in bursts


class ClusterPort(Protocol):
    """The API server, as `remesh.kube.api.Cluster` has it."""

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """One workload, read now."""

    def pods_of(self, workload: Workload) -> list[Pod]:
        """Its pods, by owner UID."""

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        """Who is ready behind a Service."""

    def annotate(self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str | None = None) -> None:
        """Set or remove annotations; raises Conflict if the UID differs."""


class PodPort(Protocol):
    """What replacing a pod needs of the API server besides, as `remesh.kube.api.Cluster` has it."""

    def pod(self, namespace: str, name: str) -> Pod:
        """One pod, read now. Raises NotFound."""

    def get_raw(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """One object as the API server has it. Raises NotFound."""

    def owner(self, namespace: str, reference: OwnerReference) -> Workload:
        """Whom an owner reference names. Raises NotFound if that is nobody (any more)."""

    def dry_run_pod(
        self, ref: ObjectRef, *, template: Mapping[str, Any] | None = None, timeout: float = 10.0, impersonate: str = ""
    ) -> DryRun:
        """What admission would make of a pod of this owner's template."""

    def evict(self, ref: ObjectRef, *, resource_version: str = "") -> None:
        """Evict it. Raises Conflict if UID or version differ, Throttled for "not now"."""

    def create_pod(self, manifest: Mapping[str, Any]) -> Pod:
        """Create it. Raises Conflict if the name is taken."""

    def node(self, name: str) -> Node:
        """One node, read now. Raises NotFound."""

    def nodes(self) -> list[Node]:
        """All nodes."""

    def budgets_of(self, pod: Pod) -> list[str]:
        """Names of the PodDisruptionBudgets that select it."""


class Prober(Protocol):
    """Dry run of one object's own template. A failing injector is an answer, not an error."""

    def __call__(self, ref: ObjectRef, profile: Injected) -> ProbeResult:
        """Ask now."""


class TrailPort(Protocol):
    """The audit trail, as `remesh.audit.Trail` has it."""

    def append(self, record: AuditRecord) -> str:
        """Write one record. Raises TrailUnavailable."""

    def history(self, subject: str) -> list[AuditRecord]:
        """All records of one finding. Raises TrailUnavailable."""


class LeasePort(Protocol):
    """Hold on one object."""

    def renew(self, seconds: float | None = None) -> bool:
        """Start its time anew. False: it is lost."""

    def release(self) -> bool:
        """Let go."""


class LedgerPort(Protocol):
    """The ledger, as `remesh.ledger.Ledger` has it. Every method raises BrokerError."""

    @property
    def brakes(self) -> Brakes:
        """The brakes on evictions."""

    @property
    def owed(self) -> Owed:
        """What was taken away and has to be brought back."""

    def lease(self, uid: str, seconds: float) -> LeasePort | None:
        """Take the object, or None if another worker has it."""

    def failures(self, uid: str, template_hash: str) -> Failures:
        """Failed repairs and the cooldown left."""

    def record_failure(
        self, uid: str, template_hash: str, reason: str, *, cooldown_seconds: float = 60.0, token: str = ""
    ) -> int:
        """Count a failed repair; returns the count."""

    def record_success(self, uid: str, template_hash: str) -> None:
        """Forget the failures."""

    def quarantine(self, uid: str, template_hash: str, evidence: dict[str, Any]) -> Quarantine:
        """Leave this owner and template alone."""

    def quarantined(self, uid: str, template_hash: str) -> Quarantine | None:
        """The quarantine, or None."""

    def clear_quarantine(self, uid: str, template_hash: str) -> bool:
        """End the quarantine."""

    def take_slot(self, owner_uid: str, holder: str, limit: int, ttl: float) -> list[str] | None:
        """One of an owner's slots; who came earlier, or None if all are taken."""

    def give_slot_back(self, owner_uid: str, holder: str) -> None:
        """The pod was replaced, or will not be."""

    def number_pods(self, owner_uid: str, pod_uids: Sequence[str]) -> tuple[int, list[int]]:
        """The last number, and each pod's, in the order in which anybody saw them first."""

    def claim(self, pod_uids: Sequence[str], replaced_uid: str) -> str:
        """Count the first new pod that is nobody else's as this one's replacement; "" if there is none."""

    def keep_manifest(self, pod_uid: str, manifest: dict[str, Any]) -> str:
        """Keep it; returns its digest."""

    def manifest(self, pod_uid: str) -> tuple[dict[str, Any], str] | None:
        """A kept manifest and its digest."""

    def close_finding(self, uid: str, finding_id: str) -> bool:
        """The trouble is over."""

    def set_outcome(self, outcome: Outcome) -> None:
        """Keep the last outcome."""

    def release_reservation(self, injector_key: str, finding_id: str, attempt: int = 0) -> None:
        """Give room in the window back, unless it is a later attempt's by now."""

    def window_feedback(self, injector_key: str, ok: bool, window: WindowPolicy, pods: int = 1) -> int:
        """Tell the window how admission went."""


def never_revoked(_task_id: str) -> bool:
    """For callers outside a Celery worker: nobody can revoke what is no task."""
    return False


class Clock:
    """Time as the workers have it. Tests bring their own."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        """Aware UTC, for ages and records: the API server's, so that hosts whose clocks differ agree."""
        return self._now()

    def monotonic(self) -> float:
        """Seconds, for durations."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class RepairContext:
    """All that a repair works with. Shared by the threads of a worker."""

    cluster_name: str
    cluster: ClusterPort
    view: View
    probe: Prober
    trail: TrailPort
    ledger: LedgerPort
    policy: Policy
    profiles: Profiles
    pods: PodPort
    clock: Clock = field(default_factory=Clock)
    recent: Recent = field(default_factory=Recent)
    following: Following | None = None
    """Without it pods are always listed."""
    revoked: Callable[[str], bool] = never_revoked
    """True once a person has revoked the task of this id, as Flower does it."""
    memory: Memory = field(default_factory=Memory)
    meter: Meter = NOBODY
    announce: Announce = say_nothing
    signing_key: bytes = field(
        default=b"", repr=False
    )  # empty: a manifest in Redis is believed by its own process only


def build_context(settings: Settings, meter: Meter = NOBODY) -> RepairContext:
    """Read policy, profiles and kubeconfig, and prepare the connections.

    Raises ConfigError or Unauthorized with one clear line. Connects to nothing yet.
    """
    policy, profiles = load_policy(settings.policy), load_profiles(settings.meshes)
    client = KubeClient(load_access(settings.kubeconfig, settings.context))
    cluster = Cluster(client)
    redis = redisdb.connect(settings)
    return RepairContext(
        cluster_name=settings.cluster,
        cluster=cluster,
        view=LiveView(cluster, ttl=VIEW_SECONDS),
        probe=_prober(cluster, policy, meter),
        trail=MeteredTrail(redis, settings.cluster, settings.key_prefix, meter),
        meter=meter,
        announce=Announcer(client, meter) if settings.kubernetes_events else say_nothing,
        ledger=Ledger(redis, settings.cluster, settings.key_prefix),
        policy=policy,
        profiles=profiles,
        pods=cluster,
        clock=Clock(client.clock.now),
        following=Following(client),
        signing_key=settings.signing_key.get_secret_value().encode() if settings.signing_key else b"",
    )


def _prober(cluster: Cluster, policy: Policy, meter: Meter) -> Prober:
    def dry_run(ref: ObjectRef, profile: Injected) -> ProbeResult:
        seen = probe(cluster, ref, profile, policy.gate, impersonate=policy.repair.impersonate_controller)
        meter.dry_run(profile.name, seen.probe.value, seen.code, seen.seconds)
        return seen

    return dry_run


class ContextSource:
    """The process's own context, built at first use: after a fork, and once for all threads."""

    def __init__(self, build: Callable[[], RepairContext]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._context: RepairContext | None = None

    def __call__(self) -> RepairContext:
        """The context. Raises what `build_context` raises."""
        with self._lock:
            if self._context is None:
                self._context = self._build()
            return self._context


class Step(StrEnum):
    """Points of a repair at which the reliability tests let a worker die."""

    DECIDED = "decided"
    INTENT_WRITTEN = "intent_written"
    NUDGE_ON = "nudge_on"  # the annotation is on, and not yet written down
    NUDGE_OFF = "nudge_off"  # both are done, and nothing is verified
    MANIFEST_KEPT = "manifest_kept"
    EVICTED = "evicted"  # and not yet written down
    CREATED = "created"  # again, and not yet written down
    VERIFIED = "verified"
    OUTCOME_WRITTEN = "outcome_written"


def reached(step: Step) -> None:
    """Does nothing but in the reliability tests: see `remesh.crash`."""
    crash.reached(step.value)
