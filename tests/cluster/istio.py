"""The real Istio in the test cluster: its unmodified manifests, and real istiod processes behind them.

`IstioCluster.start()` is a `TestBed` as `RealCluster.start()` is. istiod acts under its own service account and does
all that it does elsewhere: it patches its CA bundle into the webhook configuration whenever it finds another one
there, elects leaders, publishes its root certificate in every namespace.
"""

import signal
from pathlib import Path
from typing import Literal, Self

from remesh.testbed import InjectorWear
from tests.cluster import build, istio_manifest, network
from tests.cluster.cluster import DEFAULT_NODES, DEFAULT_TUNING, RealCluster
from tests.cluster.controlplane import ControlPlane, Tuning
from tests.cluster.errors import ClusterError
from tests.cluster.istio_admissions import configurations
from tests.cluster.istio_injector import Istio
from tests.cluster.istio_processes import Istiods
from tests.cluster.istio_revision import DEFAULT, ISTIO_WEAR, Revision, istio_wear
from tests.cluster.processes import Processes
from tests.cluster.served import CONFIGURATIONS
from tests.cluster.wait import wait_for

__all__ = ["ISTIO_WEAR", "IstioCluster", "istio_wear", "unavailable_reason"]


class IstioCluster(RealCluster):
    """A real control plane with a real Istio.

    The faults `slow` and `error-500` are not to be had: istiod knows neither. `admissions` is the API server's
    account, not istiod's.
    """

    def __init__(
        self, processes: Processes, net: network.Network, control_plane: ControlPlane, wear: InjectorWear
    ) -> None:
        super().__init__(processes, net, control_plane, wear)
        self._revisions: dict[str, Istio] = {}

    @classmethod
    def start(
        cls,
        wear: InjectorWear | None = ISTIO_WEAR,
        *,
        nodes: int = DEFAULT_NODES,
        node: Literal["kwok", "real"] = "kwok",
        tuning: Tuning = DEFAULT_TUNING,
    ) -> Self:
        """Start a cluster and return when istiod injects; with `wear=None` Istio is not installed.

        Of the wear, `replicas`, `failure_policy` and `timeout_seconds` may be others than those of `ISTIO_WEAR`;
        the last two are then changed in the installed configuration. Raises as `RealCluster.start` does, and
        `ClusterError` where there can be no network namespace or more replicas are asked for than nodes.
        """
        if wear and wear.replicas > nodes:
            raise ClusterError(f"{wear.replicas} replicas of istiod, each on its own node, need as many nodes")
        if reason := unavailable_reason():
            raise ClusterError(reason)
        build.ensure(build.PROGRAMS + build.ISTIO_PROGRAMS)
        return super().start(wear, nodes=nodes, node=node, tuning=tuning)

    def install_injector(self, wear: InjectorWear) -> None:
        """Install Istio, once, in a cluster that was started without it."""
        self.wear = wear
        self.injector = self._installed(wear, DEFAULT)

    def revision(self, name: str) -> Istio:
        """One more revision, beside the default one: installed, with one istiod, when it is asked for first."""
        if name not in self._revisions:
            self._revisions[name] = self._installed(istio_wear(revision=name), Revision(name))
        return self._revisions[name]

    def tag(self, name: str, revision: str) -> None:
        """Have a revision tag point to a revision; returns when that revision's istiod has put its CA bundle there."""
        istio_manifest.tag(build.ensure(build.ISTIO_PROGRAMS)["istioctl"], self.kubeconfig, name, revision)
        place = f"{CONFIGURATIONS}/istio-revision-tag-{name}"
        wait_for(lambda: istio_manifest.ca_bundle(self.api.get(place)), f"the CA bundle of the tag {name}")

    def asked(self, namespace: str) -> dict[str, set[str]]:
        """By the API server's account: for each pod that somebody named, the configurations that saw its creation."""
        found: dict[str, set[str]] = {}
        for event in self.control_plane.audit_events():
            reference = event["objectRef"]
            if (reference["resource"], reference.get("namespace")) == ("pods", namespace) and event["verb"] == "create":
                found.setdefault(reference.get("name", ""), set()).update(configurations(event))
        return found

    def _installed(self, wear: InjectorWear, revision: Revision) -> Istio:
        programs = build.ensure(build.ISTIO_PROGRAMS)
        manifest = istio_manifest.rendered(programs["istioctl"], wear.replicas, revision.name)
        identity = revision.identity
        kubeconfig = self.control_plane.user_kubeconfig(identity.user, identity.groups, inside=True)
        injector = Istio(
            wear,
            self.api,
            self.processes,
            self.network,
            self.nodes,
            Istiods(self.processes, programs["pilot-discovery"], kubeconfig),
            manifest,
            self.control_plane.audit_events,
            revision,
        )
        injector.install()
        return injector

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
