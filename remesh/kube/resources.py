"""Where each kind lives in the API, by Kubernetes' own names. Pure: no I/O."""

from dataclasses import dataclass
from urllib.parse import quote

from remesh.errors import UsageError
from remesh.models import ObjectRef


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object and its place in the API."""

    kind: str
    api_version: str  # "v1", or "GROUP/VERSION"
    plural: str
    namespaced: bool = True
    workload: bool = False  # its projection is `Workload`: it creates pods from a template

    @property
    def group(self) -> str:
        """API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, or of one object, or of its subresource. An empty namespace means all."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        scope = f"/namespaces/{_segment(namespace)}" if self.namespaced and namespace else ""
        tail = "".join(f"/{_segment(part)}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


def _segment(text: str) -> str:
    """One URL path segment: a name from a message or a command line can never reach another path."""
    if text in (".", "..") or "/" in text or "%" in text:  # the API server refuses these as names, too
        raise UsageError(f"{text!r} is no name of a Kubernetes object; correct the name")
    return quote(text, safe=":")


KINDS: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        Resource("Pod", "v1", "pods"),
        Resource("Namespace", "v1", "namespaces", namespaced=False),
        Resource("Node", "v1", "nodes", namespaced=False),
        Resource("Service", "v1", "services"),
        Resource("ReplicationController", "v1", "replicationcontrollers", workload=True),
        Resource("ReplicaSet", "apps/v1", "replicasets", workload=True),
        Resource("StatefulSet", "apps/v1", "statefulsets", workload=True),
        Resource("DaemonSet", "apps/v1", "daemonsets", workload=True),
        Resource("Deployment", "apps/v1", "deployments", workload=True),
        Resource("Job", "batch/v1", "jobs", workload=True),
        Resource("CronJob", "batch/v1", "cronjobs", workload=True),
        Resource("EndpointSlice", "discovery.k8s.io/v1", "endpointslices"),
        Resource(
            "MutatingWebhookConfiguration",
            "admissionregistration.k8s.io/v1",
            "mutatingwebhookconfigurations",
            namespaced=False,
        ),
    )
}
"""Kinds that remesh reads and writes by itself; others are looked up by discovery (`Cluster.resource`)."""


def resource_of(kind: str) -> Resource:
    """Place of a known kind in the API. Raises UsageError for any other."""
    try:
        return KINDS[kind]
    except KeyError:
        known = ", ".join(sorted(KINDS))
        raise UsageError(f"kind {kind!r} is not one that remesh reads; known are {known}") from None


def path_for(ref: ObjectRef, subresource: str = "") -> str:
    """URL path of one object of a known kind."""
    return resource_of(ref.kind).path(ref.namespace, ref.name, subresource)
