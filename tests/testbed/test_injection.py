"""Who gets a sidecar, and what the API server says when the injector is broken."""

import re
from collections.abc import Iterator

import pytest
import urllib3

from remesh.testbed import Fault, TestBed
from tests.cluster import workloads
from tests.cluster.workloads import collection, has_container
from tests.testbed.http import JSON_PATCH, Http, Object

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def rehearse(http: Http, namespace: str, pod: Object) -> tuple[int, Object]:
    """Code and body of a dry run."""
    answer = http.post(collection("Pod", namespace), pod, dryRun="All")
    return answer.code, answer.body


def refusal(http: Http, namespace: str) -> tuple[int, str]:
    code, body = rehearse(http, namespace, workloads.pod("refused"))
    return code, str(body.get("message", ""))


def call_failed(testbed: TestBed, tail: str) -> str:
    """The pattern of a failed call's text, up to a regular expression for its end."""
    wear = testbed.wear
    wrapper = f'Internal error occurred: failed calling webhook "{wear.webhook}": failed to call webhook: '
    return re.escape(wrapper) + tail


def post(testbed: TestBed, tail: str) -> str:
    wear = testbed.wear
    where = f"https://{wear.service}.{wear.namespace}.svc:{wear.service_port}{wear.path}?timeout="
    return call_failed(testbed, re.escape(f'Post "{where}') + rf'{wear.timeout_seconds}s": {tail}')


def test_pod_gets_sidecar_and_marks(http: Http, namespace: str, testbed: TestBed) -> None:
    code, pod = rehearse(http, namespace, workloads.pod("wanted"))

    assert code == 201
    (sidecar,) = [entry for entry in pod["spec"]["initContainers"] if entry["name"] == testbed.wear.sidecar]
    assert sidecar["restartPolicy"] == "Always"
    assert testbed.wear.mark_annotations.items() <= pod["metadata"]["annotations"].items()
    assert testbed.wear.mark_labels.items() <= pod["metadata"]["labels"].items()
    assert http.items(collection("Pod", namespace)) == []


@pytest.mark.parametrize("value", ["disabled", "Enabled"])
def test_pods_own_annotation_goes_before_its_namespaces(
    http: Http, namespace: str, testbed: TestBed, value: str
) -> None:
    assert testbed.wear.ask_annotation is not None
    key, _ = testbed.wear.ask_annotation
    _, pod = rehearse(http, namespace, workloads.pod("other", annotations={key: value}))

    assert not has_container(pod, testbed.wear.sidecar)


def test_pod_can_ask_in_a_namespace_that_does_not(http: Http, plain_namespace: str, testbed: TestBed) -> None:
    assert testbed.wear.ask_annotation is not None
    asking = workloads.pod("asking", annotations=dict([testbed.wear.ask_annotation]))

    assert has_container(rehearse(http, plain_namespace, asking)[1], testbed.wear.sidecar)
    assert not has_container(rehearse(http, plain_namespace, workloads.pod("quiet"))[1], testbed.wear.sidecar)


def test_pod_on_the_hosts_network_is_left_alone(http: Http, namespace: str, testbed: TestBed) -> None:
    _, pod = rehearse(http, namespace, workloads.pod("host", hostNetwork=True))

    assert not has_container(pod, testbed.wear.sidecar)


def test_sidecar_is_not_put_in_twice(http: Http, namespace: str, testbed: TestBed) -> None:
    body = workloads.pod("twice")
    body["spec"]["containers"].append({"name": testbed.wear.sidecar, "image": "own"})
    _, pod = rehearse(http, namespace, body)

    assert not pod["spec"].get("initContainers")


def test_selectors_keep_the_webhook_away(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.KILLED)

    code, _ = rehearse(http, namespace, workloads.pod("own", labels=dict(testbed.wear.injector_labels)))
    assert code == 201


def test_frozen(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.FROZEN)
    code, message = refusal(http, namespace)

    assert code == 500
    assert re.fullmatch(post(testbed, "context deadline exceeded"), message), message


def test_killed(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.KILLED)
    code, message = refusal(http, namespace)

    assert code == 500
    where = rf"dial tcp [0-9.]+:{testbed.wear.target_port}: connect: connection refused"
    assert re.fullmatch(post(testbed, where), message), message


def test_slow_but_in_time(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.SLOW, delay_ms=200)
    code, pod = rehearse(http, namespace, workloads.pod("slow"))

    assert code == 201
    assert has_container(pod, testbed.wear.sidecar)


def test_slower_than_the_timeout(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.SLOW, delay_ms=testbed.wear.timeout_seconds * 1000 + 3000)
    code, message = refusal(http, namespace)

    assert code == 500
    assert re.fullmatch(post(testbed, "context deadline exceeded"), message), message


def test_error_500(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.ERROR_500)
    code, message = refusal(http, namespace)

    assert code == 500
    tail = r'an error on the server \(".+"\) has prevented the request from succeeding'
    assert re.fullmatch(call_failed(testbed, tail), message), message


def test_denying(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.DENYING)
    answer = http.post(collection("Pod", namespace), workloads.pod("denied"))

    assert answer.code == 403
    assert re.fullmatch(
        re.escape(f'admission webhook "{testbed.wear.webhook}" denied the request: ') + ".+", answer.message
    )


def test_not_injecting(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.NOT_INJECTING)
    code, pod = rehearse(http, namespace, workloads.pod("bare"))

    assert code == 201
    assert not has_container(pod, testbed.wear.sidecar)


def test_wrong_ca(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.WRONG_CA)
    code, message = refusal(http, namespace)

    assert code == 500
    why = "tls: failed to verify certificate: x509: certificate signed by unknown authority.*"
    assert re.fullmatch(post(testbed, why), message), message


def test_no_endpoints(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.NO_ENDPOINTS)
    code, message = refusal(http, namespace)

    assert code == 500
    why = f'no endpoints available for service "{testbed.wear.service}"'
    assert message == re.sub(r"\\", "", post(testbed, why))


def test_node_lost(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.NODE_LOST)
    states = {
        entry["status"]
        for node in http.items("/api/v1/nodes")
        for entry in node["status"]["conditions"]
        if entry["type"] == "Ready"
    }

    assert states == {"True", "Unknown"}
    code, message = refusal(http, namespace)
    assert code == 500
    # The connection that was open hangs; a new one finds no endpoint.
    assert re.fullmatch(post(testbed, "(context deadline exceeded|no endpoints available for service .*)"), message)
    slices = http.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{testbed.wear.namespace}/endpointslices",
        labelSelector=f"kubernetes.io/service-name={testbed.wear.service}",
    )
    assert [entry["conditions"]["ready"] for piece in slices for entry in piece["endpoints"]] == [False]


def test_service_is_not_there(http: Http, namespace: str, testbed: TestBed) -> None:
    where = f"{CONFIGURATIONS}/{testbed.wear.configuration}"
    path = "/webhooks/0/clientConfig/service/name"
    http.patch(where, [{"op": "replace", "path": path, "value": "elsewhere"}], JSON_PATCH).ok()
    try:
        message = http.wait(lambda: refusal(http, namespace)[1], "the change to be in force")
    finally:
        http.patch(where, [{"op": "replace", "path": path, "value": testbed.wear.service}], JSON_PATCH).ok()

    assert re.search(r'failed to call webhook: Post "https://elsewhere\..+": service "elsewhere" not found$', message)


@pytest.fixture
def fail_open(http: Http, namespace: str, testbed: TestBed) -> Iterator[None]:
    """The webhook's failurePolicy is Ignore, and this is in force."""
    where = f"{CONFIGURATIONS}/{testbed.wear.configuration}"
    path = "/webhooks/0/failurePolicy"
    http.patch(where, [{"op": "replace", "path": path, "value": "Ignore"}], JSON_PATCH).ok()
    testbed.inject_fault(Fault.KILLED)
    http.wait(lambda: refusal(http, namespace)[0] == 201, "the policy to be in force")
    testbed.heal()
    yield
    http.patch(where, [{"op": "replace", "path": path, "value": "Fail"}], JSON_PATCH).ok()
    testbed.inject_fault(Fault.KILLED)
    http.wait(lambda: refusal(http, namespace)[0] == 500, "the policy to be in force")


@pytest.mark.parametrize("fault", [Fault.FROZEN, Fault.KILLED, Fault.ERROR_500])
def test_ignored_failure_lets_pods_in_bare(
    http: Http, namespace: str, testbed: TestBed, fail_open: None, fault: Fault
) -> None:
    testbed.inject_fault(fault)
    code, pod = rehearse(http, namespace, workloads.pod("bare"))

    assert code == 201
    assert not has_container(pod, testbed.wear.sidecar)


def test_denial_is_not_ignored(http: Http, namespace: str, testbed: TestBed, fail_open: None) -> None:
    testbed.inject_fault(Fault.DENYING)

    assert rehearse(http, namespace, workloads.pod("denied"))[0] == 403


def test_faults_add_up_and_heal_ends_them_all(http: Http, namespace: str, testbed: TestBed) -> None:
    for fault in (Fault.WRONG_CA, Fault.NOT_INJECTING, Fault.KILLED):
        testbed.inject_fault(fault)
    assert refusal(http, namespace)[0] == 500

    testbed.heal()
    code, pod = rehearse(http, namespace, workloads.pod("well"))
    assert code == 201
    assert has_container(pod, testbed.wear.sidecar)


def test_webhook_with_side_effects_cannot_be_registered(http: Http) -> None:
    hook = {
        "name": "effects.test.remesh.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "Some",
        "admissionReviewVersions": ["v1"],
    }
    answer = http.post(CONFIGURATIONS, {"metadata": {"name": "effects"}, "webhooks": [hook]})

    assert (answer.code, answer.reason) == (422, "Invalid")
    assert 'webhooks[0].sideEffects: Unsupported value: "Some"' in answer.message


def test_used_up_quota_is_forbidden(http: Http, namespace: str) -> None:
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    http.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}).ok()
    http.wait(lambda: http.get(f"{quotas}/few").ok()["status"].get("used") == {"pods": "0"}, "the quota to be counted")
    http.post(collection("Pod", namespace), workloads.pod("first")).ok()
    http.wait(lambda: http.get(f"{quotas}/few").ok()["status"]["used"] == {"pods": "1"}, "the pod to be counted")
    answer = http.post(collection("Pod", namespace), workloads.pod("second"))

    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'pods "second" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    )


def test_request_can_bring_its_own_timeout(http: Http, namespace: str, testbed: TestBed) -> None:
    testbed.inject_fault(Fault.FROZEN)
    try:
        answer = http.post(collection("Pod", namespace), workloads.pod("hasty"), dryRun="All", timeout="1s")
    except urllib3.exceptions.ProtocolError:
        return  # kube-apiserver hangs up instead when its handler comes to the same end at the same moment

    # Nothing in this text names the webhook.
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert answer.message == "Timeout: request did not complete within the allotted timeout"
