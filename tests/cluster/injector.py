"""The controllable injector that the test cluster runs: its objects in the API server, its processes, its faults."""

from collections.abc import Callable, Mapping
from pathlib import Path

from remesh.testbed import Fault, InjectorWear
from tests.cluster import injector_objects, network, pki
from tests.cluster.api import Api
from tests.cluster.nodes import Nodes
from tests.cluster.processes import Processes
from tests.cluster.replicas import Admission, WebhookReplicas
from tests.cluster.served import CONFIGURATIONS, PROBE_NAMESPACE, ServedInjector, ca_bundle, create_namespace
from tests.cluster.workloads import meshed_namespace


class Injector(ServedInjector):
    """One injector in the clothes of `wear`."""

    def __init__(
        self,
        wear: InjectorWear,
        api: Api,
        processes: Processes,
        net: network.Network,
        nodes: Nodes,
        kubeconfig: Path,
    ) -> None:
        self._ca = pki.authority("injector")
        hosts = [f"{wear.service}.{wear.namespace}.svc", "127.0.0.1"]
        serving = pki.issue(self._ca, wear.service, hosts=hosts)
        self._webhooks = WebhookReplicas(wear, processes, net, serving, kubeconfig)
        super().__init__(wear, api, processes, net, nodes, self._webhooks)

    def install(self) -> None:
        """See `ServedInjector`."""
        wear = self.wear
        create_namespace(self._api, {"metadata": {"name": wear.namespace}})
        create_namespace(self._api, meshed_namespace(PROBE_NAMESPACE, wear))
        self._api.post(f"{self._namespace}/services", injector_objects.service(wear))
        self._api.post(self._deployments, injector_objects.deployment(wear))
        self._sync(wear.replicas)
        self.reset_configuration()
        self._wait_probe(injected=True)

    def reset_configuration(self) -> None:
        """Make the webhook configuration what the wear says, whether it was changed or deleted."""
        address = None if self._net.isolated else f"127.0.0.1:{self._net.ports.injector}"
        wanted = injector_objects.configuration(self.wear, ca_bundle(self._ca), address)
        self._api.ensure(CONFIGURATIONS, wanted)
        self._api.patch(self._configuration, {"webhooks": wanted["webhooks"]})

    def admissions(self) -> list[Admission]:
        """See `ServedInjector`."""
        return [call for call in self._webhooks.admissions() if call.namespace != PROBE_NAMESPACE]

    def _own_effects(self, delay_ms: int) -> Mapping[Fault, Callable[[], None]]:
        change_mode = self._webhooks.change_mode
        return {
            Fault.SLOW: lambda: change_mode(delay_ms=delay_ms),
            Fault.ERROR_500: lambda: change_mode(answer="error-500"),
            Fault.DENYING: lambda: change_mode(answer="deny"),
            Fault.NOT_INJECTING: lambda: change_mode(answer="bare"),
        }

    def _behave(self) -> None:
        self._webhooks.reset_mode()
        self._put_bundle(ca_bundle(self._ca))
