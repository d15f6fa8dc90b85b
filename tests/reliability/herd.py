"""All pods of some namespaces as a watch of its own sees them: who was sound, and whom somebody took away when."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from remesh.errors import ClusterError
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient
from remesh.testbed import TestBed
from tests.cluster import workloads as w
from tests.reliability.story import OPTED_OUT

STATUS_SECONDS: Final = 2.0  # within which a disruption budget's status is sure to have followed its pods


@dataclass
class Beast:
    """One pod, as far as it matters here."""

    uid: str
    namespace: str
    name: str
    app: str
    injected: bool
    opted_out: bool
    of_job: bool
    ready: bool = False
    going: bool = False  # being deleted
    left_others: int = -1  # Ready pods of the same app at the moment in which its deletion began, itself not counted
    was_ready: bool = False  # at that moment
    went: float = 0.0  # when that was, on the monotonic clock

    @property
    def should(self) -> bool:
        """True if it should have the sidecar, and remesh would see to it."""
        return not self.opted_out and not self.of_job


@dataclass
class Herd:
    """Follows one watch, whose order is the cluster's own."""

    bed: TestBed
    namespaces: list[str]
    budgets: dict[tuple[str, str], int] = field(default_factory=dict)  # namespace and app → pods that must stay Ready
    ours: set[str] = field(default_factory=set)  # UIDs that the run itself took away
    seen: dict[str, Beast] = field(default_factory=dict)
    _there: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Follow from now on."""
        self._client = KubeClient(load_access(self.bed.kubeconfig, ""))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more. Calling it before `start` is harmless."""
        self._over.set()
        if hasattr(self, "_thread"):
            self._thread.join(35)
            self._client.close()

    @property
    def bare(self) -> int:
        """Different pods that lacked the sidecar which they should have had."""
        return sum(1 for pod in self.seen.values() if pod.should and not pod.injected)

    def live(self) -> list[Beast]:
        """Pods that are there now and stay."""
        with self._lock:
            return [self.seen[uid] for uid in self._there if not self.seen[uid].going]

    def wronged(self, evicted: set[str]) -> list[str]:
        """Whom remesh should not have evicted, in words."""
        return [text for uid in evicted for text in self._wrong(uid)]

    def _wrong(self, uid: str) -> list[str]:
        pod = self.seen.get(uid)
        if pod is None:
            return [f"evicted, and never seen: {uid}"]
        wrong = []
        if pod.injected:
            wrong.append(f"evicted, and was sound: {pod.name}")
        if pod.opted_out:
            wrong.append(f"evicted, and had opted out: {pod.name}")
        least = self.budgets.get((pod.namespace, pod.app), 0)
        if pod.was_ready and uid not in self.ours and 0 <= pod.left_others < least:
            wrong.append(f"evicted beyond its budget: {pod.name}, {pod.left_others} others Ready, {least} must be")
        return wrong

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(ClusterError, ValueError):
                self._follow()
            self._over.wait(0.2)

    def _follow(self) -> None:
        listed = self._client.get("/api/v1/pods")
        with self._lock:
            self._there.clear()
        for pod in listed["items"]:
            self._take("ADDED", pod)
        version = listed["metadata"]["resourceVersion"]
        params: dict[str, str | int] = {"watch": 1, "resourceVersion": version, "timeoutSeconds": 20}
        with self._client.stream("/api/v1/pods", params=params, silence=30) as stream:
            for line in stream.lines():
                event = json.loads(line)
                if self._over.is_set() or event["type"] == "ERROR":
                    return
                self._take(event["type"], event["object"])

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if meta["namespace"] not in self.namespaces:
            return
        with self._lock:
            beast = self.seen.setdefault(meta["uid"], self._new(pod))
            going = kind == "DELETED" or "deletionTimestamp" in meta
            if going and not beast.going:
                beast.went = time.monotonic()
                beast.left_others, beast.was_ready = self._others(beast), beast.ready
            beast.going = beast.going or going
            beast.ready = w.is_ready(pod) and not beast.going
            (self._there.discard if kind == "DELETED" else self._there.add)(beast.uid)

    def _others(self, beast: Beast) -> int:
        """Ready ones, and those that the run itself took away a moment ago.

        A budget's status follows a deletion that asks for no leave only when the disruption controller has seen it;
        until then the API server allows as many evictions as before, to whoever asks.
        """
        since = time.monotonic() - STATUS_SECONDS
        return sum(
            (each.uid in self._there and each.ready) or (each.uid in self.ours and each.was_ready and each.went > since)
            for each in self.seen.values()
            if each.uid != beast.uid and (each.namespace, each.app) == (beast.namespace, beast.app)
        )

    def _new(self, pod: dict[str, Any]) -> Beast:
        meta = pod["metadata"]
        owners = {ref["kind"] for ref in meta.get("ownerReferences", [])}
        return Beast(
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            app=meta.get("labels", {}).get("app", ""),
            injected=w.is_injected(pod, self.bed.wear),
            opted_out=OPTED_OUT.items() <= meta.get("annotations", {}).items(),
            of_job="Job" in owners,
        )
