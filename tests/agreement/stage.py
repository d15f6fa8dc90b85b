"""A public case played as a whole: a simulated cluster of its own, the namespace, the injector, the object.

What a case says of the cluster around its object (`object.context`) is made so: the webhook as it is there, the
injector healthy or not, the namespace's labels. The object comes into being as it would: a controller creates its
pods, and admission refuses them or lets them pass bare. Where the case quotes a failure text, the API server refuses
pods in that namespace in these very words, so that the controller writes them into its status.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from remesh.classify import webhook_named
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient, Params
from remesh.profile import MeshProfile
from remesh.sim import SimCluster
from remesh.sim import resources as res
from remesh.sim.admission import Answer, Attributes, Endpoint, Review
from remesh.sim.injector import Injector
from remesh.sim.objects import Obj, copy
from remesh.sim.status import StatusError
from remesh.testbed import Fault, InjectorWear
from tests import wears
from tests.agreement.agree import PROFILES
from tests.client import Client
from tests.stack import wait_until

Case = dict[str, Any]

CASES: Final[list[Case]] = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
]
_DRESSED: Final = (wears.LINKERD, wears.ISTIO, wears.DAPR, wears.VAULT, wears.CONSUL, wears.KUMA, wears.OPENTELEMETRY)
WEARS: Final = {wear.mesh: wear for wear in _DRESSED}
LOOKED_AT: Final = frozenset(
    {"Pod", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Deployment", "CronJob"}
)


class NotingClient(KubeClient):
    """Notes every write that is no dry run: what was tried, and what was not refused."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(load_access(kubeconfig, None))
        self.tried: list[tuple[str, str]] = []
        self.writes: list[tuple[str, str]] = []

    def request(self, method: str, path: str, *, params: Params | None = None, **asked: Any) -> bytes:
        writes = method != "GET" and (params or {}).get("dryRun") != "All" and "selfsubject" not in path
        if writes:
            self.tried.append((method, path))
        answer = super().request(method, path, params=params, **asked)
        if writes:
            self.writes.append((method, path))
        return answer


class Gateways(Injector):
    """Istio's injector, as far as pods that bring their own istio-proxy with the image `auto` are concerned."""

    def call(self, endpoint: Endpoint, review: Review, ca_bundle: str, seconds: float) -> Answer:
        answer = super().call(endpoint, review, ca_bundle, seconds)
        if self.faults or not any(each.get("image") == "auto" for each in answer.obj["spec"]["containers"]):
            return answer
        pod = copy(answer.obj)
        pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **self.wear.mark_annotations}
        for container in pod["spec"]["containers"]:
            container["image"] = "istio/proxyv2:test"
        return replace(answer, obj=pod)


@dataclass
class Stage:
    """One case under way."""

    case: Case
    body: Obj = field(init=False)
    context: Obj = field(init=False)

    def __post_init__(self) -> None:
        self.body = copy(self.case["object"])
        self.context = self.body.pop("context", {})
        self.text = _refusal(self.case["message"], self.body)
        self.wear = wear_of(self.case, self.context)
        self.bed = SimCluster.start(self.wear, controller_qps=0)
        self.client = Client(self.bed.kubeconfig)
        self.noting = NotingClient(self.bed.kubeconfig)
        self.cluster = Cluster(self.noting)
        self.refused = 0
        self._refusing = False
        self._wrap_admission()
        self.namespace = str(self.body["metadata"].get("namespace", ""))
        self.name = str(self.body["metadata"]["name"])

    def close(self) -> None:
        self.noting.close()
        self.client.close()
        self.bed.stop()

    def _wrap_admission(self) -> None:
        admit = self.bed.admission.mutate

        def mutate(attributes: Attributes, obj: Obj) -> Obj:
            if self._refusing and attributes.resource is res.PODS and attributes.namespace == self.namespace:
                self.refused += not attributes.dry_run
                raise StatusError(500, "InternalError", self.text)
            return admit(attributes, obj)

        setattr(self.bed.admission, "mutate", mutate)  # noqa: B010  # an instance's method, for this cluster only

    # The surroundings

    def prepare(self) -> None:
        """The namespace as the case has it, and whatever else is installed."""
        if self.namespace:
            given = self.context.get("namespace", {})
            manifest = {"labels": given.get("labels", {}), "annotations": given.get("annotations", {})}
            self._namespace(self.namespace, manifest)
        webhook = self.context.get("webhook")
        if webhook and webhook["name"] != self.wear.webhook:
            self._stranger(webhook)
        if self.case["id"] == "C094":  # one of two injectors did its work, and both are there
            self.add_injector(wears.ISTIO)
        if self.case["id"] == "C098":
            self._serve_gateways()

    def _namespace(self, name: str, metadata: Obj) -> None:
        self.client.api.ensure("/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
        self.client.api.patch(f"/api/v1/namespaces/{name}", {"metadata": metadata})
        account = f"/api/v1/namespaces/{name}/serviceaccounts"
        wait_until(lambda: self.client.api.items(account), f"the accounts of {name}")

    def _stranger(self, webhook: Obj) -> None:
        """A webhook of somebody else, whose Service is not there."""
        namespace, _, service = str(webhook["service"]).partition("/")
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        hook = {
            "name": webhook["name"],
            "failurePolicy": webhook["failurePolicy"],
            "clientConfig": {"service": {"namespace": namespace, "name": service, "path": "/mutate"}},
            "rules": [rule],
            "namespaceSelector": selector,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        self._configuration({"metadata": {"name": f"{service}-cfg"}, "webhooks": [hook]})

    def _configuration(self, body: Obj) -> None:
        self.client.api.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", body)

    def add_injector(self, wear: InjectorWear) -> None:
        """A second injector, which works."""
        self._namespace(wear.namespace, {"labels": {}})
        self.bed.admission.backends[wear.namespace, wear.service] = Injector(wear, "bundle")
        spec = {"ports": [{"port": wear.service_port, "targetPort": wear.target_port}]}
        self.bed.api.create(res.SERVICES, wear.namespace, {"metadata": {"name": wear.service}, "spec": spec})
        labels = {"kubernetes.io/service-name": wear.service}
        endpoints = [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}, "nodeName": "sim-node-0"}]
        ports = [{"port": wear.target_port}]
        known = {"metadata": {"name": f"{wear.service}-own", "labels": labels}, "addressType": "IPv4"}
        self.bed.api.create(res.ENDPOINT_SLICES, wear.namespace, {**known, "endpoints": endpoints, "ports": ports})
        place = {"namespace": wear.namespace, "name": wear.service, "path": wear.path, "port": wear.service_port}
        hook = {
            "name": wear.webhook,
            "clientConfig": {"service": place, "caBundle": "bundle"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": dict(wear.namespace_selector),
            "objectSelector": dict(wear.object_selector),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        self._configuration({"metadata": {"name": wear.configuration}, "webhooks": [hook]})

    def _serve_gateways(self) -> None:
        gateways = Gateways(self.wear, self.bed.injector.ca_bundle)
        self.bed.injector = gateways
        self.bed.admission.backends[self.wear.namespace, self.wear.service] = gateways

    def recreate_configuration(self) -> None:
        """Install the mesh anew, in a later second than anything that is there."""
        place = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{self.wear.configuration}"
        body = self.client.api.get(place)
        self.client.api.delete(place)
        began = int(time.time())
        wait_until(lambda: int(time.time()) > began + 1, "another second", 5)
        self._configuration({"metadata": {"name": self.wear.configuration}, "webhooks": body["webhooks"]})

    # The injector now

    def set_injector(self) -> None:
        """Healthy, or failing in the way that the case's class tells; anything but "fails" leaves it as it is."""
        if self.context.get("injector", {}).get("probe") != "fails":
            return
        faults = {"webhook_x509": Fault.WRONG_CA, "webhook_no_endpoints": Fault.NO_ENDPOINTS}
        self.bed.inject_fault(faults.get(self.case["expect_class"], Fault.KILLED))

    # The object

    def refuse(self) -> None:
        """From now on pods are refused in the case's words."""
        self._refusing = True

    def template(self) -> Obj:
        """Of the case's pod, or of its workload; what the API needs besides is filled in."""
        if self.body["kind"] == "Pod":
            source = {"metadata": self.body["metadata"], "spec": self.body["spec"]}
        else:
            source = self.body.get("spec", {}).get("template", {})
        metadata = source.get("metadata", {})
        labels = {**metadata.get("labels", {}), "case": self.case["id"].lower()}
        if self.namespace == self.wear.namespace and self.wear.service.split("-")[0] in self.name:
            labels |= self.wear.injector_labels if "injector" in self.name else {}
        spec = {**copy(source.get("spec", {}))}
        spec["containers"] = [{"image": "app:test", **each} for each in spec.get("containers", [{"name": "app"}])]
        if self.kind() == "Job":
            spec["restartPolicy"] = "Never"
        return {"metadata": {"labels": labels, "annotations": metadata.get("annotations", {})}, "spec": spec}

    def kind(self) -> str:
        """Of the owner that is created: the pod's controller, or the object itself; "" for a pod alone."""
        if self.body["kind"] != "Pod":
            return str(self.body["kind"])
        return next((str(each["kind"]) for each in self.body["metadata"].get("ownerReferences", ())), "")

    def create_owner(self, replicas: int) -> None:
        """The owner, through a Deployment where the case's ReplicaSet has one."""
        kind, name = self.kind(), self._owner_name()
        labels = {"case": self.case["id"].lower()}
        spec: Obj = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": self.template()}
        made = {"ReplicaSet": "Deployment"}.get(kind, kind)
        version = "batch/v1" if made == "Job" else "v1" if made == "ReplicationController" else "apps/v1"
        if made in ("DaemonSet", "Job"):
            del spec["replicas"]
        if made == "Job":
            del spec["selector"]
        if made == "ReplicationController":
            spec["selector"] = labels
        if made == "StatefulSet":
            spec["serviceName"] = name
        metadata: Obj = {"name": name}
        if self.case["id"] == "C103":
            metadata["annotations"] = {"linkerd.io/inject": "enabled"}
        self.client.create(self.namespace, {"apiVersion": version, "kind": made, "metadata": metadata, "spec": spec})

    def _owner_name(self) -> str:
        """The Deployment's: the ReplicaSet's without its hash. The injector's own Deployment is there already."""
        name = self.name
        if self.body["kind"] == "Pod":
            name = self.body["metadata"]["ownerReferences"][0]["name"]
        if self.kind() == "ReplicaSet":
            name = name.rpartition("-")[0] or name
        taken = (self.namespace, name) == (self.wear.namespace, self.wear.service)
        return f"{name}-next" if taken else name

    def scale(self, replicas: int) -> None:
        made = {"ReplicaSet": "Deployment"}.get(self.kind(), self.kind())
        self.client.scale(made, self.namespace, self._owner_name(), replicas)

    def owners(self) -> list[Obj]:
        """The objects of the case's kind, without those of the test bed itself."""
        kind = {"Deployment": "ReplicaSet"}.get(self.kind(), self.kind())
        return [each for each in self.client.items(kind, self.namespace) if self._is_mine(each)]

    def pods(self) -> list[Obj]:
        return [each for each in self.client.pods(self.namespace) if self._is_mine(each)]

    def _is_mine(self, thing: Obj) -> bool:
        found = thing.get("spec", {}).get("template", thing)["metadata"].get("labels", {})
        return bool(found.get("case") == self.case["id"].lower())

    def wait_pods(self, count: int, *, suits: Callable[[Obj], bool] = lambda _: True) -> list[Obj]:
        if not count:
            return []

        def there() -> list[Obj]:
            found = [pod for pod in self.pods() if pod["status"].get("phase") == "Running" and suits(pod)]
            return found if len(found) >= count else []

        return wait_until(there, f"{count} pods of {self.case['id']}", 30)


def _refusal(message: str, body: Obj) -> str:
    """What the API server said: a condition quotes it as it is, an event's text has the controller's words before."""
    for condition in body.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure":
            return str(condition["message"])
    return message.removeprefix("Error creating: ")


def wear_of(case: Case, context: Obj) -> InjectorWear:
    """The live webhook: of the mesh that the case is about, as the case changes it."""
    given = context.get("webhook") or {}
    profile = _profile(case, given)
    wear = WEARS.get(profile.name) or _by_profile(profile)
    named = webhook_named(case["message"])
    if not given and named and profile.serves("", named, None):
        return replace(wear, webhook=named, more_webhooks=())
    if not given or not profile.serves("", str(given["name"]), None):
        return wear
    namespace, _, service = str(given["service"]).partition("/")
    changed = replace(
        wear, webhook=given["name"], namespace=namespace, service=service, failure_policy=given["failurePolicy"]
    )
    if given["name"] != wear.webhook or "namespaceSelector" in given:
        selector = given.get("namespaceSelector", wear.namespace_selector)
        changed = replace(changed, more_webhooks=(), namespace_selector=selector)
    return changed


def _profile(case: Case, webhook: Obj) -> MeshProfile:
    named = next((each for each in PROFILES.all if webhook and each.serves("", str(webhook["name"]), None)), None)
    mesh = {"1password": "onepassword"}.get(case["mesh"], case["mesh"])
    by_mesh = next((each for each in PROFILES.all if each.name == mesh), None)
    return named or by_mesh or PROFILES.by_name("linkerd")


def _by_profile(profile: MeshProfile) -> InjectorWear:
    """For meshes that have no clothes of their own: as the profile describes the chart."""
    hook = profile.default_webhooks[0]
    return InjectorWear(
        mesh=profile.name,
        configuration=(profile.webhook.configurations or (f"{profile.name}-webhook",))[0].strip("*-"),
        webhook=hook.name,
        namespace=profile.service.namespace,
        service=profile.service.name,
        path=profile.service.path or "/",
        timeout_seconds=wears.WEBHOOK_TIMEOUT_SECONDS,
        injector_labels=dict(profile.injector.labels) or {"app": profile.service.name},
        namespace_selector={},
        object_selector={},
        ask_annotation=("test.remesh.dev/asks", profile.name),
    )
