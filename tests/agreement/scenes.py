"""Random clusters: what can be there around a pod, in every state, as plain manifests with status.

A `Scene` is drawn by hypothesis and built into a `MemoryCluster` as often as it is needed: twice the same.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from remesh.ledger import Ledger
from remesh.policy import Policy
from remesh.sim import resources as res
from remesh.sim.injector import Injector
from remesh.sim.objects import Obj
from remesh.testbed import Fault, InjectorWear
from tests.agreement.memory import MemoryCluster
from tests.wears import DAPR, ISTIO, LINKERD, VAULT

WEARS: Final = {"linkerd": LINKERD, "istio": ISTIO, "vault": VAULT, "dapr": DAPR}
PLACES: Final = ("shop", "bank", "kube-system")  # namespaces; the last one is protected
FAULTS: Final = (Fault.KILLED, Fault.NOT_INJECTING, Fault.DENYING, Fault.WRONG_CA, Fault.ERROR_500, Fault.NO_ENDPOINTS)

TEXTS: Final = (
    'Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": failed to call webhook: Post '
    '"https://linkerd-proxy-injector.linkerd.svc:443/?timeout=2s": dial tcp 10.0.0.1:443: connect: connection refused',
    'Internal error occurred: failed calling webhook "namespace.sidecar-injector.istio.io": failed to call webhook: '
    'Post "https://istiod.istio-system.svc:443/inject?timeout=2s": context deadline exceeded',
    'Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": failed to call webhook: Post '
    '"https://linkerd-proxy-injector.linkerd.svc:443/?timeout=2s": tls: failed to verify certificate: x509: certificate'
    " signed by unknown authority",
    'Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": received invalid webhook '
    'response: expected response.uid="3d19f57a", got ""',
    'Internal error occurred: failed calling webhook "warden.example.com": failed to call webhook: Post '
    '"https://warden.guard.svc:443/?timeout=2s": dial tcp 10.0.0.2:443: connect: connection refused',
    'admission webhook "linkerd-proxy-injector.linkerd.io" denied the request: bad value',
    'admission webhook "policy.example.com" denied the request: no',
    'pods "web" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4',
    "Timeout: request did not complete within requested timeout - context deadline exceeded",
)


def before(seconds: float) -> str:
    """A time as the API server writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


AGES: Final = (2.0, 300.0, 7200.0)  # seconds; none is near a limit of the policy


@dataclass(frozen=True)
class Place:
    """A namespace."""

    name: str
    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    terminating: bool = False
    asked_just_now: bool = False  # its request is younger than its pods
    quota: bool = False  # no further pod may be created

    def manifest(self) -> Obj:
        metadata: Obj = {"name": self.name, "uid": f"ns-{self.name}", "creationTimestamp": before(90000)}
        metadata["annotations"], metadata["labels"] = dict(self.annotations), dict(self.labels)
        if self.asked_just_now:
            fields: Obj = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key, _ in self.annotations}}}
            metadata["managedFields"] = [{"manager": "kubectl", "time": before(1), "fieldsV1": fields}]
        if self.terminating:
            metadata["deletionTimestamp"] = before(10)
        return {"kind": "Namespace", "metadata": metadata}


@dataclass(frozen=True)
class APod:
    """One pod: by its owner, or alone."""

    sidecars: tuple[str, ...] = ()
    ready: bool = True
    state: str = "running"  # running, pending, succeeded, failed, terminating, mirror, of-node
    age: float = 7200.0
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnOwner:
    """A workload with its pods; kind "Pod" stands for pods without a controller."""

    kind: str
    place: int
    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    desired: int = 2
    pods: tuple[APod, ...] = ()
    state: str = "settled"  # settled, unobserved, updating, paused, outdated, deleted, gone, replaced
    status_lags: bool = False  # its status still says that all is well
    text: str = ""
    age: float = 300.0
    above: bool = False  # a Deployment over the ReplicaSet
    on_delete: bool = False
    settling: int = 0  # pods that are Ready, and not yet for minReadySeconds
    slots: int = 0  # of its share, taken by others' repairs


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget for one owner's pods, or for all of a namespace."""

    place: int
    app: str = ""
    allowed: int = 0
    looked_at: bool = True


@dataclass(frozen=True)
class AnInjector:
    """One mesh's live webhook, and how its injector does."""

    mesh: str
    fault: Fault | None = None
    fails_open: bool = False
    side_effects: str = "None"
    age: float = 86400.0


@dataclass(frozen=True)
class Scene:
    """A whole cluster, and the policy."""

    places: tuple[Place, ...]
    owners: tuple[AnOwner, ...]
    injectors: tuple[AnInjector, ...]
    budgets: tuple[Budget, ...]
    policy: Policy
    nodes: str = "fine"  # fine, cordoned, tainted
    brake: str = "free"  # of every injector: free, shut, lost, found, canary

    def build(self) -> MemoryCluster:
        """The cluster, anew."""
        world = MemoryCluster()
        for place in self.places:
            world.add(place.manifest())
            if place.quota:
                world.add(_quota(place.name))
            account = {"name": "default", "namespace": place.name, "uid": f"sa-{place.name}", "creationTimestamp": ""}
            world.add({"kind": "ServiceAccount", "metadata": account})
        for injector in self.injectors:
            _serve(world, injector)
        for number, owner in enumerate(self.owners):
            for body in _owner_manifests(owner, number, self.places[owner.place].name):
                world.add(body)
        for number, budget in enumerate(self.budgets):
            world.add(_budget(budget, number, self.places[budget.place].name))
        if self.nodes != "fine":
            world.api.change(res.NODES, "", "sim-node-0", self._spoil)
        return world

    def _spoil(self, node: Obj) -> Obj:
        taint = {"key": "broken", "effect": "NoSchedule"}
        node["spec"] = {"unschedulable": True} if self.nodes == "cordoned" else {"taints": [taint]}
        return node

    def note(self, ledger: Ledger) -> None:
        """What the ledger knows of other repairs."""
        for number, owner in enumerate(self.owners):
            for slot in range(owner.slots):
                ledger.take_slot(f"uid-web-{number}", f"other-{slot}", owner.slots, 600)
        for injector in self.injectors if self.brake != "free" else ():
            self._brake(ledger, f"{WEARS[injector.mesh].namespace}/{WEARS[injector.mesh].service}")

    def _brake(self, ledger: Ledger, key: str) -> None:
        kind = {"lost": "ReplicaSet", "found": "Deployment"}.get(self.brake, "")
        owner = [_VERSIONS.get(kind, "apps/v1"), kind, "web-0", "uid-web-0"]
        place = self.places[self.owners[0].place].name
        about = {"namespace": place, "name": "gone", "uid": "gone", "owner": owner, "there": 9, "ready": 9}
        for holder in ("gone-1", "gone-2"):
            ledger.brakes.take(key, holder, 60, json.dumps(about))
            if self.brake == "canary":
                return
            ledger.brakes.tell(key, holder, good=False, shut_seconds=60)
        if self.brake in ("lost", "found"):
            ledger._redis.hset(f"{ledger._base}brake:{key}", "shut", "1")


def _quota(namespace: str) -> Obj:
    metadata = {"name": "team", "namespace": namespace, "uid": f"quota-{namespace}", "creationTimestamp": before(9000)}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}


def _budget(budget: Budget, number: int, namespace: str) -> Obj:
    metadata = {"name": f"budget-{number}", "namespace": namespace, "uid": f"pdb-{number}", "generation": 1}
    selector: Obj = {"matchLabels": {"app": budget.app}} if budget.app else {}
    status: Obj = {"disruptionsAllowed": budget.allowed, "currentHealthy": 2, "desiredHealthy": 2 - budget.allowed}
    status |= {"observedGeneration": 1 if budget.looked_at else 0, "expectedPods": 2}
    spec = {"selector": selector, "minAvailable": 2 - budget.allowed}
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {**metadata, "creationTimestamp": before(9000)},
        "spec": spec,
        "status": status,
    }


def _serve(world: MemoryCluster, injector: AnInjector) -> None:
    """Webhook configuration, Service and endpoints of one mesh."""
    wear = WEARS[injector.mesh]
    made = Injector(wear, "right")
    if injector.fault not in (None, Fault.WRONG_CA, Fault.NO_ENDPOINTS):
        assert injector.fault is not None
        made.break_by(injector.fault)
    world.serve(made)
    known = {"namespace": wear.namespace, "creationTimestamp": before(90000)}
    world.add(
        {
            "kind": "Service",
            "metadata": {"name": wear.service, "uid": f"svc-{wear.mesh}", **known},
            "spec": {"ports": [{"port": wear.service_port, "targetPort": wear.target_port}], "clusterIP": "10.96.0.9"},
        }
    )
    there = injector.fault is not Fault.NO_ENDPOINTS
    endpoints = [{"addresses": ["10.1.0.1"], "conditions": {"ready": there}, "nodeName": "sim-node-0"}]
    labels = {"kubernetes.io/service-name": wear.service}
    world.add(
        {
            "kind": "EndpointSlice",
            "metadata": {"name": f"{wear.service}-x", "uid": f"eps-{wear.mesh}", "labels": labels, **known},
            "endpoints": endpoints,
            "ports": [{"port": wear.target_port}],
        }
    )
    world.add(_configuration(wear, injector))


def _configuration(wear: InjectorWear, injector: AnInjector) -> Obj:
    service = {"name": wear.service, "namespace": wear.namespace, "path": wear.path, "port": wear.service_port}
    bundle = "wrong" if injector.fault is Fault.WRONG_CA else "right"
    hook: Obj = {
        "name": wear.webhook,
        "clientConfig": {"service": service, "caBundle": bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "failurePolicy": "Ignore" if injector.fails_open else "Fail",
        "namespaceSelector": dict(wear.namespace_selector),
        "objectSelector": dict(wear.object_selector),
        "sideEffects": injector.side_effects,
        "timeoutSeconds": 2,
        "admissionReviewVersions": ["v1"],
    }
    metadata = {"name": wear.configuration, "uid": f"hook-{wear.mesh}", "creationTimestamp": before(injector.age)}
    return {"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": [hook]}


# Owners and pods

_VERSIONS: Final = {"ReplicationController": "v1", "Job": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}


def _owner_manifests(owner: AnOwner, number: int, namespace: str) -> list[Obj]:
    name = f"web-{number}"
    pods = [_pod(owner, name, namespace, index, pod) for index, pod in enumerate(owner.pods)]
    if owner.kind in ("Pod", "Rollout") or owner.state == "gone":
        return pods
    found = [_workload(owner, name, namespace), *pods]
    if owner.above and owner.kind == "ReplicaSet":
        found.append(_deployment(owner, name, namespace))
    return found


def _reference(owner: AnOwner, name: str) -> Obj:
    version = _VERSIONS.get(owner.kind, "apps/v1")
    uid = f"another-{name}" if owner.state == "replaced" else f"uid-{name}"
    return {"apiVersion": version, "kind": owner.kind, "name": name, "uid": uid, "controller": True}


def _pod(owner: AnOwner, name: str, namespace: str, index: int, pod: APod) -> Obj:
    metadata: Obj = {
        "name": f"{name}-{index}",
        "namespace": namespace,
        "uid": f"uid-{name}-{index}",
        "creationTimestamp": before(pod.age),
        "labels": {"app": name, **dict(owner.labels)},
        "annotations": dict(owner.annotations),
    }
    if owner.kind != "Pod":
        metadata["ownerReferences"] = [_reference(owner, name)]
    if pod.state == "of-node":
        node = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n", "controller": True}
        metadata["ownerReferences"] = [node]
    if pod.state == "mirror":
        metadata["annotations"]["kubernetes.io/config.mirror"] = "0123"
    if pod.finalizers:
        metadata["finalizers"] = list(pod.finalizers)
    if pod.state == "terminating":
        metadata |= {"deletionTimestamp": before(5), "deletionGracePeriodSeconds": 30}
    containers = [{"name": "app", "image": "app"}]
    spec: Obj = {"containers": containers, "nodeName": "sim-node-0", "hostNetwork": owner.host_network}
    spec["restartPolicy"] = "Never" if owner.kind == "Job" else "Always"
    for mesh in pod.sidecars:
        _mark(WEARS[mesh], metadata, spec)
    phases = {"pending": "Pending", "succeeded": "Succeeded", "failed": "Failed"}
    ready = pod.ready and pod.state not in phases
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phases.get(pod.state, "Running"), "conditions": conditions}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _mark(wear: InjectorWear, metadata: Obj, spec: Obj) -> None:
    metadata["annotations"] = {**metadata["annotations"], **wear.mark_annotations}
    metadata["labels"] = {**metadata["labels"], **wear.mark_labels}
    if wear.sidecar and wear.native_sidecar:
        spec.setdefault("initContainers", []).append({"name": wear.sidecar, "image": "s", "restartPolicy": "Always"})
    elif wear.sidecar:
        spec["containers"].append({"name": wear.sidecar, "image": "s"})


def _template(owner: AnOwner, name: str) -> Obj:
    metadata = {"labels": {"app": name, **dict(owner.labels)}, "annotations": dict(owner.annotations)}
    spec: Obj = {"containers": [{"name": "app", "image": "app"}], "hostNetwork": owner.host_network}
    return {"metadata": metadata, "spec": spec | ({"restartPolicy": "Never"} if owner.kind == "Job" else {})}


def _workload(owner: AnOwner, name: str, namespace: str) -> Obj:
    metadata: Obj = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "generation": 2 if owner.state == "unobserved" else 1,
        "creationTimestamp": before(owner.age),
        "annotations": {"deployment.kubernetes.io/revision": "1"},
    }
    if owner.above and owner.kind == "ReplicaSet":
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"uid-d-{name}"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    if owner.state == "deleted":
        metadata["deletionTimestamp"] = before(5)
    labels = {"app": name}
    spec: Obj = {"template": _template(owner, name), "selector": {"matchLabels": labels}}
    if owner.kind == "ReplicationController":
        spec["selector"] = labels
    active = [pod for pod in owner.pods if pod.state not in ("succeeded", "failed", "terminating", "of-node")]
    there = owner.desired if owner.status_lags else len(active)
    ready = sum(1 for pod in active if pod.ready and pod.state != "pending")
    status: Obj = {"observedGeneration": 1, **_numbers(owner, spec, there, ready)}
    if owner.text and owner.kind in ("ReplicaSet", "ReplicationController"):
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": owner.text}
        status["conditions"] = [{**condition, "lastTransitionTime": before(min(owner.age, 250.0))}]
    return {"kind": owner.kind, "metadata": metadata, "spec": spec, "status": status}


def _numbers(owner: AnOwner, spec: Obj, there: int, ready: int) -> Obj:
    updating = owner.state == "updating"
    if owner.kind == "DaemonSet":
        spec["updateStrategy"] = {"type": "OnDelete"} if owner.on_delete else {}
        return {
            "desiredNumberScheduled": owner.desired,
            "currentNumberScheduled": there,
            "updatedNumberScheduled": 0 if updating else there,
            "numberReady": ready,
        }
    if owner.kind == "Job":
        spec |= {"parallelism": owner.desired, "completions": owner.desired}
        return {"active": there, "ready": ready, "startTime": before(owner.age)}
    spec["replicas"] = owner.desired
    settling: Obj = {"availableReplicas": max(0, ready - owner.settling)} if owner.settling else {}
    spec |= {"minReadySeconds": 30} if owner.settling else {}
    if owner.kind == "StatefulSet":
        spec["updateStrategy"] = {"type": "OnDelete"} if owner.on_delete else {}
        revisions = {"currentRevision": "r-1", "updateRevision": "r-2" if updating else "r-1"}
        return {"replicas": there, "readyReplicas": ready, **settling, **revisions}
    return {"replicas": there, "readyReplicas": ready, **settling}


def _deployment(owner: AnOwner, name: str, namespace: str) -> Obj:
    metadata: Obj = {"name": name, "namespace": namespace, "uid": f"uid-d-{name}", "generation": 1}
    revision = "2" if owner.state == "outdated" else "1"
    metadata |= {
        "annotations": {"deployment.kubernetes.io/revision": revision},
        "creationTimestamp": before(9000),
    }
    updated = 0 if owner.state == "updating" else owner.desired
    status = {"observedGeneration": 1, "replicas": owner.desired, "updatedReplicas": updated}
    spec: Obj = {"replicas": owner.desired, "selector": {"matchLabels": {"app": name}}}
    spec |= {"template": _template(owner, name), "paused": owner.state == "paused"}
    return {"kind": "Deployment", "metadata": metadata, "spec": spec, "status": status}


# Drawing them

_ASKS_OF_PLACES: Final[tuple[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]], ...]] = (
    ((("linkerd.io/inject", "enabled"),), ()),
    ((("linkerd.io/inject", "enabled"),), ()),
    ((), (("istio-injection", "enabled"),)),
    ((("linkerd.io/inject", "enabled"),), (("istio-injection", "enabled"),)),
    ((("linkerd.io/inject", "disabled"),), ()),
    ((("linkerd.io/inject", "enabled"),), (("config.linkerd.io/admission-webhooks", "disabled"),)),
    ((), ()),
)
_ASKS_OF_PODS: Final[tuple[tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]], ...]] = (
    ((), ()),
    ((), ()),
    ((), ()),
    ((("linkerd.io/inject", "enabled"),), ()),
    ((("linkerd.io/inject", "disabled"),), ()),
    ((("linkerd.io/inject", "enable"),), ()),
    ((), (("sidecar.istio.io/inject", "false"),)),
    ((("vault.hashicorp.com/agent-inject", "true"),), ()),
    ((("dapr.io/enabled", "true"),), ()),
    ((("vault.hashicorp.com/agent-inject", "true"), ("linkerd.io/inject", "enabled")), ()),
)
_OTHER_KINDS: Final = ("StatefulSet", "DaemonSet", "ReplicationController", "Job", "Pod", "Rollout")
_STATES: Final = ("unobserved", "updating", "paused", "outdated", "deleted", "gone", "replaced")
_POD_STATES: Final = ("pending", "succeeded", "failed", "terminating", "mirror", "of-node")
_SIDECARS: Final[tuple[tuple[str, ...], ...]] = (
    *((), (), (), ()),
    *(("linkerd",), ("istio",), ("vault",), ("linkerd", "istio"), ("linkerd", "vault")),
)
T = TypeVar("T")


def _mostly(usual: T, *others: T, share: float = 0.75) -> st.SearchStrategy[T]:
    """The usual value with this probability, so that several rare things seldom come together."""
    per_other = round((1 - share) * 100 / len(others)) or 1
    rare = [each for each in others for _ in range(per_other)]
    return st.sampled_from([*(usual,) * round(len(rare) * share / (1 - share)), *rare])


def _rarely(share: float = 0.08) -> st.SearchStrategy[bool]:
    return _mostly(False, True, share=1 - share)


@st.composite
def places(draw: st.DrawFn, name: str) -> Place:
    annotations, labels = draw(st.sampled_from(_ASKS_OF_PLACES))
    return Place(name, annotations, labels, draw(_rarely(0.06)), draw(_rarely(0.06)), draw(_rarely()))


_pods = st.builds(
    APod,
    st.sampled_from(_SIDECARS),
    _mostly(True, False, share=0.85),
    _mostly("running", *_POD_STATES, share=0.8),
    _mostly(7200.0, *AGES, share=0.8),
    _mostly((), ("example.com/kept",), share=0.9),
)


@st.composite
def owners(draw: st.DrawFn) -> AnOwner:
    annotations, labels = draw(st.sampled_from(_ASKS_OF_PODS))
    pods = tuple(draw(st.lists(_pods, max_size=4)))
    return AnOwner(
        draw(_mostly("ReplicaSet", *_OTHER_KINDS, share=0.4)),
        draw(_mostly(0, 1, 2)),
        annotations,
        labels,
        host_network=draw(_rarely()),
        desired=max(0, len(pods) + draw(_mostly(0, -1, 1, 2, share=0.6))),
        pods=pods,
        state=draw(_mostly("settled", *_STATES)),
        status_lags=draw(_rarely()),
        text=draw(_mostly("", *TEXTS, share=0.6)),
        age=draw(_mostly(300.0, *AGES)),
        above=draw(st.booleans()),
        on_delete=draw(_rarely()),
        settling=draw(_mostly(0, 1, 2, share=0.85)),
        slots=draw(_mostly(0, 1, 2, share=0.85)),
    )


_injectors = st.builds(
    AnInjector,
    st.just("linkerd"),
    _mostly(None, *FAULTS, share=0.65),
    st.booleans(),
    _mostly("None", "Some", share=0.9),
    _mostly(86400.0, 60.0, share=0.9),
)


@st.composite
def injectors(draw: st.DrawFn) -> tuple[AnInjector, ...]:
    every = (
        ("linkerd",),
        ("linkerd", "istio"),
        ("linkerd", "vault"),
        ("istio",),
        ("istio", "linkerd", "vault"),
        ("dapr", "linkerd"),
        (),
    )
    return tuple(replace(draw(_injectors), mesh=mesh) for mesh in draw(_mostly(*every, share=0.3)))


_budgets = st.builds(
    Budget,
    st.integers(0, 1),
    st.sampled_from(("", "web-0", "web-1")),
    st.integers(0, 1),
    _mostly(True, False),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    repair: dict[str, Any] = {
        "bare_pods": draw(st.booleans()),
        "job_pods": draw(st.booleans()),
        "older_pods": draw(_rarely(0.2)),
        "impersonate_controller": draw(_rarely(0.3)),
        "share": draw(st.sampled_from((None, None, 0.5, 1.0))),
    }
    scope = {"namespaces": ["shop"]} if draw(_rarely()) else {}
    mode = "observe" if draw(_rarely(0.06)) else "repair"
    return Policy.model_validate({"mode": mode, "repair": repair, "scope": scope})


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A whole random cluster."""
    return Scene(
        tuple(draw(places(name)) for name in PLACES),
        tuple(draw(st.lists(owners(), min_size=1, max_size=3))),
        draw(injectors()),
        tuple(draw(st.lists(_budgets, max_size=2))) if draw(_rarely(0.3)) else (),
        draw(policies()),
        draw(_mostly("fine", "cordoned", "tainted", share=0.9)),
        draw(_mostly("free", "shut", "lost", "found", "canary", share=0.8)),
    )
