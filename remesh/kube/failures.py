"""What went wrong between remesh and the API server, translated once into the tree of `remesh.errors`.

Two doors: `answer_error` for an HTTP answer that is no success, `connection_error` for no answer at all. Texts of
the API server are kept unchanged in `ClusterError.message`, because they are what `remesh.classify` reads.
"""

import http.client
import re
import ssl
from dataclasses import dataclass

import urllib3
from urllib3 import exceptions as broken

from remesh.errors import (
    ClusterError,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
)
from remesh.kube.decode import Status
from remesh.kube.protobuf import decode_status

# RBAC's own refusals: `pods "x" is forbidden: User "u" cannot get resource …`, `forbidden: User "u" cannot get path …`.
# Every other 403 comes from admission (quota, pod security, service account) or from a webhook's denial.
_MISSING_RIGHT = re.compile(r'(?:[a-z0-9./-]+(?: "[^"]*")? is )?forbidden: User "')
# A webhook may deny with any status code; 404 or 409 from it must not read as the object's state.
_DENIAL = re.compile(r'^admission webhook "[^"]*" denied the request')
_UID_IMMUTABLE = re.compile(r"metadata\.uid: Invalid value|Precondition failed: UID")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that is no success, and what had been asked."""

    server: str
    context: str  # of the kubeconfig
    asked: str  # "GET /api/v1/pods"
    status: int
    body: bytes = b""
    retry_after: str | None = None  # header


def answer_error(answer: Answer) -> ClusterError:
    """The error for an answer of status 300 or more."""
    return status_error(answer, decode_status(answer.body) or Status())


def status_error(answer: Answer, found: Status) -> ClusterError:
    """The same for a Status that is there already, as in a watch's ERROR event."""
    status = answer.status
    if _DENIAL.match(found.message):
        return _made(Rejected, f"refused by an admission webhook: {found.message}", status, found)
    if status == 403:
        return _forbidden(answer, found)
    if status == 429:
        wait = _seconds(answer.retry_after, found)
        line = f"the API server asks to come back in {wait:g} s: {found.message or 'too many requests'}"
        return Throttled(line, retry_after=wait, reason=found.reason, message=found.message, budgets=_budgets(found))
    if status == 422 and _UID_IMMUTABLE.search(found.message):
        return _made(Conflict, f"another object has this name by now: {found.message}", status, found)
    return _by_status(answer, found)


def _by_status(answer: Answer, found: Status) -> ClusterError:
    server, said = answer.server, found.message or f"HTTP {answer.status} without a reason"
    refused = f"the API server {server} refused the credentials of context {answer.context}"
    plain: dict[int, tuple[type[ClusterError], str]] = {
        401: (Unauthorized, f"{refused}: expired or wrong; log in again"),
        404: (NotFound, f"not found: {found.message or answer.asked + ' (check the URL of the server)'}"),
        409: (Conflict, f"changed meanwhile: {said}"),
        410: (Gone, f"the list is too old: {said}"),
        503: (ClusterUnreachable, f"the API server {server} is not available: {said}; check that it is up"),
        504: (ClusterUnreachable, f"the API server {server} did not finish in time: {said}"),
    }
    fallback = (Rejected if found.message else ClusterError, f"{answer.asked} was refused: {said}")
    kind, line = plain.get(answer.status, fallback)
    return _made(kind, line, answer.status, found)


def _made(kind: type[ClusterError], line: str, status: int, found: Status) -> ClusterError:
    return kind(line, status=status, reason=found.reason, message=found.message)


def _forbidden(answer: Answer, found: Status) -> ClusterError:
    if _MISSING_RIGHT.match(found.message):
        return _made(Forbidden, f"a right is missing: {found.message}; grant it to that user", 403, found)
    if found.message:
        return _made(Rejected, f"refused at admission: {found.message}", 403, found)
    line = f"{answer.asked} was refused without a reason; check for a proxy before the API server"
    return _made(Forbidden, line, 403, found)


def _budgets(found: Status) -> tuple[str, ...]:
    causes = (found.details.causes if found.details else None) or ()
    return tuple(cause.message for cause in causes if cause.reason == "DisruptionBudget")


def _seconds(header: str | None, found: Status) -> float:
    if header and header.strip().isdigit():
        return float(header)
    return float(found.details.retry_after_seconds if found.details and found.details.retry_after_seconds else 1)


def connection_error(server: str, error: Exception, timeout: float) -> ClusterError:
    """The error for a request without an answer: refused, unknown host, TLS, time-out, broken off."""
    head = f"cannot reach the API server at {server}"
    if isinstance(error, broken.ReadTimeoutError):
        return ClusterUnreachable(f"the API server at {server} did not answer within {timeout:g} s; check its load")
    if isinstance(error, broken.NameResolutionError):
        return ClusterUnreachable(f"{head}: host name not found; check --context and the server's name")
    # A connection that is refused is a NewConnectionError, which urllib3 counts among the time-outs.
    if isinstance(error, broken.ConnectTimeoutError) and not isinstance(error, broken.NewConnectionError):
        return ClusterUnreachable(f"{head}: no connection in time; check --context, network and firewall")
    if isinstance(error, broken.ProxyError):
        return ClusterUnreachable(f"{head}: the proxy failed ({_root(error)}); check proxy-url or HTTPS_PROXY")
    if isinstance(error, broken.SSLError):
        return ClusterUnreachable(f"{head}: {_tls(error)}")
    if isinstance(error, broken.ProtocolError | broken.DecodeError):
        return ClusterUnreachable(f"the connection to the API server at {server} broke ({_root(error)}); try again")
    return ClusterUnreachable(f"{head}: {_root(error)}; check --context and that the cluster is up")


def _tls(error: urllib3.exceptions.SSLError) -> str:
    text = str(error)
    found = re.search(r"certificate verify failed: ([^(\]]+)", text)
    if found:
        return f"its certificate is not trusted ({found[1].strip()}); check certificate-authority and the clock"
    if "WRONG_VERSION_NUMBER" in text or "HTTP_REQUEST" in text:
        return "it does not speak TLS; check http or https in the server's URL"
    cause = error.args[0] if error.args and isinstance(error.args[0], ssl.SSLError) else None
    return f"TLS failed ({(cause.reason if cause else None) or text}); check the certificates in the kubeconfig"


def _root(error: BaseException) -> str:
    """The operating system's own words for the deepest cause, such as "connection refused"."""
    seen: BaseException = error
    while deeper := _deeper(seen):
        seen = deeper
    if isinstance(seen, http.client.IncompleteRead | broken.IncompleteRead):
        return "it ended in the middle of the answer"
    text = seen.strerror if isinstance(seen, OSError) and seen.strerror else str(seen) or type(seen).__name__
    return text[:1].lower() + text[1:]


def _deeper(error: BaseException) -> BaseException | None:
    inner = getattr(error, "original_error", None) or error.__cause__
    if not inner:
        inner = next((part for part in error.args if isinstance(part, Exception)), None)
    return inner if isinstance(inner, BaseException) else None
