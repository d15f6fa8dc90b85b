"""`RealCluster`: a real control plane with a controllable injector, as a `TestBed`."""

import signal
from pathlib import Path
from typing import Literal, Self

from remesh.testbed import Fault, InjectorWear
from tests.cluster import build, network
from tests.cluster.api import Api, Object
from tests.cluster.controlplane import ControlPlane, Tuning, is_own
from tests.cluster.errors import FaultUnavailable
from tests.cluster.injector import Injector
from tests.cluster.nodes import Nodes
from tests.cluster.processes import Processes
from tests.cluster.real_node import RealNode
from tests.cluster.replicas import Admission
from tests.cluster.served import ServedInjector, create_namespace
from tests.cluster.workloads import meshed_namespace, namespace

DEFAULT_WEAR = InjectorWear()
DEFAULT_TUNING = Tuning()
DEFAULT_NODES = 3


class RealCluster:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and an injector, all of its own.

    Every process and file goes with `stop`, and also when the process that started it ends, however it ends.
    """

    kind: Literal["real", "sim"] = "real"

    def __init__(
        self, processes: Processes, net: network.Network, control_plane: ControlPlane, wear: InjectorWear
    ) -> None:
        self.processes = processes
        self.network = net
        self.control_plane = control_plane
        self.wear = wear
        self.kubeconfig: Path = control_plane.kubeconfig
        self.api: Api = control_plane.api
        self.nodes = Nodes(self.api)
        self.injector: ServedInjector | None = None
        self.node: RealNode | None = None

    @classmethod
    def start(
        cls,
        wear: InjectorWear | None = DEFAULT_WEAR,
        *,
        nodes: int = DEFAULT_NODES,
        node: Literal["kwok", "real"] = "kwok",
        tuning: Tuning = DEFAULT_TUNING,
    ) -> Self:
        """Start a cluster and return when its injector injects; with `wear=None` there is no injector.

        With `node="real"` there is, beside the `nodes` of kwok, one with a real kubelet; see `real_node`.
        Takes seconds, and minutes the first time, when the programs must be built.
        Raises `BinariesUnavailable`, or another `ClusterError` when something does not come up.
        """
        binaries = build.ensure()
        processes = Processes()
        try:
            net = network.build(processes, network.choose_kind())
            control_plane = ControlPlane(processes, net, binaries, tuning)
            cluster = cls(processes, net, control_plane, wear or DEFAULT_WEAR)
            control_plane.launch()
            cluster.nodes.create(nodes)
            if node == "real":
                cluster.node = RealNode(cluster)
                cluster.node.start()
            if wear is not None:
                cluster.install_injector(wear)
        except BaseException:
            processes.end()
            raise
        return cluster

    def install_injector(self, wear: InjectorWear) -> None:
        """Install the injector, once, in a cluster that was started without one."""
        kubeconfig = self.control_plane.inner_kubeconfig("injector")
        self.wear = wear
        self.injector = Injector(wear, self.api, self.processes, self.network, self.nodes, kubeconfig)
        self.injector.install()

    def inject_fault(self, fault: Fault, *, delay_ms: int = 0) -> None:
        """See `TestBed`. Raises `FaultUnavailable` where this cluster cannot have this fault."""
        self._the_injector().inject_fault(fault, delay_ms)

    def heal(self) -> None:
        """See `TestBed`. Returns when a dry run through the API server comes back with the sidecar again."""
        self._the_injector().heal()

    def change_webhook(self, **fields: object) -> None:
        """Change fields of the webhook in its configuration, such as `failurePolicy="Ignore"`. `heal` keeps them."""
        self._the_injector().change_configuration(**fields)

    def reset_webhook(self) -> None:
        """Make the webhook configuration what it was at the start, also where it was deleted."""
        self._the_injector().reset_configuration()

    def stop(self) -> None:
        """See `TestBed`."""
        if self.node is not None:
            self.node.stop()
        self.api.close()
        self.processes.end()

    def create_namespace(self, name: str, *, meshed: bool = True) -> str:
        """Create a namespace, ready for pods, whose pods get the sidecar where it is `meshed`. Returns its name."""
        create_namespace(self.api, meshed_namespace(name, self.wear) if meshed else namespace(name))
        return name

    def admissions(self) -> list[Admission]:
        """What the injector answered so far, by its own account."""
        return self._the_injector().admissions()

    def writes(self) -> list[Object]:
        """Every write so far by anyone but the cluster's own components: the API server's audit events."""
        return [event for event in self.control_plane.audit_events() if not is_own(event)]

    def user_kubeconfig(self, user: str, *groups: str) -> Path:
        """A kubeconfig of another user; without groups it may do nothing until RBAC says otherwise."""
        return self.control_plane.user_kubeconfig(user, groups)

    def kill(self, component: str) -> None:
        """Kill a component, such as kube-apiserver, at once."""
        self.processes.signal(component, signal.SIGKILL)

    def restart(self, component: str) -> None:
        """Kill a component and start it again; returns when the API server is ready."""
        self.kill(component)
        self.control_plane.start(component)
        self.control_plane.wait_ready()

    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return self.processes.pids()

    @property
    def network_namespace(self) -> Path | None:
        """For `nsenter --net=…`: the network namespace, or None where the cluster has none."""
        return Path(f"/proc/{self.processes.supervisor_pid}/ns/net") if self.network.isolated else None

    def _the_injector(self) -> ServedInjector:
        if self.injector is None:
            raise FaultUnavailable("this cluster was started without an injector of the tests' own")
        return self.injector
