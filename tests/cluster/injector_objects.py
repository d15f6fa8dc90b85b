"""The objects of an injector in the clothes of an `InjectorWear`: as its Helm chart would make them, no more."""

from remesh.testbed import InjectorWear
from tests.cluster.api import Object


def service(wear: InjectorWear) -> Object:
    """The Service that the webhook configuration names."""
    port = {"name": "webhook", "port": wear.service_port, "targetPort": wear.target_port, "protocol": "TCP"}
    return {"metadata": {"name": wear.service}, "spec": {"selector": dict(wear.injector_labels), "ports": [port]}}


def deployment(wear: InjectorWear) -> Object:
    """The Deployment behind the Service; its pods go to different nodes where they can."""
    labels = dict(wear.injector_labels)
    apart = {
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"},
    }
    container = {
        "name": "injector",
        "image": "injector:test",
        "ports": [{"name": "webhook", "containerPort": wear.target_port}],
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        },
    }
    return {
        "metadata": {"name": wear.service, "labels": labels},
        "spec": {"replicas": wear.replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def configuration(wear: InjectorWear, ca_bundle: str, address: str | None) -> Object:
    """The MutatingWebhookConfiguration; it calls the Service, or the `address` where the Service cannot be reached."""
    webhook = {
        "name": wear.webhook,
        "clientConfig": _client_config(wear, wear.path, ca_bundle, address),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "failurePolicy": wear.failure_policy,
        "timeoutSeconds": wear.timeout_seconds,
        "sideEffects": wear.side_effects,
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": dict(wear.namespace_selector),
        "objectSelector": dict(wear.object_selector),
    }
    more = [
        {
            **webhook,
            "clientConfig": _client_config(wear, each.get("path", wear.path), ca_bundle, address),
            **{key: value for key, value in each.items() if key != "path"},
        }
        for each in wear.more_webhooks
    ]
    return {"metadata": {"name": wear.configuration}, "webhooks": [webhook, *more]}


def _client_config(wear: InjectorWear, path: str, ca_bundle: str, address: str | None) -> Object:
    if address is not None:
        return {"caBundle": ca_bundle, "url": f"https://{address}{path}"}
    service = {"namespace": wear.namespace, "name": wear.service, "port": wear.service_port, "path": path}
    return {"caBundle": ca_bundle, "service": service}
