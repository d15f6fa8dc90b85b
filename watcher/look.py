"""Looks at objects: what changed is judged by `decide()`, and the book is brought up to date.

Writes to nothing but the audit trail and the ledger.
"""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from remesh import logs
from remesh.decide import counts, decide
from remesh.detect import finding_for, owner_of, stuck_reference
from remesh.errors import BrokerError
from remesh.fingerprint import ENDED, ENDED_BECAUSE, fingerprint_around, is_outdated
from remesh.ledger import Quarantine
from remesh.models import Action, Decision, Finding, InjectorHealth, Outcome, RecordType, Result, finding_id
from remesh.objects import Pod, Workload
from remesh.observe import observe
from remesh.policy import Detection, Mode
from remesh.tally import counted, parse_time
from watcher.desk import RETRY_SECONDS, Desk
from watcher.findings import State, Tracked, owner_uid, repair_of, to_released, to_rest, to_waiting
from watcher.release import Releaser

log = logs.get("watcher.look")

NUDGE_ANNOTATION = "remesh.dev/nudge"
FINDING_ID = re.compile(r"f-[0-9a-f]{1,32}")
LEFTOVER_SECONDS = 90.0  # a nudge takes well under a second; older than a task's longest life, it was left behind
OPEN_FINDING_TTL = 7 * 86400.0  # seconds; longer than any outage one would leave alone
QUARANTINE_SECONDS = 10.0  # how often it is asked whether somebody cleared a quarantine
BATCH = 2000  # objects looked at in one round, so that outcomes and gates are not kept waiting by a relist
# One object's findings: so many at once, then one for each pause. Each costs some records, and whoever may write an
# object can break and mend it many times a second.
EPISODES = 20
EPISODE_SECONDS = 30.0
YOUNG_SECONDS = 1.0  # how soon an object that is still too young is looked at again


class Looker:
    """Judges one object at a time."""

    def __init__(self, desk: Desk, releaser: Releaser, restored: Callable[[str, str], None]) -> None:
        self._desk = desk
        self.restored = restored  # told finding and task of a release from before a restart
        self._releaser = releaser
        self._lacking: dict[str, datetime] = {}  # UID → since when it lacks pods
        self._said_flapping: set[str] = set()  # UIDs
        self._episodes: dict[str, tuple[float, float]] = {}  # UID → findings counted, as of which monotonic time
        self._leftover: dict[str, float] = {}  # UID → monotonic time a nudge annotation was first seen

    def look_at_changes(self) -> None:
        """Look at what changed since the last round, and at what is due. Raises BrokerError; the rest stays due."""
        now = time.monotonic()
        uids = dict.fromkeys(self._desk.store.take_dirty(BATCH))
        uids.update(dict.fromkeys(uid for uid, due in self._desk.due.items() if due <= now))
        pending = list(uids)
        for position, uid in enumerate(pending):
            self._desk.due.pop(uid, None)
            try:
                self.look(uid)
            except BrokerError:
                for left in pending[position:]:
                    self._desk.due[left] = now + RETRY_SECONDS
                raise
            except Exception:  # one odd object must not keep all others from being looked at
                log.exception("an object could not be judged and is left alone", uid=uid)

    def look(self, uid: str) -> None:
        """Judge one object as it is now."""
        obj = self._desk.store.object(uid)
        if obj is None:
            self._gone(uid)
            return
        settled = self._desk.settling.get(uid, 0.0)
        if settled > time.monotonic():
            self._desk.due[uid] = settled
            return
        self._desk.settling.pop(uid, None)
        if isinstance(obj, Workload):
            self._look_for_leftover(obj)
        decision = self._judge(obj)
        tracked = self._desk.book.get(uid)
        if decision.is_finding:
            self._found(obj, decision, tracked)
        elif decision.code == "too_young":
            self._desk.due[uid] = time.monotonic() + YOUNG_SECONDS
        elif tracked is not None:
            self._recovered(tracked, decision)

    def close_orphans(self) -> None:
        """Findings of an earlier watcher that this one does not hold: their chains get an end, or go on.

        What merely is too young again for this watcher is not over: it has lacked pods since the earlier one saw it.
        """
        for row in self._desk.ledger.open_findings():
            finding, uid = row.finding, row.finding.ref.uid
            if not self._desk.shard.owns(finding.ref.namespace):
                continue
            released = self._desk.ledger.released(finding.id)
            if self._desk.book.get(uid) is not None or (released is not None and not released.overdue):
                continue
            obj = self._desk.store.object(uid)
            if obj is None:
                self._desk.record.finding(finding)  # its watcher may have died before it did
                self._desk.close(Tracked(finding), "gone", "the object is gone", Result.OBSOLETE)
                continue
            decision = self._judge(obj)
            if decision.is_finding or decision.code == "too_young":
                # It was old enough to be a finding when the earlier watcher saw it first.
                self._lacking[uid] = finding.first_seen - timedelta(seconds=_longest_wait(self._desk.policy.detection))
                self._desk.due[uid] = 0.0
            else:
                reason = f"the trouble was over when the watcher looked again: {decision.reason}"
                self._desk.record.finding(finding)
                self._desk.close(Tracked(finding), "recovered", reason)

    def _judge(self, obj: Workload | Pod) -> Decision:
        now = self._desk.now()
        current = self._current(obj)
        since = self._stuck_since(obj, current, now) if isinstance(obj, Workload) else None
        observed = observe(obj, self._desk.store, health=InjectorHealth(), now=now, stuck_since=since, current=current)
        return decide(observed, self._desk.policy, self._desk.profiles, now)

    def _current(self, obj: Workload | Pod) -> int | None:
        if isinstance(obj, Pod):
            return None
        return counted(obj, self._desk.store.pods_of(obj))

    def _stuck_since(self, workload: Workload, current: int | None, now: datetime) -> datetime | None:
        uid = workload.metadata.uid
        numbers = counts(workload, current)
        if numbers.current >= numbers.desired:
            self._lacking.pop(uid, None)
            return None
        seen = self._lacking[uid] = min(self._lacking.get(uid, now), now)  # the clock may have gone back
        reference = stuck_reference(workload)
        return min(seen, reference) if reference else seen

    def _found(self, obj: Workload | Pod, decision: Decision, tracked: Tracked | None) -> None:
        if tracked is not None and self._template_changed(tracked, obj):
            self._desk.close(tracked, "template_changed", "the template changed; judged anew")
            tracked = None
        if tracked is None:
            if self._flaps(obj):
                return
            tracked, held = self._begin(obj, decision)
            if tracked.state is State.RELEASED:
                return
        else:
            self._refresh(tracked, obj, decision)
            if tracked.state in (State.RELEASED, State.COOLING):
                return
            held = self._desk.ledger.quarantined(tracked.owner_uid, tracked.finding.template_hash)
        if self._rests(tracked, obj, decision, held):
            return
        if tracked.state is not State.WAITING:
            to_waiting(tracked)

    def _flaps(self, obj: Workload | Pod) -> bool:
        """True if it has had more findings than an outage would give it; it is looked at again when one more may be."""
        uid, now = obj.metadata.uid, time.monotonic()
        count, since = self._episodes.get(uid, (0.0, now))
        count = max(0.0, count - (now - since) / EPISODE_SECONDS)
        if count > EPISODES - 1:
            self._desk.due[uid] = now + EPISODE_SECONDS * (count - (EPISODES - 1))
            if uid not in self._said_flapping:
                log.warning("an object breaks and recovers all the time; it waits", uid=uid, name=obj.metadata.name)
            self._said_flapping.add(uid)
            return True
        self._episodes[uid] = (count + 1, now)
        self._said_flapping.discard(uid)
        return False

    def _rests(self, tracked: Tracked, obj: Workload | Pod, decision: Decision, held: Quarantine | None) -> bool:
        """Quarantined, or nothing that remesh would ever do: recorded once, then left."""
        quarantine = self._still_held(tracked, obj, held)
        if quarantine is not None:
            to_rest(tracked, State.QUARANTINED)
            self._desk.due[tracked.finding.ref.uid] = time.monotonic() + QUARANTINE_SECONDS
            reason = f"quarantined since {quarantine.since:%Y-%m-%d %H:%M:%SZ}: its repairs failed"
            self._desk.record.refusal(tracked, "quarantined", reason)
            self._end_what_was_begun(tracked, Result.QUARANTINED, "quarantined", reason)
            return True
        if repair_of(decision) is not None:
            return False
        to_rest(tracked, State.REPORTED)
        self._desk.record.refusal(tracked, decision.code, decision.reason)
        self._end_what_was_begun(tracked, Result.REPORTED, decision.code, decision.reason)
        return True

    def _end_what_was_begun(self, tracked: Tracked, result: Result, code: str, reason: str) -> None:
        """A worker died after its intent, and no other will be sent: the chain's end is ours to write."""
        if not tracked.begun:
            return
        tracked.begun = False
        last = list(self._desk.trail.read(finding_id=tracked.finding.id, types=[RecordType.INTENT, RecordType.OUTCOME]))
        if last and last[-1].type is RecordType.INTENT:
            outcome = Outcome(finding_id=tracked.finding.id, result=result, code=code, reason=reason)
            self._desk.record.outcome(tracked, outcome)

    def _still_held(self, tracked: Tracked, obj: Workload | Pod, found: Quarantine | None) -> Quarantine | None:
        """Its owner's quarantine. One from under another webhook configuration ends here, and is none."""
        desk = self._desk
        if found is None or not is_outdated(found.evidence, fingerprint_around(obj, desk.store, desk.profiles)):
            return found
        desk.record.note(tracked, ENDED, ENDED_BECAUSE)
        desk.ledger.clear_quarantine(tracked.owner_uid, tracked.finding.template_hash)
        return None

    def _template_changed(self, tracked: Tracked, obj: Workload | Pod) -> bool:
        return isinstance(obj, Workload) and tracked.finding.template_hash != obj.template_hash

    def _begin(self, obj: Workload | Pod, decision: Decision) -> tuple[Tracked, Quarantine | None]:
        """Three round trips: findings come by the thousand, and each waits for those before it."""
        now = self._desk.now()
        finding = self._build(obj, decision, now)
        candidate = finding_id(self._desk.cluster, finding.ref.uid, finding.template_hash, now.isoformat())
        begun = self._desk.ledger.begin_finding(
            finding.ref.uid, candidate, owner_uid(finding), finding.template_hash, OPEN_FINDING_TTL
        )
        kept, released = begun.id, begun.released
        finding = finding.model_copy(update={"id": kept})
        self._desk.begin(finding, begun.at)
        tracked = self._desk.book.add(finding)
        tracked.failed_at = self._failed_at(obj, now)
        tracked.begun = kept != candidate
        self._desk.meter.found(finding)
        if released is not None:  # by this watcher before a restart, or by another
            to_released(tracked, released.attempt, self._desk.steady() + timedelta(seconds=released.left))
            self.restored(kept, released.task_id)
        log.info(
            "finding",
            finding=kept,
            object=str(finding.ref),
            cause=finding.failure_class.value,
            mesh=finding.mesh,
            missing=finding.missing,
            restored=kept != candidate,
        )
        return tracked, begun.quarantine

    def _failed_at(self, obj: Workload | Pod, now: datetime) -> datetime | None:
        """When the trouble began: a bare pod was bare from the start."""
        if isinstance(obj, Pod):
            return parse_time(obj.metadata.creation_timestamp)
        return self._stuck_since(obj, self._current(obj), now)

    def _build(self, obj: Workload | Pod, decision: Decision, first_seen: datetime) -> Finding:
        current = self._current(obj)
        observed = observe(obj, self._desk.store, health=InjectorHealth(), now=first_seen, current=current)
        finding = finding_for(observed, decision, cluster=self._desk.cluster, now=first_seen, first_seen=first_seen)
        controller = obj.metadata.controller
        if isinstance(obj, Workload) or controller is None:
            return finding
        # A bare pod counts against its owner's template: that is what would come back bare.
        owner = self._desk.store.workload(controller.uid)
        if owner is not None and owner.metadata.namespace != obj.metadata.namespace:
            return finding.model_copy(update={"owner": None})  # forged: nothing of it may count for that owner
        above = owner_of(owner) if owner else None
        return finding.model_copy(update={"template_hash": owner.template_hash if owner else "", "above": above})

    def _refresh(self, tracked: Tracked, obj: Workload | Pod, decision: Decision) -> None:
        fresh = self._build(obj, decision, tracked.finding.first_seen)
        tracked.finding = fresh.model_copy(update={"id": tracked.finding.id})

    def _recovered(self, tracked: Tracked, decision: Decision) -> None:
        if tracked.state is State.RELEASED:
            return  # the worker's outcome ends it
        self._desk.close(tracked, "recovered", f"recovered without a repair: {decision.reason}")

    def _gone(self, uid: str) -> None:
        for table in (self._desk.due, self._desk.settling, self._lacking, self._leftover, self._episodes):
            table.pop(uid, None)
        self._said_flapping.discard(uid)
        tracked = self._desk.book.get(uid)
        if tracked is not None and tracked.state is not State.RELEASED:
            self._desk.close(tracked, "gone", "the object is gone", Result.OBSOLETE)

    def _look_for_leftover(self, workload: Workload) -> None:
        uid = workload.metadata.uid
        if not self._is_ours(workload):
            self._leftover.pop(uid, None)
            return
        now = time.monotonic()
        seen = self._leftover.setdefault(uid, now)
        tracked = self._desk.book.get(uid)
        if now - seen < LEFTOVER_SECONDS or (tracked is not None and tracked.state is State.RELEASED):
            self._desk.due[uid] = now + LEFTOVER_SECONDS / 3
            return
        self._leftover[uid] = now  # if it comes back, or could not be removed, the next try is as far away
        if tracked is None:  # else its own repair takes it off
            self._send_cleanup(workload)

    def _is_ours(self, workload: Workload) -> bool:
        """True for a nudge of ours where we may act; whatever else carries that key is somebody else's."""
        value = (workload.metadata.annotations or {}).get(NUDGE_ANNOTATION, "")
        scope, namespace = self._desk.policy.scope, workload.metadata.namespace
        inside = not scope.namespaces or namespace in scope.namespaces
        return bool(FINDING_ID.fullmatch(value)) and inside and namespace not in scope.protected_namespaces

    def _send_cleanup(self, workload: Workload) -> None:
        """A nudge annotation was left behind by a worker that died: a worker takes it off."""
        if self._desk.policy.mode is Mode.OBSERVE:
            return
        now = self._desk.now()
        decision = self._judge(workload)
        finding = self._build(workload, decision, now)
        candidate = finding_id(self._desk.cluster, finding.ref.uid, finding.template_hash, now.isoformat())
        kept = self._desk.ledger.open_finding(finding.ref.uid, candidate, OPEN_FINDING_TTL)
        finding = finding.model_copy(update={"id": kept, "action": Action.NUDGE_OWNER, "code": "nudge_left_behind"})
        self._desk.begin(finding)
        tracked = self._desk.book.add(finding)
        self._releaser.release_one(tracked)


def _longest_wait(detection: Detection) -> float:
    """Seconds after which any workload that lacks pods counts as stuck."""
    return max(detection.silent_seconds, detection.no_condition_seconds, detection.api_timeout_seconds)
