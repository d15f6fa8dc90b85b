"""Whether a watcher is alive: it says so in Redis every few seconds, under a key that ends by itself.

Without it, nobody watching would look like all being well.
"""

import time
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError

from remesh import logs
from remesh.errors import BrokerError
from remesh.redisdb import RedisClient, key_base, translated

log = logs.get("presence")

BEAT_SECONDS = 5.0
ALIVE_SECONDS = 15  # three beats
STARTING_SECONDS = 120  # the first lists of a large cluster take a while, and nothing beats meanwhile


class WatcherSeen(BaseModel):
    """What a live watcher says of itself."""

    model_config = ConfigDict(frozen=True)

    mode: str
    version: str
    since: datetime
    synced: bool = False
    namespaces: tuple[str, ...] = ()
    """Those that it is limited to; none: all of them."""


class Presence:
    """The watcher of one cluster."""

    def __init__(self, redis: RedisClient, cluster: str, prefix: str = "remesh:") -> None:
        self._redis = redis
        self._key = key_base(prefix, cluster) + "watcher"
        self._next = 0.0
        self._synced = False

    def beat(self, seen: WatcherSeen) -> None:
        """Say that it is alive, at most every BEAT_SECONDS. A Redis that is away is the loop's to deal with."""
        now = time.monotonic()
        if now < self._next and seen.synced == self._synced:
            return
        self._next, self._synced = now + BEAT_SECONDS, seen.synced
        seconds = ALIVE_SECONDS if seen.synced else STARTING_SECONDS
        try:
            with translated(self._redis, "cannot say that the watcher is alive"):
                self._redis.set(self._key, seen.model_dump_json(), ex=seconds)
        except BrokerError as error:
            log.debug("no sign of life", error=str(error))

    def end(self) -> None:
        """The watcher ends in good order."""
        try:
            with translated(self._redis, "cannot say that the watcher ends"):
                self._redis.delete(self._key)
        except BrokerError as error:
            log.debug("no sign of the end", error=str(error))

    def seen(self) -> WatcherSeen | None:
        """The watcher that is alive, or None. Raises BrokerError."""
        with translated(self._redis, "cannot ask for the watcher"):
            text = self._redis.get(self._key)
        try:
            return WatcherSeen.model_validate_json(str(text)) if text else None
        except ValidationError:  # of another version
            return None


def now_seen(mode: str, version: str, namespaces: tuple[str, ...]) -> WatcherSeen:
    """A watcher that starts now."""
    return WatcherSeen(mode=mode, version=version, since=datetime.now(UTC), namespaces=namespaces)
