"""What the demo, the tests and the benchmarks need of a cluster, whichever kind it is.

Two clusters fulfil `TestBed`: the simulated API server of `remesh.sim`, and the real control plane that the
project's tests build (`tests.cluster`). The same scenarios run against both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

DRY_RUN_ONLY = ("test.remesh.dev/inject", "dry-run-only")
"""Label of pods that a test bed's injector injects in dry runs only: what they promise is not kept."""


class Fault(StrEnum):
    """A way for an injector to fail, by the name that command lines and tests use."""

    FROZEN = "frozen"  # accepts the connection, never answers: a hang, or a lost node
    KILLED = "killed"  # connection refused
    SLOW = "slow"  # answers after N milliseconds
    ERROR_500 = "error-500"  # answers HTTP 500
    DENYING = "denying"  # answers allowed: false
    NOT_INJECTING = "not-injecting"  # answers allowed: true, without a patch
    WRONG_CA = "wrong-ca"  # caBundle in the webhook configuration does not match the served certificate
    NO_ENDPOINTS = "no-endpoints"  # the injector's Service has no endpoint
    NODE_LOST = "node-lost"  # the node of one injector replica goes NotReady and the replica does not answer


@dataclass(frozen=True, slots=True)
class InjectorWear:
    """Names, selectors and marks of the injector that a test bed runs: the clothes of one real mesh."""

    mesh: str = "linkerd"
    configuration: str = "linkerd-proxy-injector-webhook-config"
    webhook: str = "linkerd-proxy-injector.linkerd.io"
    namespace: str = "linkerd"
    service: str = "linkerd-proxy-injector"
    service_port: int = 443
    target_port: int = 8443
    path: str = "/"
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 10
    side_effects: str = "None"
    replicas: int = 1
    injector_labels: Mapping[str, str] = field(
        default_factory=lambda: {"linkerd.io/control-plane-component": "proxy-injector"}
    )
    namespace_selector: Mapping[str, Any] = field(
        default_factory=lambda: {
            "matchExpressions": [
                {"key": "config.linkerd.io/admission-webhooks", "operator": "NotIn", "values": ["disabled"]},
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "cert-manager"],
                },
            ]
        }
    )
    object_selector: Mapping[str, Any] = field(
        default_factory=lambda: {
            "matchExpressions": [
                {"key": "linkerd.io/control-plane-component", "operator": "DoesNotExist"},
                {"key": "linkerd.io/cni-resource", "operator": "DoesNotExist"},
            ]
        }
    )
    # Further webhooks of the same configuration: what differs from the first one, by Kubernetes' names of the fields.
    # `path` stands for another path of the same Service.
    more_webhooks: Sequence[Mapping[str, Any]] = ()
    # A pod is injected when it, or else its namespace, carries this annotation with this value. Without any key to ask
    # by, whatever the selectors let through is injected.
    ask_annotation: tuple[str, str] | None = ("linkerd.io/inject", "enabled")
    ask_label: tuple[str, str] | None = None
    namespace_asks: bool = True  # False: only the pod's own word counts
    refuse_annotation: tuple[str, str] | None = None  # on the pod; goes before everything that asks
    creators: Sequence[str] = ()  # users whose pods are injected; others' are let through bare; empty: everybody's
    sidecar: str = "linkerd-proxy"  # "": nothing but the marks
    native_sidecar: bool = True
    mark_annotations: Mapping[str, str] = field(default_factory=lambda: {"linkerd.io/proxy-version": "test"})
    mark_labels: Mapping[str, str] = field(default_factory=lambda: {"linkerd.io/control-plane-ns": "linkerd"})


class TestBed(Protocol):
    """A running cluster with one controllable injector, and ways to break it.

    All methods return when the change is in force on the API server's side.
    """

    kind: Literal["real", "sim"]
    kubeconfig: Path
    wear: InjectorWear

    def inject_fault(self, fault: Fault, *, delay_ms: int = 0) -> None:
        """Break the injector. Faults add up until `heal`. `delay_ms` is for `Fault.SLOW` only."""

    def heal(self) -> None:
        """End all faults: the injector answers again, with the right certificate, on all its endpoints."""

    def stop(self) -> None:
        """End every process that was started, and remove every file. Calling it twice is harmless."""


# The name starts with Test, and pytest would try to collect it. Not in the class: there it would be one more
# member that every test bed must have.
setattr(TestBed, "__test__", False)  # noqa: B010
