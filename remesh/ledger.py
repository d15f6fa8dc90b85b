"""What watcher and workers must know of each other and of the past: small keys in Redis, all with an end.

The trail says what happened; the ledger says what may happen now: which finding is open and released, who holds an
object, how often its repair failed, how many pods are on their way through an injector. All times are the server's, so
clocks of the processes do not matter, and every change of more than one value is one script. Should the server's own
clock go back, what was to last a while begins its while anew.

Every method raises BrokerUnreachable without an answer, and BrokerError if the server refuses. Keys begin with
`{prefix}{{cluster}}:`:

    finding:<uid>              id of the object's open finding                          until closed, or its TTL
    findings                   uid → OpenFinding, for `remesh scan` and status          until closed, or its TTL
    attempt:<finding>          number of the last attempt                               7 days after it
    released:<finding>         attempt, task, deadline of the last release              a day after the deadline
    lease:<uid>                token of the worker that holds the object                seconds
    attempts:<uid>:<template>  failures, the last one's reason, cooldown                7 days after the last
    quarantine                 uid:template → Quarantine                                until cleared, or 30 days
    window:<injector>          size, threshold                                          an hour after the last feedback
    flight:<injector>          holder → pods on their way, and their sum under the      the longest reservation
                               empty name; flight-end: holder → expiry
    share:<owner>              pods of the owner that are being replaced, in order; share-end: with their ends
                                                                                        the longest of them
    order:<owner>              its pods, in the order in which they were seen first     a day after the last
    replacement:<pod>          UID of the pod that this one replaced                    an hour
    manifest:<pod>             see `remesh.ledger_manifests`
    gates                      injector, and shard of the watchers if any → GateState
    outcome:<finding>          last Outcome                                             a day
    brake:<injector>           see `remesh.ledger_brake`
    owed                       see `remesh.ledger_owed`
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remesh import ledger_lua as lua
from remesh import logs
from remesh.ledger_brake import Brakes
from remesh.ledger_manifests import Manifests
from remesh.ledger_owed import Owed
from remesh.ledger_window import Released, Windows, released_of, to_ms, to_time
from remesh.models import Finding, Outcome
from remesh.policy import WindowPolicy
from remesh.redisdb import VISIBILITY_TIMEOUT_SECONDS, RedisClient, key_base, server_time, translated

DAY = 24 * 3600
ATTEMPTS_SECONDS = 7 * DAY  # an owner and template that failed so long ago starts anew
QUARANTINE_SECONDS = 30 * DAY  # for owners that were deleted: their UIDs never come back
CLAIM_SECONDS = 3600  # far longer than anybody waits for a replacement

_SHARD_MARK = " shard "

log = logs.get("ledger")
Row = TypeVar("Row", bound=BaseModel)


class Failures(BaseModel):
    """Failed repairs of one owner and template."""

    model_config = ConfigDict(frozen=True)

    count: int = 0
    reason: str = ""
    at: datetime | None = None
    cooldown_left: float = 0.0  # seconds until the next attempt may start


class Quarantine(BaseModel):
    """An owner that is left alone until its template or the webhook configuration changes."""

    model_config = ConfigDict(frozen=True)

    uid: str
    template_hash: str
    since: datetime
    evidence: dict[str, Any] = Field(default_factory=dict)


class GateState(BaseModel):
    """What the watcher last saw of one injector."""

    model_config = ConfigDict(frozen=True)

    open: bool
    since: datetime  # of the last change between open and closed
    reason: str = ""
    mesh: str = ""
    ready: int | None = None  # ready endpoints
    total: int | None = None
    probe_ms: float | None = None  # the last dry run's duration
    waiting: int = 0  # findings behind the gate
    seen: datetime | None = None  # when this was written


class Begun(NamedTuple):
    """A finding's id, and what is known of it."""

    id: str
    at: datetime  # now, by the server's clock
    released: Released | None
    quarantine: Quarantine | None  # of its owner and template


class OpenFinding(BaseModel):
    """A finding that the watcher follows, with where it stands: "waiting", "released", "reported", …"""

    model_config = ConfigDict(frozen=True)

    finding: Finding
    state: str
    seen: datetime
    until: datetime  # not valid any longer if nobody renewed it: its watcher is gone


class Lease:
    """Hold on one object, as a context manager: no other worker touches the object meanwhile.

    It ends by itself after `seconds`, should its worker die.
    """

    def __init__(self, ledger: "Ledger", uid: str, seconds: float, token: str) -> None:
        self._ledger = ledger
        self.uid = uid
        self.seconds = seconds
        self.token = token

    def renew(self, seconds: float | None = None) -> bool:
        """Start the time anew. False: it had ended or is another's: stop before the next write."""
        return self._ledger._renew(self, seconds or self.seconds)

    def release(self) -> bool:
        """Let go, if it is still ours."""
        return self._ledger._let_go(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Ledger(Windows):
    """The ledger of one cluster. Thread-safe, as its client is."""

    def __init__(self, redis: RedisClient, cluster: str, prefix: str = "remesh:", *, shard: str = "") -> None:
        super().__init__(redis, key_base(prefix, cluster))
        self._shard = shard
        self.brakes = Brakes(redis, self._base)
        self.owed = Owed(redis, self._base)
        self.manifests = Manifests(redis, self._base)
        script = redis.register_script
        self._open = script(lua.OPEN)
        self._begin = script(lua.NOW + lua.ANEW + lua.BEGIN)
        self._close = script(lua.CLOSE)
        self._release = script(lua.NOW + lua.ANEW + lua.RELEASE)
        self._timed = script(lua.NOW + lua.ANEW + lua.TIMED)
        self._lease = script(lua.LEASE)
        self._renewal = script(lua.RENEW)
        self._letting_go = script(lua.LET_GO)
        self._failed = script(lua.NOW + lua.FAILED)
        self._slot = script(lua.NOW + lua.ANEW + lua.TAKE_SLOT)
        self._number = script(lua.NUMBER)
        self._claim = script(lua.CLAIM)

    # Findings

    def open_finding(self, uid: str, candidate_id: str, ttl: float = 7 * DAY) -> str:
        """Id of the object's open finding: the known one, or else `candidate_id`. Its time starts anew (seconds)."""
        with translated(self._redis, "cannot open a finding"):
            return str(self._open(keys=[self._key("finding", uid)], args=[candidate_id, to_ms(ttl)]))

    def begin_finding(
        self, uid: str, candidate_id: str, account_uid: str, template_hash: str, ttl: float = 7 * DAY
    ) -> Begun:
        """As `open_finding`, and what is known of it and of the owner that its failures count against."""
        keys = [self._key("finding", uid), self._key("quarantine")]
        args: list[Any] = [candidate_id, to_ms(ttl), self._key("released", ""), f"{account_uid}:{template_hash}"]
        with translated(self._redis, "cannot open a finding"):
            known, at, quarantine, *release = self._begin(keys=keys, args=args)
        released = released_of(release, at) if release else None
        return Begun(str(known), to_time(at), released, _parsed(Quarantine, quarantine or None))

    def close_finding(self, uid: str, finding_id: str) -> bool:
        """The trouble is over. False, and nothing changed, if another finding of the object is open by now."""
        keys = [self._key("finding", uid), self._key("findings")]
        with translated(self._redis, "cannot close a finding"):
            return bool(self._close(keys=keys, args=[uid, finding_id]))

    def ask(self) -> None:
        """See that Redis answers. Raises BrokerError if it does not."""
        self._now()

    def note_findings(
        self, findings: Sequence[tuple[Finding, str]], ttl: float = 600, *, seen: datetime | None = None
    ) -> None:
        """Show findings with their states to `open_findings` for `ttl` seconds, or until closed or noted again.

        `seen` is the server's time where the caller has just been told it.
        """
        if not findings:
            return
        seen = seen or self._now()
        until = datetime.fromtimestamp(seen.timestamp() + ttl, UTC)
        rows: dict[Any, Any] = {
            finding.ref.uid: OpenFinding(finding=finding, state=state, seen=seen, until=until).model_dump_json()
            for finding, state in findings
        }
        with translated(self._redis, "cannot note the open findings"):
            self._redis.hset(self._key("findings"), mapping=rows)

    def open_findings(self) -> list[OpenFinding]:
        """What a live watcher follows now, oldest first."""
        now = self._now()
        found = self._rows("findings", OpenFinding)
        stale = [uid for uid, row in found.items() if row.until < now]
        if stale:
            with translated(self._redis, "cannot drop old findings"):
                self._redis.hdel(self._key("findings"), *stale)
        live = (row for uid, row in found.items() if uid not in set(stale))
        return sorted(live, key=lambda row: (row.finding.first_seen, row.finding.id))

    def next_attempt(self, finding_id: str) -> int:
        """Number of the next attempt of a finding: it only rises, so that a record id is never used twice."""
        key = self._key("attempt", finding_id)
        with translated(self._redis, "cannot number an attempt"), self._redis.pipeline() as pipe:
            pipe.incr(key)
            pipe.expire(key, 7 * DAY)
            number, _ = pipe.execute()
        return int(number)

    def mark_released(self, finding_id: str, attempt: int, task_id: str, deadline_seconds: float) -> bool:
        """Note the release before the task is sent. False: it is released already and not past its deadline."""
        keep = to_ms(deadline_seconds + DAY)
        with translated(self._redis, "cannot mark a finding as released"):
            answer = self._release(
                keys=[self._key("released", finding_id)], args=[attempt, task_id, to_ms(deadline_seconds), keep]
            )
        return bool(answer)

    def released(self, finding_id: str) -> Released | None:
        """The last release, overdue or not; None if there was none, or it was cleared."""
        with translated(self._redis, "cannot read a release"):
            row, now = self._with_times(self._key("released", finding_id), "at", "deadline")
        return released_of([row[each] for each in ("attempt", "task_id", "at", "deadline")], now) if row else None

    def clear_released(self, finding_id: str) -> None:
        """The attempt has its outcome, or was never sent: the finding may be released again."""
        with translated(self._redis, "cannot clear a release"):
            self._redis.delete(self._key("released", finding_id))

    def set_outcome(self, outcome: Outcome) -> None:
        """Keep the last outcome of a finding for a day."""
        with translated(self._redis, "cannot keep an outcome"):
            self._redis.set(self._key("outcome", outcome.finding_id), outcome.model_dump_json(), ex=DAY)

    def outcome(self, finding_id: str) -> Outcome | None:
        """The last outcome of a finding within the last day. The trail has them all."""
        with translated(self._redis, "cannot read an outcome"):
            text: Any = self._redis.get(self._key("outcome", finding_id))
        return _parsed(Outcome, text)

    # One object at a time

    def lease(self, uid: str, seconds: float) -> Lease | None:
        """Take the object, or None if another worker has it. `seconds` is below the visibility time-out."""
        if not 0 < seconds < VISIBILITY_TIMEOUT_SECONDS:
            raise ValueError(f"a lease must be shorter than {VISIBILITY_TIMEOUT_SECONDS} s, not {seconds}")
        token = uuid4().hex
        # The script knows its own token again: redis-py repeats a command whose answer was lost.
        with translated(self._redis, "cannot take a lease"):
            taken = self._lease(keys=[self._key("lease", uid)], args=[token, to_ms(seconds)])
        return Lease(self, uid, seconds, token) if taken else None

    def _renew(self, lease: Lease, seconds: float) -> bool:
        with translated(self._redis, "cannot renew a lease"):
            return bool(self._renewal(keys=[self._key("lease", lease.uid)], args=[lease.token, to_ms(seconds)]))

    def _let_go(self, lease: Lease) -> bool:
        with translated(self._redis, "cannot release a lease"):
            return bool(self._letting_go(keys=[self._key("lease", lease.uid)], args=[lease.token]))

    # Attempts and quarantine

    def record_failure(
        self, uid: str, template_hash: str, reason: str, *, cooldown_seconds: float = 60.0, token: str = ""
    ) -> int:
        """Count a failed repair and start the cooldown; returns the count.

        `token` names the attempt, such as its task id: the same one again is not counted twice.
        """
        key = self._key("attempts", uid, template_hash)
        with translated(self._redis, "cannot count a failed repair"):
            args: list[Any] = [reason[:500], token, to_ms(cooldown_seconds), to_ms(ATTEMPTS_SECONDS + cooldown_seconds)]
            return int(self._failed(keys=[key], args=args))

    def record_success(self, uid: str, template_hash: str) -> None:
        """Forget the failures."""
        with translated(self._redis, "cannot clear failed repairs"):
            self._redis.delete(self._key("attempts", uid, template_hash))

    def failures(self, uid: str, template_hash: str) -> Failures:
        """Failed repairs of this owner and template, and the cooldown that is left."""
        with translated(self._redis, "cannot read failed repairs"):
            row, now = self._with_times(self._key("attempts", uid, template_hash), "at", "cooldown")
        if not row:
            return Failures()
        left = max(0.0, (int(row["cooldown"]) - int(now)) / 1000)
        return Failures(count=row["failures"], reason=row["reason"], at=to_time(row["at"]), cooldown_left=left)

    def attempts(self, uid: str, template_hash: str) -> int:
        """How many repairs of this owner and template failed."""
        with translated(self._redis, "cannot read failed repairs"):
            count: Any = self._redis.hget(self._key("attempts", uid, template_hash), "failures")
        return int(count or 0)

    def cooldown_left(self, uid: str, template_hash: str) -> float:
        """Seconds until the next attempt may start; 0: now."""
        return self.failures(uid, template_hash).cooldown_left

    def quarantine(self, uid: str, template_hash: str, evidence: dict[str, Any]) -> Quarantine:
        """Leave this owner and template alone. `evidence` says why, and under which webhook configuration."""
        entry = Quarantine(uid=uid, template_hash=template_hash, since=self._now(), evidence=evidence)
        with translated(self._redis, "cannot quarantine an owner"):
            self._redis.hset(self._key("quarantine"), f"{uid}:{template_hash}", entry.model_dump_json())
        return entry

    def quarantined(self, uid: str, template_hash: str) -> Quarantine | None:
        """The quarantine of this owner and template, or None."""
        with translated(self._redis, "cannot read the quarantine"):
            text: Any = self._redis.hget(self._key("quarantine"), f"{uid}:{template_hash}")
        return _parsed(Quarantine, text)

    def quarantines(self) -> list[Quarantine]:
        """All quarantines, oldest first. Drops those of more than 30 days: deleted owners never come back."""
        found = self._rows("quarantine", Quarantine)
        oldest = self._now().timestamp() - QUARANTINE_SECONDS
        for field in [field for field, row in found.items() if row.since.timestamp() < oldest]:
            with translated(self._redis, "cannot drop an old quarantine"):
                self._redis.hdel(self._key("quarantine"), field)
            del found[field]
        return sorted(found.values(), key=lambda row: row.since)

    def clear_quarantine(self, uid: str, template_hash: str) -> bool:
        """End a quarantine and forget its failures. False if there was none."""
        self.record_success(uid, template_hash)
        with translated(self._redis, "cannot clear a quarantine"):
            return bool(self._redis.hdel(self._key("quarantine"), f"{uid}:{template_hash}"))

    def clear_brake(self, injector_key: str, window: WindowPolicy) -> bool:
        """See `Brakes.clear`. The window begins anew, too, at its smallest. False if the brake is not shut."""
        if not self.brakes.clear(injector_key):
            return False
        self.begin_window(injector_key, window)
        return True

    # Replacing pods

    def take_slot(self, owner_uid: str, holder: str, limit: int, ttl: float) -> list[str] | None:
        """One of `limit` slots of an owner for `holder`, a pod to be replaced, for `ttl` seconds at most.

        None: all are taken. Else the holders that came earlier: they count as away, whether they are yet or not. The
        same holder again keeps its place.
        """
        with translated(self._redis, "cannot take a slot"):
            answer = self._slot(keys=self._share(owner_uid), args=[holder, limit, to_ms(ttl)])
        taken, *earlier = (str(each) for each in answer)
        return earlier if taken == "1" else None

    def slots_taken(self, owner_uid: str) -> list[str]:
        """Who holds a slot of an owner now, the earliest first."""
        order, ends = self._share(owner_uid)
        with translated(self._redis, "cannot read the slots"), self._redis.pipeline() as pipe:
            pipe.zrange(order, 0, -1)
            pipe.zrange(ends, 0, -1, withscores=True)
            pipe.time()
            holders, until, (seconds, micros) = pipe.execute()
        now = int(seconds) * 1000 + int(micros) // 1000
        held = {holder for holder, end in until if end > now}
        return [str(each) for each in holders if each in held]

    def give_slot_back(self, owner_uid: str, holder: str) -> None:
        """The pod was replaced, or will not be."""
        with translated(self._redis, "cannot give a slot back"), self._redis.pipeline() as pipe:
            for key in self._share(owner_uid):
                pipe.zrem(key, holder)
            pipe.execute()

    def number_pods(self, owner_uid: str, pod_uids: Sequence[str]) -> tuple[int, list[int]]:
        """Numbers of an owner's pods in the order in which anybody saw them first, and the last number so far.

        A pod that is numbered higher than the last number at one moment was not there at that moment, if all that
        were there had been numbered.
        """
        with translated(self._redis, "cannot number pods"):
            last, *numbers = self._number(keys=[self._key("order", owner_uid)], args=[to_ms(DAY), *pod_uids])
        return int(last), [int(number) for number in numbers]

    def pods_seen(self, owner_uid: str, pod_uids: Sequence[str]) -> int:
        """The last number that `number_pods` would give; nothing is changed."""
        key = self._key("order", owner_uid)
        with translated(self._redis, "cannot read the numbers of pods"), self._redis.pipeline() as pipe:
            pipe.zrange(key, -1, -1, withscores=True)
            for uid in pod_uids:
                pipe.zscore(key, uid)
            last, *known = pipe.execute()
        return int(last[0][1] if last else 0) + sum(1 for each in known if each is None)

    def claim(self, pod_uids: Sequence[str], replaced_uid: str) -> str:
        """Count the first new pod that is nobody else's yet as the replacement of one that was evicted; "" if none is.

        One that was counted for it before stays so.
        """
        if not pod_uids:
            return ""
        keys = [self._key("replacement", uid) for uid in pod_uids]
        with translated(self._redis, "cannot claim a replacement"):
            place = int(self._claim(keys=keys, args=[replaced_uid, CLAIM_SECONDS]))
        return pod_uids[place - 1] if place else ""

    def keep_manifest(self, pod_uid: str, manifest: dict[str, Any]) -> str:
        """Keep what a pod without a controller can be created again from; returns the digest that the trail names."""
        return self.manifests.keep(pod_uid, manifest)

    def manifest(self, pod_uid: str) -> tuple[dict[str, Any], str] | None:
        """A kept manifest and its digest, or None. It may hold secrets: never log or print it unasked."""
        kept = self.manifests.get(pod_uid)
        return (kept.manifest, kept.digest) if kept else None

    def _share(self, owner_uid: str) -> list[str]:
        return [self._key("share", owner_uid), self._key("share-end", owner_uid)]

    # Gates

    def set_gate(self, injector_key: str, state: GateState) -> None:
        """Show a gate's state to workers, command line and status."""
        seen = state.model_copy(update={"seen": self._now()})
        with translated(self._redis, "cannot note a gate"):
            self._redis.hset(self._key("gates"), self._gate(injector_key), seen.model_dump_json())

    def gates(self) -> dict[str, GateState]:
        """All gates by injector key. `seen` tells how old each is. Of the shards' gates the one that is closed."""
        merged: dict[str, GateState] = {}
        for field, row in sorted(self._rows("gates", GateState).items()):
            key = field.partition(_SHARD_MARK)[0]
            if key not in merged or not row.open:
                merged[key] = row
        return merged

    def drop_gate(self, injector_key: str) -> None:
        """The injector is gone for good."""
        with translated(self._redis, "cannot drop a gate"):
            self._redis.hdel(self._key("gates"), self._gate(injector_key))

    def _gate(self, injector_key: str) -> str:
        """Each shard of the watchers has gates of its own; an injector's key has no blanks."""
        return f"{injector_key}{_SHARD_MARK}{self._shard}" if self._shard else injector_key

    def _with_times(self, key: str, begins: str, ends: str) -> tuple[dict[str, Any], str]:
        """A hash whose two fields are times, and the server's time as the scripts write it."""
        flat, now = self._timed(keys=[key], args=[begins, ends])
        return dict(zip(flat[::2], flat[1::2], strict=True)), str(now)

    def _now(self) -> datetime:
        with translated(self._redis, "cannot read the server's clock"):
            return server_time(self._redis)

    def _rows(self, key: str, model: type[Row]) -> dict[str, Row]:
        with translated(self._redis, f"cannot read the {key}"):
            rows: Any = self._redis.hgetall(self._key(key))
        parsed = {field: _parsed(model, text) for field, text in rows.items()}
        return {field: row for field, row in parsed.items() if row is not None}


def _parsed(model: type[Row], text: str | None) -> Row | None:
    """The stored value, or None: a value of another version is as good as none, for the trail and the cluster know."""
    if text is None:
        return None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        log.warning("value in the ledger cannot be read", model=model.__name__, why=error.errors()[0]["msg"])
        return None
