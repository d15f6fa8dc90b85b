"""The clothes of every mesh that has a profile: what its Helm chart installs, for the controllable injector.

Names, selectors, paths and marks are those of the charts as of mid-2026, `failurePolicy` is each mesh's own default.
Only the time-out is shorter than theirs (10 s), so that a test of a hanging injector does not take minutes.
"""

from dataclasses import replace
from typing import Any

from remesh.testbed import InjectorWear

# The shortest that leaves a busy machine time to answer; a hanging injector costs every creation this long.
WEBHOOK_TIMEOUT_SECONDS = 2
# Ten times the default, so that a Deployment of 1000 takes seconds and not a minute.
CONTROLLER_QPS = 200
# The pauses double from 5 ms: a controller tries 20.5 s after the first failure, and then not before 41 s. In between a
# nudge is what makes it try, even where gate and worker are late on a busy machine.
IN_BACK_OFF_SECONDS = 21.5


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    """One requirement of a label selector."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def selector(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A label selector of these requirements; without any it selects everything."""
    return {"matchExpressions": list(expressions)} if expressions else {}


def rules(group: str, version: str, *resources: str) -> list[dict[str, Any]]:
    """The rules of a webhook for these resources."""
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"],
            "resources": list(resources),
        }
    ]


LINKERD = InjectorWear(failure_policy="Ignore", timeout_seconds=WEBHOOK_TIMEOUT_SECONDS)

_NOT_REFUSED = expression("sidecar.istio.io/inject", "NotIn", "false")
_NO_LABEL = expression("istio-injection", "DoesNotExist")
_NO_REVISION = expression("istio.io/rev", "DoesNotExist")

ISTIO = InjectorWear(
    mesh="istio",
    configuration="istio-sidecar-injector",
    webhook="namespace.sidecar-injector.istio.io",
    namespace="istio-system",
    service="istiod",
    target_port=15017,
    path="/inject",
    failure_policy="Fail",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app": "istiod", "istio": "pilot"},
    namespace_selector=selector(expression("istio-injection", "In", "enabled")),
    object_selector=selector(_NOT_REFUSED),
    more_webhooks=(
        {
            "name": "rev.namespace.sidecar-injector.istio.io",
            "namespaceSelector": selector(expression("istio.io/rev", "In", "default"), _NO_LABEL),
        },
        {
            "name": "rev.object.sidecar-injector.istio.io",
            "namespaceSelector": selector(_NO_REVISION, _NO_LABEL),
            "objectSelector": selector(_NOT_REFUSED, expression("istio.io/rev", "In", "default")),
        },
        {
            "name": "object.sidecar-injector.istio.io",
            "namespaceSelector": selector(_NO_LABEL, _NO_REVISION),
            "objectSelector": selector(expression("sidecar.istio.io/inject", "In", "true"), _NO_REVISION),
        },
    ),
    ask_annotation=None,
    refuse_annotation=("sidecar.istio.io/inject", "false"),
    sidecar="istio-proxy",
    mark_annotations={"sidecar.istio.io/status": '{"revision":"default"}'},
    mark_labels={"security.istio.io/tlsMode": "istio"},
)

# Dapr injects only what these created; anybody else's pods come up bare, and so do remesh's own dry runs.
_DAPR_CREATORS = tuple(
    f"system:serviceaccount:kube-system:{name}"
    for name in (
        "replicaset-controller",
        "replication-controller",
        "deployment-controller",
        "statefulset-controller",
        "daemon-set-controller",
        "job-controller",
        "cronjob-controller",
    )
)

DAPR = InjectorWear(
    mesh="dapr",
    configuration="dapr-sidecar-injector",
    webhook="sidecar-injector.dapr.io",
    namespace="dapr-system",
    service="dapr-sidecar-injector",
    target_port=4000,
    path="/mutate",
    failure_policy="Ignore",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app": "dapr-sidecar-injector"},
    namespace_selector={},
    object_selector={},
    ask_annotation=("dapr.io/enabled", "true"),
    namespace_asks=False,
    creators=_DAPR_CREATORS,
    sidecar="daprd",
    native_sidecar=False,
    mark_annotations={},
    mark_labels={"dapr.io/sidecar-injected": "true"},
)

VAULT = InjectorWear(
    mesh="vault",
    configuration="vault-agent-injector-cfg",
    webhook="vault.hashicorp.com",
    namespace="vault",
    service="vault-agent-injector-svc",
    target_port=8080,
    path="/mutate",
    failure_policy="Ignore",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app.kubernetes.io/name": "vault-agent-injector", "component": "webhook"},
    namespace_selector={},
    object_selector=selector(expression("app.kubernetes.io/name", "NotIn", "vault-agent-injector")),
    ask_annotation=("vault.hashicorp.com/agent-inject", "true"),
    namespace_asks=False,
    sidecar="vault-agent",
    native_sidecar=False,
    mark_annotations={"vault.hashicorp.com/agent-inject-status": "injected"},
    mark_labels={},
)

# As with agent-pre-populate-only and the secrets already there: nothing but the annotation tells of the injection.
VAULT_MARK_ONLY = replace(VAULT, sidecar="")

CONSUL = InjectorWear(
    mesh="consul",
    configuration="consul-connect-injector",
    webhook="consul-connect-injector.consul.hashicorp.com",
    namespace="consul",
    service="consul-connect-injector",
    target_port=8080,
    path="/mutate",
    failure_policy="Fail",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app": "consul", "component": "connect-injector"},
    namespace_selector=selector(
        expression(
            "kubernetes.io/metadata.name",
            *("NotIn", "kube-system", "kube-public", "local-path-storage", "openebs", "consul"),
        )
    ),
    object_selector={},
    ask_annotation=("consul.hashicorp.com/connect-inject", "true"),
    namespace_asks=False,
    sidecar="consul-dataplane",
    native_sidecar=False,
    mark_annotations={"consul.hashicorp.com/connect-inject-status": "injected"},
    mark_labels={"consul.hashicorp.com/connect-inject-status": "injected"},
)

_KUMA_ASKS = selector(expression("kuma.io/sidecar-injection", "In", "enabled", "true"))

KUMA = InjectorWear(
    mesh="kuma",
    configuration="kuma-admission-mutating-webhook-configuration",
    webhook="namespace-kuma-injector.kuma.io",
    namespace="kuma-system",
    service="kuma-control-plane",
    target_port=5443,
    path="/inject-sidecar",
    failure_policy="Fail",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app": "kuma-control-plane"},
    namespace_selector=_KUMA_ASKS,
    object_selector={},
    more_webhooks=(
        {"name": "pods-kuma-injector.kuma.io", "namespaceSelector": {}, "objectSelector": _KUMA_ASKS},
        # Behind the same Service, and nothing to do with pods.
        {
            "name": "mesh.defaulter.kuma-admission.kuma.io",
            "path": "/default-kuma-io-v1alpha1-mesh",
            "namespaceSelector": {},
            "rules": rules("kuma.io", "v1alpha1", "meshes", "meshgateways"),
        },
    ),
    ask_annotation=None,
    ask_label=("kuma.io/sidecar-injection", "enabled"),
    sidecar="kuma-sidecar",
    mark_annotations={"kuma.io/sidecar-injected": "true"},
    mark_labels={},
)

OPENTELEMETRY = InjectorWear(
    mesh="opentelemetry",
    configuration="opentelemetry-operator-mutation",
    webhook="mpod.kb.io",
    namespace="opentelemetry-operator-system",
    service="opentelemetry-operator-webhook",
    target_port=9443,
    path="/mutate-v1-pod",
    failure_policy="Ignore",
    timeout_seconds=WEBHOOK_TIMEOUT_SECONDS,
    injector_labels={"app.kubernetes.io/name": "opentelemetry-operator"},
    namespace_selector={},
    object_selector={},
    more_webhooks=(
        # Behind the same Service, and nothing to do with pods.
        {
            "name": "minstrumentation.kb.io",
            "path": "/mutate-opentelemetry-io-v1alpha1-instrumentation",
            "failurePolicy": "Fail",
            "rules": rules("opentelemetry.io", "v1alpha1", "instrumentations"),
        },
    ),
    ask_annotation=("sidecar.opentelemetry.io/inject", "true"),
    sidecar="otc-container",
    native_sidecar=False,
    mark_annotations={},
    mark_labels={"sidecar.opentelemetry.io/injected": "injected"},
)
