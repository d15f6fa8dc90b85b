"""The cluster in memory: the API server, injectors and controllers of the simulated one, in a single thread.

Nothing runs by itself: `pump` lets every controller do what is due by the machine's clock. Back-off, rollouts and
budgets are those of `remesh.sim`. remesh's processes come in through `Door`, where their faults are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from remesh.errors import ClusterUnreachable
from remesh.kube.failures import Answer as ApiAnswer
from remesh.kube.failures import answer_error
from remesh.kube.transport import JSON, READ_SECONDS, KubeClient, Params
from remesh.sim import resources as res
from remesh.sim.admission import Admission, Answer, CallFailed, Endpoint, Review
from remesh.sim.api import ApiServer
from remesh.sim.client import Client
from remesh.sim.controllers.base import Controller, PodOwner
from remesh.sim.controllers.daemonsets import DaemonSetController
from remesh.sim.controllers.deployments import DeploymentController
from remesh.sim.controllers.derived import DisruptionController
from remesh.sim.controllers.garbage import GarbageCollector
from remesh.sim.controllers.jobs import JobController
from remesh.sim.controllers.replicas import ReplicaSetController, ReplicationControllerController
from remesh.sim.controllers.statefulsets import StatefulSetController
from remesh.sim.injector import Injector
from remesh.sim.kubelet import Kubelets, Scheduler, new_node
from remesh.sim.objects import Obj, is_ready, is_terminating
from remesh.sim.resources import Resource
from remesh.sim.routes import Request, Router, locate
from remesh.sim.status import StatusError
from remesh.sim.store import Store
from remesh.sim.workqueue import Key
from remesh.testbed import Fault, InjectorWear
from tests import wears
from tests.machine.clock import Time

NODES: Final = 3
WEARS: Final = {"linkerd": wears.LINKERD, "istio": wears.ISTIO}
BY_KIND: Final = {resource.kind: resource for resource in res.STORED}
CRASHED_AT: Final = "test.remesh.dev/ready"  # the annotation with which a pod never becomes Ready


class MachineInjector(Injector):
    """A slow or hanging one lets the machine's time pass for remesh's own calls; its controllers just fail."""

    clock: Time

    def _reach(self, endpoint: Endpoint, ca_bundle: str, seconds: float) -> None:
        slow = self.faults & {Fault.FROZEN, Fault.SLOW}
        if Fault.KILLED in self.faults or not slow:
            super()._reach(endpoint, ca_bundle, seconds)
            return
        delay = self.delay_seconds if Fault.FROZEN not in self.faults else seconds
        if self._asked_by_remesh:
            self.clock.passed += min(delay, seconds)
        if delay >= seconds:
            raise CallFailed("context deadline exceeded", keeps_connection=True)

    def call(self, endpoint: Endpoint, review: Review, ca_bundle: str, seconds: float) -> Answer:
        self._asked_by_remesh = review.attributes.dry_run
        return super().call(endpoint, review, ca_bundle, seconds)


class SlowKubelets(Kubelets):
    """Containers take `start_seconds` to be Ready, and `stop_seconds` to stop. `broken`: nothing new becomes Ready."""

    start_seconds = 1.0
    stop_seconds = 1.0
    broken = False
    clock: Time

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._since: dict[tuple[str, bool], float] = {}

    def sync(self, key: Key) -> None:
        pod = self.find(res.PODS, key)
        if pod is None:
            return
        going = is_terminating(pod)
        if not going and is_ready(pod):
            super().sync(key)
            return
        if self.broken and not going:
            self.queue.add_after(key, 5.0)
            return
        since = self._since.setdefault((pod["metadata"]["uid"], going), self.clock.monotonic())
        left = since + (self.stop_seconds if going else self.start_seconds) - self.clock.monotonic()
        if left > 0:
            self.queue.add_after(key, left)
        else:
            super().sync(key)


class _AtOnce:
    """Stands for a pool of threads."""

    def map(self, act: Callable[[int], Any], numbers: range) -> list[Any]:
        return [act(number) for number in numbers]

    def shutdown(self, **_: object) -> None:
        """Nothing to end."""


class _Silent:
    """Stands for the recorder of Kubernetes Events."""

    counts = False

    def record(self, *_: object) -> None:
        """Nobody reads them."""


@dataclass(frozen=True)
class DryRun:
    """One that came back with these sidecars."""

    at: float
    who: str
    namespace: str
    app: str  # label of the template
    sidecars: frozenset[str]
    version: int  # of the webhook configurations


@dataclass
class MachineCluster:
    """Objects, controllers and injectors."""

    clock: Time
    store: Store = field(default_factory=lambda: Store(64))
    dry_runs: list[DryRun] = field(default_factory=list)
    webhooks_version: int = 0
    webhooks_changed: float = -1e9
    unseen: frozenset[tuple[str, str]] = frozenset()  # mesh and app that its webhook leaves out
    unseen_before: frozenset[tuple[str, str]] = frozenset()  # the same before the last change
    api_down: bool = False
    controllers_down: bool = False

    def __post_init__(self) -> None:
        self.admission = Admission(self.store)
        self.api = ApiServer(self.store, self.admission)
        self.router = Router(self.api)
        client = Client(self.api)
        self.kubelets = SlowKubelets(client)
        self.kubelets.clock = self.clock
        self.disruption = DisruptionController(client)
        kinds = (ReplicaSetController, ReplicationControllerController, DeploymentController, StatefulSetController)
        more = (DaemonSetController, JobController, GarbageCollector, Scheduler)
        self._managers: list[Controller] = [kind(client) for kind in (*kinds, *more)]
        self.controllers: list[Controller] = [*self._managers, self.kubelets, self.disruption]
        for each in self.controllers:
            setattr(each, "recorder", _Silent())  # noqa: B010
            if isinstance(each, PodOwner):
                each._pool.shutdown(wait=False)
                setattr(each, "_pool", _AtOnce())  # noqa: B010
            each.queue._tokens_at = self.clock.monotonic()
            each.watch()
        self.injectors: dict[str, MachineInjector] = {}
        for number in range(NODES):
            self.api.create(res.NODES, "", new_node(number))

    # What there is at first

    def namespace(self, name: str, *meshes: str) -> None:
        labels = {"istio-injection": "enabled"} if "istio" in meshes else {}
        annotations = {"linkerd.io/inject": "enabled"} if "linkerd" in meshes else {}
        self.api.create(res.NAMESPACES, "", {"metadata": {"name": name, "labels": labels, "annotations": annotations}})
        self.api.create(res.SERVICE_ACCOUNTS, name, {"metadata": {"name": "default"}})

    def install(self, mesh: str, policy: str) -> None:
        """A mesh whose injector works."""
        wear = WEARS[mesh]
        self.namespace(wear.namespace)
        injector = self.injectors[mesh] = MachineInjector(wear, "bundle")
        injector.clock = self.clock
        self.admission.backends[wear.namespace, wear.service] = injector
        spec = {"ports": [{"port": wear.service_port, "targetPort": wear.target_port}]}
        self.api.create(res.SERVICES, wear.namespace, {"metadata": {"name": wear.service}, "spec": spec})
        labels = {"kubernetes.io/service-name": wear.service}
        body = {
            "metadata": {"name": f"{wear.service}-own", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}, "nodeName": "sim-node-0"}],
            "ports": [{"port": wear.target_port}],
        }
        self.api.create(res.ENDPOINT_SLICES, wear.namespace, body)
        self.configure(mesh, failurePolicy=policy)

    def configure(
        self, mesh: str, *, anew: bool = False, bundle: str = "bundle", leaves_out: str = "", **hook_fields: Any
    ) -> None:
        """(Re)write the webhook configuration of a mesh: the chart's, with these fields changed.

        `leaves_out` is an app whose pods its selectors pass over from now on.
        """
        wear = WEARS[mesh]
        present = self.store.get(res.MUTATING_WEBHOOKS, "", wear.configuration)
        if present is not None and anew:
            self.store.remove(res.MUTATING_WEBHOOKS, present)
            present = None
        hooks = [{**each, **hook_fields} for each in _hooks(wear, bundle)]
        if leaves_out:
            for hook in hooks:
                hook["objectSelector"] = _without(hook["objectSelector"], leaves_out)
        if present is None:
            self.api.create(res.MUTATING_WEBHOOKS, "", {"metadata": {"name": wear.configuration}, "webhooks": hooks})
        else:
            self.api.change(res.MUTATING_WEBHOOKS, "", wear.configuration, lambda old: {**old, "webhooks": hooks})
        self.unseen_before = self.unseen
        self.unseen = frozenset(pair for pair in self.unseen if pair[0] != mesh)
        if leaves_out:
            self.unseen |= {(mesh, leaves_out)}
        self.webhooks_version += 1
        self.webhooks_changed = self.clock.passed

    def endpoints(self, mesh: str, *, ready: bool) -> None:
        wear = WEARS[mesh]

        def changed(found: Obj) -> Obj:
            found["endpoints"][0]["conditions"]["ready"] = ready
            return found

        self.api.change(res.ENDPOINT_SLICES, wear.namespace, f"{wear.service}-own", changed)
        self.admission.forget_connections()

    # Time

    def pump(self) -> bool:
        """Everything that is due now. True if anything was done."""
        did = False
        for _ in range(50):
            again = False
            for controller in self.controllers:
                if self.controllers_down and controller in self._managers:
                    continue
                again |= _work_off(controller)
            did |= again
            if not again:
                return did
        return did

    def next_due(self) -> float:
        """Monotonic time at which a controller has something to do."""
        found = [
            each.queue._delayed[0][0]
            for each in self.controllers
            if each.queue._delayed and not (self.controllers_down and each in self._managers)
        ]
        return min(found, default=float("inf"))

    def pods(self) -> list[Obj]:
        return [item.obj for item in self.store.objects(res.PODS)]

    def pods_of(self, uid: str) -> list[Obj]:
        return self.store.owned(res.PODS, uid)

    def owner_of(self, reference: Mapping[str, Any], namespace: str) -> Obj | None:
        resource = BY_KIND.get(reference["kind"])
        found = self.store.get(resource, namespace, reference["name"]) if resource else None
        return found.obj if found and found.obj["metadata"]["uid"] == reference["uid"] else None


def _work_off(controller: Controller) -> bool:
    queue, did = controller.queue, False
    for _ in range(200):
        with queue._cond:
            queue._promote()
            ready = bool(queue._ready)
        if not ready:
            break
        key = queue.get()
        if key is None:
            break
        did = True
        try:
            controller.sync(key)
        except StatusError:
            queue.retry(key)
        else:
            queue.forget(key)
        finally:
            queue.done(key)
    return did


def _without(selector: Obj, app: str) -> Obj:
    out = {"key": "app", "operator": "NotIn", "values": [app]}
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), out]}


def _hooks(wear: InjectorWear, bundle: str) -> list[Obj]:
    place = {"namespace": wear.namespace, "name": wear.service, "path": wear.path, "port": wear.service_port}
    first = {
        "name": wear.webhook,
        "clientConfig": {"service": place, "caBundle": bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "failurePolicy": wear.failure_policy,
        "namespaceSelector": dict(wear.namespace_selector),
        "objectSelector": dict(wear.object_selector),
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
    }
    return [first, *({**first, **each} for each in wear.more_webhooks)]


@dataclass
class Faults:
    """What goes wrong with the next requests of one process. Each entry is for one request that writes or dry-runs."""

    api: list[str] = field(default_factory=list)  # "500", "429", "unreachable", "lost" (done, and the answer lost)
    redis_in: int = -1  # commands until one fails; negative: none
    redis_lost: bool = False  # that one is carried out, and its answer lost
    dies_in: int = -1  # commands until the process dies, right before one; negative: it lives on


_ANSWERS: Final = {
    "500": (500, {"reason": "InternalError", "message": "etcdserver: leader changed"}),
    "429": (429, {"reason": "TooManyRequests", "message": "too many requests, please try again later"}),
}


class Door(KubeClient):
    """The transport of one process."""

    def __init__(self, cluster: MachineCluster, who: str, faults: Faults, wrote: Callable[..., None]) -> None:
        self._cluster = cluster
        self._who = who
        self._faults = faults
        self._wrote = wrote  # told before and after each write: verb, namespace, name, kind, answer
        self.alive: Callable[[], None] = lambda: None  # raises once the process is dead

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
        self.alive()
        reads = method == "GET" or "selfsubject" in path
        fault = self._fault(method, path, reads=reads)
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
        dry = (params or {}).get("dryRun") == "All"
        request = Request(method, path, urlencode(params or {}), content_type, data, impersonate)
        if not reads and not dry:
            self._wrote(self, "before", method, path, data, b"")
        answer = self._cluster.router.answer(request)
        if answer.code >= 300:
            raise answer_error(ApiAnswer("memory", "", f"{method} {path}", answer.code, answer.body, None))
        if dry:
            self._note_dry_run(path, answer.body)
        elif not reads:
            self._wrote(self, "after", method, path, data, answer.body)
        if fault == "lost":
            raise ClusterUnreachable("the connection broke before the answer came")
        return answer.body

    def _fault(self, method: str, path: str, *, reads: bool) -> str:
        if self._cluster.api_down:
            raise ClusterUnreachable("cannot connect to the API server")
        if reads or not self._faults.api:
            return ""
        fault = self._faults.api.pop(0)
        if fault == "unreachable":
            raise ClusterUnreachable("cannot connect to the API server")
        if fault in _ANSWERS:
            code, status = _ANSWERS[fault]
            body = msgspec.json.encode({"kind": "Status", "status": "Failure", "code": code, **status})
            raise answer_error(ApiAnswer("memory", "", f"{method} {path}", code, body, None))
        return fault

    def _note_dry_run(self, path: str, answer: bytes) -> None:
        pod = msgspec.json.decode(answer)
        cluster, target = self._cluster, locate(path)
        app = str((pod["metadata"].get("labels") or {}).get("app", ""))
        found = DryRun(
            cluster.clock.passed, self._who, target.namespace, app, sidecars_of(pod), cluster.webhooks_version
        )
        cluster.dry_runs.append(found)

    @property
    def who(self) -> str:
        return self._who


def sidecars_of(pod: Obj) -> frozenset[str]:
    """Meshes whose sidecar a pod carries, told by its containers alone."""
    spec = pod["spec"]
    names = {each["name"] for each in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]}
    return frozenset(mesh for mesh, wear in WEARS.items() if wear.sidecar in names)


def resource_of_kind(kind: str) -> Resource:
    return BY_KIND[kind]
