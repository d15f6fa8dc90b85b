"""The scale subresource: the replicas of a workload, without the rest of it."""

from typing import Any

from remesh.sim import status
from remesh.sim.api import ApiServer
from remesh.sim.objects import Obj
from remesh.sim.patches import apply_patch
from remesh.sim.resources import Resource

_COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read_scale(resource: Resource, obj: Obj) -> Obj:
    """The Scale object of a workload."""
    selector = (obj["spec"].get("selector") or {}) if resource.group else {"matchLabels": obj["spec"]["selector"]}
    labels = selector.get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _COPIED if key in obj["metadata"]},
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": {
            "replicas": obj.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def write_scale(
    api: ApiServer, resource: Resource, namespace: str, name: str, body: Any, *, patch_type: str, dry_run: bool
) -> Obj:
    """Replace the Scale (no `patch_type`) or patch it. Raises StatusError."""

    def scaled(workload: Obj) -> Obj:
        scale = read_scale(resource, workload)
        wanted = apply_patch(patch_type, scale, body) if patch_type else body
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            why = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise status.invalid(resource, name, "spec.replicas", why)
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != workload["metadata"]["resourceVersion"]:
            raise status.modified_conflict(resource, name)
        workload["spec"]["replicas"] = replicas
        return workload

    return read_scale(resource, api.change(resource, namespace, name, scaled, dry_run=dry_run).obj)
