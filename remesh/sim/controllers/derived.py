"""Objects that only mirror others: EndpointSlices of Services, and the status of budgets and quotas."""

from typing import Any

from remesh.sim import resources as res
from remesh.sim.admission import quota_usage
from remesh.sim.controllers.base import Controller
from remesh.sim.controllers.deployments import share
from remesh.sim.objects import (
    Obj,
    controller_of,
    controller_reference,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    now,
    uid_of,
    with_condition,
)
from remesh.sim.resources import Resource
from remesh.sim.selectors import equality_selector, label_selector
from remesh.sim.store import Change
from remesh.sim.workqueue import Key

_SERVICE_NAME = "kubernetes.io/service-name"


class _Mirror(Controller):
    """A controller whose objects all have to be looked at when a pod of their namespace changes."""

    resource: Resource = res.SERVICES

    def watch(self) -> None:
        self.watch_own(self.resource)
        self.store.listen(res.PODS, self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        for item in self.store.objects(self.resource, change.key[0]):
            if self.concerns(item.obj, change.new.obj):
                self.queue.add((change.key[0], name_of(item.obj)))

    def concerns(self, obj: Obj, pod: Obj) -> bool:
        raise NotImplementedError


class EndpointSliceController(_Mirror):
    """One slice per Service (real ones hold 100 endpoints; here one holds them all)."""

    name = "endpointslice-controller"
    resource = res.SERVICES

    def concerns(self, obj: Obj, pod: Obj) -> bool:
        """Whether a change of this pod can change the object."""
        return equality_selector(obj["spec"].get("selector"))(labels_of(pod))

    def sync(self, key: Key) -> None:
        """Write what the pods make of it."""
        service = self.find(res.SERVICES, key)
        if service is None or is_terminating(service) or not service["spec"].get("selector"):
            return
        selects = equality_selector(service["spec"]["selector"])
        pods = [item.obj for item in self.store.objects(res.PODS, key[0]) if selects(labels_of(item.obj))]
        pods = [pod for pod in pods if pod["status"].get("podIP") and not is_finished(pod)]
        endpoints = [_endpoint(pod) for pod in pods]
        owned = self.store.owned(res.ENDPOINT_SLICES, uid_of(service))
        if owned:
            self._replace(owned[0], endpoints)
        else:
            self._create(service, endpoints)

    def _replace(self, present: Obj, endpoints: list[Obj]) -> None:
        if (present.get("endpoints") or []) == endpoints:
            return

        def replaced(current: Obj) -> Obj:
            current["endpoints"] = endpoints
            return current

        self.client.change(res.ENDPOINT_SLICES, namespace_of(present), name_of(present), replaced)

    def _create(self, service: Obj, endpoints: list[Obj]) -> None:
        labels = {**labels_of(service), _SERVICE_NAME: name_of(service)}
        labels["endpointslice.kubernetes.io/managed-by"] = "endpointslice-controller.k8s.io"
        slice_object = {
            "metadata": {
                "generateName": f"{name_of(service)}-",
                "labels": labels,
                "ownerReferences": [controller_reference(res.SERVICES, service)],
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [
                {"name": port.get("name", ""), "protocol": port["protocol"], "port": port["targetPort"]}
                for port in service["spec"].get("ports") or ()
            ],
        }
        self.client.create(res.ENDPOINT_SLICES, namespace_of(service), slice_object)


def _endpoint(pod: Obj) -> Obj:
    serving = is_ready(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": serving and not is_terminating(pod),
            "serving": serving,
            "terminating": is_terminating(pod),
        },
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": {"kind": "Pod", "namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)},
    }


class DisruptionController(_Mirror):
    """Works out how many pods of a PodDisruptionBudget may go now."""

    name = "disruption-controller"
    resource = res.DISRUPTION_BUDGETS

    def concerns(self, obj: Obj, pod: Obj) -> bool:
        """Whether a change of this pod can change the object."""
        return label_selector(obj["spec"].get("selector"))(labels_of(pod))

    def sync(self, key: Key) -> None:
        """Write what the pods make of it."""
        budget = self.find(self.resource, key)
        if budget is None or is_terminating(budget):
            return
        pods = [item.obj for item in self.store.objects(res.PODS, key[0]) if self.concerns(budget, item.obj)]
        pods = [pod for pod in pods if not is_finished(pod)]
        present = {name_of(pod) for pod in pods if not is_terminating(pod)}
        before = budget.get("status", {}).get("disruptedPods") or {}
        disrupted = {name: time for name, time in before.items() if name in present}
        healthy = sum(1 for pod in pods if is_ready(pod) and is_active(pod) and name_of(pod) not in disrupted)
        expected, desired = self._desired(budget, pods)
        status: dict[str, Any] = {
            "observedGeneration": budget["metadata"]["generation"],
            "disruptedPods": disrupted or None,
            "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }
        status["conditions"] = with_condition(
            budget.get("status", {}).get("conditions") or [], _disruption_allowed(budget, status["disruptionsAllowed"])
        )
        self.set_status(self.resource, budget, status)

    def _desired(self, budget: Obj, pods: list[Obj]) -> tuple[int, int]:
        spec = budget["spec"]
        if (least := spec.get("minAvailable")) is not None:
            if isinstance(least, int):
                return len(pods), least
            expected = self._scale(pods)
            return expected, share(least, expected, up=True)
        expected = self._scale(pods)
        return expected, max(0, expected - share(spec.get("maxUnavailable", 0), expected, up=True))

    def _scale(self, pods: list[Obj]) -> int:
        """The replicas that the pods' controllers ask for, together."""
        total, seen = 0, set()
        for pod in pods:
            reference = controller_of(pod)
            if reference is None or reference["uid"] in seen:
                continue
            seen.add(reference["uid"])
            owner = res.BY_KIND.get((reference["apiVersion"], reference["kind"]))
            found = self.find(owner, (namespace_of(pod), reference["name"])) if owner else None
            total += found["spec"].get("replicas", 0) if found else 0
        return total


def _disruption_allowed(budget: Obj, number: int) -> Obj:
    return {
        "type": "DisruptionAllowed",
        "status": "True" if number else "False",
        "observedGeneration": budget["metadata"]["generation"],
        "lastTransitionTime": now(),
        "reason": "SufficientPods" if number else "InsufficientPods",
        "message": "",
    }


class QuotaController(_Mirror):
    """Keeps `status.used` of ResourceQuotas: only the number of pods is counted."""

    name = "resourcequota-controller"
    resource = res.RESOURCE_QUOTAS

    def concerns(self, obj: Obj, pod: Obj) -> bool:
        """Whether a change of this pod can change the object."""
        return namespace_of(obj) == namespace_of(pod)

    def sync(self, key: Key) -> None:
        """Write what the pods make of it."""
        quota = self.find(self.resource, key)
        if quota is None:
            return
        hard = quota["spec"].get("hard") or {}
        self.set_status(self.resource, quota, {"hard": dict(hard), "used": quota_usage(self.store, key[0], hard)})
