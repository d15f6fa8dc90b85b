"""May this pod be evicted now? PodDisruptionBudgets, as the eviction subresource reads them."""

from typing import TYPE_CHECKING

from remesh.sim import resources as res
from remesh.sim import status
from remesh.sim.deletion import DeleteOptions, check_preconditions
from remesh.sim.objects import Obj, is_ready, labels_of, name_of, namespace_of, now, with_condition
from remesh.sim.selectors import label_selector

if TYPE_CHECKING:
    from remesh.sim.api import ApiServer


def claim_disruption(api: "ApiServer", pod: Obj, *, dry_run: bool) -> None:
    """Take one of the disruptions that the pod's budget allows, if it has a budget.

    Raises StatusError: 429 when there is none left, 500 when several budgets select the pod.
    """
    budgets = _budgets(api, pod)
    if not budgets:
        return
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise status.StatusError(500, "", message)
    budget = budgets[0]
    if not is_ready(pod) and _may_evict_unhealthy(budget):
        return
    _take(api, pod, name_of(budget), dry_run=dry_run)


def _budgets(api: "ApiServer", pod: Obj) -> list[Obj]:
    labels = labels_of(pod)
    found = api.store.objects(res.DISRUPTION_BUDGETS, namespace_of(pod))
    return [item.obj for item in found if label_selector(item.obj["spec"].get("selector"))(labels)]


def _may_evict_unhealthy(budget: Obj) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = budget["status"].get("desiredHealthy", 0)
    return bool(desired > 0 and budget["status"].get("currentHealthy", 0) >= desired)


def _take(api: "ApiServer", pod: Obj, name: str, *, dry_run: bool) -> None:
    def taken(budget: Obj) -> Obj:
        found = budget["status"]
        if found.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
            raise status.too_many_requests(f"The disruption budget {name} is still being processed by the server.")
        if found.get("disruptionsAllowed", 0) <= 0:
            raise status.too_many_requests(_why_not(budget))
        found["disruptionsAllowed"] -= 1
        found.setdefault("disruptedPods", {})[name_of(pod)] = now()
        return budget

    api.change(res.DISRUPTION_BUDGETS, namespace_of(pod), name, taken, subresource="status", dry_run=dry_run)


def mark_disrupted(api: "ApiServer", namespace: str, name: str, options: DeleteOptions) -> None:
    """Write on the pod that it is evicted; a resourceVersion to delete at moves on with that.

    Raises StatusError: 404, and 409 when a precondition does not hold.
    """
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": now(),
    }

    def marked(pod: Obj) -> Obj:
        check_preconditions(res.PODS, pod, options)
        pod["status"]["conditions"] = with_condition(pod["status"].get("conditions") or [], target)
        return pod

    changed = api.change(res.PODS, namespace, name, marked, subresource="status")
    if options.version:
        options.version = str(changed.version)


def _why_not(budget: Obj) -> str:
    name = name_of(budget)
    desired, healthy = (budget["status"].get(key, 0) for key in ("desiredHealthy", "currentHealthy"))
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"
