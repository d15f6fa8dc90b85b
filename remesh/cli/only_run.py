"""One `remesh run` to a cluster: two would be two repairers, each sure to be the only one.

A cluster is known by the UID of its namespace kube-system, which no context's and no person's name for it changes. The
lock is a file of this user; the kernel lets go of it when the process ends, however it ends. Others' watchers on the
same Redis are found by their presence, and in a cluster by the Lease.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2s
from pathlib import Path

from remesh.cli.session import Session, state_folder
from remesh.errors import BrokerUnreachable, Forbidden, NotFound

LOCKS = ".locks"  # no cluster's folder: a cluster's name begins with a letter or a digit
IDENTITY_NAMESPACE = "kube-system"


class AlreadyRunning(BrokerUnreachable):
    """Another `remesh run` of this user works on the same cluster."""


@contextmanager
def only_run(session: Session) -> Iterator[None]:
    """Hold the lock of the session's cluster. Raises AlreadyRunning; BrokerUnreachable where no file can be made."""
    path = state_folder() / LOCKS / f"{identity(session)}.lock"
    lock = _open(path)
    try:
        _take(lock, session)
        yield
    finally:
        os.close(lock)


def identity(session: Session) -> str:
    """UID of kube-system or, where that must not be read, a hash of the API server's address."""
    try:
        uid = session.cluster.namespace(IDENTITY_NAMESPACE).metadata.uid
    except (Forbidden, NotFound):
        uid = ""
    safe = uid and uid.replace("-", "").isalnum() and uid.isascii()
    return uid if safe else blake2s(session.access.server.encode(), digest_size=16).hexdigest()


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BrokerUnreachable(
            f"{path} cannot be opened: {error.strerror}; let XDG_STATE_HOME name a folder that can be written"
        ) from error


def _take(lock: int, session: Session) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AlreadyRunning(
            f"`remesh run` is already at work on this cluster{_whose(lock)}; use that one, or end it first"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "cluster": session.cluster_name}).encode(), 0)


def _whose(lock: int) -> str:
    """`, as cluster 'shop' (process 4711)`; "" while the other has not written it yet."""
    try:
        told = json.loads(os.pread(lock, 1000, 0))
        return f", as cluster {str(told['cluster'])!r} (process {int(told['pid'])})"
    except (ValueError, KeyError, TypeError):
        return ""
