"""The pods of a large owner, followed by a watch: the same as a list says, heard of in time, and let go of again."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from remesh.kube.api import Cluster
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient
from remesh.objects import LabelSelector, Pod, Workload
from remesh.sim import SimCluster
from remesh.testbed import TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until
from tests.workers import recreate_doubles as d
from tests.workers.conftest import on_every_bed
from workers import following as module
from workers.following import Flock, Following
from workers.recreate_census import MANY_PODS, Census, judged, looked
from workers.recreate_evict import REST_SECONDS, Eviction

APP = "large"


class Owned:
    """One ReplicaSet of a namespace of its own, as a worker sees it."""

    def __init__(self, bed: TestBed, user: Client) -> None:
        self.user = user
        self.namespace = f"follow-{secrets.token_hex(4)}"
        user.create_meshed_namespace(self.namespace, bed.wear)
        user.create(self.namespace, w.replica_set(APP, 4))
        self.client = KubeClient(load_access(bed.kubeconfig))
        self.cluster = Cluster(self.client)
        self.ready(4)

    @property
    def owner(self) -> Workload:
        return self.cluster.workload("ReplicaSet", self.namespace, APP)

    @property
    def uid(self) -> str:
        return self.owner.metadata.uid

    def ready(self, count: int) -> list[dict[str, Any]]:
        def look() -> list[dict[str, Any]]:
            pods = [each for each in self.user.pods(self.namespace) if "deletionTimestamp" not in each["metadata"]]
            return pods if len(pods) == count and all(map(w.is_ready, pods)) else []

        return wait_until(look, f"{count} pods Ready")

    def scale(self, replicas: int) -> None:
        self.user.scale("ReplicaSet", self.namespace, APP, replicas)


@pytest.fixture
def owned(bed: TestBed) -> Iterator[Owned]:
    user = Client(bed.kubeconfig)
    found = Owned(bed, user)
    yield found
    found.client.close()
    user.delete_workloads(found.namespace)
    user.close()


@pytest.fixture
def following(owned: Owned, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    started = Following(owned.client)
    yield started
    monkeypatch.setattr(module, "LINGER_SECONDS", -1.0)
    wait_until(lambda: not following_threads(), "its threads to end", 30)


def following_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("following")]


def followed(following: Following, uid: str) -> Flock | None:
    """Its pods, if they are followed; the numbers are of no account here."""
    found = following.counted(uid, 60.0, lambda uids: (0, [0] * len(uids)), anew=False)
    return None if found is None else found.flock


def flock(following: Following, uid: str) -> Flock:
    found = wait_until(lambda: followed(following, uid), "its pods to be followed")
    assert found is not None
    return found


def agrees(following: Following, owned: Owned) -> Callable[[], bool]:
    """The watch says what a list says."""

    def look() -> bool:
        found = followed(following, owned.uid)
        listed = {each.metadata.uid: each.metadata.resource_version for each in owned.cluster.pods_of(owned.owner)}
        return found is not None and {uid: pod.metadata.resource_version for uid, pod in found.pods.items()} == listed

    return look


@on_every_bed
def test_it_says_what_a_list_says_whatever_happens_to_the_pods(owned: Owned, following: Following) -> None:
    assert followed(following, owned.uid) is None, "not before it was begun"
    following.begin(owned.owner)
    following.begin(owned.owner)
    assert following_threads().count("following") == 1
    before = flock(following, owned.uid)
    assert len(before.pods) == 4
    owned.user.create(owned.namespace, w.replica_set("other", 1))

    owned.scale(6)
    owned.ready(7)
    wait_until(agrees(following, owned), "the new pods")
    assert flock(following, owned.uid).came == before.came + 2

    gone, released = list(before.pods)[:2]
    owned.user.api.delete(w.path("Pod", owned.namespace, before.pods[gone].metadata.name))
    place = w.path("Pod", owned.namespace, before.pods[released].metadata.name)
    owned.user.api.patch(place, {"metadata": {"labels": {"app": "nobody"}}})
    wait_until(lambda: not {gone, released} & flock(following, owned.uid).pods.keys(), "both to be no pods of its own")
    wait_until(agrees(following, owned), "the pods in their place")


@on_every_bed
def test_who_waits_hears_of_a_new_pod_and_of_its_being_ready(owned: Owned, following: Following) -> None:
    following.begin(owned.owner)
    before = flock(following, owned.uid)
    heard: list[str] = []

    def wait() -> None:
        following.wait(owned.uid, before, "", 60.0)
        now = flock(following, owned.uid)
        heard.extend(now.pods.keys() - before.pods.keys())
        seen = now
        while heard and not (pod := seen.pods[heard[0]]).ready:
            assert following.wait(owned.uid, seen, pod.metadata.uid, 60.0)
            seen = flock(following, owned.uid)

    waiter = threading.Thread(target=wait)
    waiter.start()
    owned.scale(5)
    waiter.join(30.0)
    assert not waiter.is_alive(), "it was told before its time was over"
    assert len(heard) == 1


@on_every_bed
def test_waiting_ends_in_time_and_when_the_pod_goes(owned: Owned, following: Following) -> None:
    assert not following.wait(owned.uid, Flock({}, 0), "", 60.0), "at once, where nobody follows"
    following.begin(owned.owner)
    seen = flock(following, owned.uid)
    began = time.monotonic()
    assert following.wait(owned.uid, seen, "", 0.2)
    assert time.monotonic() - began >= 0.2
    uid, pod = next(iter(seen.pods.items()))
    owned.user.api.delete(w.path("Pod", owned.namespace, pod.metadata.name))
    assert following.wait(owned.uid, seen, uid, 60.0)
    wait_until(lambda: uid not in flock(following, owned.uid).pods, "it to go")


def test_it_ends_when_nobody_asks_any_more(owned: Owned, following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    following.begin(owned.owner)
    flock(following, owned.uid)
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.5)
    wait_until(lambda: not following_threads(), "its threads to end")
    assert followed(following, owned.uid) is None
    following.begin(owned.owner)
    assert flock(following, owned.uid).pods


def test_without_the_right_to_watch_it_is_given_up_for_a_while() -> None:
    with SimCluster.start() as cluster:
        user = Client(cluster.kubeconfig)
        owned, now = Owned(cluster, user), [1000.0]
        following = Following(owned.client, lambda: now[0])
        cluster.refuse("watch", "pods")
        following.begin(owned.owner)
        wait_until(lambda: not following_threads(), "it to be given up")
        assert followed(following, owned.uid) is None
        following.begin(owned.owner)
        assert not following_threads()
        now[0] += module.GIVEN_UP_SECONDS + 1
        following.begin(owned.owner)
        assert following_threads()
        wait_until(lambda: not following_threads(), "it to be given up again")
        user.close()


def test_an_owner_without_a_selector_and_one_too_many_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("nothing is asked")

    started, owner = Following(nobody), d.an_owner()  # type: ignore[arg-type]
    owner.spec.selector = None
    started.begin(owner)
    assert not following_threads()
    monkeypatch.setattr(module, "MOST", 0)
    owner.spec.selector = LabelSelector(match_labels={"app": APP})
    started.begin(owner)
    assert not following_threads()


# What a census makes of it


class Told(Following):
    """Followed by the test's own word: no thread, no connection, and the time is the test's."""

    def __init__(self, world: d.PodWorld) -> None:
        super().__init__(None, lambda: self.now)  # type: ignore[arg-type]
        self.now, self.begun = 1000.0, 0
        self.world, self.uid = world, world.cluster.main.metadata.uid
        self.entry = module._Followed(self.now)
        self._followed[self.uid] = self.entry
        self.lists(*world.cluster.pods.values())

    def begin(self, owner: Workload) -> None:
        self.begun += 1

    def lists(self, *pods: Pod) -> None:
        self._replace(self.entry, self.uid, deepcopy(list(pods)))

    def tells(self, event: str, pod: Pod) -> None:
        self._apply(self.entry, self.uid, event, pod)

    def judged(self, pod: Pod | None = None) -> Census:
        world = self.world
        chosen = pod or next(iter(world.cluster.pods.values()))
        return judged(replace(world.ctx, following=self), world.cluster.main, world.cluster.above, chosen)

    def looked(self) -> Census:
        return looked(replace(self.world.ctx, following=self), self.world.cluster.main)


@pytest.fixture
def told() -> Told:
    """An owner of many pods, all Ready."""
    world = d.a_world(desired=MANY_PODS)
    world.cluster.main.status.ready_replicas = MANY_PODS
    for number, pod in enumerate(world.cluster.pods.values()):
        pod.metadata.resource_version = str(number)
    return Told(world)


def test_a_census_believes_the_watch_for_two_seconds_and_for_a_replacement_ten(told: Told) -> None:
    assert told.judged().flock is not None
    told.now += 1.9
    assert told.judged().flock is not None
    told.now += 0.2
    assert told.judged().flock is None
    assert told.looked().flock is not None
    told.now += 8.0
    assert told.looked().flock is None
    told.tells("MODIFIED", next(iter(told.world.cluster.pods.values())))
    assert told.judged().flock is not None, "a change was heard of"


def test_what_a_watch_says_is_not_believed_where_it_is_behind_what_was_read(told: Told) -> None:
    pods = told.world.cluster.pods
    first = next(iter(pods.values()))
    changed = deepcopy(first)
    changed.metadata.resource_version = "another"
    assert told.judged(changed).flock is None
    gone = d.a_pod(77, owner=told.world.cluster.main)
    assert told.judged(gone).flock is None, "a pod of which it knows nothing"
    told.world.cluster.main.status.ready_replicas = MANY_PODS // 2
    assert told.judged().flock is None, "its owner knows of half as many Ready pods"
    told.world.cluster.main.status.ready_replicas = MANY_PODS - 1
    assert told.judged().flock is not None, "an owner's count comes a moment late"


def test_only_an_owner_of_many_is_judged_by_a_watch(told: Told) -> None:
    assert told.begun == 0
    told.judged()
    assert told.begun == 1
    told.world.cluster.main.spec.replicas = 3
    assert told.judged().flock is None, "it was scaled down and is still followed"
    told.world.cluster.main.spec.replicas = MANY_PODS
    told.lists(*list(told.world.cluster.pods.values())[:5])
    assert told.judged().flock is None, "it wants many, and has few"


def test_the_numbers_are_those_that_every_worker_gives(told: Told) -> None:
    world = told.world
    plain = judged(world.ctx, world.cluster.main, None, next(iter(world.cluster.pods.values())))
    followed = told.judged()
    assert plain.flock is None
    assert (followed.numbers, followed.last) == (plain.numbers, plain.last)
    world.ledger.number_pods(told.uid, ["another worker saw it"])
    assert told.judged().last == plain.last + 1, "what others have seen counts, too"
    late = d.a_pod(500, at=d.NEW, owner=world.cluster.main)
    told.tells("ADDED", late)
    assert told.looked().numbers[late.metadata.uid] == plain.last + 2


def test_numbers_that_redis_has_lost_are_given_anew(told: Told) -> None:
    told.judged()
    told.world.redis.flushall()
    found = told.judged()
    assert found.last == MANY_PODS
    assert sorted(found.numbers.values()) == list(range(1, MANY_PODS + 1))
    assert all(number <= found.last for number in told.looked().numbers.values()), "none came after the last one"


def test_a_pod_that_is_anothers_by_now_is_none_of_its_own(told: Told) -> None:
    uid, pod = next(iter(told.entry.pods.items()))
    taken = deepcopy(pod)
    assert taken.metadata.owner_references is not None
    taken.metadata.owner_references[0].uid = "another"
    told.tells("MODIFIED", taken)
    assert uid not in told.looked().pods


def test_of_an_owner_that_is_not_followed_any_more_the_pods_are_listed(told: Told) -> None:
    told.entry.stop.set()
    assert len(told.judged().pods) == MANY_PODS
    assert told.judged().flock is None
    assert not told.wait(told.uid, Flock({}, 0), "", 60.0)


def test_where_pods_are_listed_nobody_looks_again_at_once(told: Told) -> None:
    """A quiet watch is not believed; a listed census wakes nobody, and there is a rest whatever happens."""
    world = told.world
    attempt: Any = SimpleNamespace(ctx=replace(world.ctx, following=told), ref=d.a_request().ref)
    eviction = Eviction(attempt)
    eviction._owner = world.cluster.main
    before = world.clock.monotonic()
    eviction._flock = None
    eviction._rest(2.0)
    assert world.clock.monotonic() - before == 2.0
    eviction._flock = Flock({}, 0)  # others have come since: it is woken at once
    eviction._rest(2.0)
    assert world.clock.monotonic() - before == 2.0 + REST_SECONDS


@on_every_bed
def test_a_mark_that_stands_behind_a_hundred_annotations_is_seen(owned: Owned, following: Following) -> None:
    following.begin(owned.owner)
    uid, pod = next(iter(flock(following, owned.uid).pods.items()))
    marks = {f"a{number:03}.example/word": "x" for number in range(150)} | {"z.example/mark": "y" * 300}
    place = w.path("Pod", owned.namespace, pod.metadata.name)
    owned.user.api.patch(place, {"metadata": {"annotations": marks}})

    def seen() -> bool:
        return marks.items() <= (flock(following, owned.uid).pods[uid].metadata.annotations or {}).items()

    wait_until(seen, "all of its annotations")
