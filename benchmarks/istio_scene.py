"""The Deployment that came up bare, and what is measured while something mends it."""

import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.istio_ways import rollout
from remesh.testbed import Fault
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.api import Object
from tests.cluster.istio import IstioCluster
from tests.cluster.replicas import Admission
from tests.stack import wait_until

NAMESPACE, IDLE = "bench-shop", "bench-idle"
BIG, FEW = "web", "few"
# Of every pod that Istio has injected; so the API server itself can count those without it.
INJECTED_LABEL: Final = "security.istio.io/tlsMode=istio"
BARE_LABEL: Final = "security.istio.io/tlsMode!=istio"
IDLE_PAUSE: Final = 0.1  # seconds between two single pods
LOOK_SECONDS: Final = 0.1  # between two looks at the Deployment
PATIENCE_SECONDS: Final = 900.0


@dataclass
class Run:
    """What one way cost."""

    way: str
    began: float  # seconds since the epoch
    seconds: float
    computed: bool = False  # the rest of the time is computed from the rate
    touched_bare: int = 0
    touched_injected: int = 0
    left_bare: int = 0
    new_bare: int = 0
    fewest_ready: int = 0
    admission_ms: dict[str, float] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)


class Scene:
    """One Deployment in one namespace of one cluster."""

    def __init__(self, bed: IstioCluster, client: Client, ready_seconds: float) -> None:
        self.bed, self.client = bed, client
        self._words = {"annotations": {"test.remesh.dev/ready-after": f"{ready_seconds}s"}} if ready_seconds else {}
        self.bare: list[str] = []  # names of the bare pods before something mends them

    def build(self, replicas: int) -> None:
        """Create it, every pod injected."""
        for name in (NAMESPACE, IDLE):
            self.client.create_meshed_namespace(name, self.bed.wear)
        self.client.create(NAMESPACE, w.deployment(BIG, replicas, **self._words))
        self._settle(BIG, replicas)

    def idle(self, seconds: float) -> dict[str, float]:
        """How long creations take while nothing else goes on."""
        began = time.time()
        for number in range(round(seconds / IDLE_PAUSE)):
            self.client.create(IDLE, w.pod(f"single-{number}"))
            time.sleep(IDLE_PAUSE)
        found = summary(self._admissions(IDLE, began, time.time()))
        self.client.delete_workloads(IDLE)
        return found

    def make_bare(self, replicas: int, bare: int) -> None:
        """Every pod injected but this many, which were created while istiod was dead; it still is."""
        self.client.scale("Deployment", NAMESPACE, BIG, replicas - bare)
        self._settle(BIG, replicas - bare)
        self.bed.change_webhook(failurePolicy="Ignore")
        self.bed.inject_fault(Fault.KILLED)
        self.client.scale("Deployment", NAMESPACE, BIG, replicas)
        self._settle(BIG, replicas, bare)

    def few(self, replicas: int, way: str) -> Run:
        """The rollout of a small Deployment beside it."""
        self.client.create(NAMESPACE, w.deployment(FEW, replicas, **self._words))
        self._settle(FEW, replicas)
        began = time.time()
        rollout(self.client, NAMESPACE, FEW)
        fewest = self._follow(FEW, replicas)
        ended = time.time()
        run = Run(way, began, ended - began, touched_bare=replicas, fewest_ready=fewest)
        run.admission_ms = summary(self._admissions(NAMESPACE, began, ended))
        self.client.api.delete(w.path("Deployment", NAMESPACE, FEW), {"propagationPolicy": "Background"})
        wait_until(lambda: not self._names(f"app={FEW}"), "the small Deployment to go", 120)
        return run

    def run(self, way: str, act: Callable[[], float | None]) -> Run:
        """Let something mend it. `act` begins, or says when it has begun; or how many seconds it would take in all."""
        before = {pod["metadata"]["uid"]: w.has_container(pod, self.bed.wear.sidecar) for pod in self._pods()}
        began = time.time()
        said = act()
        computed = way == "drip" and said is not None
        if way == "remesh" and said is not None:
            began = min(began, said)
        replicas = len(before)
        fewest = 0 if computed else self._follow(BIG, replicas)
        ended = time.time()
        seconds = said if computed and said else ended - began
        run = Run(way, began, seconds, computed, fewest_ready=fewest)
        self._count(run, before, began, ended)
        if computed:
            self.client.scale("Deployment", NAMESPACE, BIG, 0)
            wait_until(lambda: not self._names(f"app={BIG}"), "all pods to go", 300)
        return run

    def _count(self, run: Run, before: dict[str, bool], began: float, ended: float) -> None:
        now = {pod["metadata"]["uid"] for pod in self._pods()}
        run.touched_injected = sum(1 for uid, injected in before.items() if injected and uid not in now)
        run.touched_bare = sum(1 for uid, injected in before.items() if not injected and uid not in now)
        run.left_bare = len(self._names(f"app={BIG},{BARE_LABEL}"))
        admissions = self._admissions(NAMESPACE, began, ended)
        run.new_bare = sum(1 for each in admissions if each.outcome in ("failed-open", "skipped"))
        run.admission_ms = summary(admissions)

    def _follow(self, name: str, replicas: int) -> int:
        """Look until all are Ready and injected; the fewest that were Ready at any look."""
        fewest, end = replicas, time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            ready = self._ready(name)
            fewest = min(fewest, ready)
            if self._whole(name, replicas) and not self._names(f"app={name},{BARE_LABEL}", 1):
                return fewest
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"{name} was not mended in {PATIENCE_SECONDS:.0f} s")

    def _settle(self, name: str, replicas: int, bare: int = 0) -> None:
        def settled() -> bool:
            if not self._whole(name, replicas):
                return False
            self.bare = self._names(f"app={name},{BARE_LABEL}")
            return len(self.bare) == bare and len(self._names(f"app={name}")) == replicas

        wait_until(settled, f"{replicas} pods of {name}, {bare} of them bare", 300)

    def _ready(self, name: str) -> int:
        status = self.client.get("Deployment", NAMESPACE, name).get("status", {})
        return int(status.get("readyReplicas", 0))

    def _whole(self, name: str, replicas: int) -> bool:
        found = self.client.get("Deployment", NAMESPACE, name)
        status = found.get("status", {})
        counts = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
        looked = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return looked and counts == [replicas] * 3

    def _names(self, selector: str, limit: int = 0) -> list[str]:
        query = {"labelSelector": selector} | ({"limit": str(limit)} if limit else {})
        found = self.client.api.items(w.collection("Pod", NAMESPACE), **query)
        return [pod["metadata"]["name"] for pod in found]

    def _pods(self) -> list[Object]:
        return self.client.api.items(w.collection("Pod", NAMESPACE), labelSelector=f"app={BIG}")

    def _admissions(self, namespace: str, began: float, ended: float) -> list[Admission]:
        found = self.bed.admissions()
        return [a for a in found if a.namespace == namespace and began <= a.time <= ended and not a.dry_run]


def summary(admissions: Collection[Admission]) -> dict[str, Any]:
    """Milliseconds of the whole request: median, 99th percentile, the longest; and how many there were."""
    found = sorted(each.milliseconds for each in admissions)
    if not found:
        return {"count": 0, "p50": 0.0, "p99": 0.0, "most": 0.0}
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    return {"count": len(found), "p50": statistics.median(found), "p99": p99, "most": found[-1]}
