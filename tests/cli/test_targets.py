import pytest

from remesh.cli.targets import Target, parse_target, parse_targets
from remesh.errors import UsageError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("rs/app", "ReplicaSet"),
        ("replicasets/app", "ReplicaSet"),
        ("ReplicaSet/app", "ReplicaSet"),
        ("replicaset.apps/app", "ReplicaSet"),
        ("deployments.v1.apps/app", "Deployment"),
        ("deploy/app", "Deployment"),
        ("sts/app", "StatefulSet"),
        ("ds/app", "DaemonSet"),
        ("rc/app", "ReplicationController"),
        ("po/app", "Pod"),
        ("job/app", "Job"),
        ("cj/app", "CronJob"),
    ],
)
def test_kinds_have_the_names_that_kubectl_gives_them(text: str, kind: str) -> None:
    assert parse_target(text) == Target(kind, "app")


@pytest.mark.parametrize("text", ["", "app", "rs/", "/app", "rs/a/b"])
def test_a_target_is_kind_and_name(text: str) -> None:
    with pytest.raises(UsageError, match="not KIND/NAME"):
        parse_target(text)


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'ingress' is not known; known are pod \(po\), replicaset \(rs\)"):
        parse_target("ingress/app")


def test_a_target_given_twice_is_one() -> None:
    assert parse_targets(["rs/a", "replicaset/a", "rs/b"]) == [Target("ReplicaSet", "a"), Target("ReplicaSet", "b")]
