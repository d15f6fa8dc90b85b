"""The pod that a controller would create from its template, for a dry run. Pure: JSON in, JSON out."""

from collections.abc import Mapping
from typing import Any

from remesh.errors import Rejected


def pod_from(owner: Mapping[str, Any], template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Body of a pod creation from the owner's template, or from `template` in its place.

    Left out are ownerReferences, because injectors write Kubernetes Events on the owner, and nodeName. A pod
    (`owner` of kind Pod) is its own template. Raises Rejected if there is no template.
    """
    own = template if template is not None else template_of(owner)
    if not own or not isinstance(own.get("spec"), Mapping):
        raise Rejected(f"{owner.get('kind')}/{_meta(owner).get('name')} has no pod template; nothing can be tried")
    spec = {key: value for key, value in own["spec"].items() if key not in ("nodeName", "ephemeralContainers")}
    claims = owner.get("spec", {}).get("volumeClaimTemplates")
    if claims:
        spec["volumes"] = _with_claims(spec.get("volumes") or [], claims, str(_meta(owner).get("name")))
    meta = own.get("metadata") or {}
    metadata = {key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)}
    metadata |= {"generateName": _generate_name(owner), "namespace": _meta(owner).get("namespace", "")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def template_of(owner: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The pod template of a workload, CronJob, PodTemplate-like custom resource, or pod; None without one."""
    if owner.get("kind") == "Pod":
        return {"metadata": _meta(owner), "spec": owner.get("spec")}
    spec = owner.get("spec") or {}
    spec = (spec.get("jobTemplate") or {}).get("spec") or spec
    found = spec.get("template")
    return found if isinstance(found, Mapping) else None


def _meta(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document.get("metadata") or {}
    return found


def _generate_name(owner: Mapping[str, Any]) -> str:
    if owner.get("kind") == "Pod" and _meta(owner).get("generateName"):
        return str(_meta(owner)["generateName"])
    return f"{_meta(owner).get('name')}-"


def _with_claims(
    volumes: list[Mapping[str, Any]], claims: list[Mapping[str, Any]], name: str
) -> list[Mapping[str, Any]]:
    """Volumes with one for each claim template, as the StatefulSet controller adds them; mounts refer to them."""
    names = [str(_meta(claim).get("name")) for claim in claims]
    added = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}} for claim in names]
    return [volume for volume in volumes if volume.get("name") not in names] + added
