"""A live dry run for each injector, of the smallest pod that asks for it. Used by `remesh check`; nothing is stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from remesh.admission import would_call
from remesh.classify import base_class
from remesh.cli.session import Session
from remesh.kube.probe import ProbeResult, account_of, judge
from remesh.meshes import Expect, MeshProfile
from remesh.models import BaseClass, Probe
from remesh.objects import Namespace, Webhook

NAMESPACES_TRIED: Final = 3  # where a quota or the like says no before the injector is asked

# What the strictest Pod Security Standard asks for, and what a quota may ask for.
_CONTAINER: Final = {
    "name": "app",
    "image": "registry.k8s.io/pause:3.10",
    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "10m", "memory": "10Mi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
_POD_SECURITY: Final = {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass(frozen=True, slots=True)
class Trial:
    """One dry run, and whether its answer is the injector's doing."""

    namespace: str
    result: ProbeResult
    conclusive: bool


class Trials:
    """Dry runs in the namespaces of one cluster."""

    def __init__(self, session: Session, namespaces: list[Namespace]) -> None:
        self._session = session
        protected = session.policy.scope.protected_namespaces
        self._namespaces = [each for each in namespaces if not each.terminating and each.metadata.name not in protected]

    def ask(self, profile: MeshProfile, webhooks: list[Webhook]) -> Trial | None:
        """The first answer that tells something about the injector, else the last; None if no namespace asks."""
        trial = None
        for namespace, meta in islice(self._places(profile, webhooks), NAMESPACES_TRIED):
            trial = self._try(profile, namespace, meta)
            if trial.conclusive:
                break
        return trial

    def _places(self, profile: MeshProfile, webhooks: list[Webhook]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Namespaces where a pod with these labels and annotations would be injected."""
        for meta in _metas(profile):
            labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
            for namespace in self._namespaces:
                seen = any(would_call(each, namespace, labels).matches is not False for each in webhooks)
                if seen and profile.expects(labels, annotations, namespace, None).answer is Expect.YES:
                    yield namespace.metadata.name, meta

    def _try(self, profile: MeshProfile, namespace: str, meta: dict[str, Any]) -> Trial:
        policy = self._session.policy
        account = account_of("ReplicaSet") if policy.repair.impersonate_controller else ""
        latency = policy.gate.latency_seconds
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "remesh-check-", "namespace": namespace, **meta},
            "spec": {"containers": [_CONTAINER], "securityContext": _POD_SECURITY},
        }
        cluster = self._session.cluster
        answer = cluster.dry_run_manifest(namespace, manifest, timeout=latency + 1, impersonate=account)
        result = judge(answer, profile, latency)
        return Trial(namespace, result, _conclusive(result, profile, impersonated=bool(account)))


def _metas(profile: MeshProfile) -> list[dict[str, Any]]:
    """Metadata of a pod that leaves the asking to its namespace or, where only pods ask, that asks itself."""
    if any(place.on == "namespace" for place in profile.asks.places) or profile.asks.default == "yes":
        return [{}]
    places = [place for place in profile.asks.places if place.on == "pod" and place.yes]
    return [{f"{place.kind}s": {place.key: place.yes[0]}} for place in places]


def _conclusive(result: ProbeResult, profile: MeshProfile, *, impersonated: bool) -> bool:
    if result.probe is not Probe.FAILS:
        return result.probe is Probe.PASSES
    if result.code == "no_sidecar":  # an injector whose pods ask by themselves may also ask who creates them
        return impersonated or any(place.on == "namespace" for place in profile.asks.places)
    return result.code == "too_slow" or base_class(result.failure_class) is BaseClass.WEBHOOK_INFRA
