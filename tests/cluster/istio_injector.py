"""Istio's injector: its installation and its faults, every one of them something that happens to real Istios."""

import copy
import re
from collections.abc import Callable, Mapping

from remesh.testbed import Fault, InjectorWear
from tests.cluster import istio_manifest, network
from tests.cluster.api import Api, Object
from tests.cluster.istio_admissions import admission
from tests.cluster.istio_processes import Istiods
from tests.cluster.istio_revision import DEFAULT, Revision
from tests.cluster.nodes import Nodes
from tests.cluster.processes import Processes
from tests.cluster.replicas import Admission
from tests.cluster.served import IN_FORCE_SECONDS, ServedInjector, create_namespace
from tests.cluster.wait import wait_for
from tests.cluster.workloads import meshed_namespace

# Of the webhooks as they are rendered.
FAILURE_POLICY = "Fail"
TIMEOUT_SECONDS = 10


class Istio(ServedInjector):
    """One revision of Istio."""

    def __init__(
        self,
        wear: InjectorWear,
        api: Api,
        processes: Processes,
        net: network.Network,
        nodes: Nodes,
        istiods: Istiods,
        manifest: list[Object],
        audit_events: Callable[[], list[Object]],
        revision: Revision = DEFAULT,
    ) -> None:
        super().__init__(wear, api, processes, net, nodes, istiods)
        self._revision = revision
        self.probe_namespace += revision.suffix  # each revision injects in its own
        self._manifest = manifest
        self._audit_events = audit_events
        self._ca_bundle = ""

    def install(self) -> None:
        """See `ServedInjector`."""
        create_namespace(self._api, {"metadata": {"name": self.wear.namespace}})
        create_namespace(self._api, meshed_namespace(self.probe_namespace, self.wear))
        for item in self._manifest:
            istio_manifest.apply(self._api, item)
        self._sync(self.wear.replicas)
        self._ca_bundle = wait_for(self._patched_in, "istiod to patch its CA bundle in", timeout=IN_FORCE_SECONDS)
        self._wait_probe(injected=True)
        self._honour_wear()

    def reset_configuration(self) -> None:
        """Make the webhook configuration what it was at the start, whether it was changed or deleted."""
        rendered = self._rendered("MutatingWebhookConfiguration", self.wear.configuration)
        istio_manifest.apply(self._api, rendered)
        webhooks = copy.deepcopy(rendered["webhooks"])
        for webhook in webhooks:
            webhook["clientConfig"]["caBundle"] = self._ca_bundle
        self._api.patch(self._configuration, {"webhooks": webhooks})
        self._honour_wear()

    def admissions(self) -> list[Admission]:
        """Every creation of a pod that one of Istio's webhooks saw, as the API server tells it, oldest first."""
        told = (admission(event, self.wear.configuration) for event in self._audit_events())
        return [call for call in told if call is not None and call.namespace != self.probe_namespace]

    def _own_effects(self, delay_ms: int) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.NOT_INJECTING: lambda: self._spoil(r"^policy: enabled$", "policy: disabled"),
            Fault.DENYING: lambda: self._spoil(r"^defaultTemplates: \[sidecar\]$", "defaultTemplates: [missing]"),
        }

    def _behave(self) -> None:
        istio_manifest.apply(self._api, self._rendered("ConfigMap", self._revision.templates))
        istio_manifest.apply(self._api, self._rendered("ClusterRole", self._revision.role))
        # istiod would do this too, but it waits up to a minute after having failed.
        self._put_bundle(self._ca_bundle)

    def _wrong_ca(self) -> None:
        # Otherwise istiod puts its own back within milliseconds.
        self._forbid_patching()
        super()._wrong_ca()

    def _forbid_patching(self) -> None:
        rules = copy.deepcopy(self._rendered("ClusterRole", self._revision.role)["rules"])
        for rule in rules:
            if "mutatingwebhookconfigurations" in rule["resources"]:
                rule["verbs"] = ["get", "list", "watch"]
        self._api.patch(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{self._revision.role}", {"rules": rules})
        wait_for(lambda: not self._may_patch(), "istiod to lose the right to patch", timeout=IN_FORCE_SECONDS)

    def _may_patch(self) -> bool:
        attributes = {
            "group": "admissionregistration.k8s.io",
            "resource": "mutatingwebhookconfigurations",
            "verb": "update",
        }
        identity = self._revision.identity
        spec = {"user": identity.user, "groups": list(identity.groups), "resourceAttributes": attributes}
        review = self._api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        allowed: bool = review["status"]["allowed"]
        return allowed

    def _spoil(self, pattern: str, replacement: str) -> None:
        """Change one line of the injector's configuration, and wait until istiod goes by it."""
        path = istio_manifest.path(self._rendered("ConfigMap", self._revision.templates))
        spoilt, count = re.subn(pattern, replacement, self._api.get(path)["data"]["config"], flags=re.MULTILINE)
        assert count == 1, f"{pattern} is in the injector's configuration {count} times"
        self._api.patch(path, {"data": {"config": spoilt}})
        self._wait_probe(injected=False)

    def _patched_in(self) -> str | None:
        return istio_manifest.ca_bundle(self._api.get(self._configuration))

    def _honour_wear(self) -> None:
        if self.wear.failure_policy != FAILURE_POLICY:
            self.change_configuration(failurePolicy=self.wear.failure_policy)
        if self.wear.timeout_seconds != TIMEOUT_SECONDS:
            self.change_configuration(timeoutSeconds=self.wear.timeout_seconds)

    def _rendered(self, kind: str, name: str) -> Object:
        return istio_manifest.find(self._manifest, kind, name)
