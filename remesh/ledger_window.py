"""The window of the ledger: how many pods are about to be created through an injector, and what may join them.

Used by `remesh.ledger`, which is made of it. See there for the keys.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from remesh import ledger_lua as lua
from remesh.policy import WindowPolicy
from remesh.redisdb import RedisClient, translated

ATTEMPT_SECONDS: Final = 7 * 24 * 3600
MARK_SECONDS: Final = 24 * 3600  # for so long after its deadline a release is remembered
# As TCP falls back to slow start after idleness: what was true of the injector an hour ago says little.
WINDOW_SECONDS = 3600
# Failures of one burst come together and are one piece of news. TCP too halves once per round trip.
HALVE_ONCE_SECONDS = 5.0


class Released(BaseModel):
    """The last release of a finding to the queue."""

    model_config = ConfigDict(frozen=True)

    attempt: int
    task_id: str
    at: datetime
    deadline: datetime
    left: float  # seconds until then
    overdue: bool  # True: the queue may have lost the task; it may be released again


class Asked(NamedTuple):
    """A release that is asked for."""

    finding_id: str
    task_stem: str  # with the attempt's number it is the task's id
    pods: int  # room that it needs in the window; 0: none


class Admitted(NamedTuple):
    """A release that may be sent now, or one that stands already."""

    attempt: int  # its number; 0: another release stands
    standing: Released | None = None


class Windows:
    """The windows of one cluster's injectors. Every method raises BrokerError. Thread-safe."""

    def __init__(self, redis: RedisClient, base: str) -> None:
        self._redis = redis
        self._base = base
        script = redis.register_script
        self._give_back = script(lua.NOW + lua.ANEW + lua.FLIGHT + lua.GIVE_BACK)
        self._flying = script(lua.NOW + lua.ANEW + lua.FLIGHT + lua.IN_FLIGHT)
        self._admit = script(lua.NOW + lua.ANEW + lua.FLIGHT + lua.ADMIT)
        self._feedback = script(lua.NOW + lua.FEEDBACK)

    def admit(
        self, injector_key: str, asked: Sequence[Asked], deadline_seconds: float, window: WindowPolicy
    ) -> list[Admitted]:
        """Reserve room in the window, number the attempt and note the release of each, up to the first without room.

        There is room if all holders together stay within the window, or if nothing else is in flight: a workload larger
        than the window goes alone. The same holder again replaces its reservation. What has no room, and all after it,
        is not in the answer, and nothing of it has changed. A release that stands
        already and is not past its deadline is told, and the room stays reserved for it.
        """
        deadline = to_ms(deadline_seconds)
        keys = [self._key("window", injector_key), *self._flight(injector_key)]
        args: list[Any] = [deadline, deadline + to_ms(MARK_SECONDS), ATTEMPT_SECONDS]
        args += [window.initial, window.minimum, window.maximum]
        for each in asked:
            keys += [self._key("attempt", each.finding_id), self._key("released", each.finding_id)]
            args += each
        with translated(self._redis, "cannot release a finding"):
            return [_admitted(told) for told in self._admit(keys=keys, args=args)]

    def release_reservation(self, injector_key: str, finding_id: str, attempt: int = 0) -> None:
        """The finding's pods were created, or will not be. With `attempt`: not if a later one was admitted since."""
        keys = [*self._flight(injector_key), self._key("attempt", finding_id)]
        with translated(self._redis, "cannot give room in the window back"):
            self._give_back(keys=keys, args=[finding_id, attempt])

    def in_flight(self, injector_key: str) -> int:
        """Pods now reserved for by all holders."""
        with translated(self._redis, "cannot read the window"):
            return int(self._flying(keys=self._flight(injector_key)))

    def window_size(self, injector_key: str, window: WindowPolicy) -> int:
        """Pods that may now be about to be created through an injector."""
        with translated(self._redis, "cannot read the window"):
            size: Any = self._redis.hget(self._key("window", injector_key), "size")
        return max(window.minimum, min(window.maximum, int(float(size or window.initial))))

    def window_feedback(self, injector_key: str, ok: bool, window: WindowPolicy, pods: int = 1) -> int:
        """Learn from `pods` that were admitted fast (`ok`) or not; returns the new size.

        As TCP: grows by the pods that went well, so a full window doubles it, up to the size at which it last failed;
        from there by one per full window. A failure halves it, once per burst (5 s).
        """
        args = [
            int(ok),
            pods,
            window.initial,
            window.minimum,
            window.maximum,
            to_ms(HALVE_ONCE_SECONDS),
            to_ms(WINDOW_SECONDS),
        ]
        with translated(self._redis, "cannot adapt the window"):
            return int(float(self._feedback(keys=[self._key("window", injector_key)], args=args)))

    def begin_window(self, injector_key: str, window: WindowPolicy) -> None:
        """Anew, at its smallest."""
        key = self._key("window", injector_key)
        with translated(self._redis, "cannot begin the window anew"), self._redis.pipeline() as pipe:
            pipe.hset(key, "size", str(window.minimum))
            pipe.expire(key, WINDOW_SECONDS)
            pipe.execute()

    def _flight(self, injector_key: str) -> list[str]:
        return [self._key("flight", injector_key), self._key("flight-end", injector_key)]

    def _key(self, *parts: str) -> str:
        return self._base + ":".join(parts)


def _admitted(told: list[Any]) -> Admitted:
    if len(told) == 1:
        return Admitted(int(told[0]))
    return Admitted(0, released_of(told[:4], told[4]))


def released_of(told: Sequence[str], now: str) -> Released:
    """A release as the scripts tell of it: attempt, task, beginning, deadline."""
    attempt, task_id, at, deadline = told
    left = (int(deadline) - int(now)) / 1000
    ends = to_time(deadline)
    return Released(attempt=int(attempt), task_id=task_id, at=to_time(at), deadline=ends, left=left, overdue=left <= 0)


def to_ms(seconds: float) -> int:
    """Milliseconds, one at least: Redis takes no expiry of 0."""
    return max(1, round(seconds * 1000))


def to_time(ms: str) -> datetime:
    """A time as the scripts write it."""
    return datetime.fromtimestamp(int(ms) / 1000, UTC)
