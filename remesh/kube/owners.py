"""Whoever an owner reference names, as a `Workload`: the kinds that remesh knows, and custom resources. Pure.

Of a custom resource only what every controller of pods has in common is read: a pod template where it has one,
replicas, paused. Nothing in it is trusted to have a certain type.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from remesh.admission import compile_selector
from remesh.errors import ClusterError
from remesh.kube.decode import decode_json, decode_object, template_hash
from remesh.kube.resources import KINDS
from remesh.kube.template import template_of
from remesh.objects import LabelSelector, ObjectMeta, Pod, PodTemplate, Slim, UpdateStrategy, Workload, WorkloadSpec


class _Strategies(Slim):
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    pod_management_policy: str | None = None


class _WithStrategies(Slim):
    spec: _Strategies = msgspec.field(default_factory=_Strategies)


_strategies = msgspec.json.Decoder(_WithStrategies)


def decode_owner(kind: str, api_version: str, data: bytes) -> Workload:
    """The owner in the API server's answer, with how it rolls out. Raises ClusterError if the bytes are none."""
    known = KINDS.get(kind)
    if known is None or not known.workload or known.api_version != api_version:
        return _custom(kind, api_version, data)
    found: Workload = decode_object(kind, data)
    told = _strategies.decode(data).spec
    found.spec.strategy, found.spec.update_strategy = told.strategy, told.update_strategy
    found.spec.pod_management_policy = told.pod_management_policy
    return found


def _custom(kind: str, api_version: str, data: bytes) -> Workload:
    document = decode_json(data)
    metadata: ObjectMeta | None = _converted(document.get("metadata"), ObjectMeta)
    if metadata is None:
        raise ClusterError(f"the API server sent something that is not a {kind} of {api_version}; check the server")
    spec = document["spec"] if isinstance(document.get("spec"), Mapping) else {}
    template = template_of({**document, "kind": kind, "spec": spec})
    return Workload(
        kind=kind,
        api_version=api_version,
        metadata=metadata,
        spec=WorkloadSpec(
            replicas=_converted(spec.get("replicas"), int),
            paused=_converted(spec.get("paused"), bool),
            template=_converted(template, PodTemplate),
        ),
        template_hash=template_hash(msgspec.json.encode(template)) if template else "",
    )


def _converted(value: Any, shape: Any) -> Any:
    """`value` as `shape`, or None if it is something else."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None


def selects(selector: Any, pod: Pod) -> bool:
    """True if a PodDisruptionBudget's selector (policy/v1) selects the pod: none selects nothing, `{}` all."""
    known: LabelSelector | None = _converted(selector, LabelSelector)
    if known is None:
        return False
    test = compile_selector(known)
    return test is None or test(pod.metadata.labels or {}) is True
