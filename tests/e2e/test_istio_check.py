"""`remesh check` on the real, unmodified Istio: its four webhooks, two replicas and its certificate are right."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.istio import IstioCluster
from tests.cluster.served import CONFIGURATIONS
from tests.stack import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


DEFAULT_REVISION = "istio (istio-system/istiod)"


def check(cluster: IstioCluster, *enter: str) -> dict[str, Any]:
    """What it found of the default revision's injector and of all injectors, by the check's id."""
    settings = {"REMESH_KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(
        [*enter, sys.executable, "-m", "remesh", "check", "-o", "json", *(["--direct"] if enter else [])],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("REMESH_")} | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    items = json.loads(done.stdout)["items"]
    about = ("", DEFAULT_REVISION)  # another test may have installed one more
    return {item["name"]: item for item in items if item["group"].startswith("Injector") and item["subject"] in about}


def counted(cluster: IstioCluster) -> str:
    """How many injectors and webhooks there are, as the API server has them."""
    hooks = [hook for each in cluster.api.get(CONFIGURATIONS)["items"] for hook in each["webhooks"]]
    injectors = {hook["clientConfig"]["service"]["name"] for hook in hooks}
    return f"{len(injectors)} injector{'s' if len(injectors) > 1 else ''} with {len(hooks)} webhooks"


def test_istio_as_it_comes_passes_every_check_of_an_injector(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    found = check(istio_cluster)
    assert {item["state"] for item in found.values()} == {"ok"}, found
    assert found["injectors-found"]["text"] == counted(istio_cluster)
    assert "PodDisruptionBudget istiod" in found["injector-budget"]["text"]


def test_istiods_own_certificate_is_seen_at_both_replicas(istio_cluster: IstioCluster, istio_namespace: str) -> None:
    if istio_cluster.network.kind != "root":
        pytest.skip("the cluster's network can be entered by root only")
    served = check(istio_cluster, "nsenter", f"--net={istio_cluster.network_namespace}")["served-certificate"]
    assert served["state"] == "ok", served
    assert "istiod.istio-system.svc, valid until" in served["text"]
    assert "at all 2 endpoints" in served["text"]
