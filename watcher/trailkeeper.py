"""Watches over the audit trail itself: is it still the one that was there a moment ago, and how far has it come?

A thread of the watcher's. It remembers in its own memory the last head that it saw, which nobody who can write to Redis
can change; where Redis comes back without it, that is said: in the log, in the trail and by `remesh status`. Every hour
it logs the head, so that an anchor stands outside of Redis, and with REMESH_SIGNING_KEY it seals it in the trail. Where
the policy says so, it prunes. And where a clock jumped that times in the trail are by, it says so there.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from remesh import chain, logs
from remesh.audit import Trail, record
from remesh.chain import START, Link
from remesh.errors import RemeshError
from remesh.models import AuditRecord, RecordType
from remesh.policy import Policy, TrailPolicy
from remesh.redisdb import RedisClient
from remesh.retention import Retention
from remesh.settings import Settings
from watcher.clocks import Clocks, Jump

log = logs.get("watcher.trail")

CHECK_SECONDS: Final = 5.0
HOUR: Final = 3600.0
ACTOR: Final = "watcher"
CLOCK_JUMPED: Final = "clock_jumped"  # code of the record that says why times may not follow each other


def keep(
    settings: Settings,
    policy: Policy,
    redis: RedisClient,
    stop: threading.Event,
    *,
    now: Callable[[], datetime],
    leads: Callable[[], bool],
    on_lost: Callable[[], None],
) -> None:
    """Start the thread of this process. Only who leads seals and prunes; everybody looks, and is told of a loss."""
    trail = Trail(redis, settings.cluster, settings.key_prefix)
    keeper = TrailKeeper(
        trail,
        settings.cluster,
        key=settings.signing_key.get_secret_value().encode() if settings.signing_key else b"",
        retention=Retention(redis, trail, settings.cluster, settings.key_prefix),
        policy=policy.trail,
        leads=leads,
        on_lost=on_lost,
        now=now,
        clocks=Clocks({"the API server's": now, "Redis'": trail.now}),
    )
    keeper.start(stop)


class TrailKeeper:
    """Of one cluster's trail. One thread calls it; Redis that is away is waited for."""

    def __init__(
        self,
        trail: Trail,
        cluster: str,
        *,
        key: bytes = b"",
        retention: Retention | None = None,
        policy: TrailPolicy | None = None,
        leads: Callable[[], bool] = lambda: True,
        on_lost: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clocks: Clocks | None = None,
    ) -> None:
        self._trail = trail
        self._cluster = cluster
        self._key = key
        self._retention = retention
        self._policy = policy or TrailPolicy()
        self._leads = leads
        self._on_lost = on_lost
        self._now = now
        self._clocks = clocks or Clocks({})
        self._known: Link | None = None
        self._said = START
        self._hourly = time.monotonic() + HOUR

    def start(self, stop: threading.Event) -> None:
        """Run beside the watcher until `stop` is set."""
        threading.Thread(target=self._run, args=(stop,), name="trail-keeper", daemon=True).start()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.check()
                self.look_at_clocks()
                if time.monotonic() >= self._hourly:
                    self._hourly = time.monotonic() + HOUR
                    self.hourly()
            except RemeshError as error:
                log.warning("the trail could not be looked after", error=str(error))
            stop.wait(CHECK_SECONDS)

    def check(self) -> str:
        """Compare the trail with what was there before; returns what is gone, and has written it down. Raises
        TrailUnavailable: then it is compared again next time."""
        head = self._trail.head()
        gone = self._gone(self._known, head) if self._known else ""
        if gone and self._known:
            log.error("the audit trail has lost records", reason=gone, last_known=str(self._known), head=str(head))
            self._trail.say_lost(gone, self._known, self._now())
            self._on_lost()
            head = self._trail.head()
        self._known = head
        return gone

    def _gone(self, known: Link, head: Link) -> str:
        if known in (head, START):
            return ""
        was = f"the trail had come to record number {known.number} at {known.position}"
        if head == START:
            return f"{was}, and Redis has none of it: everything before this record is gone"
        if head.number < known.number:
            return f"{was}, and Redis knows it up to number {head.number} only: what came after is gone"
        entry = self._trail.entry(known.position)
        if entry is None or entry.link != known:
            return f"{was}, and that record is gone or another: the trail before this record is not the one that was"
        return ""

    def look_at_clocks(self) -> None:
        """Who leads writes a clock's jump down. Raises TrailUnavailable."""
        for jump in self._clocks.look():
            log.warning("a clock jumped", whose=jump.whose, seconds=round(jump.seconds, 1))
            if self._leads():
                self._trail.append(self._of_jump(jump))

    def _of_jump(self, jump: Jump) -> AuditRecord:
        return record(
            RecordType.NOTE,
            cluster=self._cluster,
            at=self._now(),
            actor=ACTOR,
            code=CLOCK_JUMPED,
            reason=f"{jump}; times from about here on do not follow those before",
            details={"clock": jump.whose, "seconds": round(jump.seconds, 1)},
        )

    def hourly(self) -> None:
        """Log the head, seal it, prune. Raises RemeshError."""
        head = self._known or self._trail.head()
        if head not in (self._said, START):
            log.info("head of the audit trail", anchor=str(head))
            self._said = head
            if self._key and self._leads():
                self._seal(head)
        if self._policy.asks and self._leads():
            self._prune()

    def _seal(self, head: Link) -> None:
        details = {**chain.details_of(head), "seal": chain.seal(self._key, head, self._cluster)}
        sealed = record(
            RecordType.NOTE,
            cluster=self._cluster,
            at=self._now(),
            record_id=f"trail:sealed:{head.number}:{head.hash}",
            actor=ACTOR,
            code=chain.SEALED,
            reason=f"the trail had come to record number {head.number}",
            details=details,
        )
        self._said = self._known = self._link_at(self._trail.append(sealed))

    def _link_at(self, position: str) -> Link:
        entry = self._trail.entry(position)
        return entry.link if entry else START

    def _prune(self) -> None:
        retention, policy = self._retention, self._policy
        if retention is None or policy.export_folder is None:
            return
        age = timedelta(seconds=policy.keep_seconds) if policy.keep_seconds is not None else None
        cut = retention.cut(older_than=age, keep=policy.keep_records)
        if cut.held_by:
            log.info(
                "an open chain keeps the trail from being pruned further", finding=cut.held_by, position=cut.held_at
            )
        if cut.count:
            stamp = self._now().strftime("%Y%m%dT%H%M%SZ")
            retention.prune(cut, Path(policy.export_folder) / f"trail-{self._cluster}-{stamp}.jsonl", actor=ACTOR)
