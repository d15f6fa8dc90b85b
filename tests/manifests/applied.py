"""Overlays on a real API server: applied with kubectl, and looked at through their ServiceAccounts' own tokens."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import PATCH_TYPES, Api
from tests.cluster.cluster import RealCluster
from tests.cluster.errors import ApiError
from tests.cluster.workloads import collection, replica_set
from tests.manifests import tools
from tests.manifests.tools import NAMESPACE, Object
from tests.stack import wait_until

TOKEN_SECONDS = 3600
REFUSED = 403


@contextmanager
def applied(cluster: RealCluster, objects: list[Object], namespace: str = "default") -> Iterator[None]:
    """These objects on the API server, server-side; afterwards they are deleted. Only the namespace stays.

    `namespace` is one in which the watcher may try pods: there it is seen whether the admission policies are in force.
    """
    kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
    # The namespace comes first in the stream, as in `kubectl apply -k`.
    tools.run("kubectl", kubeconfig, "apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    try:
        _wait_for_admission(cluster, objects, namespace)
        yield
    finally:
        text = yaml.safe_dump_all([each for each in objects if each["kind"] != "Namespace"])
        tools.run("kubectl", kubeconfig, "delete", "--wait=false", "-f", "-", stdin=text)


def _wait_for_admission(cluster: RealCluster, objects: list[Object], namespace: str) -> None:
    """The API server learns of its policies by a watch: poll until they are in force, without creating anything."""
    if not tools.kinds(objects, "ValidatingAdmissionPolicy"):
        return
    watcher, worker = account(cluster, "watcher"), account(cluster, "worker")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    owners = collection("ReplicaSet", "kube-system")
    cluster.api.ensure(pods, pod("here"))
    cluster.api.ensure(owners, replica_set("here", 0))
    nudge = {"metadata": {"annotations": {"remesh.dev/nudge": None}}}

    def in_force() -> bool:
        # Where it is not, the name is taken (409): the API server looks at that last.
        pods_held = not watcher.may("POST", pods, pod("here")) and "dry run" in watcher.said[f"POST {pods}"]
        return pods_held and not worker.may("PATCH", f"{owners}/here", nudge, content_type=PATCH_TYPES["merge"])

    wait_until(in_force, "the admission policies are in force", 60)


def pod(name: str, **metadata: Any) -> Object:
    """A pod that Pod Security admits."""
    container = {
        "name": "app",
        "image": "app",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], "securityContext": security},
    }


@dataclass
class Account:
    """Calls under one ServiceAccount's token."""

    name: str
    api: Api
    kubeconfig: Path
    said: dict[str, str] = field(default_factory=dict)

    def may(self, method: str, path: str, body: Any = None, **more: Any) -> bool:
        """Make the call: True if it went through, or failed for another reason than a missing right."""
        try:
            self.api.request(method, path, body, **more)
        except ApiError as error:
            self.said[f"{method} {path}"] = str(error)
            return error.status != REFUSED
        return True


def account(cluster: RealCluster, name: str) -> Account:
    """A ServiceAccount of remesh's, by a token that the API server was asked for."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/remesh-{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = cluster.api.post(path, {**body, "spec": {"expirationSeconds": TOKEN_SECONDS}})
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    kubeconfig = cluster.kubeconfig.parent / f"account-{name}-{secrets.token_hex(4)}.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(config))
    return Account(name, Api.from_kubeconfig(kubeconfig), kubeconfig)
