"""The brake on evictions: of many owners with one pod each, no more are emptied than it takes to see that it fails."""

import signal
from typing import Any

import pytest

from remesh.errors import Conflict
from remesh.ledger import Ledger
from remesh.models import Outcome, RecordType, Result
from remesh.objects import Workload
from remesh.testbed import Fault
from tests.cluster import workloads as w
from tests.cluster.cluster import RealCluster
from tests.stack import wait_until
from tests.workers import recreate_doubles as d
from tests.workers.conftest import Scene
from tests.workers.test_recreate_worker import all_ready, evicted, failing_open, is_bare
from workers.recreate_attempt import came_back
from workers.repair import repair

KEY = "linkerd/linkerd-proxy-injector"
BRAKE = "remesh:{test}:brake:" + KEY


def take(ledger: Ledger, holder: str) -> str:
    return ledger.brakes.take(KEY, holder, 60).code


def tell(ledger: Ledger, holder: str, good: bool | None) -> None:
    ledger.brakes.tell(KEY, holder, good, 60)


def let_the_time_pass(ledger: Ledger) -> None:
    """Until it is not shut any longer."""
    ledger._redis.hset(BRAKE, "shut", "1")


def two_lost_one_on_its_way(ledger: Ledger) -> None:
    """One came back, then three went; "a" and "b" did not come back, "c" has not ended."""
    take(ledger, "first")
    tell(ledger, "first", good=True)
    for holder in "abc":
        take(ledger, holder)
    for holder in "ab":
        tell(ledger, holder, good=False)


def find_all(ledger: Ledger) -> None:
    for holder in ledger.brakes.lost(KEY):
        ledger.brakes.found_again(KEY, holder)


def test_until_one_came_back_only_one_is_on_its_way(ledger: Ledger) -> None:
    assert [take(ledger, "a"), take(ledger, "b"), take(ledger, "a")] == ["free", "canary", "free"]
    tell(ledger, "a", good=True)
    assert [take(ledger, "b"), take(ledger, "c"), take(ledger, "d")] == ["free"] * 3


def test_after_two_in_a_row_it_is_shut_and_then_lets_one_through(ledger: Ledger) -> None:
    for holder in "ab":
        assert take(ledger, holder) == "free"
        tell(ledger, holder, good=False)
    found = ledger.brakes.take(KEY, "c", 60)
    assert (found.code, 50 < found.number <= 60) == ("shut", True)

    let_the_time_pass(ledger)
    find_all(ledger)
    assert [take(ledger, "c"), take(ledger, "d")] == ["free", "canary"]
    tell(ledger, "c", good=False)
    assert 110 < ledger.brakes.take(KEY, "d", 60).number <= 120

    let_the_time_pass(ledger)
    find_all(ledger)
    assert take(ledger, "d") == "free"
    tell(ledger, "d", good=True)
    assert [take(ledger, "e"), take(ledger, "f")] == ["free", "free"]


def test_time_alone_does_not_open_it_while_something_is_lost(ledger: Ledger) -> None:
    for holder in "ab":
        take(ledger, holder)
        tell(ledger, holder, good=False)
    let_the_time_pass(ledger)
    assert (ledger.brakes.take(KEY, "c", 60), ledger.brakes.shut_for(KEY)) == (("lost", 2.0), 1.0)
    ledger.brakes.found_again(KEY, "a")
    assert take(ledger, "c") == "lost"
    assert ledger._redis.pttl(BRAKE.replace("brake", "brake-lost")) > 0
    ledger.brakes.found_again(KEY, "b")
    assert ledger.brakes.shut_for(KEY) == 0.0
    assert [take(ledger, "c"), take(ledger, "d")] == ["free", "canary"]


def test_a_late_good_end_does_not_open_it_while_something_is_lost(ledger: Ledger) -> None:
    two_lost_one_on_its_way(ledger)
    let_the_time_pass(ledger)
    tell(ledger, "c", good=True)
    assert (take(ledger, "d"), set(ledger.brakes.lost(KEY))) == ("lost", {"a", "b"})


def test_one_bad_end_between_good_ones_holds_nothing(ledger: Ledger) -> None:
    for holder, good in (("a", True), ("b", False), ("c", True)):
        assert take(ledger, holder) == "free"
        tell(ledger, holder, good)
    assert (take(ledger, "d"), ledger.brakes.lost(KEY)) == ("free", {})


def test_a_burst_that_was_on_its_way_shuts_it_once(ledger: Ledger) -> None:
    take(ledger, "first")
    tell(ledger, "first", good=True)
    for number in range(20):
        assert take(ledger, f"pod-{number}") == "free"
    for number in range(20):
        tell(ledger, f"pod-{number}", good=False)
    assert ledger.brakes.take(KEY, "next", 60).number <= 60


def test_it_is_never_shut_for_more_than_ten_minutes_and_never_without_a_pause(ledger: Ledger) -> None:
    for number in range(12):
        let_the_time_pass(ledger)
        find_all(ledger)
        assert ledger.brakes.take(KEY, str(number), 0).free
        ledger.brakes.tell(KEY, str(number), good=False, shut_seconds=0)
        if number == 1:
            assert 20 < ledger.brakes.take(KEY, "x", 0).number <= 30
    assert 590 < ledger.brakes.take(KEY, "x", 0).number <= 600


def test_a_repeated_bad_end_counts_once_and_one_that_says_nothing_not_at_all(ledger: Ledger) -> None:
    take(ledger, "a")
    for _ in range(5):
        tell(ledger, "a", good=False)
    take(ledger, "b")
    tell(ledger, "b", good=None)
    assert take(ledger, "c") == "free"


def test_of_whom_nothing_is_heard_any_more_ended_badly(ledger: Ledger) -> None:
    for holder in "ab":
        assert take(ledger, holder) == "free"
        ledger._redis.zadd(BRAKE.replace("brake", "brake-flight"), {holder: 1})
    assert take(ledger, "c") == "shut"


def test_what_came_back_is_proof_until_the_brake_shuts(ledger: Ledger) -> None:
    assert not ledger.brakes.proven(KEY)
    take(ledger, "a")
    assert not ledger.brakes.proven(KEY)
    tell(ledger, "a", good=True)
    assert ledger.brakes.proven(KEY)
    assert not ledger.brakes.proven("istio-system/istiod")
    for holder in ("b", "c"):
        take(ledger, holder)
        tell(ledger, holder, good=False)
    assert not ledger.brakes.proven(KEY)


def test_injectors_have_brakes_of_their_own(ledger: Ledger) -> None:
    take(ledger, "a")
    assert ledger.brakes.take("istio-system/istiod", "b", 60).free


@pytest.mark.parametrize(
    ("result", "code", "acted", "was_ready", "good"),
    [
        (Result.HEALED, "healed", True, True, True),
        (Result.INJECTED, "not_ready_yet", True, True, False),
        (Result.INJECTED, "not_ready_yet", True, False, None),
        (Result.FAILED, "not_replaced", True, False, False),
        (Result.FAILED, "came_back_bare", True, True, False),
        (Result.WAITING, "webhook_timeout", True, True, False),
        (Result.OBSOLETE, "no_longer_wanted", True, True, False),
        (Result.OBSOLETE, "no_longer_wanted", True, False, None),
        (Result.OBSOLETE, "gone", True, True, None),
        (Result.SKIPPED, "blocked_by_pdb", False, True, None),
    ],
)
def test_what_an_end_says(result: Result, code: str, acted: bool, was_ready: bool, good: bool | None) -> None:
    outcome = Outcome(finding_id="f-1", result=result, code=code, reason="", acted=acted)
    assert came_back(outcome, was_ready=was_ready) is good


# In repairs


class ManyOwners(d.FakePods):
    """Every pod has an owner of its own."""

    def owner(self, namespace: str, reference: Any) -> Workload:
        if reference.kind == "Deployment":
            return d.a_deployment(1)
        owner = d.an_owner(desired=1)
        owner.metadata.uid = reference.uid
        return owner


def of_owners(count: int) -> d.PodWorld:
    cluster = ManyOwners()
    for number in range(count):
        owner = d.an_owner(desired=1)
        owner.metadata.uid = f"owner-{number}"
        cluster.add(d.a_pod(number, owner=owner))
    return d.PodWorld(cluster)


def not_ready(cluster: d.FakePods, gone: Any) -> None:
    del cluster.pods[gone.metadata.name]
    new = d.a_pod(cluster.next_number, marked=True, ready=False, at=d.NEW)
    new.metadata.owner_references = gone.metadata.owner_references
    cluster.add(new)


@pytest.mark.parametrize("obey", [d.vanishes, not_ready], ids=["not replaced", "not Ready"])
def test_if_nothing_ready_comes_back_two_of_eight_owners_lose_their_pod(obey: d.Obey) -> None:
    world = of_owners(8)
    world.cluster.obey = obey

    outcomes = [repair(d.a_request(number), world.ctx) for number in range(8)]

    assert len(world.cluster.evicted) == 2
    assert {(each.result, each.code) for each in outcomes[2:]} == {(Result.SKIPPED, "brake_shut")}
    assert world.ledger.window_size(KEY, world.policy.window) < world.policy.window.initial
    assert world.ledger.attempts("owner-0", "t-1") == int(obey is d.vanishes)
    world.redis.close()


def pending_for_good(world: d.PodWorld) -> None:
    """Two of eight owners have lost their pod, and the time for which that shuts the brake is over."""
    world.cluster.obey = not_ready
    for number in range(3):
        repair(d.a_request(number), world.ctx)
    assert len(world.cluster.evicted) == 2
    let_the_time_pass(world.ledger)
    world.cluster.obey = d.vanishes
    world.ledger._redis.delete(*world.ledger._redis.keys("*cooldown*") or ["none"])


def test_while_the_lost_ones_are_pending_no_other_owner_loses_its_pod() -> None:
    world = of_owners(8)
    pending_for_good(world)

    outcomes = [repair(d.a_request(number), world.another_worker()) for number in range(4, 8)]

    assert {each.code for each in outcomes} == {"brake_shut"}
    assert "0 Ready of 1" in outcomes[0].reason
    assert len(world.cluster.evicted) == 2
    world.redis.close()


def test_it_opens_once_the_lost_ones_are_ready_or_wanted_no_more() -> None:
    world = of_owners(8)
    pending_for_good(world)
    for pod in [each for each in world.cluster.pods.values() if not each.ready]:
        pod.status.conditions = d.a_pod(0).status.conditions

    repair(d.a_request(4), world.another_worker())

    assert len(world.cluster.evicted) == 3
    world.redis.close()


def test_while_the_canary_is_away_no_other_pod_goes() -> None:
    world = of_owners(2)
    codes: list[str] = []

    def obey(cluster: d.FakePods, gone: Any) -> None:
        codes.append(repair(d.a_request(1), world.another_worker()).code)
        not_ready(cluster, gone)

    world.cluster.obey = obey
    repair(d.a_request(), world.ctx)

    assert codes == ["canary_first"]
    assert [each.code for each in world.records(RecordType.REFUSAL)] == ["canary_first"]
    world.redis.close()


def test_an_eviction_that_did_not_happen_holds_up_nobody() -> None:
    world = of_owners(2)
    world.cluster.evict_errors = [Conflict("changed", status=409)]

    assert repair(d.a_request(), world.ctx).code == "changed_meanwhile"
    assert take(world.ledger, "another") == "free"
    world.redis.close()


# On a cluster


@pytest.mark.real
@pytest.mark.timeout(200)
@pytest.mark.parametrize("component", ["kube-controller-manager", "kube-scheduler"])
@pytest.mark.parametrize("bed", ["real"], indirect=True)
def test_with_a_stopped_control_plane_two_of_eight_owners_lose_their_pod(
    scene: Scene, real_cluster: RealCluster, component: str
) -> None:
    names = [f"single-{number}" for number in range(8)]
    scene.stack.policy("[repair]\nverify_seconds = 6.0\n")
    with failing_open(scene):
        scene.bed.inject_fault(Fault.KILLED)
        for name in names:
            scene.client.create(scene.namespace, w.deployment(name, 1))
        for name in names:
            all_ready(scene, name, 1)
        scene.bed.heal()
        real_cluster.processes.signal(component, signal.SIGSTOP)
        try:
            scene.stack.start_worker()
            scene.stack.start_watcher()
            wait_until(lambda: _refused(scene, "brake_shut"), "the brake to be shut", 90)
            assert len(evicted(scene)) == 2
            ready = [pod for pod in scene.client.pods(scene.namespace) if w.is_ready(pod) and is_bare(scene, pod)]
            assert len(ready) >= 6
        finally:
            real_cluster.processes.signal(component, signal.SIGCONT)


def _refused(scene: Scene, code: str) -> bool:
    return any(each.code == code for each in scene.stack.records(types=[RecordType.REFUSAL]))
