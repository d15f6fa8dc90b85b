"""The workloads of the demo, and looking at them through the API server as anybody would."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from remesh.decide import counts, failure_text
from remesh.errors import ClusterError, NotFound
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient
from remesh.objects import Pod, Workload
from remesh.testbed import InjectorWear, TestBed

SHOP = "shop"
ALONE = "left-alone"  # the same workload, but the demo's policy keeps remesh out of it
READY_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Sight:
    """The ReplicaSets of one namespace at one moment."""

    total: int = 0
    stuck: int = 0  # refused, and without all their pods
    whole: int = 0  # all pods there and Ready


class Stage:
    """One namespace of many Deployments, and one Deployment that is left to Kubernetes alone."""

    def __init__(self, bed: TestBed, count: int, replicas: int) -> None:
        self._client = KubeClient(load_access(bed.kubeconfig))
        self._cluster = Cluster(self._client)
        self._wear = bed.wear
        self.count = count
        self.replicas = replicas

    def set_up(self) -> None:
        """Create the namespaces, empty."""
        for name in (SHOP, ALONE):
            self._create("/api/v1/namespaces", meshed_namespace(name, self._wear))
        for name in (SHOP, ALONE):
            self._wait_for_service_account(name)

    def roll_out(self) -> None:
        """Create every Deployment at once, as a release would."""
        for number in range(self.count):
            self._deploy(SHOP, f"app-{number:03d}")
        self._deploy(ALONE, "app-alone")

    def look(self, namespace: str = SHOP) -> Sight:
        """The ReplicaSets as they are now."""
        found: list[Workload] = self._cluster.list("ReplicaSet", namespace)
        failing = [each for each in found if failure_text(each)]
        return Sight(
            total=len(found),
            stuck=sum(1 for each in failing if counts(each).current < counts(each).desired),
            whole=sum(1 for each in found if counts(each).ready >= counts(each).desired > 0),
        )

    def injected(self) -> tuple[int, int]:
        """Pods that are Ready and carry the sidecar, and all pods."""
        pods: list[Pod] = self._cluster.list("Pod", SHOP)
        return sum(1 for pod in pods if pod.ready and _has_container(pod, self._wear.sidecar)), len(pods)

    def events(self) -> int:
        """Kubernetes Events that the API server kept of the namespace."""
        return len(self._events(SHOP))

    def tries_of_the_one_left_alone(self) -> int:
        """Failed tries that Kubernetes Events tell of: all of them for one object's first 25, few later."""
        failed = (event for event in self._events(ALONE) if event.get("reason") == "FailedCreate")
        return sum(int(event.get("count") or 1) for event in failed)

    def _events(self, namespace: str) -> list[dict[str, Any]]:
        return list(self._client.get(f"/api/v1/namespaces/{namespace}/events").get("items", []))

    def _deploy(self, namespace: str, name: str) -> None:
        self._create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(name, self.replicas))

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        self._client.request("POST", path, body=body)

    def _wait_for_service_account(self, namespace: str) -> None:
        """Pods are refused until the namespace has its service account; that is not the trouble to be shown."""
        end = time.monotonic() + READY_PATIENCE_SECONDS
        while time.monotonic() < end:
            with suppress(NotFound):
                self._client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
                return
            time.sleep(0.1)
        raise ClusterError(f"namespace {namespace} got no service account within {READY_PATIENCE_SECONDS:.0f} s")


def meshed_namespace(name: str, wear: InjectorWear) -> dict[str, Any]:
    """A namespace that the injector's webhook sees and that asks for the sidecar."""
    labels = dict(wear.namespace_selector.get("matchLabels", {}))
    for expression in wear.namespace_selector.get("matchExpressions", ()):
        if expression["operator"] in ("In", "Exists"):
            labels[expression["key"]] = (expression.get("values") or ["true"])[0]
    labels.update([wear.ask_label] if wear.ask_label else [])
    annotations = dict([wear.ask_annotation]) if wear.ask_annotation else {}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
    }


def deployment(name: str, replicas: int) -> dict[str, Any]:
    """A Deployment with one container."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "demo/app:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _has_container(pod: Pod, name: str) -> bool:
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(container.name == name for container in containers)
