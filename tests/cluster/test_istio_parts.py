"""The parts of the test cluster's Istio that need no control plane."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import ClusterError, build, istio_manifest
from tests.cluster.istio_admissions import MUTATION, admission, configurations
from tests.cluster.istio_processes import environment, is_listening
from tests.cluster.istio_revision import istio_wear

CONFIGURATION = "istio-sidecar-injector"
# From a live machine: 127.0.0.1:2379 and 10.128.0.1:15017 listen, 10.128.0.1:15012 has a connection.
TCP_TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:094B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100800A:3AA9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100800A:3AA4 0100800A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
"""


def event(*, mutated: bool, code: int = 201, message: str = "", open_: bool = False, **changes: Any) -> dict[str, Any]:
    text = str(mutated).lower()
    key = f"{MUTATION}round_0_index_2"
    notes = {key: f'{{"configuration":"{CONFIGURATION}","webhook":"namespace.sidecar","mutated":{text}}}'}
    if open_:
        notes[f"failed-open.{key}"] = "namespace.sidecar"
    return {
        "auditID": "a1",
        "requestURI": "/api/v1/namespaces/shop/pods?dryRun=All",
        "objectRef": {"resource": "pods", "namespace": "shop"},
        "user": {"username": "admin"},
        "requestReceivedTimestamp": "2026-11-30T15:52:55.620174Z",
        "stageTimestamp": "2026-11-30T15:52:55.720174Z",
        "responseStatus": {"code": code, "message": message},
        "annotations": notes,
        **changes,
    }


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (event(mutated=True), "injected"),
        (event(mutated=False), "skipped"),
        (event(mutated=False, open_=True), "failed-open"),
        (event(mutated=False, code=400, message='webhook "x" denied the request: no'), "denied"),
        (event(mutated=False, code=500, message="context deadline exceeded"), "error"),
    ],
)
def test_outcome_of_a_call_is_read_from_the_audit_event(told: dict[str, Any], outcome: str) -> None:
    call = admission(told, CONFIGURATION)

    assert call is not None
    assert (call.outcome, call.dry_run, call.namespace, call.name) == (outcome, True, "shop", "")
    assert call.milliseconds == pytest.approx(100)


@pytest.mark.parametrize(
    "told",
    [
        event(mutated=True, annotations={}),
        event(mutated=True, objectRef={"resource": "pods", "namespace": "shop", "subresource": "eviction"}),
        event(mutated=True, objectRef={"resource": "services", "namespace": "shop"}),
    ],
)
def test_what_the_webhooks_did_not_see_is_no_admission(told: dict[str, Any]) -> None:
    assert admission(told, CONFIGURATION) is None
    assert admission(event(mutated=True), "another-configuration") is None


def test_configurations_that_saw_a_pod_are_those_of_every_call() -> None:
    told = event(mutated=True)
    other = '{"configuration":"istio-revision-tag-prod","webhook":"rev.namespace.sidecar","mutated":false}'
    told["annotations"][f"{MUTATION}round_0_index_3"] = other
    assert configurations(told) == {CONFIGURATION, "istio-revision-tag-prod"}
    assert configurations(event(mutated=True, annotations={})) == set()


def test_only_a_listening_socket_of_that_very_address_counts() -> None:
    assert is_listening(TCP_TABLE, "10.128.0.1", 15017)
    assert not is_listening(TCP_TABLE, "10.128.0.1", 15012)
    assert not is_listening(TCP_TABLE, "10.128.0.2", 15017)


def test_environment_is_what_the_pod_says_of_itself() -> None:
    variables = [
        {"name": "REVISION", "value": "default"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "GOMAXPROCS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    pod = {"metadata": {"name": "istiod-1"}, "spec": {"containers": [{"env": variables}]}}
    assert environment(pod) == {"REVISION": "default", "POD_NAME": "istiod-1"}


def test_a_named_revision_has_objects_and_a_selector_of_its_own() -> None:
    default, canary = istio_wear(), istio_wear(revision="canary")
    assert (default.service, default.configuration) == ("istiod", CONFIGURATION)
    assert (canary.service, canary.configuration) == ("istiod-canary", f"{CONFIGURATION}-canary")
    assert canary.ask_label == ("istio.io/rev", "canary")
    assert not canary.injector_labels.items() <= default.injector_labels.items()


def test_istio_is_rendered_once_for_each_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path / "cache"))
    istioctl = tmp_path / "istioctl"
    calls = tmp_path / "calls"
    istioctl.write_text(f"#!/bin/sh\necho \"$@\" >> {calls}\necho 'kind: Service'\necho ---\n")
    istioctl.chmod(0o755)

    for _ in range(2):
        assert istio_manifest.rendered(istioctl, 1) == [{"kind": "Service"}]
    istio_manifest.rendered(istioctl, 2)
    istio_manifest.rendered(istioctl, 1, "canary")

    assert len(calls.read_text().splitlines()) == 3
    assert {path.suffix for path in build.cache_directory("istio").iterdir()} == {".json"}


def test_istioctl_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path / "cache"))
    istioctl = tmp_path / "istioctl"
    istioctl.write_text("#!/bin/sh\necho no such profile >&2\nexit 1\n")
    istioctl.chmod(0o755)

    with pytest.raises(ClusterError, match="no such profile"):
        istio_manifest.rendered(istioctl, 1)


def test_kind_without_a_path_is_named() -> None:
    with pytest.raises(ClusterError, match="rendered a Gateway"):
        istio_manifest.path({"kind": "Gateway", "metadata": {"name": "x"}})
