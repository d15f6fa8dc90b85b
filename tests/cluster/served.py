"""What every injector of the test cluster has in common: a Service before its pods, and faults of endpoints and nodes.

`injector.Injector` is the controllable one, `istio.Istio` the real one of Istio.
"""

import abc
import base64
import signal
from collections.abc import Callable, Mapping

from remesh.testbed import Fault, InjectorWear
from tests.cluster import network, pki
from tests.cluster.api import Api, Object
from tests.cluster.errors import ApiError, FaultUnavailable, NetworkUnavailable
from tests.cluster.nodes import Nodes
from tests.cluster.processes import Processes
from tests.cluster.replicas import Admission, Replicas
from tests.cluster.wait import wait_for
from tests.cluster.workloads import is_injected, is_ready, labels_for, pod

PROBE_NAMESPACE = "test-cluster-probe"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
# From a change of the configuration or the endpoints until the API server acts on it: well under a second.
# The rest is for a machine that is busy with something else.
IN_FORCE_SECONDS = 60.0


class ServedInjector(abc.ABC):
    """One injector in the clothes of `wear`, called by the API server through its Service."""

    def __init__(
        self,
        wear: InjectorWear,
        api: Api,
        processes: Processes,
        net: network.Network,
        nodes: Nodes,
        replicas: Replicas,
    ) -> None:
        self.wear = wear
        self._api = api
        self._net = net
        self._nodes = nodes
        self._processes = processes
        self._replicas = replicas
        self._namespace = f"/api/v1/namespaces/{wear.namespace}"
        self._deployments = f"/apis/apps/v1/namespaces/{wear.namespace}/deployments"
        self._configuration = f"{CONFIGURATIONS}/{wear.configuration}"
        self.probe_namespace = PROBE_NAMESPACE

    @abc.abstractmethod
    def install(self) -> None:
        """Create its objects, start its processes, and return when the API server injects through it."""

    @abc.abstractmethod
    def reset_configuration(self) -> None:
        """Make the webhook configuration what it was at the start, whether it was changed or deleted."""

    @abc.abstractmethod
    def admissions(self) -> list[Admission]:
        """Every call answered so far, oldest first, without those of the cluster's own probes."""

    @abc.abstractmethod
    def _own_effects(self, delay_ms: int) -> Mapping[Fault, Callable[[], None]]:
        """What only this injector can do to itself."""

    @abc.abstractmethod
    def _behave(self) -> None:
        """End the faults of `_own_effects`, and put back the right CA bundle."""

    def change_configuration(self, **fields: object) -> None:
        """Change fields of every webhook, such as `failurePolicy` or `timeoutSeconds`, until it is reset.

        The API server follows within moments; nothing is waited for.
        """
        self._patch_webhooks(fields)

    def inject_fault(self, fault: Fault, delay_ms: int) -> None:
        """See `TestBed.inject_fault`. Raises `FaultUnavailable` for a fault that this injector cannot have."""
        effects = self._common_effects() | dict(self._own_effects(delay_ms))
        if fault not in effects:
            raise FaultUnavailable(f"this injector cannot be made {fault}; it can be {', '.join(sorted(effects))}")
        effects[fault]()

    def heal(self) -> None:
        """See `TestBed.heal`. Raises `NotInTime` when the API server does not inject again."""
        # Behaviour first: a process that wakes up answers at once what has queued up at its socket.
        self._behave()
        self._replicas.signal(signal.SIGCONT)
        self._nodes.bring_back_all()
        self._scale(self.wear.replicas)
        self._sync(self.wear.replicas)
        self._wait_probe(injected=True)

    def probe(self) -> tuple[bool, str]:
        """Whether a dry-run creation comes back with the sidecar, and the error text if it failed."""
        wear = self.wear
        wanted = pod(
            "probe",
            labels=labels_for(wear.object_selector) | dict([wear.ask_label] if wear.ask_label else []),
            annotations=dict([wear.ask_annotation] if wear.ask_annotation else []),
        )
        path = f"/api/v1/namespaces/{self.probe_namespace}/pods?dryRun=All"
        try:
            creator = wear.creators[0] if wear.creators else ""
            answer = self._api.post(path, wanted, timeout=wear.timeout_seconds + 10, impersonate=creator)
        except ApiError as error:
            return False, error.message
        return is_injected(answer, wear), ""

    def process_names(self) -> list[str]:
        """Names of the replicas' processes, as `Processes.pids` has them."""
        return list(self._replicas.pods)

    def _common_effects(self) -> dict[Fault, Callable[[], None]]:
        return {
            Fault.FROZEN: lambda: self._replicas.signal(signal.SIGSTOP),
            Fault.KILLED: lambda: self._replicas.signal(signal.SIGKILL),
            Fault.WRONG_CA: self._wrong_ca,
            Fault.NO_ENDPOINTS: self._no_endpoints,
            Fault.NODE_LOST: self._node_lost,
        }

    def _wrong_ca(self) -> None:
        self._put_bundle(ca_bundle(pki.authority("stranger")))
        self._wait_probe(injected=False)

    def _put_bundle(self, bundle: str) -> None:
        self._patch_webhooks({"clientConfig/caBundle": bundle})

    def _patch_webhooks(self, fields: Mapping[str, object]) -> None:
        webhooks = self._api.get(self._configuration)["webhooks"]
        changes = [
            {"op": "add", "path": f"/webhooks/{index}/{path}", "value": value}
            for index in range(len(webhooks))
            for path, value in fields.items()
        ]
        # As a manager of its own: its time among the managed fields is not one of a change to the selectors.
        self._api.patch(f"{self._configuration}?fieldManager=injector", changes, kind="json")

    def _no_endpoints(self) -> None:
        self._need_network(Fault.NO_ENDPOINTS)
        self._scale(0)
        # The processes end too: the API server would go on using the connections that it has.
        self._sync(0)
        wait_for(lambda: not self._ready_endpoints(), "the endpoints to go", timeout=IN_FORCE_SECONDS)
        self._wait_probe(injected=False)

    def _node_lost(self) -> None:
        self._need_network(Fault.NODE_LOST)
        name, replica = next(iter(self._replicas.pods.items()))
        self._processes.signal(name, signal.SIGSTOP)
        self._nodes.lose(replica["spec"]["nodeName"])
        address = replica["status"]["podIP"]
        wait_for(
            lambda: address not in self._ready_endpoints(),
            "the endpoint on the lost node to go",
            timeout=IN_FORCE_SECONDS,
        )

    def _need_network(self, fault: Fault) -> None:
        if not self._net.isolated:
            raise NetworkUnavailable(
                f"the fault {fault} needs pod addresses, and so a network namespace: "
                "install iproute2 and run as root, or allow unprivileged user namespaces"
            )

    def _ready_endpoints(self) -> set[str]:
        slices = self._api.items(
            f"/apis/discovery.k8s.io/v1/namespaces/{self.wear.namespace}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={self.wear.service}",
        )
        return {
            address
            for piece in slices
            for endpoint in piece.get("endpoints") or []
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        }

    def _wait_probe(self, *, injected: bool) -> None:
        last = ""

        def as_wished() -> bool:
            nonlocal last
            seen, last = self.probe()
            return seen is injected

        wanted = "the API server to inject" if injected else "the fault to reach the API server"
        wait_for(as_wished, lambda: f"{wanted}; it last said: {last or 'nothing'}", timeout=IN_FORCE_SECONDS)

    def _scale(self, replicas: int) -> None:
        self._api.patch(f"{self._deployments}/{self.wear.service}", {"spec": {"replicas": replicas}})

    def _sync(self, replicas: int) -> None:
        """Wait for this many pods of the injector, and have one process for each."""
        pods = wait_for(
            lambda: self._settled_pods(replicas), f"{replicas} injector pods to be Ready", timeout=IN_FORCE_SECONDS
        )
        self._replicas.sync(pods)

    def _settled_pods(self, replicas: int) -> list[Object] | None:
        selector = ",".join(f"{key}={value}" for key, value in self.wear.injector_labels.items())
        found = self._api.items(f"{self._namespace}/pods", labelSelector=selector)
        # One that is being deleted on a lost node stays until the node is back.
        pods = [item for item in found if "deletionTimestamp" not in item["metadata"]]
        settled = len(pods) == replicas and all(is_ready(item) for item in pods)
        return pods if settled else None


def ca_bundle(ca: pki.KeyPair) -> str:
    """An authority as a webhook configuration carries it."""
    return base64.b64encode(ca.certificate_pem).decode()


def create_namespace(api: Api, body: Object) -> None:
    """Create a namespace in which pods can be created at once: its service account is not waited for but made."""
    api.ensure("/api/v1/namespaces", body)
    name = body["metadata"]["name"]
    api.ensure(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
