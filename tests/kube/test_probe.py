"""A dry run's answer, judged."""

import pytest

from remesh.errors import (
    ClusterUnreachable,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    RemeshError,
    Throttled,
    Unauthorized,
)
from remesh.kube.api import Cluster, DryRun
from remesh.kube.probe import judge, probe
from remesh.models import FailureClass, ObjectRef, Probe
from remesh.objects import Container, Pod, PodSpec
from remesh.policy import GatePolicy
from tests.kube.server import ScriptedServer, answer


class Sidecar:
    name = "linkerd"

    def injected(self, pod: Pod) -> bool:
        return any(container.name == "linkerd-proxy" for container in pod.spec.init_containers or ())


BARE = Pod(spec=PodSpec(containers=[Container(name="app")]))
INJECTED = Pod(spec=PodSpec(init_containers=[Container(name="linkerd-proxy")]))
REFUSED_CALL = 'failed calling webhook "w": failed to call webhook: dial tcp 10.0.0.1:443: connect: connection refused'


def failed(error: RemeshError, message: str = "") -> DryRun:
    return DryRun(None, 0.5, error, message or str(error))


@pytest.mark.parametrize(
    ("reply", "verdict", "code", "failure_class"),
    [
        (DryRun(INJECTED, 0.1), Probe.PASSES, "sidecar_in_reply", FailureClass.HEALTHY),
        (DryRun(INJECTED, 2.1), Probe.FAILS, "too_slow", FailureClass.WEBHOOK_TIMEOUT),
        (DryRun(BARE, 0.1), Probe.FAILS, "no_sidecar", FailureClass.MISSING_SIDECAR),
        (
            failed(Rejected("line", status=500), REFUSED_CALL),
            Probe.FAILS,
            "webhook_connection_refused",
            FailureClass.WEBHOOK_CONNECTION_REFUSED,
        ),
        (
            failed(
                ClusterUnreachable("line", status=504), "Timeout: request did not complete within the allotted timeout"
            ),
            Probe.FAILS,
            "too_slow",
            FailureClass.API_TIMEOUT,
        ),
        (
            failed(Rejected("line", status=400), 'admission webhook "w" does not support dry run'),
            Probe.UNKNOWN,
            "dry_run_unsupported",
            FailureClass.UNKNOWN_API_ERROR,
        ),
        (failed(ClusterUnreachable("refused")), Probe.UNKNOWN, "api_unreachable", FailureClass.UNKNOWN_API_ERROR),
        (failed(NotFound("gone")), Probe.UNKNOWN, "owner_gone", FailureClass.UNKNOWN_API_ERROR),
        (failed(Forbidden("no")), Probe.UNKNOWN, "no_right", FailureClass.UNKNOWN_API_ERROR),
        (failed(Unauthorized("no")), Probe.UNKNOWN, "no_credentials", FailureClass.UNKNOWN_API_ERROR),
        (failed(Throttled("busy")), Probe.UNKNOWN, "throttled", FailureClass.UNKNOWN_API_ERROR),
        (failed(Conflict("again")), Probe.UNKNOWN, "conflict", FailureClass.UNKNOWN_API_ERROR),
    ],
)
def test_only_a_sidecar_in_a_timely_reply_passes(
    reply: DryRun, verdict: Probe, code: str, failure_class: FailureClass
) -> None:
    result = judge(reply, Sidecar(), latency_seconds=2.0)
    assert (result.probe, result.code, result.failure_class) == (verdict, code, failure_class)
    assert result.reason


def test_the_api_server_gets_a_deadline_just_past_the_bound(server: ScriptedServer) -> None:
    owner = {"kind": "ReplicaSet", "metadata": {"name": "cart", "uid": "u"}, "spec": {"template": {"spec": {}}}}
    server.on("other", answer(owner), answer({"spec": {"initContainers": [{"name": "linkerd-proxy"}]}}))
    ref = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="cart")
    result = probe(Cluster(server.client()), ref, Sidecar(), GatePolicy(latency_seconds=2))
    assert result.probe is Probe.PASSES
    assert server.seen[1].params["timeout"] == "3000ms"
