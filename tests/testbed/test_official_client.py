"""The official Python client, as remesh uses it, finds nothing missing."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import kubernetes
import pytest

from remesh.testbed import TestBed
from tests.cluster import workloads

# The client's types change with its version; what is sent and received does not.
client: Any = kubernetes.client
config: Any = kubernetes.config
watch: Any = kubernetes.watch


@pytest.fixture
def official(testbed: TestBed) -> Iterator[Any]:
    found = config.new_client_from_config(str(testbed.kubeconfig))
    yield found
    found.rest_client.pool_manager.clear()


def is_ready(pod: Any) -> bool:
    return any(entry.type == "Ready" and entry.status == "True" for entry in pod.status.conditions or ())


def test_lists_creates_patches_and_evicts(official: Any, namespace: str, testbed: TestBed) -> None:
    core, apps = client.CoreV1Api(official), client.AppsV1Api(official)
    rehearsed = core.create_namespaced_pod(namespace, workloads.pod("dry"), dry_run="All")
    assert testbed.wear.sidecar in [container.name for container in rehearsed.spec.init_containers]

    apps.create_namespaced_replica_set(namespace, workloads.replica_set("web", 2))
    with closing(watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=30)) as events:
        assert any(is_ready(event["object"]) for event in events)

    body = {"metadata": {"annotations": {"note": "1"}}}
    assert apps.patch_namespaced_replica_set("web", namespace, body).metadata.annotations == {"note": "1"}
    name = core.list_namespaced_pod(namespace).items[0].metadata.name
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
    core.create_namespaced_pod_eviction(name, namespace, eviction)
    with pytest.raises(client.ApiException) as refused:
        core.read_namespaced_pod("nobody", namespace)
    assert refused.value.status == 404


def test_asks_for_its_rights_and_the_version(official: Any) -> None:
    attributes = client.V1ResourceAttributes(verb="list", resource="pods")
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    review = client.V1SelfSubjectAccessReview(spec=spec)

    assert client.AuthorizationV1Api(official).create_self_subject_access_review(review).status.allowed
    assert client.VersionApi(official).get_code().major == "1"


def test_reads_all_that_remesh_watches(official: Any) -> None:
    core, apps, batch = client.CoreV1Api(official), client.AppsV1Api(official), client.BatchV1Api(official)
    for read in (
        core.list_namespace,
        core.list_node,
        core.list_pod_for_all_namespaces,
        core.list_event_for_all_namespaces,
        core.list_replication_controller_for_all_namespaces,
        apps.list_deployment_for_all_namespaces,
        apps.list_replica_set_for_all_namespaces,
        apps.list_stateful_set_for_all_namespaces,
        apps.list_daemon_set_for_all_namespaces,
        batch.list_job_for_all_namespaces,
        batch.list_cron_job_for_all_namespaces,
        client.AdmissionregistrationV1Api(official).list_mutating_webhook_configuration,
        client.DiscoveryV1Api(official).list_endpoint_slice_for_all_namespaces,
        client.PolicyV1Api(official).list_pod_disruption_budget_for_all_namespaces,
        client.CoordinationV1Api(official).list_lease_for_all_namespaces,
    ):
        assert read(limit=5).metadata.resource_version


def test_lease_is_taken_with_its_version(official: Any, namespace: str) -> None:
    leases = client.CoordinationV1Api(official)
    spec = client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=15)
    lease = leases.create_namespaced_lease(namespace, client.V1Lease(metadata={"name": "leader"}, spec=spec))
    lease.spec.holder_identity = "b"
    leases.replace_namespaced_lease("leader", namespace, lease)
    lease.spec.holder_identity = "c"
    with pytest.raises(client.ApiException) as refused:
        leases.replace_namespaced_lease("leader", namespace, lease)
    assert refused.value.status == 409
