"""Pods from protobuf are what they are from JSON, whatever is in them; and damage is one line, never a crash."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remesh.errors import ClusterError
from remesh.kube.decode import ListPage, decode_list
from remesh.kube.failures import Answer, answer_error
from remesh.kube.protobuf import MAGIC, PodPage, accepted, decode_pods, decode_status, is_protobuf
from tests.kube import wire

MANY = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SOME = TEXT.filter(bool)
TIME = st.datetimes().map(lambda moment: f"{moment.replace(microsecond=0).isoformat()}Z")
TIME_SET = TIME.filter(lambda text: text != "0001-01-01T00:00:00Z")  # Go's zero, which is written as nothing
NUMBER = st.integers(-(2**63), 2**63 - 1)


def full(required: dict[str, Any], **optional: Any) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


def some(items: Any) -> Any:
    """What JSON leaves out where it is empty."""
    return st.lists(items, min_size=1, max_size=3)


WORDS = st.dictionaries(TEXT, TEXT, min_size=1, max_size=4)
OWNERS = full({"kind": TEXT, "name": TEXT, "uid": TEXT, "apiVersion": TEXT}, controller=st.booleans())
CONTAINERS = full({"name": TEXT}, image=TEXT, restartPolicy=TEXT)
PODS = full(
    {
        "metadata": full(
            {},
            name=TEXT,
            generateName=TEXT,
            namespace=TEXT,
            uid=TEXT,
            resourceVersion=TEXT,
            generation=NUMBER,
            creationTimestamp=TIME_SET,
            deletionTimestamp=TIME_SET,
            labels=WORDS,
            annotations=WORDS,
            ownerReferences=some(OWNERS),
        )
    },
    spec=full(
        {},
        containers=some(CONTAINERS),
        initContainers=some(CONTAINERS),
        restartPolicy=TEXT,
        nodeName=TEXT,
        hostNetwork=st.booleans(),
        priorityClassName=TEXT,
    ),
    status=full({}, phase=TEXT, reason=TEXT, conditions=some(full({"type": TEXT, "status": TEXT}))),
)
LISTS = full({"metadata": full({}, resourceVersion=TEXT, **{"continue": TEXT})}, items=st.lists(PODS, max_size=4))

POD: dict[str, Any] = {
    "metadata": {
        "name": "cart-5d4f-x2x4x",
        "namespace": "shop",
        "uid": "u-1",
        "resourceVersion": "17",
        "generation": 1,
        "creationTimestamp": "2026-06-01T10:00:00Z",
        "labels": {"app": "cart"},
        "annotations": {"a": "b"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "cart", "uid": "u-2", "apiVersion": "apps/v1"}],
    },
    "spec": {"containers": [{"name": "app", "image": "i"}], "restartPolicy": "Always", "nodeName": "n1"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


def pod(**metadata: Any) -> dict[str, Any]:
    return POD | {"metadata": POD["metadata"] | metadata}


def pods(*found: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "17", "continue": more}, "items": list(found)}


@MANY
@given(LISTS)
def test_a_list_is_the_same_in_both_forms(document: dict[str, Any]) -> None:
    assert decode_pods(wire.pod_list(document)) == decode_list("Pod", json.dumps(document).encode())


@MANY
@given(PODS, st.binary(max_size=200))
def test_fields_that_nobody_names_are_skipped_at_every_level(document: dict[str, Any], data: bytes) -> None:
    """Numbers that Kubernetes has not given yet, in each form that the wire knows."""
    odd = b"".join([wire.chunk(900, data), wire.varint(901 << 3) + b"\x7f", wire.varint(902 << 3 | 5) + b"1234"])
    parts = [(1, "ObjectMeta", "metadata"), (2, "PodSpec", "spec"), (3, "PodStatus", "status")]
    inner = [wire.chunk(number, odd + wire.encode(name, document.get(key, {})) + odd) for number, name, key in parts]
    body = wire.answer("PodList", odd + wire.chunk(2, odd + odd.join(inner)))
    assert decode_pods(body).items == decode_list("Pod", json.dumps({"items": [document]}).encode()).items


@pytest.mark.parametrize("controller", [None, True, False])
@pytest.mark.parametrize("restarts", [None, "", "Always"])
def test_what_is_absent_is_not_what_is_empty(controller: bool | None, restarts: str | None) -> None:
    owner = {"kind": "ReplicaSet", "name": "cart", "uid": "u", "controller": controller}
    document = pod(ownerReferences=[owner]) | {"spec": {"initContainers": [{"name": "a", "restartPolicy": restarts}]}}
    found = decode_pods(wire.pod_list(pods(document))).items[0]
    assert found.metadata.owner_references[0].controller is controller
    assert found.spec.init_containers[0].restart_policy == restarts
    assert found.spec.containers is None


def test_an_empty_pod_has_nothing_but_defaults() -> None:
    document: dict[str, Any] = {"items": [{}]}
    assert decode_pods(wire.pod_list(document)) == decode_list("Pod", json.dumps(document).encode())


def test_siblings_share_what_they_have_in_common_and_nothing_else() -> None:
    found = decode_pods(wire.pod_list(pods(pod(), pod(name="cart-2"), pod(labels={"app": "pay"}), pod()))).items
    assert found[0].metadata.labels is found[1].metadata.labels
    assert [each.metadata.labels["app"] for each in found] == ["cart", "cart", "pay", "cart"]
    assert found[2].metadata.annotations == {"a": "b"}


def test_what_follows_a_page_is_known_before_its_pods_are_read() -> None:
    broken = wire.encode("PodList", pods(more="next")) + wire.chunk(2, b"\xff")
    page = PodPage(wire.answer("PodList", broken))
    assert page.continue_token == "next"
    with pytest.raises(ClusterError, match="not a list of Pod"):
        page.page()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x92\xa5\x80", "\U0001f4a5\ufffd"),
    ],
)
def test_a_byte_that_is_no_utf8_is_what_json_makes_of_it(data: bytes, text: str) -> None:
    """As Go's encoding/json: U+FFFD for each byte, and all else stays readable."""
    odd: dict[str, Any] = {"annotations": {"a": data}, "labels": {"b": data}}
    spec = {"nodeName": data, "containers": [{"name": data, "image": "i"}]}
    found = decode_pods(wire.pod_list(pods(pod(), pod(**odd) | {"spec": spec}))).items
    assert found[0].metadata.annotations == {"a": "b"}
    assert (found[1].metadata.annotations, found[1].metadata.labels) == ({"a": text}, {"b": text})
    assert (found[1].spec.node_name, found[1].spec.containers[0].name) == (text, text)
    assert found[1].spec.containers[0].image == "i"


@pytest.mark.parametrize(("key", "length"), [("name", 254), ("namespace", 254), ("uid", 65)])
def test_a_name_that_no_api_server_stores_is_refused_in_both_forms(key: str, length: int) -> None:
    for size, refused in ((length - 1, False), (length, True)):
        document = pods(pod(**{key: "é" * size}))
        assert is_refused(decode_pods, wire.pod_list(document)) is refused
        assert is_refused(partial(decode_list, "Pod"), json.dumps(document).encode()) is refused


def is_refused(decode: Callable[[bytes], ListPage], body: bytes) -> bool:
    try:
        decode(body)
    except ClusterError:
        return True
    return False


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253402300800])
def test_a_time_beyond_the_calendar_is_refused(seconds: int) -> None:
    meta = wire.encode("ObjectMeta", {}) + wire.chunk(8, wire.varint(1 << 3) + wire.varint(seconds))
    with pytest.raises(ClusterError, match="not a list of Pod"):
        decode_pods(wire.answer("PodList", wire.chunk(2, wire.chunk(1, meta))))


def test_a_huge_text_and_a_huge_page_are_read() -> None:
    long = pod(annotations={"a": "x" * 1_000_000})
    found = decode_pods(wire.pod_list(pods(*[pod(name=f"p-{number}") for number in range(3000)], long))).items
    assert len(found) == 3001
    assert len(found[-1].metadata.annotations["a"]) == 1_000_000


WHOLE = wire.pod_list(pods(pod(), pod(deletionTimestamp="2026-06-01T11:00:00Z")))


def test_a_body_that_is_cut_off_anywhere_is_one_line() -> None:
    for length in range(len(WHOLE) - 4):  # the last bytes are the envelope's, and empty
        with pytest.raises(ClusterError, match="not a list of Pod") as caught:
            decode_pods(WHOLE[:length])
        assert "\n" not in str(caught.value)


def refused_in_one_line(body: bytes) -> None:
    """If it is refused at all."""
    try:
        decode_pods(body)
    except ClusterError as error:
        line = str(error)
    else:
        line = ""
    assert "\n" not in line


@MANY
@given(st.integers(len(MAGIC), len(WHOLE) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_bytes_are_a_list_or_a_cluster_error(place: int, data: bytes, gone: int) -> None:
    refused_in_one_line(WHOLE[:place] + data + WHOLE[place + gone :])


@MANY
@given(st.binary(max_size=300))
def test_any_bytes_are_a_list_or_a_cluster_error(data: bytes) -> None:
    for body in (data, MAGIC + data, wire.answer("PodList", data), wire.answer("PodList", wire.chunk(2, data))):
        refused_in_one_line(body)
        decode_status(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        MAGIC,
        wire.answer("Pod", wire.encode("Pod", POD)),
        wire.answer("PodList", b"", version=b"v2"),
        wire.answer("PodList", b"", encoding=b"gzip"),
        wire.status({"message": "no"}),
        MAGIC + b"\x0b" * 100_000,  # groups in groups
    ],
    ids=["empty", "html", "magic", "pod", "version", "encoding", "status", "deep"],
)
def test_anything_else_is_no_list(body: bytes) -> None:
    with pytest.raises(ClusterError, match="not a list of Pod"):
        decode_pods(body)


def test_json_is_not_taken_for_protobuf() -> None:
    assert not is_protobuf(b'{"kind":"PodList"}')
    assert is_protobuf(WHOLE)


STATUSES: list[dict[str, Any]] = [
    {"code": 403, "reason": "Forbidden", "message": 'pods is forbidden: User "u" cannot list resource "pods"'},
    {"code": 410, "reason": "Expired", "message": "too old"},
    {"code": 429, "reason": "TooManyRequests", "message": "later", "details": {"retryAfterSeconds": 7}},
    {
        "code": 429,
        "message": "Cannot evict",
        "details": {"name": "a", "kind": "pods", "causes": [{"reason": "DisruptionBudget", "message": "needs 2"}]},
    },
    {"code": 500, "message": "naïve \u2028", "details": {}},
    {"code": 503},
    {},
]


@pytest.mark.parametrize("document", STATUSES, ids=lambda each: str(each.get("code")))
def test_a_refusal_is_the_same_error_in_both_forms(document: dict[str, Any]) -> None:
    bodies = wire.status(document), json.dumps(document).encode()
    assert decode_status(bodies[0]) == decode_status(bodies[1])
    code = document.get("code", 500)
    first, second = (answer_error(Answer("https://s", "c", "GET /api/v1/pods", code, body)) for body in bodies)
    assert (type(first), str(first), vars(first)) == (type(second), str(second), vars(second))


@pytest.mark.parametrize("body", [b"", b"<html>", MAGIC, MAGIC + b"\xff", WHOLE])
def test_what_is_no_status_says_nothing(body: bytes) -> None:
    assert decode_status(body) is None


def ran(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    return done.stdout.strip()


def test_who_lists_no_pods_does_not_import_protobuf() -> None:
    code = "import sys, remesh.cli.main, remesh.kube.watch; print('google.protobuf' in sys.modules)"
    assert ran(code) == "False"


def test_without_the_c_library_pods_are_asked_for_as_json() -> None:
    code = "from remesh.kube.protobuf import accepted; print(accepted())"
    assert ran(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python") == "application/json"
    assert accepted().startswith("application/vnd.kubernetes.protobuf,")
