"""A cluster in memory: the API server of the simulated cluster, without its controllers and without a socket.

`remesh.kube.api.Cluster` runs on it unchanged. Nothing happens by itself: a nudge makes the missing pods, and an
eviction puts another pod in the place of the evicted one, both through admission, as a controller would.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import msgspec

from remesh.kube.api import Cluster
from remesh.kube.failures import Answer, answer_error
from remesh.kube.transport import JSON, READ_SECONDS, KubeClient, Params
from remesh.objects import Pod, Workload
from remesh.sim import defaults
from remesh.sim import resources as res
from remesh.sim.admission import Admission
from remesh.sim.api import ApiServer
from remesh.sim.injector import Injector
from remesh.sim.kubelet import new_node
from remesh.sim.objects import Obj, controller_of, controller_reference, copy, is_active
from remesh.sim.resources import Resource
from remesh.sim.routes import Request, Router, locate
from remesh.sim.status import StatusError
from remesh.sim.store import Store
from remesh.tally import counts

BY_KIND = {resource.kind: resource for resource in res.STORED}
OWNERS = (res.REPLICA_SETS, res.REPLICATION_CONTROLLERS, res.STATEFUL_SETS, res.DAEMON_SETS, res.JOBS)


@dataclass(frozen=True)
class Write:
    """One write that was not refused, and not a dry run."""

    verb: str  # annotate, evict or create
    namespace: str
    name: str


class MemoryClient(KubeClient):
    """The transport, without a network."""

    def __init__(self, world: "MemoryCluster") -> None:
        self._world = world

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = JSON,
        timeout: float = READ_SECONDS,
        gzip: bool = False,
        accept: str = JSON,
        impersonate: str = "",
    ) -> bytes:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
        answer = self._world.router.answer(
            Request(method, path, urlencode(params or {}), content_type, data, impersonate)
        )
        if answer.code >= 300:
            raise answer_error(Answer("memory", "", f"{method} {path}", answer.code, answer.body, None))
        if method != "GET" and (params or {}).get("dryRun") != "All" and "selfsubject" not in path:
            self._world.obey(path, answer.body)
        return answer.body


@dataclass
class MemoryCluster:
    """The objects, the injectors behind their webhooks, and what was written."""

    store: Store = field(default_factory=lambda: Store(16))
    writes: list[Write] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(self.store)
        self.api = ApiServer(self.store, self.admission)
        self.router = Router(self.api)
        self.api.create(res.NODES, "", new_node(0))
        self.cluster = Cluster(MemoryClient(self))

    def add(self, body: Obj) -> None:
        """Store an object as it is, status included; what a manifest may leave out is filled in."""
        resource = BY_KIND[body["kind"]]
        obj = {key: value for key, value in copy(body).items() if key not in ("kind", "apiVersion")}
        defaults.fill(resource, obj)
        self.store.insert(resource, obj)

    def serve(self, injector: Injector) -> None:
        """Let an injector answer behind its Service."""
        self.admission.backends[injector.wear.namespace, injector.wear.service] = injector

    # What controllers and kubelets do

    def obey(self, path: str, answer: bytes) -> None:
        """Note a write, and do what would follow from it."""
        target = locate(path)
        if target.subresource == "eviction":
            self.writes.append(Write("evict", target.namespace, target.name))
            self._replace(target.namespace, target.name)
        elif target.resource is res.PODS:
            name = str(msgspec.json.decode(answer)["metadata"]["name"])
            self.writes.append(Write("create", target.namespace, name))
            self._start(target.namespace, name)
        else:
            self.writes.append(Write("annotate", target.namespace, target.name))
            self._fill_up(target.resource, target.namespace, target.name)

    def _replace(self, namespace: str, name: str) -> None:
        gone = self.store.get(res.PODS, namespace, name)
        if gone is None:
            return
        self.store.remove(res.PODS, gone)
        reference = controller_of(gone.obj)
        resource = BY_KIND.get(reference["kind"]) if reference else None
        owner = self.store.get(resource, namespace, reference["name"]) if reference and resource in OWNERS else None
        if owner is not None and resource is not None:
            ordered = resource is res.STATEFUL_SETS
            self._create(resource, owner.obj, name if ordered else "")

    def _fill_up(self, resource: Resource, namespace: str, name: str) -> None:
        owner = self.store.get(resource, namespace, name)
        if owner is None:
            return
        workload = msgspec.convert({"kind": resource.kind, **owner.obj}, Workload)
        there = sum(1 for pod in self.store.owned(res.PODS, workload.metadata.uid) if is_active(pod))
        for number in range(counts(workload).desired - there):
            self._create(resource, owner.obj, f"{name}-{50 + number}" if resource is res.STATEFUL_SETS else "")

    def _create(self, resource: Resource, owner: Obj, name: str) -> None:
        template = owner["spec"]["template"]
        named = {"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}
        reference = controller_reference(resource, owner)
        metadata = {**copy(template.get("metadata") or {}), **named, "ownerReferences": [reference]}
        namespace = owner["metadata"]["namespace"]
        try:
            made = self.api.create(res.PODS, namespace, {"metadata": metadata, "spec": copy(template["spec"])})
        except StatusError:
            return
        self._start(namespace, made.obj["metadata"]["name"])

    def _start(self, namespace: str, name: str) -> None:
        def running(pod: Obj) -> Obj:
            pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            return pod

        self.api.change(res.PODS, namespace, name, running, subresource="status")

    # Everything that can be in trouble

    def workloads(self) -> list[Workload]:
        return [found for resource in OWNERS for found in self.cluster.list(resource.kind)]

    def pods(self) -> list[Pod]:
        return list(self.cluster.list("Pod"))
