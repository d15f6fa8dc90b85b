"""Failures in the shape of the Kubernetes API: a `Status` body with a code, a reason and a message.

Messages are worded as kube-apiserver words them, because clients (and people) read them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from remesh.sim.resources import Resource


class StatusError(Exception):
    """A request that the simulated API server refuses. `body()` is what goes over the wire."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.metadata = dict(metadata or {})

    def body(self) -> dict[str, Any]:
        """The Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def has_cause(self, cause: str) -> bool:
        """Whether one of the causes has this reason."""
        return any(entry.get("reason") == cause for entry in (self.details or {}).get("causes", ()))


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource, name: str) -> StatusError:
    """404: no object of that name."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_details(resource, name))


def no_such_path() -> StatusError:
    """404: no such resource at all."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: Resource, name: str) -> StatusError:
    """409: the name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(resource, name))


def precondition_failed(resource: Resource, name: str, why: str) -> StatusError:
    """409: a deletion's precondition does not hold. These name the kind, not the resource."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, details={**_details(resource, name), "kind": resource.kind})


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    """409: the change is not based on the present object."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(resource, name))


def modified_conflict(resource: Resource, name: str) -> StatusError:
    """409: the resourceVersion is no longer the present one."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Any] = ()) -> StatusError:
    """403, for an object that is named."""
    details = _details(resource, name)
    if causes:
        details["causes"] = list(causes)
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=details)


def invalid(resource: Resource, name: str, field: str, why: str, cause: str = "FieldValueInvalid") -> StatusError:
    """422: a field has a value that cannot be."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: dict[str, Any] = {
        "name": name,
        "group": resource.group,
        "kind": resource.kind,
        "causes": [{"reason": cause, "message": why, "field": field}],
    }
    details = {key: value for key, value in details.items() if value}
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {field}: {why}', details=details)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def internal_error(message: str) -> StatusError:
    """500, as for a webhook that cannot be called."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)


def request_timeout(which: str = "requested timeout") -> StatusError:
    """504: the server's time for the request is over, or the one that the request itself has `allotted`."""
    return StatusError(504, "Timeout", f"Timeout: request did not complete within {which}", details={})


def expired(message: str, continue_token: str = "") -> StatusError:
    """410: too far in the past to be continued or watched from."""
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def too_many_requests(cause: str) -> StatusError:
    """429: a disruption budget says not now."""
    return StatusError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": cause}]},
    )


def unauthorized() -> StatusError:
    """401."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    """405."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message, details={})


def success(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """The body of a successful DELETE of an object that is gone at once."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_details(resource, name), "uid": uid},
    }
