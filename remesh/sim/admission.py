"""Admission of new objects: mutating webhooks as their stored configurations say, and the quota of pods."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from remesh.sim import resources as res
from remesh.sim import status
from remesh.sim.objects import Obj, is_finished, labels_of, name_of
from remesh.sim.resources import Resource
from remesh.sim.selectors import label_selector
from remesh.sim.store import Store


@dataclass(frozen=True, slots=True)
class Attributes:
    """One request to be admitted. `deadline` is on the monotonic clock, in seconds."""

    resource: Resource
    operation: str
    namespace: str
    dry_run: bool
    deadline: float
    user: str = ""  # who asks; empty: one of the controllers


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook call goes: one ready address of a Service."""

    address: str
    port: int
    node: str


@dataclass(frozen=True, slots=True)
class Review:
    """What a webhook is asked: the object, its namespace, and who asks for what."""

    attributes: Attributes
    obj: Obj
    namespace: Obj | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook answers. `obj` is the object after its patch."""

    allowed: bool
    obj: Obj
    message: str = ""
    code: int = 400


class CallFailed(Exception):
    """A webhook could not be reached or did not answer properly; the text is that of the API server's client."""

    def __init__(self, text: str, *, keeps_connection: bool = False, is_response: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.keeps_connection = keeps_connection
        self.is_response = is_response  # an answer that is an error, not a failure of the transport


class Backend(Protocol):
    """What listens at a Service's endpoints."""

    def call(self, endpoint: Endpoint, review: Review, ca_bundle: str, seconds: float) -> Answer:
        """Raises CallFailed."""


@dataclass
class Admission:
    """Runs the webhooks of the stored configurations, in the order of their names, on one object after another."""

    store: Store
    backends: dict[tuple[str, str], Backend] = field(default_factory=dict)
    fail_open: dict[str, int] = field(default_factory=dict)
    _connections: dict[tuple[str, str], Endpoint] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mutate(self, attributes: Attributes, obj: Obj) -> Obj:
        """The object as all webhooks leave it. Raises StatusError."""
        if attributes.resource is res.MUTATING_WEBHOOKS:
            return obj
        for configuration in self.store.objects(res.MUTATING_WEBHOOKS):
            for hook in configuration.obj.get("webhooks") or ():
                if self._matches(hook, attributes, obj):
                    obj = self._call(hook, attributes, obj)
        return obj

    def validate(self, attributes: Attributes, obj: Obj) -> None:
        """Raises StatusError (403) when a quota of pods is used up."""
        if attributes.resource is res.PODS:
            for quota in self.store.objects(res.RESOURCE_QUOTAS, attributes.namespace):
                _check_quota(self.store, quota.obj, attributes, obj)

    def forget_connections(self) -> None:
        """Drop the connections that are kept to webhooks, as when their servers go away."""
        with self._lock:
            self._connections.clear()

    def _matches(self, hook: Obj, attributes: Attributes, obj: Obj) -> bool:
        if not any(_rule_matches(rule, attributes) for rule in hook.get("rules") or ()):
            return False
        if attributes.resource.namespaced:
            namespace = self.store.get(res.NAMESPACES, "", attributes.namespace)
            if namespace is None or not label_selector(hook["namespaceSelector"])(labels_of(namespace.obj)):
                return False
        return label_selector(hook["objectSelector"])(labels_of(obj))

    def _call(self, hook: Obj, attributes: Attributes, obj: Obj) -> Obj:
        name = hook["name"]
        if attributes.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f'admission webhook "{name}" does not support dry run')
        try:
            answer = self._ask(hook, attributes, obj)
        except CallFailed as failure:
            return self._failed(hook, attributes, obj, failure)
        if not answer.allowed:
            why = f": {answer.message}" if answer.message else " without explanation"
            raise status.StatusError(answer.code, "", f'admission webhook "{name}" denied the request{why}')
        return answer.obj

    def _failed(self, hook: Obj, attributes: Attributes, obj: Obj, failure: CallFailed) -> Obj:
        if time.monotonic() >= attributes.deadline:  # the request ends with its own time, whatever the policy says
            raise status.request_timeout() from failure
        if hook["failurePolicy"] != "Ignore":
            raise status.internal_error(
                f'failed calling webhook "{hook["name"]}": failed to call webhook: {failure.text}'
            ) from failure
        with self._lock:
            self.fail_open[hook["name"]] = self.fail_open.get(hook["name"], 0) + 1
        return obj

    def _ask(self, hook: Obj, attributes: Attributes, obj: Obj) -> Answer:
        reference = (hook.get("clientConfig") or {}).get("service") or {}
        seconds = min(float(hook["timeoutSeconds"]), attributes.deadline - time.monotonic())
        where = _url(hook, reference, seconds)
        namespace = self.store.get(res.NAMESPACES, "", attributes.namespace)
        review = Review(attributes, obj, namespace.obj if namespace else None)
        key = (reference.get("namespace", ""), reference.get("name", ""))
        try:
            if seconds <= 0:
                raise CallFailed("context deadline exceeded")
            endpoint = self._connect(key, reference)
            backend = self.backends.get(key)
            if backend is None:
                raise _refused(endpoint)
            return backend.call(endpoint, review, hook["clientConfig"].get("caBundle", ""), seconds)
        except CallFailed as failure:
            if not failure.keeps_connection:
                with self._lock:
                    self._connections.pop(key, None)
            if failure.is_response:
                raise
            raise CallFailed(f'Post "{where}": {failure.text}') from failure

    def _connect(self, key: tuple[str, str], reference: Mapping[str, Any]) -> Endpoint:
        """The API server keeps one connection to a webhook, and so to one of its replicas, while it works."""
        with self._lock:
            endpoint = self._connections.get(key)
            if endpoint is None:
                endpoint = resolve(self.store, key, reference.get("port", 443))
                self._connections[key] = endpoint
            return endpoint


def _refused(endpoint: Endpoint) -> CallFailed:
    return CallFailed(f"dial tcp {endpoint.address}:{endpoint.port}: connect: connection refused")


def _url(hook: Obj, reference: Mapping[str, Any], seconds: float) -> str:
    timeout = f"timeout={max(1, math.ceil(seconds))}s"
    if url := (hook.get("clientConfig") or {}).get("url"):
        return f"{url}?{timeout}"
    path = "/" + (reference.get("path") or "/").lstrip("/")
    return f"https://{reference['name']}.{reference['namespace']}.svc:{reference.get('port', 443)}{path}?{timeout}"


def _rule_matches(rule: Obj, attributes: Attributes) -> bool:
    resource = attributes.resource
    scope = rule.get("scope", "*")
    return (
        _lists(rule.get("operations"), attributes.operation)
        and _lists(rule.get("apiGroups"), resource.group)
        and _lists(rule.get("apiVersions"), resource.version)
        and any(wanted in ("*", "*/*", resource.plural) for wanted in rule.get("resources") or ())
        and scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
    )


def _lists(values: list[str] | None, value: str) -> bool:
    return bool(values) and ("*" in (values or ()) or value in (values or ()))


def resolve(store: Store, key: tuple[str, str], port: int) -> Endpoint:
    """A ready endpoint of a Service. Raises CallFailed, worded as the API server's resolver does."""
    namespace, name = key
    service = store.get(res.SERVICES, namespace, name)
    if service is None:
        raise CallFailed(f'service "{name}" not found')
    service_port = next((entry for entry in service.obj["spec"].get("ports") or () if entry["port"] == port), None)
    if service_port is None:
        raise CallFailed(f'no service port {port} found for service "{name}"')
    for endpoint, target in _ready_endpoints(store, namespace, name):
        return Endpoint(endpoint["addresses"][0], target, endpoint.get("nodeName", ""))
    raise CallFailed(f'no endpoints available for service "{name}"')


def _ready_endpoints(store: Store, namespace: str, service: str) -> list[tuple[Obj, int]]:
    found = []
    for item in store.objects(res.ENDPOINT_SLICES, namespace):
        if labels_of(item.obj).get("kubernetes.io/service-name") != service or not item.obj.get("ports"):
            continue
        target = item.obj["ports"][0]["port"]
        found += [(entry, target) for entry in item.obj.get("endpoints") or () if entry["conditions"].get("ready")]
    return found


_COUNTED: dict[str, Callable[[Obj], bool]] = {
    "pods": lambda pod: not is_finished(pod),
    "count/pods": lambda _pod: True,
}


def quota_usage(store: Store, namespace: str, hard: Mapping[str, Any]) -> dict[str, str]:
    """What is used of the limits on the number of pods; other limits are kept, and not enforced."""
    pods = [item.obj for item in store.objects(res.PODS, namespace)]
    return {limit: str(sum(1 for pod in pods if counts(pod))) for limit, counts in _COUNTED.items() if limit in hard}


def _check_quota(store: Store, quota: Obj, attributes: Attributes, obj: Obj) -> None:
    hard = quota["spec"].get("hard") or {}
    used = quota_usage(store, attributes.namespace, hard)
    over = [limit for limit, count in sorted(used.items()) if int(count) + 1 > int(hard[limit])]
    if not over:
        return
    requested = ",".join(f"{limit}=1" for limit in over)
    present = ",".join(f"{limit}={used[limit]}" for limit in over)
    limited = ",".join(f"{limit}={hard[limit]}" for limit in over)
    why = f"exceeded quota: {name_of(quota)}, requested: {requested}, used: {present}, limited: {limited}"
    raise status.forbidden(attributes.resource, name_of(obj), why)
