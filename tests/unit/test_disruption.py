"""How many of an owner's pods may be away, and when it is settled enough to touch."""

import pytest

from remesh.disruption import share, unsettled
from remesh.objects import RollingUpdate, UpdateStrategy, Workload
from remesh.policy import RepairPolicy
from tests.workers.recreate_doubles import a_deployment, an_owner

REVISION = "deployment.kubernetes.io/revision"


def rolling(workload: Workload, unavailable: int | str | None) -> Workload:
    strategy = UpdateStrategy("RollingUpdate", RollingUpdate(max_unavailable=unavailable))
    if workload.kind == "Deployment":
        workload.spec.strategy = strategy
    else:
        workload.spec.update_strategy = strategy
    return workload


@pytest.mark.parametrize(
    ("desired", "unavailable", "policy", "expected"),
    [
        (12, "25%", None, 3),
        (10, "25%", None, 2),  # rounded down, as the Deployment controller does
        (1, "25%", None, 1),  # at least one
        (12, 5, None, 5),
        (12, 0, None, 1),
        (12, None, None, 3),  # it says nothing: a quarter
        (12, "many", None, 3),
        (12, "25%", 0.5, 6),
        (12, "100%", 0.01, 1),
    ],
)
def test_share_of_a_replicaset_is_its_deployments_or_the_policys(
    desired: int, unavailable: int | str | None, policy: float | None, expected: int
) -> None:
    above = rolling(a_deployment(desired), unavailable)

    assert share(an_owner("ReplicaSet", desired), above, RepairPolicy(share=policy)) == expected


def test_share_of_the_other_kinds() -> None:
    assert share(an_owner("StatefulSet", 9), None, RepairPolicy(share=1.0)) == 1
    assert share(rolling(an_owner("DaemonSet", 9), 2), None, RepairPolicy()) == 2
    assert share(an_owner("ReplicationController", 9), None, RepairPolicy()) == 2
    assert share(an_owner("ReplicaSet", 0), None, RepairPolicy()) == 1


def test_an_owner_is_settled_while_one_of_its_pods_is_being_replaced() -> None:
    """The status lacks the pod for a moment, and nobody rolls anything out."""
    owner, above = an_owner("ReplicaSet", 4), a_deployment(4)
    owner.status.replicas = above.status.replicas = above.status.updated_replicas = 3
    daemons = an_owner("DaemonSet", 4)
    daemons.status.current_number_scheduled = daemons.status.updated_number_scheduled = 3

    assert unsettled(owner, above) == ""
    assert unsettled(daemons, None) == ""


def rolled_out(owner: Workload, above: Workload) -> None:
    above.status.replicas, above.status.updated_replicas = 5, 2


def scaled(owner: Workload, above: Workload) -> None:
    above.spec.replicas = 9


def outdated(owner: Workload, above: Workload) -> None:
    owner.metadata.annotations, above.metadata.annotations = {REVISION: "1"}, {REVISION: "2"}


def paused(owner: Workload, above: Workload) -> None:
    above.spec.paused = True


def deleted(owner: Workload, above: Workload) -> None:
    above.metadata.deletion_timestamp = "2026-03-04T05:06:07Z"


def unseen(owner: Workload, above: Workload) -> None:
    above.metadata.generation = 2


def shrinking(owner: Workload, above: Workload) -> None:
    owner.status.replicas = 9


CHANGES = [
    (rolled_out, "rolling out"),
    (scaled, "scaling"),
    (outdated, "revision 1"),
    (paused, "paused"),
    (deleted, "deleted"),
    (unseen, "not looked at"),
    (shrinking, "scaling down"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_an_owner_at_work_says_what_it_does(change: "object", words: str) -> None:
    owner, above = an_owner("ReplicaSet", 4), a_deployment(4)
    assert unsettled(owner, above) == ""
    assert callable(change)
    change(owner, above)

    assert words in unsettled(owner, above)


def test_statefulsets_and_daemonsets_between_two_revisions() -> None:
    ordered, daemons = an_owner("StatefulSet"), an_owner("DaemonSet")
    ordered.status.update_revision = "web-2"
    daemons.status.updated_number_scheduled = 1
    assert "rolling out" in unsettled(ordered, None)
    assert "rolling out" in unsettled(daemons, None)

    assert ordered.spec.update_strategy is not None
    ordered.spec.update_strategy.rolling_update = RollingUpdate(partition=2)
    assert unsettled(ordered, None) == "", "somebody holds it there; whose turn it is, others say"
