"""`remesh brake`: what is shut and why, and a person who clears it, by name in the trail."""

import json
from collections.abc import Iterator

import pytest

from remesh.cli.options import Common
from remesh.cli.session import Session
from remesh.models import ObjectRef, RecordType
from remesh.objects import ObjectMeta, Pod
from tests.cli.conftest import Remesh
from workers.recreate_lost import what_goes

KEY = "linkerd/linkerd-proxy-injector"
OWNER = ObjectRef(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-6f", uid="owner-1")


@pytest.fixture
def session(remesh: Remesh, redis_url: str) -> Iterator[Session]:
    """A ledger of the test's own, in which nothing is shut."""
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_CLUSTER="braked")
    session = Session(Common())
    yield session
    session.redis.flushdb()


def shut(session: Session) -> None:
    for uid in ("uid-1", "uid-2"):
        gone = Pod(metadata=ObjectMeta(name=f"web-6f-{uid}", namespace="shop", uid=uid))
        session.ledger.brakes.take(KEY, uid, 60, what_goes(gone, OWNER, [gone]))
        session.ledger.brakes.tell(KEY, uid, good=False, shut_seconds=60)


def test_nothing_is_shut(remesh: Remesh, session: Session) -> None:
    assert remesh("brake", "list").err == "No brake is shut.\n"
    assert json.loads(remesh("status", "-o", "json").out)["brakes"] == []
    refused = remesh("brake", "clear", KEY)
    assert (refused.code, "is not shut; see `remesh brake list`" in refused.line) == (6, True)


def test_what_is_shut_is_listed_and_stands_in_the_status(remesh: Remesh, session: Session) -> None:
    shut(session)
    (item,) = json.loads(remesh("brake", "list", "-o", "json").out)["items"]
    assert (item["injector"], item["bad"], item["lost"]) == (KEY, 2, ["shop/ReplicaSet/web-6f"] * 2)
    assert "shop/ReplicaSet/web-6f" in " ".join(remesh("brake", "list").out.split())
    screen = " ".join(remesh("status").out.split())
    assert f"BRAKE {KEY}: shut for" in screen
    assert "2 evicted pods not back: shop/ReplicaSet/web-6f" in screen
    assert "see `remesh brake list`" in screen


def test_a_person_clears_it_and_stands_in_the_trail(remesh: Remesh, session: Session) -> None:
    shut(session)
    assert remesh("brake", "clear", KEY).out == f"cleared: {KEY}\n"
    assert session.ledger.brakes.take(KEY, "uid-3", 60).code == "free"
    assert session.ledger.window_size(KEY, session.policy.window) == session.policy.window.minimum
    (noted,) = session.trail.read(types=[RecordType.NOTE])
    assert (noted.code, noted.actor) == ("brake_cleared", session.actor)
    assert (noted.details["injector"], noted.details["lost"]) == (KEY, ["shop/ReplicaSet/web-6f"] * 2)
    assert session.actor in remesh("audit").out
    assert "brake_cleared" in remesh("audit", "--type", "note", "-o", "jsonl").out
    assert remesh("brake", "clear", KEY).code == 6


def test_all_of_them_at_once(remesh: Remesh, session: Session) -> None:
    assert remesh("brake", "clear", "--all").out == ""
    shut(session)
    assert remesh("brake", "clear", "--all").out == f"cleared: {KEY}\n"
    assert remesh("brake", "clear", "--all", KEY).code == 2
