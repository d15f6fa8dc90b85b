"""From an HTTP request to a verb of the API server, and back."""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from remesh.sim import discovery, status
from remesh.sim import resources as res
from remesh.sim.api import REQUEST_SECONDS, ApiServer, Page, Selection
from remesh.sim.deletion import DeleteOptions
from remesh.sim.objects import Obj
from remesh.sim.patches import PATCH_TYPES
from remesh.sim.resources import Resource
from remesh.sim.scale import read_scale, write_scale
from remesh.sim.selectors import parse_field_selector, parse_label_selector
from remesh.sim.store import full_body
from remesh.sim.watching import WatchOptions, watch

_log = logging.getLogger(__name__)

_DURATION = re.compile(r"^(\d+)(ms|s|m|h)?$")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_USER = "remesh-sim"


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request as the routes need it."""

    method: str
    path: str
    query: str
    content_type: str = ""
    body: bytes = b""
    impersonate: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """Either a whole body, or the chunks of a watch."""

    code: int
    body: bytes = b""
    content_type: str = "application/json"
    chunks: Iterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass
class Router:
    """Answers requests. `refused` holds (verb, resource) pairs that the caller has no right to, `*` for any."""

    api: ApiServer
    refused: set[tuple[str, str]] = field(default_factory=set)

    def answer(self, request: Request) -> Response:
        """Never raises StatusError: a refusal is a response, too."""
        try:
            return self._answer(request)
        except status.StatusError as error:
            return _json(error.code, error.body())
        except Exception:  # an object of a shape that nobody thought of must not end the connection
            _log.exception("request failed", extra={"method": request.method, "path": request.path})
            return _json(500, status.internal_error("the simulated API server cannot handle this request").body())

    def _answer(self, request: Request) -> Response:
        if request.path in ("/readyz", "/livez", "/healthz"):
            return Response(200, b"ok", "text/plain; charset=utf-8")
        if request.path == "/metrics":
            return Response(200, self._metrics(), "text/plain; version=0.0.4")
        if (document := discovery.answer(request.path.rstrip("/"))) is not None:
            return _json(200, document)
        target = locate(request.path)
        query = {key: values[-1] for key, values in parse_qs(request.query, keep_blank_values=True).items()}
        self._authorize(_verb(request.method, target, query), target)
        return self._dispatch(request, target, query)

    def _dispatch(self, request: Request, target: Target, query: dict[str, str]) -> Response:
        if target.resource is res.ACCESS_REVIEWS:
            return self._access_review(_decoded(request))
        if request.method == "GET":
            return self._read(target, query)
        if request.method == "POST":
            return self._post(request, target, query)
        if request.method == "DELETE":
            return self._delete(request, target, query)
        if target.name and request.method in ("PUT", "PATCH"):
            return self._write(request, target, query)
        raise status.method_not_allowed()

    def _metrics(self) -> bytes:
        name = "apiserver_admission_webhook_fail_open_count"
        counts = self.api.admission.fail_open.items()
        lines = [f'{name}{{name="{hook}",type="admit"}} {count}' for hook, count in sorted(counts)]
        return "\n".join([f"# TYPE {name} counter", *lines, ""]).encode()

    # Rights

    def _refuses(self, verb: str, resource: str) -> bool:
        return any(pair in self.refused for pair in ((verb, resource), ("*", resource), (verb, "*"), ("*", "*")))

    def _authorize(self, verb: str, target: Target) -> None:
        plural = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
        if target.resource is res.ACCESS_REVIEWS or not self._refuses(verb, plural):
            return
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = f'User "{_USER}" cannot {verb} resource "{plural}" in API group "{target.resource.group}" {where}'
        named = f' "{target.name}"' if target.name else ""
        message = f"{target.resource.qualified}{named} is forbidden: {why}"
        details = {"name": target.name, "group": target.resource.group, "kind": target.resource.plural}
        details = {key: value for key, value in details.items() if value}
        raise status.StatusError(403, "Forbidden", message, details=details)

    def _access_review(self, review: Obj) -> Response:
        asked = (review.get("spec") or {}).get("resourceAttributes") or {}
        plural = asked.get("resource", "")
        if asked.get("subresource"):
            plural += f"/{asked['subresource']}"
        allowed = not self._refuses(asked.get("verb", ""), plural)
        answered = {
            "kind": res.ACCESS_REVIEWS.kind,
            "apiVersion": res.ACCESS_REVIEWS.api_version,
            "metadata": {},
            "spec": review.get("spec") or {},
            "status": {"allowed": allowed},
        }
        return _json(201, answered)

    # Verbs

    def _read(self, target: Target, query: dict[str, str]) -> Response:
        if target.name:
            stored = self.api.get(target.resource, target.namespace, target.name)
            if target.subresource == "scale":
                return _json(200, read_scale(target.resource, stored.obj))
            return Response(200, full_body(target.resource, stored))
        selection = _selection(target, query)
        if query.get("watch") in ("true", "1"):
            return Response(200, chunks=watch(self.api.store, _watch_options(target, query, selection)))
        limit = _integer(query, "limit")
        page = self.api.page(target.resource, selection, limit=limit, token=query.get("continue", ""))
        return Response(200, _list_body(target.resource, page))

    def _post(self, request: Request, target: Target, query: dict[str, str]) -> Response:
        body, dry_run = _decoded(request), _is_dry_run(query)
        if target.name and target.subresource == "eviction":
            if dry_run:
                body.setdefault("deleteOptions", {})["dryRun"] = ["All"]
            return _json(201, self.api.evict(target.namespace, target.name, body))
        if target.name:
            raise status.method_not_allowed()
        own = _seconds(query.get("timeout", ""))
        deadline = time.monotonic() + min(REQUEST_SECONDS, own)
        try:
            created = self.api.create(
                target.resource,
                target.namespace,
                body,
                dry_run=dry_run,
                deadline=deadline,
                user=request.impersonate or _USER,
                manager=_manager(query),
            )
        except status.StatusError as error:
            if own < REQUEST_SECONDS and time.monotonic() >= deadline:
                raise status.request_timeout("the allotted timeout") from error
            raise
        return Response(201, full_body(target.resource, created))

    def _write(self, request: Request, target: Target, query: dict[str, str]) -> Response:
        resource, dry_run = target.resource, _is_dry_run(query)
        where = (resource, target.namespace, target.name)
        part, by = target.subresource, _manager(query)
        if target.subresource == "scale":
            scale = _decoded(request) if request.method == "PUT" else _decode(request.body)
            patch_type = _patch_type(request)
            return _json(200, write_scale(self.api, *where, scale, patch_type=patch_type, dry_run=dry_run))
        if request.method == "PUT":
            body = _decoded(request)
            stored = self.api.update(*where, body, subresource=part, dry_run=dry_run, manager=by)
        else:
            patch = _decode(request.body)
            kind = _patch_type(request)
            stored = self.api.patch(*where, kind, patch, subresource=part, dry_run=dry_run, manager=by)
        return Response(200, full_body(resource, stored))

    def _delete(self, request: Request, target: Target, query: dict[str, str]) -> Response:
        body = _decoded(request) if request.body else {}
        options = DeleteOptions.read(body)
        options.dry_run = options.dry_run or _is_dry_run(query)
        options.propagation = options.propagation or query.get("propagationPolicy", "")
        if "gracePeriodSeconds" in query:
            options.grace = _integer(query, "gracePeriodSeconds")
        if not target.name:
            return self._delete_collection(target, query, options)
        before = self.api.get(target.resource, target.namespace, target.name)
        left = self.api.delete(target.resource, target.namespace, target.name, options)
        if left is None:
            uid = before.obj["metadata"]["uid"]
            return _json(200, status.success(target.resource, target.name, uid))
        return Response(200, full_body(target.resource, left))

    def _delete_collection(self, target: Target, query: dict[str, str], options: DeleteOptions) -> Response:
        page = self.api.page(target.resource, _selection(target, query))
        for item in page.items:
            metadata = item.obj["metadata"]
            self.api.delete(target.resource, metadata.get("namespace", ""), metadata["name"], options)
        return Response(200, _list_body(target.resource, page))


def locate(path: str) -> Target:
    """What a path names. Raises StatusError (404)."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise status.no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in res.NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    resource = res.BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or bool(namespace) > resource.namespaced:
        raise status.no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise status.no_such_path()
    return Target(resource, namespace, name, subresource)


def _verb(method: str, target: Target, query: Mapping[str, str]) -> str:
    if method == "GET" and not target.name:
        return "watch" if query.get("watch") in ("true", "1") else "list"
    if method == "DELETE" and not target.name:
        return "deletecollection"
    return {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")


def _selection(target: Target, query: Mapping[str, str]) -> Selection:
    return Selection(
        target.namespace,
        parse_label_selector(query.get("labelSelector", "")),
        parse_field_selector(query.get("fieldSelector", "")),
    )


def _watch_options(target: Target, query: Mapping[str, str], selection: Selection) -> WatchOptions:
    version = query.get("resourceVersion") or "0"
    if not version.isdigit():
        why = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        raise status.StatusError(500, "", why)
    initial = query.get("sendInitialEvents") == "true"
    seconds = _integer(query, "timeoutSeconds")
    return WatchOptions(
        target.resource,
        selection,
        None if initial or version == "0" else int(version),
        bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
        initial_events=initial,
        seconds=float(seconds) or None,
    )


def _list_body(resource: Resource, page: Page) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'
    items = b",".join(item.body for item in page.items)
    return head.encode() + msgspec.json.encode(metadata) + b',"items":[' + items + b"]}"


def _manager(query: Mapping[str, str]) -> str:
    """Of the fields that a request sets; a real API server takes the beginning of the User-Agent else."""
    return query.get("fieldManager") or "client"


def _integer(query: Mapping[str, str], key: str) -> int:
    text = query.get(key) or "0"
    if not text.isdigit():
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _is_dry_run(query: Mapping[str, str]) -> bool:
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        why = f'Unsupported value: ["{value}"]: supported values: "All"'
        cause = {"reason": "FieldValueNotSupported", "message": why, "field": "dryRun"}
        details = {"group": "meta.k8s.io", "kind": "CreateOptions", "causes": [cause]}
        message = f'CreateOptions.meta.k8s.io "" is invalid: dryRun: {why}'
        raise status.StatusError(422, "Invalid", message, details=details)
    return value == "All"


def _seconds(text: str) -> float:
    found = _DURATION.match(text)
    return float(found[1]) * _UNITS[found[2]] if found else REQUEST_SECONDS


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from error


def _decoded(request: Request) -> Obj:
    if "json" not in request.content_type and request.content_type not in ("", "*/*"):
        raise status.unsupported_media_type(["application/json"])
    body = _decode(request.body)
    if not isinstance(body, dict):
        raise status.bad_request("the object provided is unrecognized (must be of type object)")
    return body


def _patch_type(request: Request) -> str:
    if request.method == "PUT":
        return ""
    kind = request.content_type.partition(";")[0].strip()
    if kind not in PATCH_TYPES:
        raise status.unsupported_media_type(PATCH_TYPES)
    return kind


def _json(code: int, body: Mapping[str, Any]) -> Response:
    return Response(code, msgspec.json.encode(body))
