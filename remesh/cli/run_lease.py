"""One `remesh run` to a cluster on one Redis, whoever starts it and on whichever machine.

A lease in that Redis, taken before anything starts, so that of two that start in the same moment one is refused. It is
taken under the cluster's name, and under the UID of kube-system, too, for others may call the cluster differently;
where the server lets this user write only the keys of one name, that one has to do. `remesh run` renews it while it
waits for its processes; whoever is killed or frozen counts as gone when it ends.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from remesh import ledger_lua as lua
from remesh.cli.only_run import identity
from remesh.cli.session import Session
from remesh.errors import BrokerError, BrokerUnreachable
from remesh.redisdb import key_base, place, translated

SECONDS: Final = 20.0  # longer than it takes to start the processes
RENEW_SECONDS: Final = 5.0


class HeldByAnother(BrokerError):
    """Another `remesh run` works on the same cluster with the same Redis."""


class RunLease:
    """The hold of one `remesh run`. Not thread-safe: taken, renewed and given back by the main thread."""

    def __init__(self, session: Session) -> None:
        self._session, self._redis = session, session.redis
        prefix = session.settings.key_prefix
        self._keys = [f"{key_base(prefix, name)}run" for name in (session.cluster_name, identity(session))]
        told = {"who": session.actor, "pid": os.getpid(), "cluster": session.cluster_name, "token": uuid4().hex}
        self._token = json.dumps(told)
        self._take = self._redis.register_script(lua.LEASE)
        self._let_go = self._redis.register_script(lua.LET_GO)
        self._next = 0.0

    def take(self) -> None:
        """Raises HeldByAnother, having taken nothing; BrokerError if the server cannot be asked."""
        for key in list(self._keys):
            try:
                with translated(self._redis, "cannot take the lease of `remesh run`"):
                    taken = self._take(keys=[key], args=[self._token, round(SECONDS * 1000)])
            except BrokerUnreachable:
                raise
            except BrokerError:
                if key == self._keys[0]:
                    raise
                self._keys.remove(key)  # not one of the keys that this user may write
                continue
            if not taken:
                line = self._refusal(key)
                self.give_back()
                raise HeldByAnother(line)
        self._next = time.monotonic() + RENEW_SECONDS

    def keep(self) -> None:
        """Renew it when that is due. Raises HeldByAnother once another has it; a Redis that is away is waited for."""
        if time.monotonic() < self._next:
            return
        try:
            self.take()
        except HeldByAnother:
            raise
        except BrokerError:
            self._next = time.monotonic() + RENEW_SECONDS

    def give_back(self) -> None:
        """Let go of what is ours; else it ends by itself."""
        for key in self._keys:
            try:
                with translated(self._redis, "cannot give the lease of `remesh run` back"):
                    self._let_go(keys=[key], args=[self._token])
            except BrokerError:
                return

    def _refusal(self, key: str) -> str:
        with translated(self._redis, "cannot read the lease of `remesh run`"), self._redis.pipeline() as pipe:
            pipe.get(key)
            pipe.pttl(key)
            told, left = pipe.execute()
        where, seconds = place(self._redis), max(1, math.ceil(int(left) / 1000))
        return (
            f"another `remesh run` is at work on this cluster already at {where}{_whose(told)}; end it, or wait: "
            f"one that was killed counts as gone in {seconds} s"
        )


def _whose(told: Any) -> str:
    """` (me@host, process 4711, as cluster 'shop')`; "" of what cannot be read."""
    try:
        known = json.loads(told)
        return f" ({known['who']}, process {int(known['pid'])}, as cluster {str(known['cluster'])!r})"
    except (ValueError, KeyError, TypeError):
        return ""


@contextmanager
def run_lease(session: Session) -> Iterator[RunLease]:
    """Hold it. Raises HeldByAnother, BrokerError."""
    lease = RunLease(session)
    lease.take()
    try:
        yield lease
    finally:
        lease.give_back()
