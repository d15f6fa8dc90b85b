"""The names that the installer gives to the objects of one revision of Istio, and the clothes that go with them."""

import dataclasses
from typing import NamedTuple

from remesh.testbed import InjectorWear
from tests.cluster.istio_processes import WEBHOOK_PORT

NAMESPACE = "istio-system"


class Identity(NamedTuple):
    """A user as the API server knows it."""

    user: str
    groups: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Revision:
    """A revision by its name; the default one has none."""

    name: str = ""

    @property
    def suffix(self) -> str:
        """What follows the names of its objects."""
        return f"-{self.name}" if self.name else ""

    @property
    def service(self) -> str:
        """Its Service, and its Deployment."""
        return f"istiod{self.suffix}"

    @property
    def configuration(self) -> str:
        """Its MutatingWebhookConfiguration."""
        return f"istio-sidecar-injector{self.suffix}"

    @property
    def templates(self) -> str:
        """The ConfigMap with its injector's templates."""
        return f"istio-sidecar-injector{self.suffix}"

    @property
    def role(self) -> str:
        """The ClusterRole of its istiod."""
        return f"istiod-clusterrole{self.suffix}-{NAMESPACE}"

    @property
    def identity(self) -> Identity:
        """The service account of its istiod's Deployment, and so the rights that Istio's own roles give it."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
        return Identity(f"system:serviceaccount:{NAMESPACE}:{self.service}", groups)


DEFAULT = Revision()

# Of the four webhooks the one that sees the pods of a namespace labelled istio-injection=enabled.
ISTIO_WEAR = InjectorWear(
    mesh="istio",
    configuration=DEFAULT.configuration,
    webhook="namespace.sidecar-injector.istio.io",
    namespace=NAMESPACE,
    service=DEFAULT.service,
    service_port=443,
    target_port=WEBHOOK_PORT,
    path="/inject",
    injector_labels={"app": "istiod", "istio": "pilot"},
    namespace_selector={
        "matchExpressions": [{"key": "istio-injection", "operator": "In", "values": ["enabled"]}],
    },
    object_selector={
        "matchExpressions": [{"key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"]}],
    },
    ask_annotation=None,
    ask_label=("istio-injection", "enabled"),
    sidecar="istio-proxy",
    # The annotation sidecar.istio.io/status is there too, but its value is another one for every template.
    mark_annotations={},
    mark_labels={"security.istio.io/tlsMode": "istio"},
)


def istio_wear(replicas: int = 1, revision: str = "") -> InjectorWear:
    """Istio's clothes, with this many replicas of istiod, each on its own node.

    Of a named revision: the webhook of its two that sees the pods of a namespace labelled istio.io/rev.
    """
    if not revision:
        return dataclasses.replace(ISTIO_WEAR, replicas=replicas)
    its = Revision(revision)
    asked = {"key": "istio.io/rev", "operator": "In", "values": [revision]}
    return dataclasses.replace(
        ISTIO_WEAR,
        replicas=replicas,
        configuration=its.configuration,
        webhook="rev.namespace.sidecar-injector.istio.io",
        service=its.service,
        injector_labels={"app": "istiod", "istio.io/rev": revision},
        namespace_selector={"matchExpressions": [asked]},
        ask_label=("istio.io/rev", revision),
        mark_annotations={"istio.io/rev": revision},
    )
