"""How many of an owner's pods may be away at once, and when an owner is left alone."""

import pytest

from remesh.disruption import forbids, share, unsettled
from remesh.objects import (
    ObjectMeta,
    RollingUpdate,
    UpdateStrategy,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from remesh.policy import RepairPolicy

DEFAULT = RepairPolicy()


def replica_set(replicas: int, *, current: int | None = None, revision: str = "") -> Workload:
    annotations = {"deployment.kubernetes.io/revision": revision} if revision else None
    return Workload(
        kind="ReplicaSet",
        metadata=ObjectMeta(name="web-1", generation=1, annotations=annotations),
        spec=WorkloadSpec(replicas=replicas),
        status=WorkloadStatus(replicas=replicas if current is None else current, observed_generation=1),
    )


def deployment(
    replicas: int, unavailable: int | str | None, *, updated: int | None = None, paused: bool = False
) -> Workload:
    strategy = UpdateStrategy("RollingUpdate", RollingUpdate(unavailable))
    return Workload(
        kind="Deployment",
        metadata=ObjectMeta(name="web", generation=1, annotations={"deployment.kubernetes.io/revision": "2"}),
        spec=WorkloadSpec(replicas=replicas, strategy=strategy, paused=paused),
        status=WorkloadStatus(
            replicas=replicas,
            updated_replicas=replicas if updated is None else updated,
            available_replicas=replicas,
            observed_generation=1,
        ),
    )


@pytest.mark.parametrize(
    ("replicas", "unavailable", "expected"),
    [(40, "10%", 4), (40, 3, 3), (40, "25%", 10), (3, "25%", 1), (1, "25%", 1), (8, None, 2), (8, "odd", 2), (0, 1, 1)],
)
def test_its_rolling_update_says_how_many(replicas: int, unavailable: int | str | None, expected: int) -> None:
    assert share(replica_set(replicas), deployment(replicas, unavailable), DEFAULT) == expected


def test_the_policys_share_comes_first_and_is_never_less_than_one_pod() -> None:
    policy = RepairPolicy(share=0.1)
    assert share(replica_set(40), deployment(40, "50%"), policy) == 4
    assert share(replica_set(5), None, policy) == 1


@pytest.mark.parametrize(
    ("unavailable", "policy", "forbidden"),
    [
        (0, DEFAULT, True),
        ("0%", DEFAULT, True),
        (0, RepairPolicy(share=0.1), False),
        ("25%", DEFAULT, False),
        (None, DEFAULT, False),
    ],
)
def test_only_a_zero_that_somebody_wrote_allows_none_to_be_missing(
    unavailable: int | str | None, policy: RepairPolicy, forbidden: bool
) -> None:
    found = forbids(replica_set(1), deployment(1, unavailable), policy)
    assert ("allows none to be missing" in found) is forbidden
    assert share(replica_set(1), deployment(1, unavailable), policy) == 1


def test_without_a_deployment_it_is_a_quarter() -> None:
    assert share(replica_set(40), None, DEFAULT) == 10


def test_a_statefulset_gives_up_one_at_a_time_whatever_is_said() -> None:
    owner = Workload(kind="StatefulSet", spec=WorkloadSpec(replicas=40))
    assert share(owner, None, RepairPolicy(share=1.0)) == 1


def test_a_settled_owner_may_be_touched() -> None:
    assert unsettled(replica_set(4, revision="2"), deployment(4, "25%")) == ""


@pytest.mark.parametrize(
    ("owner", "above", "words"),
    [
        (replica_set(4, current=6), None, "scaling down"),
        (replica_set(4), deployment(4, "25%", paused=True), "paused"),
        (replica_set(4), deployment(4, "25%", updated=2), "rolling out"),
        (replica_set(4, revision="1"), deployment(4, "25%"), "revision 1"),
    ],
)
def test_an_owner_that_is_moving_is_left_alone(owner: Workload, above: Workload | None, words: str) -> None:
    assert words in unsettled(owner, above)
