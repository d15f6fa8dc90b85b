"""Pods on a real control plane, for clients to list and follow: the same questions as to `benchmarks.served.Served`.

Deployments of a hundred pods, made by the real controllers, injected by the tests' webhook and run by kwok, so that
names, managedFields and statuses are what API servers really send: over TLS, compressed for who asks for that, and as
protobuf for who speaks it. Changes are patches of one annotation.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.pods import pod
from benchmarks.served import cpu_seconds
from tests.client import Client
from tests.cluster import RealCluster, Tuning
from tests.cluster import workloads as w
from tests.cluster.api import Object
from tests.stack import wait_until

EACH: Final = 100  # pods of a Deployment
NAMESPACE: Final = "bench-watch"
WRITERS: Final = 8
PATIENCE_SECONDS: Final = 1200.0
REST_SECONDS: Final = 3.0
REST_OF_A_CORE: Final = 0.3
ANNOTATION: Final = "bench.remesh.dev/change"


@contextmanager
def real_pods(count: int) -> Iterator["RealPods"]:
    """A cluster of its own with so many pods, all Ready."""
    bed = RealCluster.start(nodes=max(3, count // EACH), tuning=Tuning(controller_qps=400))
    try:
        with closing(Client(bed.kubeconfig)) as client:
            pods = RealPods(bed, client, count)
            pods.create()
            yield pods
    finally:
        bed.stop()


class RealPods:
    """So many pods, and what can be asked about them."""

    def __init__(self, bed: RealCluster, client: Client, count: int) -> None:
        self._bed, self._client, self._count = bed, client, count
        self._changes, self._before = 0, 0
        self._lock = threading.Lock()

    def create(self) -> None:
        """All of them; returns when they are Ready."""
        self._client.create_meshed_namespace(NAMESPACE, self._bed.wear)
        for number in range(self._count // EACH):
            self._client.create(NAMESPACE, _deployment(number))
        wait_until(self._all_ready, f"{self._count} pods to be Ready", PATIENCE_SECONDS)
        wait_until(self._is_at_rest, "the control plane to be at rest", PATIENCE_SECONDS)

    def kubeconfig(self, folder: Path) -> Path:
        """How to reach it."""
        del folder  # it has one of its own
        return self._bed.kubeconfig

    def ask(self, what: str) -> dict[str, Any]:
        """All pods of the cluster by UID (`pods`), or how many changes the last `change` made."""
        if what != "pods":
            return {"changes": self._changes - self._before}
        found = self._client.api.items("/api/v1/pods")
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}

    def change(self, seconds: float, rate: float) -> None:
        """Patch pods one after the other, at this rate or as fast as the API server takes it."""
        self._before = self._changes
        names = itertools.cycle([each["metadata"]["name"] for each in self._pods()])
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._write, args=(names, end, rate / WRITERS)) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, names: "itertools.cycle[str]", end: float, rate: float) -> None:
        with closing(Client(self._bed.kubeconfig)) as client:
            due = time.monotonic()
            while due < end and time.monotonic() < end:
                time.sleep(max(0.0, due - time.monotonic()))
                due += 1 / rate
                with self._lock:
                    name, number = next(names), self._changes
                    self._changes += 1
                change = {"metadata": {"annotations": {ANNOTATION: str(number)}}}
                client.api.patch(w.path("Pod", NAMESPACE, name), change)

    def _all_ready(self) -> bool:
        found = self._client.items("Deployment", NAMESPACE)
        ready: int = sum(each.get("status", {}).get("readyReplicas", 0) for each in found)
        return ready == self._count

    def _is_at_rest(self) -> bool:
        """Whoever came first would otherwise be served by an API server that is still busy with all these new pods."""
        before = self._cpu_seconds()
        time.sleep(REST_SECONDS)
        return self._cpu_seconds() - before < REST_OF_A_CORE * REST_SECONDS

    def _cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._bed.pids().values())

    def _pods(self) -> list[Object]:
        return self._client.pods(NAMESPACE)


def _deployment(number: int) -> Object:
    """Its pods' template is as large as those of the generated ones."""
    body = w.deployment(f"service-{number}", EACH)
    spec = pod(0)["spec"]
    body["spec"]["template"]["spec"] = {
        "containers": spec["containers"],
        "volumes": [{"name": "kube-api-access", "emptyDir": {}}],
    }
    return body
