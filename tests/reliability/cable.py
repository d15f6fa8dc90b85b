"""A cable between one process and Redis, which a test pulls out and plugs in again."""

import selectors
import socket
import threading
from contextlib import suppress
from pathlib import Path


class Cable:
    """Listens on a socket of its own, and passes on what comes, both ways. Unplugged, what is sent goes nowhere."""

    def __init__(self, upstream: Path, here: Path) -> None:
        self._upstream = str(upstream)
        self.url = f"unix://{here}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(here))
        self._listener.listen(64)
        self._plugged = threading.Event()
        self._plugged.set()
        self._over = threading.Event()
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def pull(self) -> None:
        """Nothing arrives any more, and nobody is told: as when a switch fails."""
        self._plugged.clear()

    def plug(self) -> None:
        """New connections work. Those from before are cut, as a firewall that forgot them does."""
        for each in self._pairs:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()
        self._plugged.set()

    def close(self) -> None:
        """For good."""
        self._over.set()
        self.plug()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._upstream)
                self._pairs += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with near, far, selectors.DefaultSelector() as ready, suppress(OSError):
            for each in other:
                ready.register(each, selectors.EVENT_READ)
            while not self._over.is_set():
                for key, _ in ready.select(1.0):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    data = end.recv(65536)
                    if not data:
                        return
                    if self._plugged.is_set():
                        other[end].sendall(data)
