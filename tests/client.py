"""What a user does to a cluster and sees of it, for scenarios on the simulated and the real one alike."""

import base64
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from remesh.testbed import InjectorWear
from tests.cluster.api import Api, Object
from tests.cluster.errors import ApiError
from tests.cluster.workloads import collection, has_container, is_ready, meshed_namespace, path
from tests.stack import wait_until

OWNERS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
NUDGE = "remesh.dev/nudge"


class Client:
    """Raw access by a kubeconfig with a token."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._folder = tempfile.TemporaryDirectory(prefix="remesh-client-")
        self.api = Api(cluster["server"], self._authority(cluster), token=user["token"])

    def _authority(self, cluster: Object) -> Path:
        if "certificate-authority" in cluster:
            return Path(cluster["certificate-authority"])
        authority = Path(self._folder.name) / "ca.pem"
        authority.write_bytes(base64.b64decode(cluster.get("certificate-authority-data", "")))
        return authority

    def close(self) -> None:
        self.api.close()
        self._folder.cleanup()

    def create_meshed_namespace(self, name: str, wear: InjectorWear) -> None:
        """A namespace that asks for the sidecar; returns when pods can be made there."""
        self.create_namespace(meshed_namespace(name, wear))

    def create_namespace(self, body: Object) -> None:
        """A namespace; returns when pods can be made there."""
        self.api.ensure("/api/v1/namespaces", body)
        name = body["metadata"]["name"]

        def account() -> bool:
            try:
                return bool(self.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
            except ApiError:
                return False

        wait_until(account, f"the default service account of {name}")

    def create(self, namespace: str, body: Object) -> Object:
        return self.api.post(collection(body["kind"], namespace), body)

    def get(self, kind: str, namespace: str, name: str) -> Object:
        return self.api.get(path(kind, namespace, name))

    def items(self, kind: str, namespace: str) -> list[Object]:
        return self.api.items(collection(kind, namespace))

    def pods(self, namespace: str, owner: str | None = None) -> list[Object]:
        """Pods of a namespace, or only those whose owner's name is `owner`."""
        found = self.items("Pod", namespace)
        return [pod for pod in found if owner is None or owner in {ref["name"] for ref in _owners(pod)}]

    def pods_ready_with_sidecar(self, namespace: str, sidecar: str, owner: str | None = None) -> list[str]:
        """Names of the pods that are Ready and carry the sidecar."""
        pods = self.pods(namespace, owner)
        return [pod["metadata"]["name"] for pod in pods if has_container(pod, sidecar) and is_ready(pod)]

    def wait_healed(self, namespace: str, sidecar: str, count: int, seconds: float = 90.0) -> None:
        """Poll until `count` pods are Ready with the sidecar, and no other pod is there."""

        def healed() -> bool:
            return len(self.pods_ready_with_sidecar(namespace, sidecar)) == count == len(self.pods(namespace))

        wait_until(healed, f"{count} pods Ready with {sidecar} in {namespace}", seconds)

    def ready(self, namespace: str) -> list[str]:
        """Names of the pods that are Ready, with or without a sidecar."""
        return [pod["metadata"]["name"] for pod in self.pods(namespace) if is_ready(pod)]

    def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        self.api.patch(path(kind, namespace, name), {"spec": {"replicas": replicas}})

    def change_webhooks(self, configuration: str, **fields: object) -> None:
        """Change fields of every webhook in a configuration, such as `failurePolicy="Ignore"`, as another manager.

        A manager's entry among the managed fields has one time: whoever also set the selectors would seem to have
        changed them now.
        """
        place = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{configuration}"
        changes = [
            {"op": "add", "path": f"/webhooks/{index}/{field}", "value": value}
            for index in range(len(self.api.get(place)["webhooks"]))
            for field, value in fields.items()
        ]
        self.api.patch(f"{place}?fieldManager=somebody-in-an-outage", changes, kind="json")

    def nudge_annotations(self, namespace: str) -> list[str]:
        """Owners that carry the nudge annotation: must be none in the end."""
        return [
            f"{kind}/{thing['metadata']['name']}"
            for kind in OWNERS
            for thing in self.items(kind, namespace)
            if NUDGE in thing["metadata"].get("annotations", {})
        ]

    def wait_failing(self, kind: str, namespace: str, names: Iterable[str], seconds: float = 90.0) -> None:
        """Poll until each of these has the condition ReplicaFailure."""
        wanted = set(names)

        def failing() -> bool:
            return wanted <= {t["metadata"]["name"] for t in self.items(kind, namespace) if _fails(t)}

        wait_until(failing, f"{kind} of {namespace} in ReplicaFailure", seconds)

    def delete_workloads(self, namespace: str) -> None:
        """Delete every owner and pod of a namespace, so that no later test is disturbed by its retries."""
        for kind in OWNERS:
            self._each(kind, namespace, lambda place: self.api.delete(place, {"propagationPolicy": "Background"}))
        self._each("Pod", namespace, lambda place: self.api.delete(place, {"gracePeriodSeconds": 0}))

    def _each(self, kind: str, namespace: str, act: Callable[[str], Any]) -> None:
        for thing in self.items(kind, namespace):
            try:
                act(path(kind, namespace, thing["metadata"]["name"]))
            except ApiError as error:
                if error.status != 404:
                    raise


def _owners(pod: Object) -> list[Object]:
    found: list[Object] = pod["metadata"].get("ownerReferences", [])
    return found


def _fails(thing: Object) -> bool:
    conditions = thing.get("status", {}).get("conditions", [])
    return any(c["type"] == "ReplicaFailure" and c["status"] == "True" for c in conditions)
