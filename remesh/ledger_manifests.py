"""Manifests of pods without a controller, kept before they are evicted. Used by `remesh.ledger`, as its `manifests`.

    manifest:<pod>             what the pod can be created again from; may hold secrets                      30 days

They hold whatever stands in `env`: nothing of them goes into a log, a record or a task, and `remesh audit manifest`
prints them whole only where that is asked for by name.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Final
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from remesh import logs
from remesh.redisdb import RedisClient, translated

MANIFEST_SECONDS: Final = 30 * 24 * 3600  # long enough for a person to be back
SCAN_COUNT: Final = 1000  # keys that the server looks at in one go, in microseconds each

log = logs.get("ledger")


class _Stored(BaseModel):
    """A manifest as it stands in Redis."""

    salt: str
    manifest: dict[str, Any]

    @property
    def digest(self) -> str:
        """Names this very manifest. Salted, so that a secret in it cannot be guessed from an exported trail."""
        text = json.dumps(self.manifest, sort_keys=True, separators=(",", ":"))
        return blake2s(text.encode(), key=self.salt.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """One manifest, with the UID of the pod that was evicted, and when it is dropped."""

    uid: str
    manifest: dict[str, Any]
    digest: str
    seconds_left: float
    ends: float  # server's time, seconds since 1970

    @property
    def namespace(self) -> str:
        """Of the pod; empty where the manifest names none."""
        return str(self._metadata.get("namespace") or "")

    @property
    def name(self) -> str:
        """Of the pod; empty where the manifest names none."""
        return str(self._metadata.get("name") or "")

    @property
    def _metadata(self) -> dict[str, Any]:
        found = self.manifest.get("metadata")
        return found if isinstance(found, dict) else {}


class Manifests:
    """What one cluster's pods can be created again from. Every method raises BrokerError. Thread-safe."""

    def __init__(self, redis: RedisClient, base: str) -> None:
        self._redis = redis
        self._prefix = f"{base}manifest:"

    def keep(self, pod_uid: str, manifest: dict[str, Any]) -> str:
        """Keep one for 30 days; returns the digest that the trail names."""
        stored = _Stored(salt=uuid4().hex[:16], manifest=manifest)
        with translated(self._redis, "cannot keep a manifest"):
            self._redis.set(self._prefix + pod_uid, stored.model_dump_json(), ex=MANIFEST_SECONDS)
        return stored.digest

    def get(self, pod_uid: str) -> Kept | None:
        """A kept manifest, or None."""
        key = self._prefix + pod_uid
        with translated(self._redis, "cannot read a manifest"), self._redis.pipeline() as pipe:
            pipe.get(key)
            pipe.pttl(key)
            pipe.time()
            text, left, (seconds, micros) = pipe.execute()
        stored, left = _stored(text), max(0, int(left)) / 1000
        return Kept(pod_uid, stored.manifest, stored.digest, left, seconds + micros / 1e6 + left) if stored else None

    def all(self) -> list[Kept]:
        """Every manifest that is kept, the newest first. Walks over all keys: for people, not for loops."""
        found = (self.get(uid) for uid in self._uids())
        return sorted((each for each in found if each is not None), key=lambda each: (-each.ends, each.uid))

    def _uids(self) -> Iterator[str]:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix) + "*"
        with translated(self._redis, "cannot list the manifests"):
            keys = {str(key) for key in self._redis.scan_iter(match=pattern, count=SCAN_COUNT)}
        return (key.removeprefix(self._prefix) for key in keys)


def _stored(text: str | None) -> _Stored | None:
    if text is None:
        return None
    try:
        return _Stored.model_validate_json(text)
    except ValidationError as error:  # of another version; what is in it is not for logs
        log.warning("a manifest cannot be read", why=error.errors(include_input=False)[0]["msg"])
        return None
