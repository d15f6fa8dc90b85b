"""List and watch of one kind, kept going whatever happens to the connection.

A `Reflector` calls `on_list` with the complete new set after every list and `on_event` for every change after it.
It lists in pages, watches from the list's resourceVersion with bookmarks, goes on from the last one after a broken
or stalled stream, lists again when that is too old (410), and backs off with jitter while the API server fails.
Level-triggered: whoever compares `on_list`'s set with its own misses nothing that still holds.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from remesh import logs
from remesh.errors import ClusterError, Gone, Throttled
from remesh.kube.api import list_all
from remesh.kube.decode import WatchEvent, decode_watch_line
from remesh.kube.failures import Answer, status_error
from remesh.kube.resources import resource_of
from remesh.kube.sharing import Siblings
from remesh.kube.transport import KubeClient, Silent, Stream
from remesh.objects import Slim

log = logs.get("kube.watch")

WATCH_SECONDS = 290
"""The API server ends a watch after this long (up to a tenth less): below the 5 min of common load balancers."""
SILENCE_SECONDS = 90.0
"""A stream without a byte for this long may be stalled, so it is opened anew, without a list.

Bookmarks come about once a minute (the watch cache's default), but for a kind of which the API server has seen no
change since it started there are none.
"""
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 30.0
SHORT_SECONDS = 1.0
"""A watch that ends sooner, and empty, counts as failed."""
STOP_SECONDS = 1.0
"""How long `run` waits for its own thread after `stop`; a connection that hangs is left to end by its time-out."""

OnList = Callable[[list[Slim]], None]
OnEvent = Callable[[str, Slim], None]


class Backoff:
    """Waits that double from 0.5 s to 30 s, each shortened at random by up to half, so that watchers spread out.

    Only a watch that delivers resets it: an API server that lists but cannot watch must not be listed in a loop.
    """

    def __init__(self) -> None:
        self._next = BACKOFF_SECONDS

    def reset(self) -> None:
        """After success."""
        self._next = BACKOFF_SECONDS

    def wait(self) -> float:
        """Seconds until the next try."""
        now, self._next = self._next, min(self._next * 2, BACKOFF_LIMIT_SECONDS)
        return now * random.uniform(0.5, 1.0)


class Reflector:
    """One kind, in one namespace or in all. `run` once, in a thread of its own.

    Callbacks come from one thread, one at a time, and must not raise: what they raise ends `run` with it.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: str,
        on_list: OnList,
        on_event: OnEvent,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        silence: float = SILENCE_SECONDS,
        keep: Callable[[Any], bool] | None = None,
        whole: bool = False,
    ) -> None:
        """`keep` says of each object whether it matters at all; what does not is never held, and never handed over.

        `whole` objects have all their annotations, and share nothing: for few, by which something is decided.
        """
        self.kind = kind
        self.synced = threading.Event()
        """Set once the first complete list has been handed over."""
        self.last_activity = time.monotonic()
        """When the API server last sent anything, on the monotonic clock, in seconds."""
        self.last_turn = self.last_activity
        """When a list or watch was last begun, on the same clock: also while the API server fails."""
        self.last_error = ""
        """One line while the API server fails, "" while it does not."""
        self.lists = 0
        """Complete lists so far."""
        self._client = client
        self._on_list = on_list
        self._on_event = on_event
        self._namespace = namespace
        self._selector = label_selector
        self._silence = silence
        self._keep = keep
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._version = ""  # resourceVersion to go on from; "" means list first
        self._failure: BaseException | None = None
        self._backoff = Backoff()
        self._siblings = None if whole else Siblings()

    def run(self, stop: threading.Event) -> None:
        """List and watch until `stop` is set; then return within about a second; no callback begins after that."""
        worker = threading.Thread(target=self._work, name=f"watch-{self.kind}", daemon=True)
        worker.start()
        while worker.is_alive() and not stop.wait(0.5):
            pass
        self.stop()
        worker.join(STOP_SECONDS)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End `run` from any thread."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.abort()

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                self._turn()
        except BaseException as error:  # handed to the thread that called run()
            self._failure = error

    def _turn(self) -> None:
        """One list if need be, then one watch, however that ends."""
        self.last_turn = time.monotonic()
        try:
            if not self._version:
                self._list()
            began, seen = time.monotonic(), self._watch()
            if not seen and time.monotonic() - began < SHORT_SECONDS:
                self._pause(self._backoff.wait())  # ended at once and empty: do not spin
        except Silent as error:
            log.debug("watch is silent, opening it anew", kind=self.kind, reason=str(error))
        except Gone as error:
            log.info("watch is too old, listing again", kind=self.kind, reason=error.message)
            self._version = ""
            self._pause(self._backoff.wait())  # many watches become too old at once when an API server restarts
        except ClusterError as error:
            self._failed(error)

    def _failed(self, error: ClusterError) -> None:
        if self._stopped.is_set():
            return
        wait = self._backoff.wait()
        if isinstance(error, Throttled):
            wait = max(wait, error.retry_after)
        self.last_error = str(error)
        log.warning("watch failed, trying again", kind=self.kind, error=self.last_error, seconds=round(wait, 1))
        self._pause(wait)

    def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def _list(self) -> None:
        page = list_all(self._client, self.kind, self._namespace, self._selector, each=self._arrived, keep=self._keep)
        self._alive()
        if self._stopped.is_set():
            return
        self._on_list(page.items)
        self._version = page.resource_version
        self.lists += 1
        self.synced.set()

    def _watch(self) -> bool:
        """Hand over changes until the stream ends. True if there was any sign of life in it."""
        path = resource_of(self.kind).path(self._namespace or "")
        seen = False
        with self._client.stream(path, params=self._watch_params(), silence=self._silence) as stream:
            self._stream = stream
            self._alive()
            if self._stopped.is_set():  # set between the request and the line above
                return seen
            for line in stream.lines():
                if self._stopped.is_set():
                    return seen
                self._take(decode_watch_line(self.kind, line))
                seen = True
        return seen

    def _watch_params(self) -> dict[str, str | int]:
        seconds = int(WATCH_SECONDS * random.uniform(0.9, 1.0))
        params: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": seconds,
        }
        return params | ({"labelSelector": self._selector} if self._selector else {})

    def _take(self, event: WatchEvent) -> None:
        if event.status is not None:
            self._version = ""  # whatever it was, only a new list is sure to be right
            access, code = self._client.access, event.status.code or 500
            raise status_error(Answer(access.server, access.context, f"watch of {self.kind}", code), event.status)
        self._alive()
        self._backoff.reset()
        if event.object is not None and (self._keep is None or self._keep(event.object)):
            self._share(event.object)
            self._on_event(event.type, event.object)
        self._version = event.resource_version or self._version

    def _arrived(self, item: Any) -> None:
        """One item of a list, whose pages may take minutes."""
        self._share(item)
        self.last_activity = time.monotonic()

    def _share(self, item: Any) -> None:
        if self._siblings is not None:
            self._siblings.share(item)

    def _alive(self) -> None:
        self.last_activity = time.monotonic()
        self.last_error = ""
