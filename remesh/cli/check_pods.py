"""Checks of the pods behind an injector's Service: endpoints, replicas, nodes, disruption budget.

Used by `remesh.cli.check_injectors`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from remesh.cli.checks import Check, fail, guarded, ok, skip, warn
from remesh.cli.session import Session
from remesh.cli.text import count
from remesh.kube.decode import selector_text
from remesh.kube.owners import selects
from remesh.kube.resources import Resource
from remesh.objects import LabelSelector, Node, Pod, ServiceReference

_BUDGETS = Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")


def pod_checks(
    session: Session, service: ServiceReference, slices: list[dict[str, Any]], subject: str
) -> Iterator[Check]:
    """Endpoints first; of the pods only where the Service selects any."""
    yield endpoints_check(slices, session.policy.gate.quorum, service, subject)
    pods = _pods(session, service)
    if not pods:
        yield skip("injector-replicas", "replicas: not checked, its Service selects no pods", subject)
        return
    nodes: list[Node] = session.cluster.list("Node")
    yield replicas_check(pods, subject)
    yield spread_check(pods, nodes, subject)
    yield nodes_check(pods, nodes, subject)
    yield from guarded("injector-budget", lambda: [_budget(session, service, pods, subject)], subject)


def _pods(session: Session, service: ServiceReference) -> list[Pod]:
    found = session.cluster.get_raw("Service", service.namespace, service.name)
    labels = found.get("spec", {}).get("selector") or {}
    if not labels:
        return []
    selector = selector_text(LabelSelector(match_labels=labels))
    pods: list[Pod] = session.cluster.list("Pod", service.namespace, selector)
    ended = ("Succeeded", "Failed")
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase not in ended]


def endpoints_check(slices: list[dict[str, Any]], quorum: int, service: ServiceReference, subject: str) -> Check:
    """Somebody takes the calls, and enough of them for the gate."""
    every = [each for piece in slices for each in piece.get("endpoints") or ()]
    ready = sum(1 for each in every if each.get("conditions", {}).get("ready") is not False)
    text = f"{ready} of {count(len(every), 'endpoint')} ready"
    hint = f"see `kubectl -n {service.namespace} get endpointslices -l kubernetes.io/service-name={service.name}`"
    if not ready:
        return fail("injector-endpoints", f"{text}: every call of the webhook fails", subject, hint)
    if ready < quorum:
        return warn("injector-endpoints", f"{text}, and the policy's gate wants {quorum}", subject, hint)
    return ok("injector-endpoints", text, subject)


def replicas_check(pods: list[Pod], subject: str) -> Check:
    """More than one, and all Ready."""
    ready = sum(1 for pod in pods if pod.ready)
    text = f"{count(len(pods), 'replica')}, {ready} Ready"
    if len(pods) < 2:
        return warn("injector-replicas", f"{text}: it is away whenever that one is", subject)
    if ready < len(pods):
        return warn("injector-replicas", text, subject, "see why they are not Ready: `kubectl describe pods`")
    return ok("injector-replicas", text, subject)


def spread_check(pods: list[Pod], nodes: list[Node], subject: str) -> Check:
    """One lost node does not take all of them."""
    homes = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)
    if len(pods) < 2:
        return skip("injector-spread", "spread over nodes: there is one replica", subject)
    text = f"on {count(len(homes), 'node')}: {', '.join(sorted(homes))}"
    if len(homes) < 2 and len(nodes) > 1:
        return warn("injector-spread", f"all {len(pods)} replicas {text}", subject)
    return ok("injector-spread", text, subject)


def nodes_check(pods: list[Pod], nodes: list[Node], subject: str) -> Check:
    """The nodes below them are alive."""
    ready = {node.metadata.name for node in nodes if node.ready}
    lost = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name} - ready)
    if lost:
        alive = sum(1 for pod in pods if pod.spec.node_name in ready)
        text = f"not Ready below its replicas: {', '.join(lost)}; {alive} of {len(pods)} replicas on nodes that are"
        return warn("injector-nodes", text, subject) if alive else fail("injector-nodes", text, subject)
    return ok("injector-nodes", "every node below its replicas is Ready", subject)


def _budget(session: Session, service: ServiceReference, pods: list[Pod], subject: str) -> Check:
    if len(pods) < 2:
        return skip("injector-budget", "disruption budget: there is one replica", subject)
    found = session.cluster.client.get(_BUDGETS.path(service.namespace)).get("items") or ()
    names = [
        each["metadata"]["name"]
        for each in found
        if all(selects(each.get("spec", {}).get("selector"), pod) for pod in pods)
    ]
    if not names:
        return warn("injector-budget", "no PodDisruptionBudget selects its replicas: a drain may take all", subject)
    return ok("injector-budget", f"PodDisruptionBudget {', '.join(names)}", subject)
