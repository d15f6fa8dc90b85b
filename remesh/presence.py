"""Which watchers are alive, and which of them leads: each says so in Redis every few seconds.

Without it, nobody watching would look like all being well.
"""

import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from remesh import logs
from remesh.errors import BrokerError
from remesh.redisdb import RedisClient, key_base, translated

log = logs.get("presence")

BEAT_SECONDS = 5.0
ALIVE_SECONDS = 15  # three beats
KEPT_SECONDS = 86400  # of the whole hash, after the last beat of anybody
STARTING_SECONDS = 120  # the first lists of a large cluster take a while, and nothing beats meanwhile


class Role(StrEnum):
    """What a watcher does now."""

    STARTING = "starting"
    LEADER = "leader"
    STANDBY = "standby"


class WatcherSeen(BaseModel):
    """What a live watcher says of itself."""

    model_config = ConfigDict(frozen=True)

    mode: str
    version: str
    since: datetime
    synced: bool = False
    namespaces: tuple[str, ...] = ()
    """Those that it is limited to; none: all of them."""
    identity: str = ""
    role: Role = Role.STARTING
    shard: str = ""
    """Its share of the namespaces, such as "0/3"; "": all of them."""
    until: float = 0.0
    """Server's time (seconds since 1970) after which it counts as gone, unless it beats again."""


class Presence:
    """The watchers of one cluster. Each has a field of one hash, with an end of its own."""

    def __init__(self, redis: RedisClient, cluster: str, prefix: str = "remesh:") -> None:
        self._redis = redis
        self._key = key_base(prefix, cluster) + "watchers"
        self._next = 0.0
        self._last: WatcherSeen | None = None

    def beat(self, seen: WatcherSeen) -> None:
        """Say that it is alive, at most every BEAT_SECONDS. A Redis that is away is the loop's to deal with."""
        now = time.monotonic()
        if now < self._next and seen == self._last:
            return
        self._next, self._last = now + BEAT_SECONDS, seen
        seconds = ALIVE_SECONDS if seen.synced else STARTING_SECONDS
        try:
            with translated(self._redis, "cannot say that the watcher is alive"):
                row = seen.model_copy(update={"until": self._now() + seconds}).model_dump_json()
                self._redis.hset(self._key, seen.identity, row)
                self._redis.expire(self._key, KEPT_SECONDS)
        except BrokerError as error:
            log.debug("no sign of life", error=str(error))

    def end(self) -> None:
        """The watcher ends in good order."""
        if self._last is None:
            return
        try:
            with translated(self._redis, "cannot say that the watcher ends"):
                self._redis.hdel(self._key, self._last.identity)
        except BrokerError as error:
            log.debug("no sign of the end", error=str(error))

    def everybody(self) -> list[WatcherSeen]:
        """All watchers that are alive: leaders first, by shard, then the longest there. Raises BrokerError."""
        with translated(self._redis, "cannot ask for the watchers"):
            rows: Any = self._redis.hgetall(self._key)
            now = self._now()
            found = {identity: _parsed(text) for identity, text in rows.items()}
            gone = [identity for identity, seen in found.items() if seen is None or not _alive(seen, now)]
            if gone:
                self._redis.hdel(self._key, *gone)
        alive = (seen for seen in found.values() if seen is not None and _alive(seen, now))
        return sorted(alive, key=lambda seen: (seen.role is not Role.LEADER, seen.shard, seen.since))

    def seen(self) -> WatcherSeen | None:
        """The watcher that leads, else any that is alive, else None. Raises BrokerError."""
        return next(iter(self.everybody()), None)

    def _now(self) -> float:
        """The server's time, so that the watchers' clocks do not matter."""
        seconds, micros = self._redis.time()
        return float(seconds + micros / 1e6)


def _alive(seen: WatcherSeen, now: float) -> bool:
    """False also for one from before the server's clock went back; a live one says so anew within seconds."""
    return now <= seen.until <= now + STARTING_SECONDS


def _parsed(text: str) -> WatcherSeen | None:
    try:
        return WatcherSeen.model_validate_json(text)
    except ValidationError:  # of another version
        return None


def now_seen(mode: str, version: str, namespaces: tuple[str, ...], identity: str = "", shard: str = "") -> WatcherSeen:
    """A watcher that starts now."""
    since = datetime.now(UTC)
    return WatcherSeen(mode=mode, version=version, since=since, namespaces=namespaces, identity=identity, shard=shard)
