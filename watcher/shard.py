"""Which namespaces are this watcher's, where several share a cluster.

Pure. Every namespace belongs to exactly one of N shards, by a hash of its name that never changes: no watcher needs to
know of the others.
"""

import re
from dataclasses import dataclass
from hashlib import blake2s

from remesh.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shard:
    """Number `index`, from 0, of `count`."""

    index: int = 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """True if there are no others."""
        return self.count == 1

    def __str__(self) -> str:
        return "" if self.is_whole else f"{self.index}/{self.count}"

    def owns(self, namespace: str) -> bool:
        """True if the namespace is this shard's; what is in no namespace is everybody's."""
        if self.is_whole or not namespace:
            return True
        digest = blake2s(namespace.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.index


def parse_shard(text: str | None) -> Shard:
    """REMESH_SHARD, such as `0/3`; without one, the whole cluster. Raises ConfigError."""
    if not text:
        return Shard()
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if found is None or int(found[2]) == 0 or int(found[1]) >= int(found[2]):
        raise ConfigError(f"REMESH_SHARD: {text[:20]!r} is no i/N with i from 0 to N-1, such as 0/3; correct it")
    return Shard(int(found[1]), int(found[2]))
