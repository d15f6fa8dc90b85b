"""Failure texts and their classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remesh.classify import (
    MAX_TEXT,
    about_other_pod,
    base_class,
    classify,
    gist,
    service_named,
    webhook_named,
)
from remesh.models import BaseClass, FailureClass

CALL = 'Internal error occurred: failed calling webhook "sidecar.example.io": '
NEW = CALL + 'failed to call webhook: Post "https://sidecar.mesh.svc:443/inject?timeout=10s": '

TAILS = {
    "context deadline exceeded": FailureClass.WEBHOOK_TIMEOUT,
    "net/http: TLS handshake timeout": FailureClass.WEBHOOK_TIMEOUT,
    "net/http: request canceled (Client.Timeout exceeded while awaiting headers)": FailureClass.WEBHOOK_TIMEOUT,
    "http2: timeout awaiting response headers": FailureClass.WEBHOOK_TIMEOUT,
    "dial tcp 10.0.0.1:8443: i/o timeout": FailureClass.WEBHOOK_TIMEOUT,
    "dial tcp 10.0.0.1:443: connect: connection timed out": FailureClass.WEBHOOK_TIMEOUT,
    "dial tcp 10.0.0.1:443: connect: connection refused": FailureClass.WEBHOOK_CONNECTION_REFUSED,
    "dial tcp [::1]:443: connect: connection refused": FailureClass.WEBHOOK_CONNECTION_REFUSED,
    'no endpoints available for service "sidecar"': FailureClass.WEBHOOK_NO_ENDPOINTS,
    'service "sidecar" not found': FailureClass.WEBHOOK_SERVICE_NOT_FOUND,
    'no service port 443 found for service "sidecar"': FailureClass.WEBHOOK_SERVICE_NOT_FOUND,
    "x509: certificate is valid for a.mesh.svc, not sidecar.mesh.svc": FailureClass.WEBHOOK_X509,
    "x509: certificate has expired or is not yet valid": FailureClass.WEBHOOK_X509,
    "tls: failed to verify certificate: x509: certificate signed by unknown authority": FailureClass.WEBHOOK_X509,
    "remote error: tls: bad certificate": FailureClass.WEBHOOK_X509,
    "remote error: tls: internal error": FailureClass.WEBHOOK_X509,
    "dial tcp: lookup sidecar.mesh.svc on 10.0.0.10:53: no such host": FailureClass.WEBHOOK_UNREACHABLE,
    "dial tcp 10.0.0.1:443: connect: no route to host": FailureClass.WEBHOOK_UNREACHABLE,
    "read tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer": FailureClass.WEBHOOK_UNREACHABLE,
    "EOF": FailureClass.WEBHOOK_UNREACHABLE,
    "http2: server sent GOAWAY and closed the connection": FailureClass.WEBHOOK_UNREACHABLE,
    "stream error: stream ID 3; INTERNAL_ERROR": FailureClass.WEBHOOK_UNREACHABLE,
    "http2: client connection lost": FailureClass.WEBHOOK_UNREACHABLE,
    "Service Unavailable": FailureClass.WEBHOOK_UNREACHABLE,
    "Bad Gateway": FailureClass.WEBHOOK_UNREACHABLE,
    "proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: no route to host": FailureClass.WEBHOOK_UNREACHABLE,
    "No agent available": FailureClass.WEBHOOK_UNREACHABLE,
    "some text that nobody has written before": FailureClass.WEBHOOK_CALL_FAILED,
    "": FailureClass.WEBHOOK_CALL_FAILED,
}


@pytest.mark.parametrize(("tail", "expected"), TAILS.items())
def test_tail_refines_the_wrapper(tail: str, expected: FailureClass) -> None:
    assert classify(NEW + tail) is expected
    assert base_class(expected) is BaseClass.WEBHOOK_INFRA


REPLIES = (
    'an error on the server ("{\\"code\\":500}") has prevented the request from succeeding',
    'an error on the server ("upstream connect error: connection refused") has prevented the request from succeeding',
    "the server could not find the requested resource",
    "the server rejected our request for an unknown reason",
    "the server responded with the status code 418 but did not return more information",
    'received invalid webhook response: expected response.uid="1", got ""',
    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
    "invalid character '<' looking for beginning of value",
    "couldn't get version/kind; json parse error: unexpected end of JSON input",
    "webhook returned response.patchType but not response.patch",
    "http: server gave HTTP response to HTTPS client",
    "Internal Server Error",
)


@pytest.mark.parametrize("reply", REPLIES)
def test_answer_that_is_no_review_is_a_bad_response(reply: str) -> None:
    assert classify(CALL + "failed to call webhook: " + reply) is FailureClass.WEBHOOK_BAD_RESPONSE
    assert classify(CALL + reply) is FailureClass.WEBHOOK_BAD_RESPONSE


PLAIN = {
    'admission webhook "a.b.c" denied the request: no': FailureClass.WEBHOOK_DENIED,
    'admission webhook "a.b.c" denied the request without explanation': FailureClass.WEBHOOK_DENIED,
    'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1': FailureClass.QUOTA_EXCEEDED,
    'pods "a" is forbidden: failed quota: q: must specify limits.cpu': FailureClass.QUOTA_EXCEEDED,
    'pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2': FailureClass.LIMIT_RANGE,
    'pods "a" is forbidden: cpu max limit to request ratio per Pod is 2, but 4': FailureClass.LIMIT_RANGE,
    'pods "a-" is forbidden: unable to validate against any pod security policy: []': FailureClass.POD_SECURITY,
    'pods "a" is forbidden: violates PodSecurity "restricted:latest": x': FailureClass.POD_SECURITY,
    'pods "a" is forbidden: error looking up service account a/b: x': FailureClass.SERVICE_ACCOUNT_MISSING,
    'pods "a" is forbidden: no PriorityClass with name x was found': FailureClass.PRIORITY_CLASS_MISSING,
    'pods "a" is forbidden: no new content in b because it is being terminated': FailureClass.NAMESPACE_TERMINATING,
    'pods is forbidden: User "x" cannot create resource "pods"': FailureClass.FORBIDDEN_OTHER,
    'Pod "a" is invalid: spec.containers[1].name: Duplicate value: "proxy"': FailureClass.INVALID_POD,
    'pods "a" already exists': FailureClass.NAME_CONFLICT,
    "Timeout: request did not complete within requested timeout - context deadline exceeded": FailureClass.API_TIMEOUT,
    "etcdserver: request timed out": FailureClass.API_TIMEOUT,
    "Internal error occurred: ": FailureClass.UNKNOWN_API_ERROR,
    "Internal error occurred: resource quota evaluation failed": FailureClass.UNKNOWN_API_ERROR,
    "Error creating: ": FailureClass.UNKNOWN_API_ERROR,
    "": FailureClass.UNKNOWN_API_ERROR,
}


@pytest.mark.parametrize(("text", "expected"), PLAIN.items())
def test_texts_without_a_failed_call(text: str, expected: FailureClass) -> None:
    assert classify(text) is expected


PREFIXES = (
    "Error creating: ",
    "(combined from similar events): Error creating: ",
    "create Pod web-0 in StatefulSet web failed error: ",
    "Error creating deployer pod: ",
    "Error from server (InternalError): ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefix_changes_nothing(prefix: str) -> None:
    for text, expected in {**PLAIN, NEW + "EOF": FailureClass.WEBHOOK_UNREACHABLE}.items():
        assert classify(prefix + text) is expected


def test_denial_wins_over_the_wrapper_around_it() -> None:
    body = '{\\"kind\\":\\"AdmissionReview\\",\\"response\\":{\\"allowed\\": false}}'
    text = CALL + f'an error on the server ("{body}") has prevented the request from succeeding'
    assert classify(text) is FailureClass.WEBHOOK_DENIED


def test_review_that_allows_is_no_denial() -> None:
    body = '{\\"kind\\":\\"AdmissionReview\\",\\"response\\":{\\"allowed\\": true}}'
    text = CALL + f'an error on the server ("{body}") has prevented the request from succeeding'
    assert classify(text) is FailureClass.WEBHOOK_BAD_RESPONSE


def test_denial_may_run_over_several_lines() -> None:
    assert classify('admission webhook "v.example.io" denied the request: [a] no\n\n[b] no') is (
        FailureClass.WEBHOOK_DENIED
    )


def test_pod_named_like_an_injector_is_no_infrastructure() -> None:
    text = 'pods "linkerd-proxy-injector-x" is forbidden: violates PodSecurity "baseline:latest": x'
    assert classify(text) is FailureClass.POD_SECURITY
    assert webhook_named(text) is None


def test_cut_texts_keep_to_the_wrapper() -> None:
    for cut in range(len(CALL), len(NEW)):
        assert classify(NEW[:cut]) is FailureClass.WEBHOOK_CALL_FAILED


def test_old_wording_of_the_wrapper() -> None:
    text = (
        'failed calling admission webhook "a.b.c": Post https://a.b.svc:443/x: dial tcp: getsockopt: connection refused'
    )
    assert classify(text) is FailureClass.WEBHOOK_CONNECTION_REFUSED
    assert webhook_named(text) == "a.b.c"


def test_plugin_that_ran_out_of_time_names_no_webhook() -> None:
    text = 'Internal error occurred: admission plugin "MutatingAdmissionWebhook" failed to complete mutation in 13s'
    assert classify(text) is FailureClass.WEBHOOK_TIMEOUT
    assert webhook_named(text) is None


def test_names_are_quoted_as_they_stand() -> None:
    assert webhook_named(NEW + "EOF") == "sidecar.example.io"
    assert webhook_named('admission webhook "a.b.c" denied the request: x') == "a.b.c"
    service = service_named(NEW + "EOF")
    assert service is not None
    assert (service.namespace, service.name, service.path) == ("mesh", "sidecar", "/inject")
    assert service_named("Post https://localhost:5443/x: EOF") is None


def test_gist_is_what_is_left_without_the_wrapper() -> None:
    assert gist("Error creating: " + NEW + "x509: certificate has expired") == "x509: certificate has expired"
    assert gist('Error creating: admission webhook "a.b" denied the request: because') == "because"
    assert gist("quota exceeded") == "quota exceeded"


def test_deployer_pod_is_not_the_controllers_own() -> None:
    assert about_other_pod("Error creating deployer pod: x")
    assert not about_other_pod("Error creating: x")


@given(st.text(max_size=2000))
def test_any_text_has_a_class(text: str) -> None:
    assert isinstance(classify(text), FailureClass)
    webhook_named(text), service_named(text), gist(text), about_other_pod(text)


PIECES = (
    "Error creating: ",
    'failed calling webhook "',
    'admission webhook "',
    '" denied the request',
    "\\",
    '"',
    "\n",
    "Post https://",
    "a.b.svc:443/",
    ": ",
    "is forbidden",
    "x509:",
    'service "',
    "Error creating a b ",
    " ",
)


@given(st.lists(st.sampled_from(PIECES), max_size=400))
def test_any_mixture_of_the_words_has_a_class(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert isinstance(classify(text), FailureClass)
    webhook_named(text), service_named(text), gist(text)


@pytest.mark.parametrize("piece", PIECES)
def test_huge_hostile_texts_are_read_in_linear_time(piece: str) -> None:
    """A pattern that is not linear would take hours here; the suite's time-out would end it."""
    for text in (piece * (MAX_TEXT // len(piece)), CALL + piece * (2 * MAX_TEXT // len(piece))):
        assert isinstance(classify(text), FailureClass)
        webhook_named(text), service_named(text), gist(text)


def test_every_class_has_a_family() -> None:
    assert {base_class(each) for each in FailureClass} == set(BaseClass)
