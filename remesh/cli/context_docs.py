"""Surroundings that a file brings with it: its Namespaces and webhook configurations, given to its other manifests."""

from collections.abc import Mapping
from typing import Any

from remesh.errors import UsageError

CONTEXT_KINDS = ("Namespace", "MutatingWebhookConfiguration")


def is_case(document: Mapping[str, Any]) -> bool:
    """True of a line of a cases file, which carries its own surroundings."""
    return "object" in document or "context" in document


def with_surroundings(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents to judge: those that only describe surroundings become the context of the others."""
    judged = [each for each in documents if is_case(each) or each.get("kind") not in CONTEXT_KINDS]
    if not judged:
        return documents
    namespaces = {_name(each): _namespace(each) for each in documents if each.get("kind") == "Namespace"}
    webhooks = [webhook for each in documents if not is_case(each) for webhook in _webhooks(each)]
    return [each if is_case(each) else _in_context(each, namespaces, webhooks) for each in judged]


def in_namespace(documents: list[dict[str, Any]], namespace: str | None) -> list[dict[str, Any]]:
    """The documents, those of namespaced kinds in this namespace, as `kubectl -n` has it. Cases keep their own.

    Raises UsageError for a manifest that names another one.
    """
    if not namespace:
        return documents
    return [each if is_case(each) or each.get("kind") in CONTEXT_KINDS else _put(each, namespace) for each in documents]


def _put(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    meta = document.get("metadata")
    if not isinstance(meta, Mapping):
        return document
    given = meta.get("namespace") or namespace
    if given != namespace:
        what = f"{document.get('kind', '')}/{_name(document)}"
        raise UsageError(f"{what} is in namespace {str(given)[:253]!r}, and -n says {namespace!r}; give one of them")
    return {**document, "metadata": {**meta, "namespace": namespace}}


def names_namespace(document: Mapping[str, Any]) -> bool:
    """True if the file tells what the namespace of this manifest is."""
    return is_case(document) and bool((document.get("context") or {}).get("namespace"))


def pod_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pod that a workload's manifest would create, in the same surroundings; None of a case and of other kinds."""
    meta, spec = document.get("metadata"), document.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) and "object" not in document else None
    if not isinstance(template, Mapping):
        return None
    given = template.get("metadata")
    own = dict(given) if isinstance(given, Mapping) else {}
    namespace = meta.get("namespace") if isinstance(meta, Mapping) else None
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, "namespace": namespace}, "spec": template.get("spec")}
    return {**pod, "context": document["context"]} if "context" in document else pod


def _in_context(
    document: dict[str, Any], namespaces: dict[str, dict[str, Any]], webhooks: list[dict[str, Any]]
) -> dict[str, Any]:
    meta = document.get("metadata")
    name = str(meta.get("namespace", "")) if isinstance(meta, Mapping) else ""
    context: dict[str, Any] = {}
    if name in namespaces:
        context["namespace"] = namespaces[name]
    if webhooks:
        context["webhooks"] = webhooks
    return {**document, "context": context} if context else document


def _name(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata")
    return str(meta.get("name", "")) if isinstance(meta, Mapping) else ""


def _namespace(document: Mapping[str, Any]) -> dict[str, Any]:
    meta, status = document.get("metadata"), document.get("status")
    keys = ("labels", "annotations", "deletionTimestamp")
    found = {key: meta.get(key) for key in keys} if isinstance(meta, Mapping) else {}
    phase = status.get("phase") if isinstance(status, Mapping) else None
    # The name's own label makes it a namespace that is told of, though nobody has labelled it.
    given = found.get("labels")
    labels = {"kubernetes.io/metadata.name": _name(document), **(given if isinstance(given, Mapping) else {})}
    return {**{key: each for key, each in found.items() if each}, "labels": labels, "phase": phase or ""}


def _webhooks(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    if document.get("kind") != "MutatingWebhookConfiguration":
        return []
    given = document.get("webhooks")
    found = given if isinstance(given, list) else []
    return [{**each, "configuration": _name(document)} for each in found if isinstance(each, Mapping)]
