"""The pods of a large owner, followed by a watch: the same as a list says, heard of in time, and let go of again."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from workers import recreate_census
from workers.following import Flock, Following
from workers.recreate_census import Census, judged, looked

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


def flock(following: Following, uid: str) -> Flock:
    found = wait_until(lambda: following.pods(uid, 60.0), "its pods to be followed")
    assert found is not None
    return found


def agrees(following: Following, owned: Owned) -> Callable[[], bool]:
    """The watch says what a list says."""

    def look() -> bool:
        found = following.pods(owned.uid, 60.0)
        listed = {each.metadata.uid: each.metadata.resource_version for each in owned.cluster.pods_of(owned.owner)}
        return found is not None and {uid: pod.metadata.resource_version for uid, pod in found.pods.items()} == listed

    return look


@on_every_bed
def test_it_says_what_a_list_says_whatever_happens_to_the_pods(owned: Owned, following: Following) -> None:
    assert following.pods(owned.uid, 60.0) is None, "not before it was begun"
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

    gone = owned.ready(7)[0]
    orphan = next(uid for uid in before.pods if uid != gone["metadata"]["uid"])
    owned.user.api.delete(w.path("Pod", owned.namespace, gone["metadata"]["name"]))
    place = w.path("Pod", owned.namespace, before.pods[orphan].metadata.name)
    owned.user.api.patch(place, {"metadata": {"ownerReferences": None}})
    wait_until(lambda: orphan not in flock(following, owned.uid).pods, "the pod that is nobody's any more to go")
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
    assert following.pods(owned.uid, 60.0) is None
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
        assert following.pods(owned.uid, 60.0) is None
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
    """Says what a test tells it."""

    def __init__(self, *pods: Pod) -> None:
        self.flock = Flock({pod.metadata.uid: pod for pod in pods}, len(pods))
        self.age = 0.0
        self.begun: list[str] = []
        self.known: dict[str, int] = {}

    def begin(self, owner: Workload) -> None:
        self.begun.append(owner.metadata.uid)

    def pods(self, owner_uid: str, seconds: float) -> Flock | None:
        return self.flock if self.age <= seconds else None

    def number(self, owner_uid: str, ask: Callable[[list[Pod]], Any]) -> dict[str, int]:
        new = [pod for uid, pod in self.flock.pods.items() if uid not in self.known]
        self.known.update(ask(new))
        return dict(self.known)


def counted(world: d.PodWorld, told: Following, count: Callable[..., Census] = judged) -> Census:
    return count(replace(world.ctx, following=told), world.cluster.main)


def test_a_census_believes_the_watch_for_two_seconds_and_for_a_replacement_ten() -> None:
    world = d.a_world()
    listed = set(counted(world, Told()).pods)
    assert listed == set()
    told = Told()
    told.age = 5.0
    assert set(counted(world, told).pods) == {pod.metadata.uid for pod in world.cluster.pods.values()}
    assert not counted(world, told, looked).pods
    told.age = 11.0
    assert counted(world, told, looked).pods


def test_the_numbers_are_those_that_every_worker_gives() -> None:
    world = d.a_world()
    pods = list(world.cluster.pods.values())
    plain = judged(world.ctx, world.cluster.main)
    told = Told(*pods)
    followed = counted(world, told)
    assert (followed.numbers, followed.last) == (plain.numbers, plain.last)

    world.ledger.number_pods(world.cluster.main.metadata.uid, ["another worker saw it"])
    assert counted(world, told).last == plain.last + 1, "what others have seen counts, too"
    late = d.a_pod(50, at=d.NEW, owner=world.cluster.main)
    told.flock = Flock({**told.flock.pods, late.metadata.uid: late}, 9)
    assert counted(world, told).numbers[late.metadata.uid] == plain.last + 2


def test_only_an_owner_of_many_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, told = d.a_world(desired=4), Told()
    told.age = 60.0
    counted(world, told)
    assert not told.begun
    monkeypatch.setattr(recreate_census, "MANY_PODS", 4)
    counted(world, told)
    assert set(told.begun) == {world.cluster.main.metadata.uid}
