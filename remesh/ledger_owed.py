"""Pods that remesh took away and has to create again. Used by `remesh.ledger`, as its `owed`.

    owed                       UID → the RepairRequest                          until the pod is back or a person was
                                                                                told, or 30 days

An entry stands from before the eviction, so that a task that is lost with its worker or its broker loses no pod: each
worker looks through them (`workers.owed`). It holds identity only, and whoever reads it trusts it as little as a task.
"""

from typing import Any, Final

from pydantic import ValidationError

from remesh import logs
from remesh.models import RepairRequest
from remesh.redisdb import RedisClient, translated

OWED_SECONDS: Final = 30 * 24 * 3600

log = logs.get("ledger")


class Owed:
    """What one cluster's people are owed. Every method raises BrokerError. Thread-safe."""

    def __init__(self, redis: RedisClient, base: str) -> None:
        self._redis = redis
        self._key = f"{base}owed"

    def keep(self, request: RepairRequest) -> None:
        """Note it before anything is taken away."""
        with translated(self._redis, "cannot note what is owed"), self._redis.pipeline() as pipe:
            pipe.hset(self._key, request.ref.uid, request.model_dump_json())
            pipe.expire(self._key, OWED_SECONDS)
            pipe.execute()

    def settle(self, uid: str) -> None:
        """It is back, was never taken away, or a person was told."""
        with translated(self._redis, "cannot settle what is owed"):
            self._redis.hdel(self._key, uid)

    def has(self, uid: str) -> bool:
        """True if this pod may have been taken away and not brought back."""
        with translated(self._redis, "cannot read what is owed"):
            return bool(self._redis.hexists(self._key, uid))

    def all(self) -> list[RepairRequest]:
        """Every entry that can be read. One that cannot stays where it is, and is said in the log."""
        with translated(self._redis, "cannot read what is owed"):
            rows: Any = self._redis.hgetall(self._key)
        found = [_request(uid, text) for uid, text in rows.items()]
        return [each for each in found if each is not None]


def _request(uid: str, text: str) -> RepairRequest | None:
    try:
        found = RepairRequest.model_validate_json(text)
    except ValidationError as error:
        log.warning("what is owed cannot be read", uid=uid[:64], why=error.errors(include_input=False)[0]["msg"])
        return None
    if found.ref.uid != uid:
        log.warning("what is owed names another object", uid=uid[:64], finding=found.finding_id)
        return None
    return found
