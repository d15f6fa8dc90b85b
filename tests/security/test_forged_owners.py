"""Whatever a pod says of its owner: nothing of it counts for an owner that is somebody else's, and no pod is lost."""

from dataclasses import replace

import pytest

from remesh.errors import NotFound
from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient
from remesh.models import Action, RecordType, Result
from remesh.objects import ObjectMeta, OwnerReference, Pod
from remesh.policy import Policy
from remesh.sim import SimCluster
from tests.client import Client
from tests.cluster import workloads as w
from tests.watcher.test_runtime import LONG_AGO, PASSES, World, pod, replica_set
from tests.workers import recreate_doubles as d
from watcher.findings import State
from workers.repair import repair


def forged(name: str, *, uid: str = "web", owner: str = "web", kind: str = "ReplicaSet", injected: bool = False) -> Pod:
    """A pod in the namespace `evil` that names somebody else's owner as its own."""
    made = pod(name, owner, injected=injected)
    reference = OwnerReference(kind=kind, name=owner, uid=uid, api_version="apps/v1", controller=True)
    made.metadata = ObjectMeta(
        name=name,
        namespace="evil",
        uid=name,
        creation_timestamp=LONG_AGO,
        annotations=made.metadata.annotations,
        owner_references=[reference],
    )
    return made


def test_pods_of_another_namespace_do_not_make_a_stuck_owner_look_whole(world: World) -> None:
    world.store.replace("ReplicaSet", [replica_set("web", replicas=2)])
    world.store.replace("Pod", [forged("a", injected=True), forged("b", injected=True)])
    world.answer = lambda _finding: PASSES
    world.rounds(20)
    assert [request.ref.name for request in world.sent] == ["web"]
    assert world.sent[0].action is Action.NUDGE_OWNER


def test_a_forged_pod_uses_up_nothing_of_the_owner_that_it_names(world: World) -> None:
    """Neither its share nor its failures, its quarantine or the verdict on its template."""
    world.ledger.quarantine("web", "t1", {"webhooks": "another configuration"})
    world.store.replace("ReplicaSet", [replica_set("web", current=1, message="")])
    world.store.replace("Pod", [pod("mine", "web", injected=True), forged("a"), forged("b")])
    world.rounds()
    held = [world.desk.book.get(name) for name in ("a", "b")]
    assert [each.owner_uid for each in held if each] == ["a", "b"]
    assert [each.finding.owner for each in held if each] == [None, None]
    assert len({each.template for each in held if each}) == 2
    assert world.ledger.quarantined("web", "t1") is not None


HOSTILE_OWNERS = {
    "a cluster-scoped owner": OwnerReference("ClusterRole", "admin", "u", "rbac.authorization.k8s.io/v1", True),
    "a node": OwnerReference("Node", "node-a", "n", "v1", True),
    "a deployment": OwnerReference("Deployment", "web", "uid-d", "apps/v1", True),
    "a kind that is markup": OwnerReference("<script>alert(1)</script>", "web", "uid-web", "x/v1", True),
    "its own uid": OwnerReference("Pod", "web-0", "uid-0", "v1", True),
    "the right name and a uid of old": OwnerReference("ReplicaSet", "web", "uid-former", "apps/v1", True),
}


@pytest.mark.parametrize("reference", HOSTILE_OWNERS.values(), ids=HOSTILE_OWNERS)
def test_a_worker_evicts_no_pod_whose_owner_is_not_there_by_that_uid(reference: OwnerReference) -> None:
    world = d.a_world()
    world.cluster.pods["web-0"].metadata.owner_references = [reference]
    outcome = repair(d.a_request(), world.ctx)
    assert outcome.result in (Result.REPORTED, Result.ALREADY_HEALTHY, Result.OBSOLETE), outcome
    assert world.cluster.evicted == []
    assert not world.records(RecordType.INTENT)


PATHS = {
    "a name that leads elsewhere": ("apps/v1", "../../../namespaces/shop/replicasets/web"),
    "a name with a query": ("apps/v1", "web?x=1"),
    "a name with an escape": ("apps/v1", "web%2f..%2f.."),
    "a name of dots": ("apps/v1", ".."),
    "a group that leads elsewhere": ("apps/v1/../../api", "web"),
    "a group with a line break": ("apps/v1\r\nX: y", "web"),
}


@pytest.mark.parametrize(("version", "name"), PATHS.values(), ids=PATHS)
def test_an_owners_name_or_group_that_is_a_path_reaches_nothing(
    sim_cluster: SimCluster, version: str, name: str
) -> None:
    """By the real client, on an API server: the worker ends with a report, and the pod stays."""
    world = d.a_world()
    reference = OwnerReference("ReplicaSet", name, "uid-web", version, True)
    world.cluster.pods["web-0"].metadata.owner_references = [reference]
    client = KubeClient(load_access(sim_cluster.kubeconfig))
    world.cluster.owner = Cluster(client).owner  # type: ignore[method-assign]
    outcome = repair(d.a_request(), world.ctx)
    client.close()
    assert outcome.result is Result.REPORTED
    assert outcome.code in ("owner_gone", "bad_request")
    assert world.cluster.evicted == []


def test_an_owner_in_another_namespace_is_no_owner(sim_cluster: SimCluster) -> None:
    user = Client(sim_cluster.kubeconfig)
    for name in ("forged-shop", "forged-evil"):
        user.create_namespace({"metadata": {"name": name}})
    made = user.create("forged-shop", w.replica_set("web", 0))
    client = KubeClient(load_access(sim_cluster.kubeconfig))
    reference = OwnerReference("ReplicaSet", "web", made["metadata"]["uid"], "apps/v1", True)
    assert Cluster(client).owner("forged-shop", reference).metadata.uid == reference.uid
    with pytest.raises(NotFound):
        Cluster(client).owner("forged-evil", reference)
    client.close()
    user.delete_workloads("forged-shop")
    user.close()


def test_a_task_for_somebody_elses_pod_under_another_name_is_refused() -> None:
    """The UID in the task decides, not the name; and a pod that looks like a bare one by name only is not one."""
    world = d.a_world()
    other = d.a_request().ref.model_copy(update={"name": "web-3"})  # injected, and not the UID of the task
    outcome = repair(d.a_request(ref=other), world.ctx)
    assert (outcome.result, world.cluster.evicted) == (Result.OBSOLETE, [])


def test_a_forged_task_gets_no_more_than_the_policy_and_the_cluster_allow() -> None:
    world = d.a_world()
    injected = d.a_request(3, actor="watcher", on_demand=True)
    protected = replace(world.ctx, policy=Policy.model_validate({"scope": {"protected_namespaces": ["shop"]}}))
    outcomes = [repair(injected, world.ctx), repair(d.a_request(), protected)]
    assert [each.result for each in outcomes] == [Result.ALREADY_HEALTHY, Result.REPORTED]
    assert world.cluster.evicted == []


def test_a_webhook_configuration_that_came_after_the_pods_takes_none_of_them(world: World) -> None:
    """Whoever may write one may have pods injected; those that run already are not evicted for it."""
    young = pod("old-pod", "web")
    young.metadata.creation_timestamp = "2020-01-01T00:00:00Z"
    world.store.replace("ReplicaSet", [replica_set("web", current=1, message="")])
    configurations = list(world.store._objects["MutatingWebhookConfiguration"].values())
    configurations[0].metadata.creation_timestamp = LONG_AGO
    configurations[0].metadata.resource_version = "2"
    world.store.replace("MutatingWebhookConfiguration", [])
    world.store.replace("MutatingWebhookConfiguration", configurations)
    world.store.replace("Pod", [young])
    world.answer = lambda _finding: PASSES
    world.rounds()
    assert world.sent == []
    assert world.state("old-pod") is State.REPORTED
    assert [record.code for record in world.records(RecordType.REFUSAL)] == ["older_than_mesh"]
