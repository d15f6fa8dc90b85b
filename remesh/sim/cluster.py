"""The simulated cluster: API server, controllers, kubelets and one injector, in one process.

Used by the demo on a machine that has only Python, and by tests. It behaves as a Kubernetes 1.36 control plane was
measured to behave; the same scenarios run against a real one.
"""

import base64
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from remesh.sim import authorities, defaults
from remesh.sim import resources as res
from remesh.sim.admission import Admission
from remesh.sim.api import ApiServer
from remesh.sim.client import Client, Throttle
from remesh.sim.controllers.base import Controller
from remesh.sim.controllers.daemonsets import DaemonSetController
from remesh.sim.controllers.deployments import DeploymentController
from remesh.sim.controllers.derived import DisruptionController, EndpointSliceController, QuotaController
from remesh.sim.controllers.garbage import GarbageCollector, NamespaceController
from remesh.sim.controllers.jobs import JobController
from remesh.sim.controllers.replicas import ReplicaSetController, ReplicationControllerController
from remesh.sim.controllers.statefulsets import StatefulSetController
from remesh.sim.http import ApiHttpServer
from remesh.sim.injector import Injector
from remesh.sim.kubelet import Kubelets, NodeLifecycle, Scheduler, new_node, node_ready
from remesh.sim.objects import Obj, new_uid, now, with_condition
from remesh.sim.routes import Router
from remesh.sim.store import DEFAULT_HISTORY, Store
from remesh.testbed import Fault, InjectorWear

CONTROLLER_QPS = 20.0  # the default of kube-controller-manager
_SCHEDULER_QPS = 50.0  # and of kube-scheduler
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SETTLE_SECONDS = 30.0  # how long a change of the injector may take to reach the API server's side
_POLL_SECONDS = 0.01


class SimCluster:
    """A running simulated cluster; a `TestBed`. Make one with `SimCluster.start`."""

    kind: Literal["real", "sim"] = "sim"

    def __init__(
        self, wear: InjectorWear, *, nodes: int, watch_history: int, node_grace: float, controller_qps: float
    ) -> None:
        self.wear = wear
        self.store = Store(watch_history)
        self.admission = Admission(self.store)
        self.api = ApiServer(self.store, self.admission)
        self.router = Router(self.api)
        self.token = secrets.token_urlsafe(24)
        self.injector = Injector(wear, _bundle(authorities.INJECTOR))
        self._wrong_bundle = _bundle(authorities.STRANGER)
        self._folder = Path(tempfile.mkdtemp(prefix="remesh-sim-"))
        self.kubeconfig = self._folder / "kubeconfig"
        self._nodes = nodes
        self._server = ApiHttpServer(self.router, self.token)
        self._node_grace = node_grace
        self._controllers = _controllers(self.api, node_grace, controller_qps)
        self._stopped = False

    @classmethod
    def start(
        cls,
        wear: InjectorWear | None = None,
        *,
        nodes: int = 3,
        watch_history: int = DEFAULT_HISTORY,
        node_grace: float = 0.0,
        controller_qps: float = CONTROLLER_QPS,
    ) -> Self:
        """Start a cluster whose injector works.

        `watch_history` is how many changes of each resource a watch can start behind; `node_grace` how many
        seconds the endpoints of a lost node stay ready; `controller_qps` what kube-controller-manager's
        `--kube-api-qps` is, with a burst of half as much again, and 0 for no limit.
        """
        cluster = cls(
            wear or InjectorWear(),
            nodes=nodes,
            watch_history=watch_history,
            node_grace=node_grace,
            controller_qps=controller_qps,
        )
        try:
            cluster._start()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def url(self) -> str:
        """Where the API server is."""
        return self._server.url

    @property
    def kubectl_url(self) -> str:
        """For `kubectl --server`: kubectl does not send a kubeconfig's token without TLS, so it is in the path."""
        return f"{self._server.url}/{self.token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def refuse(self, verb: str, resource: str) -> None:
        """Take a right from everybody who asks over HTTP: `refuse("create", "pods/eviction")`."""
        self.router.refused.add((verb, resource))

    def stop(self) -> None:
        """End every thread, and remove every file. Calling it twice is harmless."""
        if self._stopped:
            return
        self._stopped = True
        self.injector.heal()  # lets go of whoever waits for it
        for controller in self._controllers:
            controller.close()
        self._server.close()
        for controller in self._controllers:
            controller.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Faults

    def inject_fault(self, fault: Fault, *, delay_ms: int = 0) -> None:
        """Break the injector. Faults add up until `heal`. `delay_ms` is for `Fault.SLOW` only."""
        if fault is Fault.WRONG_CA:
            self._set_ca_bundle(self._wrong_bundle)
        elif fault is Fault.NO_ENDPOINTS:
            self._scale_injector(0)
            self._wait(lambda: not self._ready_endpoints())
            self.admission.forget_connections()
        elif fault is Fault.NODE_LOST:
            self._lose_node()
        else:
            self.injector.break_by(fault, delay_ms / 1000)
            if fault is Fault.KILLED:
                self.admission.forget_connections()

    def heal(self) -> None:
        """End all faults, and wait until every replica of the injector is an endpoint again."""
        self.injector.heal()
        for item in self.store.objects(res.NODES):
            self._set_node_ready(item.obj["metadata"]["name"], "True")
        self._set_ca_bundle(self.injector.ca_bundle)
        self._scale_injector(self.wear.replicas)
        self._wait(lambda: len(self._ready_endpoints()) >= self.wear.replicas)

    def _set_ca_bundle(self, bundle: str) -> None:
        def changed(configuration: Obj) -> Obj:
            for hook in configuration.get("webhooks") or ():
                hook["clientConfig"]["caBundle"] = bundle
            return configuration

        if self.store.get(res.MUTATING_WEBHOOKS, "", self.wear.configuration) is not None:
            stored = self.store.get(res.MUTATING_WEBHOOKS, "", self.wear.configuration)
            if stored is not None and any(_side_effects(hook) for hook in stored.obj.get("webhooks") or ()):
                self.store.replace(res.MUTATING_WEBHOOKS, stored, changed(json.loads(json.dumps(stored.obj))))
            else:
                self.api.change(res.MUTATING_WEBHOOKS, "", self.wear.configuration, changed)

    def _scale_injector(self, replicas: int) -> None:
        def scaled(deployment: Obj) -> Obj:
            deployment["spec"]["replicas"] = replicas
            return deployment

        self.api.change(res.DEPLOYMENTS, self.wear.namespace, self.wear.service, scaled)

    def _lose_node(self) -> None:
        endpoint = self._ready_endpoints()[0]
        self.injector.lose_node(endpoint["nodeName"])
        self._set_node_ready(endpoint["nodeName"], "Unknown")
        if not self._node_grace:
            self._wait(lambda: endpoint["addresses"] not in [entry["addresses"] for entry in self._ready_endpoints()])

    def _set_node_ready(self, name: str, status: str) -> None:
        def changed(node: Obj) -> Obj:
            before = next(entry for entry in node["status"]["conditions"] if entry["type"] == "Ready")
            if before["status"] != status:
                conditions = with_condition(node["status"]["conditions"], node_ready(status))
                node["status"]["conditions"] = conditions
            return node

        self.api.change(res.NODES, "", name, changed, subresource="status")

    def _ready_endpoints(self) -> list[Obj]:
        slices = self.store.objects(res.ENDPOINT_SLICES, self.wear.namespace)
        return [
            endpoint
            for item in slices
            if item.obj["metadata"]["labels"].get("kubernetes.io/service-name") == self.wear.service
            for endpoint in item.obj.get("endpoints") or ()
            if endpoint["conditions"]["ready"]
        ]

    def _wait(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + _SETTLE_SECONDS
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"the simulated cluster did not settle within {_SETTLE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    # Start

    def _start(self) -> None:
        for controller in self._controllers:
            controller.start()
        for name in (*_SYSTEM_NAMESPACES, self.wear.namespace):
            if self.store.get(res.NAMESPACES, "", name) is None:
                self.api.create(res.NAMESPACES, "", {"metadata": {"name": name}})
        for number in range(self._nodes):
            self.api.create(res.NODES, "", new_node(number))
        self._start_injector()
        self._server.start()
        self.kubeconfig.write_text(json.dumps(self._kubeconfig(), indent=2))
        self.kubeconfig.chmod(0o600)

    def _start_injector(self) -> None:
        wear = self.wear
        self.admission.backends[wear.namespace, wear.service] = self.injector
        self.api.create(res.SERVICES, wear.namespace, _service(wear))
        self.api.create(res.DEPLOYMENTS, wear.namespace, _deployment(wear))
        self._wait(lambda: len(self._ready_endpoints()) >= wear.replicas)
        configuration = _configuration(wear, self.injector.ca_bundle)
        if wear.side_effects in ("None", "NoneOnDryRun"):
            self.api.create(res.MUTATING_WEBHOOKS, "", configuration)
        else:
            # admissionregistration.k8s.io/v1 refuses such a webhook; one that an old server has stored still runs.
            self._store_old(configuration)

    def _store_old(self, configuration: Obj) -> None:
        defaults.fill(res.MUTATING_WEBHOOKS, configuration)
        configuration["metadata"] |= {"uid": new_uid(), "creationTimestamp": now(), "generation": 1}
        self.store.insert(res.MUTATING_WEBHOOKS, configuration)

    def _kubeconfig(self) -> dict[str, Any]:
        name = "remesh-sim"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }


def _controllers(api: ApiServer, node_grace: float, qps: float) -> list[Controller]:
    scheduler_qps = qps and max(qps, _SCHEDULER_QPS)

    def own() -> Client:
        """Each controller of kube-controller-manager has a rate of its own."""
        return Client(api, Throttle(qps, 1.5 * qps))

    return [
        NamespaceController(Client(api)),
        GarbageCollector(Client(api)),
        Scheduler(Client(api, Throttle(scheduler_qps, 2 * scheduler_qps))),
        Kubelets(Client(api)),
        NodeLifecycle(Client(api), node_grace),
        ReplicaSetController(own()),
        ReplicationControllerController(own()),
        DeploymentController(own()),
        StatefulSetController(own()),
        DaemonSetController(own()),
        JobController(own()),
        EndpointSliceController(own()),
        DisruptionController(own()),
        QuotaController(own()),
    ]


def _side_effects(hook: Obj) -> bool:
    return hook.get("sideEffects") not in ("None", "NoneOnDryRun")


def _bundle(authority: str) -> str:
    """A CA bundle as a webhook configuration carries it."""
    return base64.b64encode(authority.encode()).decode()


def _service(wear: InjectorWear) -> Obj:
    port = {"name": "webhook", "port": wear.service_port, "targetPort": wear.target_port, "protocol": "TCP"}
    spec = {"selector": dict(wear.injector_labels), "ports": [port]}
    return {"metadata": {"name": wear.service, "labels": dict(wear.injector_labels)}, "spec": spec}


def _deployment(wear: InjectorWear) -> Obj:
    labels = dict(wear.injector_labels)
    container = {
        "name": "injector",
        "image": f"{wear.mesh}/injector:test",
        "ports": [{"containerPort": wear.target_port}],
    }
    return {
        "metadata": {"name": wear.service, "labels": labels},
        "spec": {
            "replicas": wear.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _configuration(wear: InjectorWear, ca_bundle: str) -> Obj:
    hook = {
        "name": wear.webhook,
        "clientConfig": _client_config(wear, wear.path, ca_bundle),
        "rules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}
        ],
        "failurePolicy": wear.failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": dict(wear.namespace_selector),
        "objectSelector": dict(wear.object_selector),
        "sideEffects": wear.side_effects,
        "timeoutSeconds": wear.timeout_seconds,
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "Never",
    }
    more = [_further_webhook(hook, each, wear, ca_bundle) for each in wear.more_webhooks]
    return {"metadata": {"name": wear.configuration}, "webhooks": [hook, *more]}


def _further_webhook(first: Obj, differs: Mapping[str, Any], wear: InjectorWear, ca_bundle: str) -> Obj:
    fields = {key: value for key, value in differs.items() if key != "path"}
    reach = _client_config(wear, differs.get("path", wear.path), ca_bundle)
    return {**first, "clientConfig": reach, **fields}


def _client_config(wear: InjectorWear, path: str, ca_bundle: str) -> Obj:
    service = {"name": wear.service, "namespace": wear.namespace, "path": path, "port": wear.service_port}
    return {"service": service, "caBundle": ca_bundle}
