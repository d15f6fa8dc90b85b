"""What `plan` says would be done to an object, and what a worker's repair does to it, in the same few words."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from remesh.audit import Trail
from remesh.cli.options import Common
from remesh.cli.session import Session
from remesh.cli.survey import Judged, Survey
from remesh.kube.api import Cluster
from remesh.kube.live import LiveView
from remesh.kube.probe import DRY_RUN_UNSUPPORTED, probe
from remesh.ledger import Ledger
from remesh.meshes import load_profiles
from remesh.models import Action, ObjectRef, Outcome, Probe, RepairRequest, finding_id
from remesh.objects import Workload
from remesh.policy import Mode, Policy
from remesh.redisdb import RedisClient
from watcher.findings import repair_of
from workers.context import Clock, RepairContext
from workers.repair import repair

PROFILES: Final = load_profiles()
NAME: Final = "agreement"  # of the cluster in trail and ledger
_numbers = itertools.count()


@dataclass(frozen=True)
class Answer:
    """What is done to one object: nudge, evict, recreate or nothing; and where nothing is, by which code."""

    effect: str
    code: str = field(default="")


def survey_of(cluster: Cluster, policy: Policy, ledger: Ledger | None = None) -> Survey:
    """The command line's own look at a cluster, which has just been read, and at the ledger if one is given."""
    session = Session(Common(namespace="default", all_namespaces=False, cluster=NAME))
    known = {"cluster": cluster, "policy": policy, "profiles": PROFILES, "known_ledger": ledger}
    session.__dict__.update(known)  # where cached properties are kept
    return Survey(session)


# A worker says of an object that is going what the decision says of it, in another word.
_GOING: Final = {"terminating": "being_deleted"}
# And of a dry run that could not be made.
_UNKNOWN: Final = {"owner_gone": "gone", "no_right": "not_allowed", "no_credentials": "not_allowed"}


def planned(judged: Judged, before: Judged, policy: Policy) -> Answer:
    """Read off what `plan` found. `before` is the same without the dry run."""
    decision = judged.decision
    if before.obj.metadata.deletion_timestamp is not None:
        return Answer("nothing", "being_deleted")
    if repair_of(before.decision) is None:
        return Answer("nothing", _GOING.get(decision.code, decision.code))
    if policy.mode is Mode.OBSERVE:
        missing = judged.not_now.code if judged.not_now is not None else ""  # asked before the mode is
        return Answer("nothing", missing if missing in ("owner_gone", "no_template") else "observe_mode")
    if judged.not_now is not None:
        return Answer("nothing", judged.not_now.code)
    if decision.action is Action.NUDGE_OWNER:
        return Answer("nudge")
    if decision.action is Action.RECREATE_POD:
        return Answer("evict" if judged.owner else "recreate")
    if repair_of(decision) is None or judged.probe is None:
        return Answer("nothing", decision.code)
    return Answer("nothing", _of_probe(judged))


def _of_probe(judged: Judged) -> str:
    found = judged.probe
    assert found is not None
    if found.probe is Probe.FAILS:
        return found.code
    if found.code == DRY_RUN_UNSUPPORTED:
        return "no_quorum" if isinstance(judged.obj, Workload) else found.code
    return _UNKNOWN.get(found.code, "cluster_unreachable")


class HurriedClock(Clock):
    """The present time, and sleep that takes none."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return self._passed

    def sleep(self, seconds: float) -> None:
        self._passed += seconds


def repaired(
    ref: ObjectRef,
    cluster: Cluster,
    policy: Policy,
    redis: RedisClient,
    clock: Clock | None = None,
    name: str = "",
    note: Callable[[Ledger], None] = lambda _: None,
    attempt: int = 1,
) -> Outcome:
    """Let a worker repair one object, with a trail and a ledger that know nothing yet unless they are named.

    `note` tells the ledger what it knows of others.
    """
    name = name or f"{NAME}-{next(_numbers)}"
    note(Ledger(redis, name))
    ctx = RepairContext(
        cluster_name=name,
        cluster=cluster,
        view=LiveView(cluster),
        probe=lambda of, profile: probe(
            cluster, of, profile, policy.gate, impersonate=policy.repair.impersonate_controller
        ),
        trail=Trail(redis, name),
        ledger=Ledger(redis, name),
        policy=policy,
        profiles=PROFILES,
        pods=cluster,
        clock=clock or HurriedClock(),
    )
    return repair(request_for(ref, name).model_copy(update={"attempt": attempt}), ctx)


def request_for(ref: ObjectRef, cluster: str) -> RepairRequest:
    """The request that somebody might send for any object, whatever its state."""
    action = Action.RECREATE_POD if ref.kind == "Pod" else Action.NUDGE_OWNER
    known = {"cluster": cluster, "finding_id": finding_id(cluster, ref.uid, "", ""), "ref": ref, "mesh": "linkerd"}
    more = {"cause": "missing_sidecar", "action": action, "requested_at": datetime.now(UTC), "on_demand": True}
    return RepairRequest.model_validate(known | more)
