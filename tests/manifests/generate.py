"""Makes what is rendered: the chart's schema and copies, and the plain manifests with their overlays.

`python -m tests.manifests` writes the files; a test compares them. An overlay is the difference between its parent's
manifests and what the chart makes of its values, as kustomize resources and patches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.manifests import schema, tools
from tests.manifests.tools import CHART, KUBERNETES, ROOT, Object

Files = dict[Path, str]

# A Secret made by hand stands in the place of those that Helm generates.
SECRETS: Mapping[str, Any] = {
    "redis": {"existingSecret": "remesh-redis"},
    "flower": {"existingSecret": "remesh-flower"},
    "signingKey": {"existingSecret": "remesh-signing-key"},
}
# Marks of Helm, which plain manifests do not come from.
HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")
HELM_ANNOTATIONS = ("helm.sh/resource-policy", "checksum/config")
HEAD = "# Rendered from config/chart by `python -m tests.manifests`; a test compares them. Change the chart.\n"
FILE_OF_GROUP = {"rbac.authorization.k8s.io": "rights", "admissionregistration.k8s.io": "admission"}
COPIES = {"alerts.yaml": "alerts.yaml", "dashboard.json": "dashboard.json"}


@dataclass(frozen=True, slots=True)
class Overlay:
    """A set of the chart's values with a name; `parent` is what it differs from."""

    name: str
    purpose: str
    parent: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where its kustomization stands."""
        return KUBERNETES / (self.name if self.name == BASE else f"overlays/{self.name}")


BASE = "base"
OVERLAYS: tuple[Overlay, ...] = (
    Overlay(BASE, "Everything, in mode observe: nothing is written to the cluster.", "", {"mode": "observe"}),
    Overlay("observe-only", "Finds, proves by dry runs and records; writes nothing to the cluster.", BASE),
    Overlay("repair", "Nudges what is stuck, and evicts what came up bare.", BASE, {"mode": "repair"}),
    Overlay(
        "repair-with-bare-pods",
        "Also brings back pods without a controller: the worker may create pods for good.",
        "repair",
        {"policy": {"repair": {"bare_pods": True}}},
    ),
    Overlay(
        "external-redis",
        "Repairs, with a Redis of yours: its URL under the key url of the Secret remesh-redis-url.",
        "repair",
        {"redis": {"enabled": False}, "externalRedis": {"existingSecret": "remesh-redis-url"}},
    ),
    Overlay(
        "rabbitmq",
        "Repairs, with RabbitMQ as broker: its URL under the key url of the Secret remesh-broker.",
        "repair",
        {"broker": {"existingSecret": "remesh-broker"}},
    ),
)


def overlay(name: str) -> Overlay:
    """The overlay of this name."""
    return next(each for each in OVERLAYS if each.name == name)


def values_of(name: str) -> dict[str, Any]:
    """All values of an overlay: its own over its parent's."""
    found = overlay(name)
    if found.parent:
        return merged(values_of(found.parent), found.values)
    return merged({**SECRETS, "namespace": {"create": True}}, found.values)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """As Helm merges values: objects by key, anything else replaced."""
    both = dict(under)
    for key, value in over.items():
        held = both.get(key)
        both[key] = merged(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    if both.get("enabled") is False:
        both.pop("existingSecret", None)
    return both


def plain(objects: list[Object]) -> list[Object]:
    """Without Helm's marks. Raises AssertionError for a Secret: what is generated must not stand in a file."""
    assert not tools.kinds(objects, "Secret"), "a manifest would carry a Secret"
    for each in objects:
        template = each.get("spec", {}).get("template", {}).get("metadata", {})
        for metadata in (each["metadata"], template):
            _without(metadata, "labels", HELM_LABELS)
            _without(metadata, "annotations", HELM_ANNOTATIONS)
    return objects


def _without(metadata: Object, part: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        metadata.get(part, {}).pop(key, None)
    if part in metadata and not metadata[part]:
        del metadata[part]


def manifests(name: str) -> list[Object]:
    """What the chart makes of an overlay's values, as plain manifests."""
    return plain(tools.render(values_of(name)))


def files() -> Files:
    """Every rendered file by its path."""
    made: Files = {CHART / "values.schema.json": schema.text()}
    for source, target in COPIES.items():
        path = ROOT / "config" / "monitoring" / source
        if path.exists():
            made[CHART / "files" / target] = path.read_text(encoding="utf-8")
    return made


def kubernetes() -> Files:
    """The plain manifests, of which the chart is the source: render after `files` have been written."""
    made: Files = {}
    rendered = {each.name: manifests(each.name) for each in OVERLAYS}
    for each in OVERLAYS:
        made |= _folder(each, rendered[each.name], rendered.get(each.parent, []))
    return made


def _folder(each: Overlay, objects: list[Object], parent: list[Object]) -> Files:
    before, after = tools.by_key(parent), tools.by_key(objects)
    added = [found for name, found in after.items() if name not in before]
    patches = [_patch(before[name], found) for name, found in after.items() if before.get(name, found) != found]
    patches += [_removal(found) for name, found in before.items() if name not in after]
    resources = _resource_files(added)
    kustomization: Object = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    above = [f"../{each.parent}" if each.parent != BASE else "../../base"] if each.parent else []
    kustomization["resources"] = above + list(resources)
    if patches:
        kustomization["patches"] = patches
    made = {each.folder / name: HEAD + _dump_all(found) for name, found in resources.items()}
    head = HEAD + f"# {each.purpose}\n"
    return made | {each.folder / "kustomization.yaml": head + yaml.dump(kustomization, sort_keys=False, Dumper=_Blocks)}


def _resource_files(objects: list[Object]) -> dict[str, list[Object]]:
    """Objects by the file that they belong into: one for each part, and one for the rights."""
    made: dict[str, list[Object]] = {}
    for each in objects:
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        group = each["apiVersion"].partition("/")[0]
        name = {"rbac.authorization.k8s.io": "rights", "admissionregistration.k8s.io": "admission"}.get(
            group, component
        )
        made.setdefault(f"{name}.yaml", []).append(each)
    return dict(sorted(made.items()))


def _target(found: Object) -> Object:
    group, _, version = found["apiVersion"].rpartition("/")
    target = {"group": group, "version": version, "kind": found["kind"], "name": found["metadata"]["name"]}
    return {name: value for name, value in target.items() if value}


def _patch(before: Object, after: Object) -> Object:
    steps = _steps(before, after, "")
    return {"target": _target(after), "patch": yaml.dump(steps, sort_keys=False, Dumper=_Plain, width=120)}


def _removal(found: Object) -> Object:
    metadata = {key: found["metadata"][key] for key in ("name", "namespace") if key in found["metadata"]}
    gone = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "$patch": "delete"}
    return {"target": _target(found), "patch": yaml.dump(gone, sort_keys=False, Dumper=_Blocks)}


def _steps(before: Any, after: Any, path: str) -> list[Object]:
    """A JSON patch (RFC 6902) from one to the other; what is no object is replaced as a whole."""
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if _same_length(before, after):
            pairs = enumerate(zip(before, after, strict=True))
            return [step for index, (old, new) in pairs for step in _steps(old, new, f"{path}/{index}")]
        return [{"op": "replace", "path": path, "value": after}]
    steps: list[Object] = []
    for key in before.keys() | after.keys():
        where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            steps.append({"op": "remove", "path": where})
        elif key not in before:
            steps.append({"op": "add", "path": where, "value": after[key]})
        else:
            steps += _steps(before[key], after[key], where)
    return sorted(steps, key=lambda step: str(step["path"]))


def _same_length(before: Any, after: Any) -> bool:
    return isinstance(before, list) and isinstance(after, list) and len(before) == len(after)


class _Plain(yaml.SafeDumper):
    """Without aliases. For patches, whose last line break kustomize takes away: texts are quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Blocks(_Plain):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def _dump_all(objects: list[Object]) -> str:
    return yaml.dump_all(objects, sort_keys=False, Dumper=_Blocks, width=120)


def write() -> list[Path]:
    """Write all files and remove what is no longer rendered; those that changed."""
    changed = _write(files())
    made = kubernetes()
    for old in KUBERNETES.rglob("*.yaml"):
        if old not in made:
            old.unlink()
    return changed + _write(made)


def _write(made: Files) -> list[Path]:
    changed = []
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
