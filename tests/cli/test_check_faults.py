"""`remesh check` against each fault by its name: the check that has to find it finds it, and the exit code tells."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remesh.sim import SimCluster
from remesh.testbed import Fault, TestBed
from tests.cli.conftest import ROOT, Remesh
from tests.cli.tls import DAY, bundle, issued, serving
from tests.client import Client
from tests.cluster import RealCluster, pki
from tests.cluster.injector import Injector
from tests.cluster.served import CONFIGURATIONS
from tests.stack import wait_until

pytestmark = pytest.mark.timeout(240)
Found = dict[str, tuple[str, str]]  # state and text by the check's id; the worst where there are several
WORST = ("ok", "skipped", "warning", "failed")


@pytest.fixture
def asking(client: Client, bed: TestBed) -> Iterator[str]:
    """A namespace that asks for the sidecar, for the dry run."""
    name = f"check-{secrets.token_hex(3)}"
    client.create_meshed_namespace(name, bed.wear)
    yield name
    client.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def configuration(client: Client, bed: TestBed) -> Iterator[str]:
    """Path of the webhook configuration, which is put back afterwards."""
    place = f"{CONFIGURATIONS}/{bed.wear.configuration}"
    before = client.api.get(place)["webhooks"]
    yield place
    client.api.put(place, {**client.api.get(place), "webhooks": before})


@pytest.fixture
def check(remesh: Remesh, bed: TestBed, asking: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Found]:
    """Runs the command without Redis, and checks that its exit code fits what it found."""
    monkeypatch.delenv("REMESH_REDIS_URL")
    remesh.set(REMESH_KUBECONFIG=bed.kubeconfig)

    def run(*arguments: str) -> Found:
        answer = remesh("check", "-o", "json", *arguments)
        found = by_id(json.loads(answer.out))
        assert answer.code == int(any(state == "failed" for state, _ in found.values()))
        return found

    return run


def by_id(document: Any) -> Found:
    found: Found = {}
    for each in document["items"]:
        known = found.get(each["name"], ("ok", ""))
        if WORST.index(each["state"]) >= WORST.index(known[0]):
            found[each["name"]] = (each["state"], each["text"])
    return found


def failed(found: Found) -> set[str]:
    return {name for name, (state, _) in found.items() if state == "failed"}


def test_a_healthy_injector_passes(check: Callable[..., Found], bed: TestBed) -> None:
    found = check()
    assert failed(found) == set()
    assert found["dry-run"][0] == "ok"
    assert found["ca-bundle"][0] == "ok"
    assert "the API server trusts it" in found["served-certificate"][1]
    assert found["injector-replicas"] == ("warning", "1 replica, 1 Ready: it is away whenever that one is")
    assert found["kube-system"][0] == found["own-namespace"][0] == found["overlapping-webhooks"][0] == "ok"


def test_wrong_ca(check: Callable[..., Found], bed: TestBed) -> None:
    bed.inject_fault(Fault.WRONG_CA)
    found = check()
    assert failed(found) == {"served-certificate", "dry-run"}
    assert "unknown authority" in found["served-certificate"][1]


def test_no_endpoints(check: Callable[..., Found], bed: TestBed) -> None:
    bed.inject_fault(Fault.NO_ENDPOINTS)
    found = check()
    assert failed(found) == {"injector-endpoints", "dry-run"}
    assert "0 of 0 endpoints ready" in found["injector-endpoints"][1]


def test_node_lost(check: Callable[..., Found], bed: TestBed) -> None:
    bed.inject_fault(Fault.NODE_LOST)
    found = check()
    assert {"injector-endpoints", "injector-nodes"} <= failed(found)
    assert "not Ready below its replicas" in found["injector-nodes"][1]


def test_killed(check: Callable[..., Found], bed: TestBed) -> None:
    bed.inject_fault(Fault.KILLED)
    found = check()
    assert failed(found) == {"dry-run"}
    assert found["served-certificate"][0] == "skipped"


def test_kube_system_not_excluded(
    check: Callable[..., Found], client: Client, bed: TestBed, configuration: str
) -> None:
    client.change_webhooks(bed.wear.configuration, namespaceSelector={}, objectSelector={})
    found = check()
    assert {"kube-system", "own-namespace"} <= failed(found)
    assert f"{bed.wear.configuration}/{bed.wear.webhook} with failurePolicy Fail" in found["kube-system"][1]
    client.change_webhooks(bed.wear.configuration, failurePolicy="Ignore")
    found = check()
    assert found["kube-system"][0] == found["own-namespace"][0] == found["failure-policy"][0] == "warning"


def test_a_service_or_port_that_is_not_there(
    check: Callable[..., Found], client: Client, bed: TestBed, configuration: str
) -> None:
    def point_to(**changes: Any) -> None:
        body = client.api.get(configuration)
        for webhook in body["webhooks"]:
            webhook["clientConfig"]["service"] = {
                "namespace": bed.wear.namespace,
                "name": bed.wear.service,
                "path": "/",
                **changes,
            }
            webhook["clientConfig"].pop("url", None)
        client.api.put(configuration, body)

    point_to(name="gone", port=443)
    found = check()
    assert found["injector-service"][0] == "failed"
    assert "linkerd/gone that its webhook names is not there" in found["injector-service"][1]
    point_to(port=8443)
    assert "has no port 8443 that its webhook names; it has 443" in check()["injector-service"][1]


def test_two_webhooks_that_inject_the_same_pods(
    check: Callable[..., Found], client: Client, bed: TestBed, configuration: str
) -> None:
    body = client.api.get(configuration)
    second = f"{bed.wear.configuration}-second"
    client.api.post(CONFIGURATIONS, {"metadata": {"name": second}, "webhooks": body["webhooks"]})
    try:
        state, text = check()["overlapping-webhooks"]
    finally:
        client.api.delete(f"{CONFIGURATIONS}/{second}")
    assert state == "warning"
    assert f"{second}/{bed.wear.webhook}, and each injects" in text


def test_an_empty_bundle(check: Callable[..., Found], client: Client, bed: TestBed, configuration: str) -> None:
    body = client.api.get(configuration)
    for webhook in body["webhooks"]:
        webhook["clientConfig"].pop("caBundle")
    client.api.put(configuration, body)
    assert "ca-bundle" in failed(check())


def test_waiting_ends_as_soon_as_nothing_fails(check: Callable[..., Found], bed: TestBed) -> None:
    from threading import Timer

    bed.inject_fault(Fault.KILLED)
    timer = Timer(1.0, bed.heal)
    timer.start()
    try:
        assert failed(check("--wait", "100")) == set()
    finally:
        timer.join()


# The certificate, seen from where its server can be reached


@pytest.mark.parametrize(
    ("names", "since", "until", "words"),
    [
        (["127.0.0.1"], -DAY, 30 * DAY, ""),
        (["127.0.0.1"], -3 * DAY, -DAY, "has expired"),
        (["injector.elsewhere.svc"], -DAY, 30 * DAY, "is not for 127.0.0.1; it is issued by 'web'"),
    ],
    ids=["right", "expired", "wrong-name"],
)
def test_a_webhook_with_a_url_is_looked_at_directly(
    remesh: Remesh, sim_cluster: SimCluster, tmp_path: Path, names: list[str], since: Any, until: Any, words: str
) -> None:
    authority = pki.authority("web")
    hook = {
        "name": "istio.sidecar-injector.istio.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {"nobody": "has"}},
    }
    client = Client(sim_cluster.kubeconfig)
    with serving(issued(authority, names, since=since, until=until), tmp_path) as port:
        reach = {"url": f"https://127.0.0.1:{port}/inject", "caBundle": bundle(authority)}
        body = {"metadata": {"name": "istio-sidecar-injector"}, "webhooks": [{**hook, "clientConfig": reach}]}
        client.api.post(CONFIGURATIONS, body)
        try:
            answer = remesh("check", "--kubeconfig", sim_cluster.kubeconfig, "-o", "json")
        finally:
            client.api.delete(f"{CONFIGURATIONS}/istio-sidecar-injector")
            client.close()
    (each,) = [
        item
        for item in json.loads(answer.out)["items"]
        if item["name"] == "served-certificate" and item["subject"].startswith("istio")
    ]
    assert each["state"] == ("failed" if words else "ok"), each
    assert words in each["text"]
    assert f"127.0.0.1:{port}" in each["subject"]


@pytest.fixture
def inside(real_cluster: RealCluster) -> Iterator[Callable[[], Found]]:
    """`remesh check --direct` in the cluster's own network, where pods' addresses can be reached."""
    namespace = real_cluster.network_namespace
    enter = ["nsenter", f"--net={namespace}"] if namespace and real_cluster.network.kind == "root" else []
    if namespace and not enter:
        pytest.skip("the cluster's network can be entered by root only")
    real_cluster.create_namespace(asking := f"check-{secrets.token_hex(3)}")

    def run() -> Found:
        done = subprocess.run(
            [*enter, sys.executable, "-m", "remesh", "check", "--direct", "-o", "json"],
            cwd=ROOT,
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith("REMESH_")},
                "REMESH_KUBECONFIG": str(real_cluster.kubeconfig),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout, done.stderr
        return by_id(json.loads(done.stdout))

    yield run
    real_cluster.api.delete(f"/api/v1/namespaces/{asking}")


@pytest.fixture
def serve(real_cluster: RealCluster) -> Iterator[Callable[..., None]]:
    """Restarts the injector with another certificate of its own authority; puts the right one back."""
    injector = real_cluster.injector
    assert isinstance(injector, Injector)
    folder = injector._webhooks._directory
    before = {name: (folder / name).read_bytes() for name in ("tls.crt", "tls.key")}

    def restart() -> None:
        real_cluster.inject_fault(Fault.KILLED)
        wait_until(lambda: not set(injector.process_names()) & set(real_cluster.pids()), "the injector to end")
        injector._sync(injector.wear.replicas)

    def changed(names: list[str], **dates: Any) -> None:
        issued(injector._ca, names, **dates).write(folder, "tls")
        restart()

    yield changed
    for name, content in before.items():
        (folder / name).write_bytes(content)
    restart()
    real_cluster.heal()


@pytest.mark.real
def test_inside_the_cluster_the_served_certificate_is_described(inside: Callable[[], Found]) -> None:
    state, text = inside()["served-certificate"]
    assert state == "ok", text
    assert "issued by 'injector', for linkerd-proxy-injector.linkerd.svc" in text


@pytest.mark.real
@pytest.mark.parametrize(
    ("names", "dates", "inside_words", "outside_words"),
    [
        (["linkerd-proxy-injector.linkerd.svc", "127.0.0.1"], {"since": -3 * DAY, "until": -DAY}, "expired", "expired"),
        (["other.linkerd.svc"], {}, "is not for", "certificate is valid for other.linkerd.svc"),
    ],
    ids=["expired", "wrong-name"],
)
def test_a_wrong_certificate_is_found_from_inside_and_from_outside(
    serve: Callable[..., None],
    inside: Callable[[], Found],
    remesh: Remesh,
    real_cluster: RealCluster,
    names: list[str],
    dates: dict[str, Any],
    inside_words: str,
    outside_words: str,
) -> None:
    serve(names, **dates)
    found = inside()
    assert {"served-certificate", "dry-run"} <= failed(found)
    assert inside_words in found["served-certificate"][1]
    assert "valid until" in found["served-certificate"][1]
    answer = remesh("check", "--kubeconfig", real_cluster.kubeconfig, "-o", "json")
    assert answer.code == 1
    assert outside_words in by_id(json.loads(answer.out))["served-certificate"][1]


@pytest.mark.real
def test_an_injector_that_hangs_is_not_checked_from_inside(
    inside: Callable[[], Found], real_cluster: RealCluster
) -> None:
    real_cluster.inject_fault(Fault.FROZEN)
    try:
        found = inside()
    finally:
        real_cluster.heal()
    assert found["served-certificate"][0] == "skipped"
    assert "does not answer within 2 s" in found["served-certificate"][1]
    assert "dry-run" in failed(found)
