"""The real Istio in the test cluster: its unmodified manifests, and real istiod processes behind them.

`IstioCluster.start()` is a `TestBed` as `RealCluster.start()` is. istiod acts under its own service account and does
all that it does elsewhere: it patches its CA bundle into the webhook configuration whenever it finds another one
there, elects leaders, publishes its root certificate in every namespace.
"""

import dataclasses
import signal
from pathlib import Path
from typing import Self

from remesh.testbed import InjectorWear
from tests.cluster import build, istio_manifest, network
from tests.cluster.cluster import DEFAULT_NODES, DEFAULT_TUNING, RealCluster
from tests.cluster.controlplane import Tuning
from tests.cluster.errors import ClusterError
from tests.cluster.istio_injector import IDENTITY, Istio
from tests.cluster.istio_processes import WEBHOOK_PORT, Istiods

# Of the four webhooks the one that sees the pods of a namespace labelled istio-injection=enabled.
ISTIO_WEAR = InjectorWear(
    mesh="istio",
    configuration="istio-sidecar-injector",
    webhook="namespace.sidecar-injector.istio.io",
    namespace="istio-system",
    service="istiod",
    service_port=443,
    target_port=WEBHOOK_PORT,
    path="/inject",
    injector_labels={"app": "istiod", "istio": "pilot"},
    namespace_selector={
        "matchExpressions": [{"key": "istio-injection", "operator": "In", "values": ["enabled"]}],
    },
    object_selector={
        "matchExpressions": [{"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]}],
    },
    ask_annotation=None,
    ask_label=("istio-injection", "enabled"),
    sidecar="istio-proxy",
    # The annotation sidecar.istio.io/status is there too, but its value is another one for every template.
    mark_annotations={},
    mark_labels={"security.istio.io/tlsMode": "istio"},
)


def istio_wear(replicas: int = 1) -> InjectorWear:
    """Istio's clothes, with this many replicas of istiod, each on its own node."""
    return dataclasses.replace(ISTIO_WEAR, replicas=replicas)


class IstioCluster(RealCluster):
    """A real control plane with a real Istio.

    The faults `slow` and `error-500` are not to be had: istiod knows neither. `admissions` is the API server's
    account, not istiod's.
    """

    @classmethod
    def start(
        cls,
        wear: InjectorWear | None = ISTIO_WEAR,
        *,
        nodes: int = DEFAULT_NODES,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> Self:
        """Start a cluster and return when istiod injects; with `wear=None` Istio is not installed.

        Of the wear, `replicas`, `failure_policy` and `timeout_seconds` may be others than those of `ISTIO_WEAR`;
        the last two are then changed in the installed configuration. Raises as `RealCluster.start` does, and
        `ClusterError` where there can be no network namespace or more replicas are asked for than nodes.
        """
        if reason := unavailable_reason():
            raise ClusterError(reason)
        if wear and wear.replicas > nodes:
            raise ClusterError(f"{wear.replicas} replicas of istiod, each on its own node, need as many nodes")
        build.ensure(build.PROGRAMS + build.ISTIO_PROGRAMS)
        return super().start(wear, nodes=nodes, tuning=tuning)

    def install_injector(self, wear: InjectorWear) -> None:
        """Install Istio, once, in a cluster that was started without it."""
        programs = build.ensure(build.ISTIO_PROGRAMS)
        manifest = istio_manifest.rendered(programs["istioctl"], wear.replicas)
        kubeconfig = self.control_plane.user_kubeconfig(IDENTITY.user, IDENTITY.groups, inside=True)
        istiods = Istiods(self.processes, programs["pilot-discovery"], kubeconfig)
        self.wear = wear
        self.injector = Istio(
            wear,
            self.api,
            self.processes,
            self.network,
            self.nodes,
            istiods,
            manifest,
            self.control_plane.audit_events,
        )
        self.injector.install()

    def istiods(self) -> list[str]:
        """Names of the istiod processes, for `freeze` and `kill`."""
        return self._the_injector().process_names()

    def freeze(self, name: str) -> None:
        """Freeze one process until `heal`; its endpoint stays."""
        self.processes.signal(name, signal.SIGSTOP)

    def istiod_log(self, name: str) -> Path:
        """The log of one istiod process."""
        return self.processes.log(name)


def unavailable_reason() -> str | None:
    """Why there can be no `IstioCluster` here, or None if there can be one."""
    if network.choose_kind() == "none":
        return "Istio needs pod addresses, and so a network namespace: install iproute2 and run as root"
    return build.unavailable_reason(build.PROGRAMS + build.ISTIO_PROGRAMS)
