"""An owner's pods are replaced a share at a time, each replacement counts once, and manifests stay among themselves."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from remesh.ledger import Ledger
from remesh.ledger_manifests import MANIFEST_SECONDS
from remesh.redisdb import RedisClient
from tests.redis.conftest import until

BASE = "remesh:{test}:"


def test_no_more_holders_than_slots_and_each_knows_who_came_before(ledger: Ledger) -> None:
    assert ledger.take_slot("owner", "a", 2, 60) == []
    assert ledger.take_slot("owner", "b", 2, 60) == ["a"]
    assert ledger.take_slot("owner", "c", 2, 60) is None
    assert ledger.take_slot("other", "c", 1, 60) == []


def test_the_same_holder_again_keeps_its_place(ledger: Ledger) -> None:
    ledger.take_slot("owner", "a", 2, 60)
    ledger.take_slot("owner", "b", 2, 60)

    assert ledger.take_slot("owner", "a", 2, 60) == []
    assert ledger.take_slot("owner", "b", 1, 60) == ["a"]


def test_a_slot_given_back_goes_to_the_next(ledger: Ledger) -> None:
    ledger.take_slot("owner", "a", 1, 60)
    ledger.give_slot_back("owner", "a")
    ledger.give_slot_back("owner", "a")

    assert ledger.take_slot("owner", "b", 1, 60) == []


def test_a_slot_of_a_dead_worker_ends_with_its_time(redis: RedisClient, ledger: Ledger) -> None:
    ledger.take_slot("owner", "a", 1, 0.05)

    until(lambda: ledger.take_slot("owner", "b", 1, 60) == [])
    assert ledger.take_slot("owner", "c", 1, 60) is None
    assert int(redis.pttl(f"{BASE}share:owner")) > 50_000


def test_of_many_at_once_only_as_many_as_there_are_slots_get_one(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda number: ledger.take_slot("owner", f"pod-{number}", 5, 60), range(40)))

    got = [each for each in taken if each is not None]
    assert sorted(len(each) for each in got) == [0, 1, 2, 3, 4], "each came at another place"


def test_pods_are_numbered_in_the_order_in_which_anybody_saw_them_first(redis: RedisClient, ledger: Ledger) -> None:
    assert ledger.number_pods("owner", ["a", "b"]) == (2, [1, 2])
    assert ledger.number_pods("owner", ["c", "b", "a"]) == (3, [3, 2, 1])
    assert ledger.number_pods("owner", []) == (3, [])
    assert ledger.number_pods("other", ["c"]) == (1, [1])
    assert int(redis.ttl(f"{BASE}order:owner")) > 86_000


def test_a_replacement_counts_for_one_pod_only(ledger: Ledger) -> None:
    assert ledger.claim(["new"], "old-1") == "new"
    assert ledger.claim(["new"], "old-2") == ""
    assert ledger.claim(["new", "newer"], "old-2") == "newer"
    assert ledger.claim(["new", "newer"], "old-1") == "new", "a worker that comes again finds its own"
    assert ledger.claim([], "old-3") == ""


MANIFEST: dict[str, Any] = {"metadata": {"name": "lonely"}, "spec": {"containers": [{"env": [{"value": "s3cret"}]}]}}


def test_a_manifest_is_kept_for_a_month_under_its_digest(redis: RedisClient, ledger: Ledger) -> None:
    digest = ledger.keep_manifest("uid", MANIFEST)

    assert ledger.manifest("uid") == (MANIFEST, digest)
    assert MANIFEST_SECONDS - 60 < int(redis.ttl(f"{BASE}manifest:uid")) <= MANIFEST_SECONDS
    assert ledger.manifest("another") is None


def test_the_digest_of_the_same_manifest_is_another_each_time(ledger: Ledger) -> None:
    """Else a short secret could be guessed: digest every candidate, and compare with an exported trail."""
    assert ledger.keep_manifest("uid", MANIFEST) != ledger.keep_manifest("uid", MANIFEST)


def test_who_holds_a_slot_can_be_read_and_nothing_is_changed(redis: RedisClient, ledger: Ledger) -> None:
    assert ledger.slots_taken("owner") == []
    ledger.take_slot("owner", "b", 2, 60)
    ledger.take_slot("owner", "a", 2, 60)
    ledger.take_slot("other", "c", 2, 60)
    assert ledger.slots_taken("owner") == ["b", "a"]
    redis.zadd(f"{BASE}share-end:owner", {"b": 1})
    assert ledger.slots_taken("owner") == ["a"]
    assert ledger.take_slot("owner", "b", 2, 60) == ["a"]


def test_how_many_pods_were_seen_can_be_asked_without_numbering_them(ledger: Ledger) -> None:
    assert ledger.pods_seen("owner", ["a"]) == 1
    ledger.number_pods("owner", ["a", "b"])
    assert [ledger.pods_seen("owner", uids) for uids in (["a"], ["c"], ["c", "d", "a"], [])] == [2, 3, 4, 2]
    assert ledger.number_pods("owner", ["c"]) == (3, [3])
