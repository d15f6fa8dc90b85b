"""Typed verbs on one cluster, for workers, watcher, gate and command line.

Reads return projections. All writes pass `_write`, the one place where `dry_run` makes every one of them a dry
run. Errors are those of `remesh.errors`.
"""

import re
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from remesh import tracing
from remesh.errors import ClusterError, ClusterUnreachable, Gone, NotFound, RemeshError, UsageError
from remesh.kube import protobuf
from remesh.kube.ahead import Ahead
from remesh.kube.decode import ListPage, decode_json, decode_list, decode_object, selector_text
from remesh.kube.owners import decode_owner, selects
from remesh.kube.resources import KINDS, Resource, resource_of
from remesh.kube.template import pod_from
from remesh.kube.transport import JSON, MERGE_PATCH, KubeClient
from remesh.models import ObjectRef
from remesh.objects import (
    EndpointSlice,
    Namespace,
    Node,
    OwnerReference,
    Pod,
    Slim,
    Webhook,
    WebhookConfiguration,
    Workload,
)

FIELD_MANAGER = "remesh"
PAGE = 500
"""Objects per page of a list, as in client-go: a page of pods is then about 3 MB of JSON or 2 MB of protobuf."""
GRACE_SECONDS = 3.0
"""How much longer than the API server's own deadline a client waits for its answer."""
NOT_ACCEPTABLE = 406
LIST_TRIES = 3
"""A list whose continue token expired (five minutes) starts over; a cluster where that repeats is overloaded."""

# `Cluster.list` hides the builtin from the annotations below it.
Objects = list[Any]
Pods = list[Pod]
Names = list[str]
Nodes = list[Node]
Template = Mapping[str, Any]  # a pod template, as the API server has it
Webhooks = list[tuple[str, Webhook]]  # configuration's name and webhook


class Page(Protocol):
    """One page of a list as it came."""

    @property
    def continue_token(self) -> str:
        """Empty on the last one."""

    def page(self) -> ListPage:
        """All of it. Raises ClusterError."""


_BUDGETS = Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
# An owner reference may hold any text; what is no group and version must not become part of a URL.
_API_VERSION = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[a-z][a-z0-9]*")


@dataclass(frozen=True, slots=True)
class ReadyEndpoints:
    """Who stands behind a Service now."""

    ready: int = 0
    total: int = 0
    nodes: tuple[str, ...] = ()  # of the ready ones
    lost: tuple[str, ...] = ()  # nodes that are not Ready, and so do not count


# From k8s.io/apiserver, pkg/admission/plugin/webhook: declared side effects, and none declared at all.
_NO_DRY_RUN = ("does not support dry run", "Webhook SideEffects is nil")


@dataclass(frozen=True, slots=True)
class DryRun:
    """Answer to a dry run of a pod's creation."""

    pod: Pod | None  # as admission would have it stored
    seconds: float
    error: RemeshError | None = None
    message: str = ""  # the API server's text, for `remesh.classify`

    @property
    def unsupported(self) -> bool:
        """True if a webhook refuses dry runs because it declares side effects (BadRequest, never a failure)."""
        return any(text in self.message for text in _NO_DRY_RUN)


class Cluster:
    """One cluster. Thread-safe. With `dry_run` no write has any effect on it."""

    def __init__(self, client: KubeClient, *, dry_run: bool = False) -> None:
        self.client = client
        self.dry_run = dry_run
        self._discovered: dict[tuple[str, str], Resource] = {}

    # Reads

    def get(self, kind: str, namespace: str, name: str) -> Slim:
        """One object's projection. Raises NotFound."""
        data = self.client.request("GET", resource_of(kind).path(namespace, name))
        return cast(Slim, decode_object(kind, data))

    def pod(self, namespace: str, name: str) -> Pod:
        """One pod. Raises NotFound."""
        return cast(Pod, self.get("Pod", namespace, name))

    def workload(self, kind: str, namespace: str, name: str) -> Workload:
        """One ReplicaSet, StatefulSet, … Raises NotFound, UsageError if the kind is no workload."""
        if not resource_of(kind).workload:
            raise UsageError(f"{kind} is no workload; give one of {', '.join(workload_kinds())}")
        return cast(Workload, self.get(kind, namespace, name))

    def namespace(self, name: str) -> Namespace:
        """One namespace. Raises NotFound."""
        return cast(Namespace, self.get("Namespace", "", name))

    def get_raw(self, kind: str, namespace: str, name: str, *, api_version: str = "") -> dict[str, Any]:
        """One object as the API server has it, of any kind. `api_version` is needed for kinds outside `KINDS`."""
        return self.client.get(self.resource(kind, api_version).path(namespace, name))

    def list(self, kind: str, namespace: str | None = None, label_selector: str | None = None) -> Objects:
        """All objects' projections, page by page; starts over if the pages expire on the way."""
        return self.list_page(kind, namespace, label_selector).items

    def list_page(self, kind: str, namespace: str | None = None, label_selector: str | None = None) -> ListPage:
        """The same as one page, with the resourceVersion from which a watch goes on."""
        return list_all(self.client, kind, namespace, label_selector)

    def webhooks(self) -> Webhooks:
        """All live mutating webhooks with their configuration's name, in the order of their call."""
        return webhooks_of(self.list("MutatingWebhookConfiguration"))

    def endpoints(self, namespace: str, service: str) -> ReadyEndpoints:
        """Who is ready behind a Service, over all its EndpointSlices."""
        return count_endpoints(self.list("EndpointSlice", namespace, f"kubernetes.io/service-name={service}"))

    def pods_of(self, workload: Workload) -> Pods:
        """The workload's pods: found by its selector, kept by their owner's UID."""
        selector = selector_text(workload.spec.selector)
        pods: Pods = self.list("Pod", workload.metadata.namespace, selector)
        uid = workload.metadata.uid
        return [pod for pod in pods if pod.metadata.controlled_by(uid)]

    def owner(self, namespace: str, reference: OwnerReference) -> Workload:
        """The object that an owner reference names, of any kind that is installed.

        Raises NotFound if its kind is not installed, it is gone, or another object has its name by now.
        """
        what = f"{reference.kind}/{reference.name}"
        if not _API_VERSION.fullmatch(reference.api_version):
            raise NotFound(f"{what}: {reference.api_version[:60]!r} is no API version", status=404)
        resource = self.resource(reference.kind, reference.api_version)
        data = self.client.request("GET", resource.path(namespace, reference.name))
        found = decode_owner(reference.kind, reference.api_version, data)
        if found.metadata.uid != reference.uid:
            raise NotFound(f"{what} of UID {reference.uid} is gone: another object has its name", status=404)
        return found

    def node(self, name: str) -> Node:
        """One node. Raises NotFound."""
        return cast(Node, self.get("Node", "", name))

    def nodes(self) -> Nodes:
        """All nodes."""
        found: Nodes = self.list("Node")
        return found

    def budgets_of(self, pod: Pod) -> Names:
        """Names of the PodDisruptionBudgets that select a pod."""
        found = self.client.get(_BUDGETS.path(pod.metadata.namespace)).get("items", ())
        return [each["metadata"]["name"] for each in found if selects(each.get("spec", {}).get("selector"), pod)]

    def can_i(
        self,
        verb: str,
        group: str,
        resource: str,
        namespace: str | None = None,
        subresource: str | None = None,
        *,
        name: str | None = None,
    ) -> bool:
        """True if RBAC allows it to whoever asks; on the object of that name only, where one is given."""
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace or ""}
        attributes |= {"subresource": subresource} if subresource else {}
        attributes |= {"name": name} if name else {}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = decode_json(self.client.request("POST", path, body=body))  # a question: nothing is stored
        return bool(answer.get("status", {}).get("allowed"))

    def resource(self, kind: str, api_version: str = "") -> Resource:
        """Place of any kind in the API: from the table, else by discovery. Raises NotFound."""
        known = KINDS.get(kind)
        if known and api_version in ("", known.api_version):
            return known
        if not api_version:
            return resource_of(kind)
        if (api_version, kind) not in self._discovered:
            self._discovered[api_version, kind] = self._discover(kind, api_version)
        return self._discovered[api_version, kind]

    def _discover(self, kind: str, api_version: str) -> Resource:
        root = Resource(kind, api_version, "")
        for found in self.client.get(root.path().rstrip("/")).get("resources", ()):
            if found.get("kind") == kind and "/" not in found.get("name", "/"):
                return Resource(kind, api_version, found["name"], namespaced=bool(found.get("namespaced")))
        raise NotFound(f"the cluster has no kind {kind} in {api_version}; check for its CustomResourceDefinition")

    # Dry run of a pod: never stored, so not among the writes

    def dry_run_pod(
        self,
        ref: ObjectRef,
        *,
        template: Mapping[str, Any] | None = None,
        timeout: float = 10.0,
        impersonate: str = "",
    ) -> DryRun:
        """What admission would make of a pod of `ref`'s own template now. Nothing is stored.

        `template` replaces the one of the live object. `timeout` in seconds is the API server's deadline, too.
        `impersonate` is the user as whom the creation is tried: some injectors ask who creates. All errors of the
        cluster are in the answer; a ref that is gone is NotFound there.
        """
        with tracing.inner("dry run", {"remesh.object": str(ref)}) as span:
            try:
                owner = self.get_raw(ref.kind, ref.namespace, ref.name, api_version=ref.api_version)
                if ref.uid and owner.get("metadata", {}).get("uid") != ref.uid:
                    raise NotFound(f"{ref} is another object by now", status=404)
                pod = pod_from(owner, template)
            except ClusterError as error:
                return DryRun(None, 0.0, error, error.message or str(error))
            answer = self._dry_run(ref.namespace, pod, timeout, impersonate)
            if answer.error is not None:
                span.failed(type(answer.error).__name__)
            return answer

    def dry_run_manifest(
        self, namespace: str, manifest: Mapping[str, Any], *, timeout: float = 10.0, impersonate: str = ""
    ) -> DryRun:
        """What admission would make of a pod that nobody owns. As `dry_run_pod` otherwise."""
        return self._dry_run(namespace, manifest, timeout, impersonate)

    def _dry_run(self, namespace: str, pod: Mapping[str, Any], timeout: float, impersonate: str) -> DryRun:
        params = {"dryRun": "All", "timeout": f"{max(1, round(timeout * 1000))}ms", "fieldManager": FIELD_MANAGER}
        path, began = resource_of("Pod").path(namespace), time.monotonic()
        try:
            data = self.client.request(
                "POST", path, params=params, body=pod, timeout=timeout + GRACE_SECONDS, impersonate=impersonate
            )
            return DryRun(decode_object("Pod", data), time.monotonic() - began)
        except ClusterError as error:
            seconds = time.monotonic() - began
            found = _out_of_time(error, timeout) if _cut_off(error, seconds, timeout) else error
            return DryRun(None, seconds, found, found.message or str(found))

    # Writes

    def annotate(self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str | None = None) -> None:
        """Set annotations, or remove those that are None, by a merge patch.

        Raises Conflict if the object of that name has another UID than `uid` (default: `ref.uid`), NotFound.
        """
        precondition = uid if uid is not None else ref.uid
        metadata: dict[str, Any] = {"annotations": dict(annotations)}
        if precondition:
            metadata["uid"] = precondition  # immutable, so the API server refuses the patch of another object
        self._write("PATCH", self._path(ref), {"metadata": metadata}, content_type=MERGE_PATCH)

    def evict(self, ref: ObjectRef, *, uid: str | None = None, resource_version: str = "") -> None:
        """Evict one pod; PodDisruptionBudgets are respected.

        Raises Throttled ("not now": its `budgets` say why), Conflict if UID or resourceVersion differ, NotFound.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": self._delete_options(uid if uid is not None else ref.uid, resource_version),
        }
        self._write("POST", resource_of("Pod").path(ref.namespace, ref.name, "eviction"), body)

    def create_pod(self, manifest: Mapping[str, Any]) -> Pod:
        """Create one pod. Raises Conflict if its name is taken, also by one that is still being deleted; Rejected."""
        path = resource_of("Pod").path(str(manifest["metadata"]["namespace"]))
        return cast(Pod, decode_object("Pod", self._write("POST", path, manifest)))

    def delete(self, ref: ObjectRef, *, uid: str | None = None, resource_version: str = "") -> None:
        """Delete one object. Raises Conflict if UID or resourceVersion differ, NotFound."""
        options = self._delete_options(uid if uid is not None else ref.uid, resource_version)
        self._write("DELETE", self._path(ref), options)

    def _delete_options(self, uid: str, resource_version: str = "") -> dict[str, Any]:
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value}
        if not preconditions.get("uid"):
            raise UsageError("a deletion needs the UID of the object that is meant; read the object first")
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        # Deletion ignores the query's dryRun where a body is sent, so it stands in both.
        return options | ({"dryRun": ["All"]} if self.dry_run else {})

    def _path(self, ref: ObjectRef) -> str:
        return self.resource(ref.kind, ref.api_version).path(ref.namespace, ref.name)

    def _write(self, method: str, path: str, body: Mapping[str, Any], *, content_type: str = JSON) -> bytes:
        params: dict[str, str | int] = {} if method == "DELETE" else {"fieldManager": FIELD_MANAGER}
        if self.dry_run:
            params["dryRun"] = "All"
        return self.client.request(method, path, params=params, body=body, content_type=content_type)


def _cut_off(error: ClusterError, seconds: float, timeout: float) -> bool:
    """True if the API server hung up on a request because its deadline passed.

    At the deadline it answers 504, or, when the creation fails at that very moment, closes the connection without
    an answer (the timeout filter of k8s.io/apiserver; seen on 1.36 for every second request to a hung webhook).
    """
    return isinstance(error, ClusterUnreachable) and error.status == 0 and timeout <= seconds < timeout + GRACE_SECONDS


def _out_of_time(error: ClusterError, timeout: float) -> ClusterError:
    line = f"the API server did not finish the dry run within {timeout:g} s: it closed the connection"
    text = "Timeout: request did not complete within the allotted timeout"  # its own words where it has the time
    found = ClusterUnreachable(line, status=504, reason="Timeout", message=text)
    found.__cause__ = error
    return found


def workload_kinds() -> list[str]:
    """Kinds that create pods from a template."""
    return [kind for kind, resource in KINDS.items() if resource.workload]


def webhooks_of(configurations: Iterable[WebhookConfiguration]) -> Webhooks:
    """All webhooks with their configuration's name, in the order in which the API server calls them: by name."""
    ordered = sorted(configurations, key=lambda found: found.metadata.name)
    return [(found.metadata.name, webhook) for found in ordered for webhook in found.webhooks or ()]


def list_all(
    client: KubeClient,
    kind: str,
    namespace: str | None = None,
    label_selector: str | None = None,
    *,
    each: Callable[[Any], None] | None = None,
    keep: Callable[[Any], bool] | None = None,
) -> ListPage:
    """A whole list, page by page, consistent at one resourceVersion; starts over when its pages expire.

    `each` sees every item as its page arrives, also those of a list that is then started over. Without `keep` all are
    kept; what it refuses is dropped with its page, before the next one is asked for.
    """
    for left in reversed(range(LIST_TRIES)):
        try:
            items: Objects = []
            version = ""
            with closing(_pages(client, resource_of(kind), namespace, label_selector)) as pages:
                for page in pages:
                    if each:
                        for item in page.items:
                            each(item)
                    items += page.items if keep is None else [item for item in page.items if keep(item)]
                    version = version or page.resource_version
        except Gone:
            if not left:
                raise
            continue
        return ListPage(items, version)
    raise AssertionError("the last try returns or raises")


def _pages(
    client: KubeClient, resource: Resource, namespace: str | None, label_selector: str | None
) -> Generator[ListPage]:
    """Page by page. While one is decoded and used, the next one is asked for, and no more than that one."""
    params: dict[str, str | int] = {"limit": PAGE} | ({"labelSelector": label_selector} if label_selector else {})
    ask = partial(_page, client, resource, resource.path(namespace or ""), params)
    first = ask("")
    if not first.continue_token:
        yield first.page()
        return
    with Ahead(_following(ask, first.continue_token)) as following:
        yield first.page()
        for each in following:
            yield each.page()


def _following(ask: Callable[[str], Page], token: str) -> Iterator[Page]:
    while token:
        page = ask(token)
        yield page
        token = page.continue_token


def _page(client: KubeClient, resource: Resource, path: str, params: Mapping[str, str | int], token: str) -> Page:
    asked = {**params, "continue": token} if token else params
    if resource.kind != "Pod":
        return decode_list(resource.kind, client.request("GET", path, params=asked, gzip=True))
    body = _pods(client, path, asked)
    return protobuf.PodPage(body) if protobuf.is_protobuf(body) else decode_list("Pod", body)


def _pods(client: KubeClient, path: str, params: Mapping[str, str | int]) -> bytes:
    """Protobuf, where the API server has it: that costs it half of what JSON does."""
    try:
        return client.request("GET", path, params=params, gzip=True, accept=protobuf.accepted())
    except ClusterError as error:
        if error.status != NOT_ACCEPTABLE:
            raise
    return client.request("GET", path, params=params, gzip=True)


def count_endpoints(slices: Iterable[EndpointSlice], lost: Container[str] = ()) -> ReadyEndpoints:
    """Distinct endpoints over the slices of one Service. Those on a node in `lost` do not count as ready.

    A condition that is absent counts as ready (EndpointConditions in discovery/v1). An endpoint that two slices
    name is one; a dual-stack Service has each pod once per address family, and the larger family counts.
    """
    families: dict[bool, dict[str, tuple[bool, str]]] = {False: {}, True: {}}
    for endpoint in (endpoint for found in slices for endpoint in found.endpoints or ()):
        node = endpoint.node_name or ""
        ready = endpoint.conditions.ready is not False and node not in lost
        for address in (endpoint.addresses or ())[:1]:
            family = families[":" in address]
            before = family.get(address, (False, ""))
            family[address] = (ready or before[0], node or before[1])
    chosen = max(families.values(), key=lambda family: (sum(ready for ready, _ in family.values()), len(family)))
    nodes = sorted({node for ready, node in chosen.values() if ready and node})
    gone = sorted({node for _, node in chosen.values() if node in lost})
    return ReadyEndpoints(sum(ready for ready, _ in chosen.values()), len(chosen), tuple(nodes), tuple(gone))
