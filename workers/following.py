"""The pods of owners that have many, followed by a watch while they are being replaced.

A list of a thousand pods is megabytes, and every replacement asks for several. So a worker keeps a large owner's pods
current by a watch, as controllers do, until nobody has asked for them for a while. It is believed as long as a list or
a change of them has come of late, and how late is for the caller to say; without it everything is listed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from remesh import logs
from remesh.kube.decode import selector_text
from remesh.kube.transport import KubeClient
from remesh.kube.watch import Reflector
from remesh.objects import Pod, Workload
from remesh.tally import active

log = logs.get("worker.following")

MOST: Final = 16  # owners at the same time; each costs three threads, a connection and some 5 KB a pod
LINGER_SECONDS: Final = 30.0  # after the last question
GIVEN_UP_SECONDS: Final = 60.0  # an owner whose pods cannot be watched, for want of the right perhaps
LIST_SECONDS: Final = 5.0  # for the list that it begins with
LOOK_SECONDS: Final = 1.0  # between two looks whether anybody still asks

Number = Callable[[list[str]], tuple[int, list[int]]]
"""The last number that any of an owner's pods has, and those of the pods with these UIDs: `Ledger.number_pods`."""


class Flock(NamedTuple):
    """An owner's pods at one moment."""

    pods: dict[str, Pod]  # by UID
    came: int  # pods that have come since it is followed


class Counted(NamedTuple):
    """The same, with the numbers that all workers give them."""

    flock: Flock
    numbers: dict[str, int]  # by UID, of each of them
    last: int  # the last number that any pod of this owner has; 0 where it was not asked


@dataclass(slots=True)
class _Followed:
    asked: float  # when somebody asked last, monotonic
    heard: float = float("-inf")  # when a whole list or a change came last, monotonic
    stop: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)
    pods: dict[str, Pod] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    came: int = 0


class Following:
    """All owners that one worker follows. Thread-safe."""

    def __init__(self, client: KubeClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._given_up: dict[str, float] = {}  # until when, by the owner's UID

    def begin(self, owner: Workload) -> None:
        """Follow its pods from now on, unless there is no selector, no room, or it was tried in vain of late.

        Returns when their list has come, or could have: so that nobody else lists them, and nothing is done meanwhile.
        """
        uid, now = owner.metadata.uid, self._monotonic()
        selector = selector_text(owner.spec.selector)
        if not selector:
            return
        with self._lock:
            self._given_up = {each: until for each, until in self._given_up.items() if until > now}
            followed = self._followed.get(uid)
            if followed is None:
                if uid in self._given_up or len(self._followed) >= MOST:
                    return
                followed = self._followed[uid] = _Followed(now)
                self._start(owner, selector, followed)
        with followed.changed:
            followed.changed.wait_for(lambda: followed.stop.is_set() or followed.heard > float("-inf"), LIST_SECONDS)

    def counted(self, owner_uid: str, seconds: float, number: Number, *, anew: bool) -> Counted | None:
        """Its pods with their numbers, if they are followed and a list or a change came at most `seconds` ago.

        `anew`: also the last number of all, as of now. Raises what `number` raises.
        """
        followed = self._of(owner_uid)
        if followed is None or (flock := self._flock(followed, seconds)) is None:
            return None
        with followed.changed:
            known = {uid: each for uid, each in followed.numbers.items() if uid in flock.pods}
        new = _by_age([pod for uid, pod in flock.pods.items() if uid not in known])
        if not new and not anew:
            return Counted(flock, known, 0)
        newest = [max(known, key=lambda uid: known[uid])] if known else []
        last, found = number(newest + new)
        if newest and found[0] != known[newest[0]]:  # whoever keeps the numbers has lost them
            newest, new = [], _by_age(list(flock.pods.values()))
            last, found = number(new)
            known = {}
        known |= dict(zip(newest + new, found, strict=True))
        with followed.changed:
            followed.numbers = known
        return Counted(flock, known, last)

    def wait(self, owner_uid: str, seen: Flock, uid: str, seconds: float) -> bool:
        """Block until the pod of that UID has become Ready or ends; for `uid` "" until another pod has come.

        `seen` is what the caller knows already; `seconds` the longest time. False, at once, if it is not followed.
        """
        followed = self._of(owner_uid)
        if followed is None or followed.stop.is_set():
            return False
        with followed.changed:
            followed.changed.wait_for(lambda: followed.stop.is_set() or _news(followed, seen, uid), seconds)
        return True

    def _of(self, owner_uid: str) -> _Followed | None:
        with self._lock:
            followed = self._followed.get(owner_uid)
        if followed is not None:
            followed.asked = self._monotonic()
        return followed

    def _flock(self, followed: _Followed, seconds: float) -> Flock | None:
        with followed.changed:
            if followed.stop.is_set() or self._monotonic() - followed.heard > seconds:
                return None
            return Flock(dict(followed.pods), followed.came)

    def _start(self, owner: Workload, selector: str, followed: _Followed) -> None:
        uid = owner.metadata.uid

        def on_list(items: list[Any]) -> None:
            self._replace(followed, uid, items)

        def on_event(event: str, pod: Any) -> None:
            self._apply(followed, uid, event, pod)

        namespace = owner.metadata.namespace
        reflector = Reflector(
            self._client, "Pod", on_list, on_event, namespace=namespace, label_selector=selector, whole=True
        )
        log.info("following the pods of a large owner", owner=f"{owner.kind}/{owner.metadata.name}", uid=uid)
        threading.Thread(target=self._run, args=(followed, reflector), name="following", daemon=True).start()
        threading.Thread(
            target=self._attend, args=(uid, followed, reflector), name="following-end", daemon=True
        ).start()

    def _replace(self, followed: _Followed, owner_uid: str, pods: list[Pod]) -> None:
        owned = {pod.metadata.uid: pod for pod in pods if pod.metadata.controlled_by(owner_uid)}
        with followed.changed:
            followed.came += len(owned.keys() - followed.pods.keys())
            followed.pods = owned
            followed.heard = self._monotonic()
            followed.changed.notify_all()

    def _apply(self, followed: _Followed, owner_uid: str, event: str, pod: Pod) -> None:
        uid = pod.metadata.uid
        with followed.changed:
            news = uid not in followed.pods
            if event == "DELETED" or not pod.metadata.controlled_by(owner_uid):
                followed.pods.pop(uid, None)
                news = True
            else:
                followed.came += news
                followed.pods[uid] = pod
            followed.heard = self._monotonic()
            if news or pod.ready or not active(pod):  # nobody waits for anything else
                followed.changed.notify_all()

    def _run(self, followed: _Followed, reflector: Reflector) -> None:
        try:
            reflector.run(followed.stop)
        except Exception:  # the edge of the thread; without it pods are listed again
            log.exception("following ended")
        finally:
            self._end(followed)

    def _attend(self, uid: str, followed: _Followed, reflector: Reflector) -> None:
        """End it when nobody asks any more, and give it up for a while if it does not work."""
        while not followed.stop.wait(LOOK_SECONDS):
            now = self._monotonic()
            if reflector.last_error:
                with self._lock:
                    self._given_up[uid] = now + GIVEN_UP_SECONDS
                break
            if now - followed.asked > LINGER_SECONDS:
                break
        self._end(followed)

    def _end(self, followed: _Followed) -> None:
        with self._lock:
            for uid in [uid for uid, each in self._followed.items() if each is followed]:
                del self._followed[uid]
        followed.stop.set()
        with followed.changed:
            followed.changed.notify_all()


def _by_age(pods: list[Pod]) -> list[str]:
    return [pod.metadata.uid for pod in sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)]


def _news(followed: _Followed, seen: Flock, uid: str) -> bool:
    if not uid:
        return followed.came != seen.came
    pod = followed.pods.get(uid)
    return pod is None or (pod is not seen.pods.get(uid) and (pod.ready or not active(pod)))
