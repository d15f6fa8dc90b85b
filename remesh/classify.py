"""From a failure text to its class: one table of patterns, read from top to bottom. Pure.

The text is what a controller or the API server wrote into a condition, a Kubernetes Event or a Status. It is read in
this order, because each later step would misread what an earlier one knows:

1. A denial is a webhook's *reply*, even where an HTTP 500 carries it: somebody said no, retrying cannot help.
2. `is forbidden`, `is invalid` and their kin in front of any wrapper: quota, pod security, validation.
3. The wrapper `failed calling webhook "N":`. It alone makes the text webhook infrastructure; its tail only refines.
4. Texts that name no webhook: time-outs of the API server, name conflicts.

Injectors are never recognised here. `webhook_named()` and `service_named()` quote what the text says; whether that
webhook is an injector is for the live configuration and the mesh profiles to say (`remesh.meshes`).

All patterns run in time linear to the text, and no more than the first 64 KB are looked at.
"""

import re
from typing import Final, NamedTuple

from remesh.models import BaseClass, FailureClass

MAX_TEXT: Final = 65_536
"""Characters looked at. Conditions are capped at 32 KiB, Kubernetes Events at 1 KiB."""

_Table = tuple[tuple[re.Pattern[str], FailureClass], ...]


def _table(*rows: tuple[FailureClass, tuple[str, ...]]) -> _Table:
    return tuple((re.compile("|".join(patterns), re.IGNORECASE), failure_class) for failure_class, patterns in rows)


# Controllers put these in front; the ReplicaFailure condition has none of them.
_PREFIX = re.compile(
    r"\s{0,20}(?:"
    r"\(combined from similar events\):?"
    r"|Error creating(?: [a-z]{1,20}){0,3}:"
    r"|create Pod \S{1,253} in StatefulSet \S{1,253} failed(?: error)?:"
    r"|Error from server(?: \([A-Za-z]{1,40}\))?:"
    r")\s{0,20}",
    re.IGNORECASE,
)
_OTHER_POD_PREFIX = re.compile(r"\s{0,20}Error creating [a-z]{1,20}(?: [a-z]{1,20}){0,2}:", re.IGNORECASE)

# Quotes come escaped where the text was wrapped in JSON once more.
_NAME = r'\\{0,3}"(?P<name>[^"\\\s]{1,253})'
_DENIAL = re.compile(rf"admission webhook {_NAME}\\{{0,3}}\" denied the request")
_WRAPPER = re.compile(rf"failed calling (?:admission )?webhook {_NAME}")
_CONVERSION = re.compile(r"conversion webhook for [^:\n]{1,253} failed:")
_REFUSING_REPLY = re.compile(r'allowed[\\"]{1,8}\s{0,4}:\s{0,4}false')
_REVIEW = "AdmissionReview"
_LEAD = re.compile(
    r'[\\"]{0,4}:?\s{0,20}(?:failed to call webhook:\s{0,20})?(?:(?:Post|Get) \\{0,3}"?https?://[^\s"\\]{1,2048}[\\"]{0,4}:?\s{0,20})?',
    re.IGNORECASE,
)
_SERVICE = re.compile(
    r"https://(?P<name>[a-z0-9-]{1,63})\.(?P<namespace>[a-z0-9-]{1,63})\.svc(?:\.[a-z0-9.-]{1,190})?"
    r"(?::\d{1,5})?(?P<path>/[^?\"'\s:]{0,253})?"
)

# Said by the API server itself before or without any webhook.
_REFUSALS = _table(
    (
        FailureClass.NAMESPACE_TERMINATING,
        (r"because it is being terminated", r"namespaces? \\?\"[^\"\s]{1,253}\" (?:not found|is being terminated)"),
    ),
    (
        FailureClass.QUOTA_EXCEEDED,
        (r"(?:exceed(?:ed|s)|failed|insufficient) (?:its )?quota", r"quota exceeded", r"status unknown for quota"),
    ),
    (
        FailureClass.POD_SECURITY,
        (
            r"violates PodSecurity",
            r"unable to validate against any",  # PodSecurityPolicy and OpenShift's SecurityContextConstraints
            r"no providers available to validate pod",
            r"PodSecurityPolicy: unable to admit",
        ),
    ),
    (
        FailureClass.SERVICE_ACCOUNT_MISSING,
        (
            r"error looking up service ?account",
            r"service ?account \S{1,510} (?:was )?not found",
            r"no api token found for service account",
        ),
    ),
    (FailureClass.PRIORITY_CLASS_MISSING, (r"no PriorityClass with name",)),
    (
        FailureClass.LIMIT_RANGE,
        (
            r"(?:minimum|maximum) \S{1,253} usage per (?:Pod|Container|PersistentVolumeClaim)",
            r"limit to request ratio per",
        ),
    ),
    (FailureClass.INVALID_POD, (r"\" is invalid\b", r"\bis invalid: ")),
    (FailureClass.FORBIDDEN_OTHER, (r"\bis forbidden\b",)),
)

_PLUGIN = re.compile(r"admission plugin \\?\"[A-Za-z]{1,63}\\?\" failed to complete (?:mutation|validation) in")

# Without a wrapper.
_PLAIN = _table(
    (
        FailureClass.NAME_CONFLICT,
        (
            r"already exists",
            r"object is being deleted",
            r"unable to generate a unique name",
            r"object has been modified",
            r"Operation cannot be fulfilled on",
            r"operation against \S{1,253} could not be completed at this time",
        ),
    ),
    (
        FailureClass.API_TIMEOUT,
        (
            r"request did not complete within",
            r"unable to return a response in the time allotted",
            r"request timed out",
            r"context deadline exceeded",
            r"Client\.Timeout",
            r"timed out waiting for the condition",
        ),
    ),
)

# The reply was there, and it was not an AdmissionReview that can be used. Anchored: their free text may quote anything.
_BAD_REPLY = _table(
    (
        FailureClass.WEBHOOK_BAD_RESPONSE,
        (
            r"\Areceived invalid webhook response",
            r"\Aan error on the server",  # HTTP 500 and its kin
            r"\Ainternal error\b",
            r"\Athe server (?:could not find|rejected|responded with|has asked for|does not allow)",
            r"\A(?:\d{3} )?(?:Internal Server Error|Not Found|Bad Request|Unauthorized|Forbidden|Method Not Allowed)\b",
            r"\A404 page not found",
        ),
    ),
)

_TAIL = _table(
    (
        FailureClass.WEBHOOK_X509,
        (
            r"x509:",
            r"failed to verify certificate",
            r"\bbad certificate",
            r"unknown certificate( authority)?",
            r"unable to load root certificates",
            r"certificate (?:has expired|is not valid|required|unknown)",
        ),
    ),
    (
        FailureClass.WEBHOOK_SERVICE_NOT_FOUND,
        (r"services? \\?\"[^\"\s]{1,253}\" not found", r"no service port \S{1,63} found for service"),
    ),
    (FailureClass.WEBHOOK_NO_ENDPOINTS, (r"no endpoints available for service", r"no endpoints? available\b")),
    (
        FailureClass.WEBHOOK_BAD_RESPONSE,
        (
            r"AdmissionReview",
            r"unknown conversion",
            r"response\.(?:uid|patch|patchType)\b",
            r"webhook returned (?:no |invalid |an? )?response",
            r"webhook response",
            r"invalid character",
            r"cannot unmarshal",
            r"error unmarshal",
            r"unexpected end of JSON",
            r"json parse error",
            r"Object 'Kind' is missing",
            r"no kind \\?\"",
            r"malformed HTTP",
            r"server gave HTTP response to HTTPS client",
            r"first record does not look like a TLS handshake",
            r"invalid (?:json )?patch",
            r"attempted to modify the object",
            r"(?:add|remove|replace) operation does not apply",
            r"doc is missing (?:key|path)",
            r"status code [1-5]\d\d",
            r"the server could not find the requested resource",
        ),
    ),
    (FailureClass.WEBHOOK_CONNECTION_REFUSED, (r"connection refused", r"actively refused")),
    (
        FailureClass.WEBHOOK_TIMEOUT,
        (
            r"deadline exceeded",
            r"Client\.Timeout",
            r"i/o timeout",
            r"request canceled",
            r"context canceled",
            r"timeout awaiting",
            r"handshake timeout",
            r"timed? ?out\b",
            r"in the time allotted",
        ),
    ),
    (
        FailureClass.WEBHOOK_UNREACHABLE,
        (
            r"no such host",
            r"no route to host",
            r"network (?:is )?unreachable",
            r"host (?:is )?(?:down|unreachable)",
            r"connection reset by peer",
            r"connection (?:was )?(?:lost|closed|aborted)",
            r"closed network connection",
            r"broken pipe",
            r"\bEOF\b",
            r"GOAWAY",
            r"no agent available",
            r"address is not allowed",
            r"service unavailable",
            r"bad gateway",
            r"gateway time-?out",
            r"unable to connect",
            r"proxyconnect",
            r"proxy authentication required",
            r"server misbehaving",
            r"currently unable to handle the request",
            r"operation not permitted",
            r"permission denied",
            r"(?:can't|cannot) assign requested address",
            r"unexpected (?:error )?dial",
            r"error dialing",
            r"\bdial (?:tcp|unix|udp)\b",
            r"stream error",
            r"idle connection",
            r"connection broken",
            r"no healthy upstream",
            r"\bhttp2: ",
        ),
    ),
    # Any other failure of the handshake is one of keys or protocol: somebody has to correct it.
    (FailureClass.WEBHOOK_X509, (r"\btls: ",)),
)

_BASE: Final[dict[FailureClass, BaseClass]] = {
    FailureClass.WEBHOOK_DENIED: BaseClass.WEBHOOK_DENIED,
    FailureClass.QUOTA_EXCEEDED: BaseClass.QUOTA,
    FailureClass.POD_SECURITY: BaseClass.POD_SECURITY,
    FailureClass.SERVICE_ACCOUNT_MISSING: BaseClass.SERVICE_ACCOUNT,
    FailureClass.MISSING_SIDECAR: BaseClass.MISSING_SIDECAR,
    FailureClass.HAS_SIDECAR: BaseClass.NO_PROBLEM,
    FailureClass.NOT_EXPECTED: BaseClass.NO_PROBLEM,
    FailureClass.NOT_APPLICABLE: BaseClass.NO_PROBLEM,
    FailureClass.HEALTHY: BaseClass.NO_PROBLEM,
    FailureClass.WEBHOOK_TIMEOUT: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_UNREACHABLE: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_CONNECTION_REFUSED: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_NO_ENDPOINTS: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_SERVICE_NOT_FOUND: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_X509: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_BAD_RESPONSE: BaseClass.WEBHOOK_INFRA,
    FailureClass.WEBHOOK_CALL_FAILED: BaseClass.WEBHOOK_INFRA,
}


class ServiceNamed(NamedTuple):
    """The Service whose address a text quotes."""

    namespace: str
    name: str
    path: str


def classify(message: str) -> FailureClass:
    """Class of a failure text. Never raises; a text that says nothing is `unknown_api_error`."""
    text = _without_prefixes(message[:MAX_TEXT])
    if _DENIAL.search(text):
        return FailureClass.WEBHOOK_DENIED
    wrapper = _WRAPPER.search(text) or _CONVERSION.search(text)
    refusal = _first(_REFUSALS, text[: wrapper.start()] if wrapper else text)
    if refusal is not None:
        return refusal
    if wrapper is not None:
        return _of_call(text[wrapper.end() :])
    if _PLUGIN.search(text):
        return FailureClass.WEBHOOK_TIMEOUT
    return _first(_PLAIN, text) or FailureClass.UNKNOWN_API_ERROR


def base_class(failure_class: FailureClass) -> BaseClass:
    """Family of a class; what has no family of its own is `other_api`."""
    return _BASE.get(failure_class, BaseClass.OTHER_API)


def webhook_named(message: str) -> str | None:
    """Name of the webhook that the text says denied or could not be called, as quoted; None if it names none."""
    text = message[:MAX_TEXT]
    found = _DENIAL.search(text) or _WRAPPER.search(text)
    return found["name"] if found else None


def service_named(message: str) -> ServiceNamed | None:
    """The Service in the address that the API server called, or None (URL webhooks, cut texts, denials)."""
    found = _SERVICE.search(message[:MAX_TEXT])
    return ServiceNamed(found["namespace"], found["name"], found["path"] or "") if found else None


def gist(message: str) -> str:
    """What the text comes down to, for people: without prefixes, wrapper and address; never empty unless it is."""
    text = _without_prefixes(message[:MAX_TEXT])
    found = _DENIAL.search(text) or _WRAPPER.search(text)
    if found is None:
        return text or message
    rest = text[found.end() :]
    lead = _LEAD.match(rest)
    return rest[lead.end() if lead else 0 :].lstrip(": ") or text


def about_other_pod(message: str) -> bool:
    """True if the refused pod is not one of the object's own, such as OpenShift's deployer pods."""
    return _OTHER_POD_PREFIX.match(message) is not None


def _without_prefixes(text: str) -> str:
    position = 0
    while (found := _PREFIX.match(text, position)) is not None:
        position = found.end()
    return text[position:]


def _of_call(tail: str) -> FailureClass:
    """Class of a webhook call that failed, from what follows the webhook's name."""
    if _REVIEW in tail and _REFUSING_REPLY.search(tail):
        return FailureClass.WEBHOOK_DENIED
    lead = _LEAD.match(tail)
    reason = tail[lead.end() :] if lead else tail
    return _first(_BAD_REPLY, reason) or _first(_TAIL, reason) or FailureClass.WEBHOOK_CALL_FAILED


def _first(table: _Table, text: str) -> FailureClass | None:
    return next((failure_class for pattern, failure_class in table if pattern.search(text)), None)
