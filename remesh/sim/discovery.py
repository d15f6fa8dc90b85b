"""What clients ask before anything else: version, groups, resources."""

from typing import Any

from remesh.sim.resources import ALL, Resource

# The simulated server answers as this version of Kubernetes does.
VERSION = {
    "major": "1",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "minor": "36",
    "gitVersion": "v1.36.0-sim",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(path: str) -> dict[str, Any] | None:
    """The discovery document at a path, or None."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        groups = sorted({(r.group, r.version) for r in ALL if r.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*entry) for entry in groups]}
    for resource in ALL:
        if path == resource.prefix:
            return _resource_list(resource.group, resource.version)
        if resource.group and path == f"/apis/{resource.group}":
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(resource.group, resource.version)}
    return None


def _group(group: str, version: str) -> dict[str, Any]:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resource_list(group: str, version: str) -> dict[str, Any]:
    found = [entry for r in ALL if (r.group, r.version) == (group, version) for entry in _entries(r)]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    stored = resource.kind != "SelfSubjectAccessReview"
    own = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS if stored else ["create"],
    }
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    return [own, *(_subresource(resource, name) for name in sorted(resource.subresources))]


def _subresource(resource: Resource, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["get", "patch", "update"],
    }
    if name == "scale":
        entry.update(group="autoscaling", version="v1", kind="Scale")
    elif name == "eviction":
        entry.update(group="policy", version="v1", kind="Eviction", verbs=["create"])
    elif name == "binding":
        entry.update(kind="Binding", verbs=["create"])
    return entry
