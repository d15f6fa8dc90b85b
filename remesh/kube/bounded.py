"""An end to an HTTP answer as a whole: sockets' time-outs begin anew with every byte. Used by `remesh.kube.transport`.

urllib3 and http.client read an answer's head, a proxy's answer to CONNECT and the body through one buffered reader over
the socket, so that is where the time is looked at. TLS handshakes have a time-out as a whole in Python itself.
"""

import http.client
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class TooSlow(TimeoutError):
    """The answer was not whole in time."""


class End:
    """When an answer has to be whole."""

    def __init__(self, seconds: float) -> None:
        self._at: float | None = time.monotonic() + seconds

    def lift(self) -> None:
        """It may go on for ever."""
        self._at = None

    def left(self) -> float | None:
        """Seconds that are left, or None for any number. Raises TooSlow if there are none."""
        if self._at is None:
            return None
        left = self._at - time.monotonic()
        if left <= 0:
            raise TooSlow("the answer was not whole in time")
        return left


_end: ContextVar[End | None] = ContextVar("end of answer", default=None)


@contextmanager
def answers(seconds: float) -> Iterator[End]:
    """Bound the answers that this thread begins to read inside."""
    end = End(seconds)
    token = _end.set(end)
    try:
        yield end
    finally:
        _end.reset(token)


def is_too_slow(error: BaseException | None) -> bool:
    """Whether an error of urllib3 comes from TooSlow."""
    while error is not None:
        if isinstance(error, TooSlow):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Raw(io.RawIOBase):
    """A socket's raw reader that knows when to stop."""

    def __init__(self, raw: Any, sock: Any, end: End) -> None:
        self._raw = raw
        self._sock = sock
        self._end = end

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """As the socket's, waiting no longer than is left."""
        left, usual = self._end.left(), self._sock.gettimeout()
        if left is None or (usual is not None and usual <= left):
            return self._read(buffer)
        self._sock.settimeout(left)
        try:
            return self._read(buffer)
        except TimeoutError as error:
            raise TooSlow("the answer was not whole in time") from error
        finally:
            self._sock.settimeout(usual)

    def _read(self, buffer: Any) -> int | None:
        count: int | None = self._raw.readinto(buffer)
        return count

    def fileno(self) -> int:
        """The socket's."""
        number: int = self._raw.fileno()
        return number

    def close(self) -> None:
        """Let go of the socket, as its own reader does."""
        if not self.closed:
            super().close()
            self._raw.close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        end = _end.get()
        if end is not None:
            untyped: Any = self.fp
            self.fp: Any = io.BufferedReader(_Raw(untyped.detach(), sock, end))


class _Plain(HTTPConnection):
    response_class = _Response


class _Secure(HTTPSConnection):
    response_class = _Response


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


POOLS = {"http": _PlainPool, "https": _SecurePool}
"""For a PoolManager's `pool_classes_by_scheme`."""
