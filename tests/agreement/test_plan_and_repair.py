"""What `plan` says is what `repair` does, on random clusters; and no pod is written to that must not be.

`REMESH_EXAMPLES` sets how many clusters are drawn: 200 by default, 1000 in CI, which takes half a minute.
"""

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from remesh.cli.survey import Judged
from remesh.ledger import Ledger
from remesh.objects import Pod, Workload
from remesh.policy import Policy
from remesh.redisdb import RedisClient
from remesh.sim import resources as res
from remesh.sim.objects import Obj, annotations_of, labels_of
from remesh.testbed import Fault
from tests.agreement.agree import Answer, planned, repaired, survey_of
from tests.agreement.memory import MemoryCluster, Write
from tests.agreement.scenes import TEXTS, WEARS, AnInjector, AnOwner, APod, Budget, Place, Scene, scenes

EXAMPLES = int(os.environ.get("REMESH_EXAMPLES", "1000" if os.environ.get("CI") else "200"))
PARTS = 4  # which several workers may take


@dataclass(frozen=True)
class Planned:
    """One object, and what the plan says of it."""

    judged: Judged
    answer: Answer


def plan(world: MemoryCluster, drawn: Scene, redis: RedisClient) -> list[Planned]:
    """`remesh plan -A`, and the same for each object that it does not show."""
    policy, ledger = drawn.policy, Ledger(redis, "planned")
    drawn.note(ledger)
    survey = survey_of(world.cluster, policy, ledger)
    found = survey.scan(None)
    before = {each.ref.uid: each for each in found}
    proven = {each.ref.uid: each for each in survey.prove_all(found)}
    everything: list[Workload | Pod] = [*world.workloads(), *world.pods()]
    for obj in everything:
        judged = survey.look(obj)
        before.setdefault(judged.ref.uid, judged)
        proven.setdefault(judged.ref.uid, survey.prove(judged))
        assert judged.decision.action == before[judged.ref.uid].decision.action  # a target, and one finding of all
        assert judged.decision.code == before[judged.ref.uid].decision.code
    assert world.writes == []
    return [Planned(proven[uid], planned(proven[uid], before[uid], policy)) for uid in before]


def effect(writes: list[Write], each: Planned) -> str:
    """What was written, all of it to the one object."""
    ref = each.judged.ref
    verbs = [write.verb for write in writes]
    assert all((write.namespace, write.name) == (ref.namespace, ref.name) for write in writes), (ref, writes)
    if not verbs:
        return "nothing"
    known = {("annotate", "annotate"): "nudge", ("evict",): "evict", ("evict", "create"): "recreate"}
    return known[tuple(verbs)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_repair_does_what_plan_says(redis: RedisClient, part: int) -> None:
    @settings(
        max_examples=max(1, EXAMPLES // PARTS),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(drawn=scenes())
    def agrees(drawn: Scene) -> None:
        agree(drawn, redis)

    # In CI Hypothesis draws the same for the same function, so each part has a seed of its own.
    (seed(part)(agrees) if os.environ.get("CI") else agrees)()


def agree(drawn: Scene, redis: RedisClient) -> None:
    """Repair each object of a cluster, and compare with the plan."""
    world = drawn.build()
    for each in plan(world, drawn, redis):
        if world.writes:
            world = drawn.build()
        raw = stored(world, each)
        outcome = repaired(each.judged.ref, world.cluster, drawn.policy, redis, note=drawn.note)
        done = effect(world.writes, each)
        answer = Answer(done, "" if done != "nothing" else outcome.code)
        assert answer == each.answer, (each.judged.ref, each.judged.decision, each.judged.probe, outcome)
        assert outcome.acted == (done != "nothing")
        if done != "nothing" and isinstance(each.judged.obj, Pod):
            assert touchable(world, raw), raw
    redis.flushdb()


def stored(world: MemoryCluster, each: Planned) -> Obj:
    """The object as it is in the API server."""
    ref = each.judged.ref
    kinds = {resource.kind: resource for resource in res.STORED}
    return world.api.get(kinds[ref.kind], ref.namespace, ref.name).obj


def touchable(world: MemoryCluster, pod: Obj) -> bool:
    """Whether a pod may be replaced at all, by rules of the test's own: it lacks what a live webhook would give it."""
    metadata = pod["metadata"]
    namespace = world.api.get(res.NAMESPACES, "", metadata["namespace"]).obj
    if "deletionTimestamp" in metadata or "deletionTimestamp" in namespace["metadata"]:
        return False
    if "kubernetes.io/config.mirror" in annotations_of(pod) or metadata["namespace"] == "kube-system":
        return False
    if any(owner["kind"] == "Node" for owner in metadata.get("ownerReferences", ())):
        return False
    if pod["status"]["phase"] in ("Succeeded", "Failed") or pod["spec"].get("hostNetwork"):
        return False
    return any(_lacks(mesh, world, pod, namespace) for mesh in WEARS)


def _lacks(mesh: str, world: MemoryCluster, pod: Obj, namespace: Obj) -> bool:
    wear = WEARS[mesh]
    if world.store.get(res.MUTATING_WEBHOOKS, "", wear.configuration) is None:
        return False
    spec = pod["spec"]
    names = [container["name"] for container in [*spec["containers"], *spec.get("initContainers", ())]]
    said, of_namespace = annotations_of(pod), annotations_of(namespace)
    if wear.sidecar in names:
        return False
    if mesh == "linkerd":
        asks = said.get("linkerd.io/inject", of_namespace.get("linkerd.io/inject"))
        return asks == "enabled" and "config.linkerd.io/admission-webhooks" not in labels_of(namespace)
    if mesh == "istio":
        opted_out = labels_of(pod).get("sidecar.istio.io/inject") == "false"
        return labels_of(namespace).get("istio-injection") == "enabled" and not opted_out
    return said.get({"vault": "vault.hashicorp.com/agent-inject", "dapr": "dapr.io/enabled"}[mesh]) == "true"


MESHED = Place("shop", (("linkerd.io/inject", "enabled"),))
BOTH = Place("bank", (("linkerd.io/inject", "enabled"),), (("istio-injection", "enabled"),))
SYSTEM = Place("kube-system")
LINKERD_WORKS = AnInjector("linkerd")
DAPR_ASKED = (("dapr.io/enabled", "true"), ("linkerd.io/inject", "disabled"))
VAULT_ASKED = (("vault.hashicorp.com/agent-inject", "true"),)


def scene(*owners: AnOwner, injectors: tuple[AnInjector, ...] = (LINKERD_WORKS,), **more: Any) -> Scene:
    known: dict[str, Any] = {"budgets": (), "policy": Policy()}
    return Scene((MESHED, BOTH, SYSTEM), owners, injectors, **(known | more))


def bare(kind: str = "ReplicaSet", count: int = 2, **more: Any) -> AnOwner:
    known: dict[str, Any] = {"place": 0, "desired": count, "pods": (APod(),) * count}
    return AnOwner(kind, **(known | more))


def stuck(**more: Any) -> AnOwner:
    return AnOwner("ReplicaSet", more.pop("place", 0), text=TEXTS[0], **more)


def alone(**more: Any) -> AnOwner:
    return bare("Pod", 1, **more)


def _not(code: str) -> Answer:
    return Answer("nothing", code)


AS_CONTROLLER = Policy.model_validate({"repair": {"impersonate_controller": True}})
BARE_PODS = Policy.model_validate({"repair": {"bare_pods": True}})
NO_DRY_RUNS = AnInjector("linkerd", side_effects="Some")
NOBODY_THERE = AnInjector("linkerd", Fault.NO_ENDPOINTS, side_effects="Some")
EVICT, NUDGE, RECREATE = Answer("evict"), Answer("nudge"), Answer("recreate")

KNOWN: dict[str, tuple[Scene, str, Answer]] = {
    "a bare pod": (scene(bare()), "uid-web-0-0", EVICT),
    "a pod without a controller": (scene(alone(), policy=BARE_PODS), "uid-web-0-0", RECREATE),
    "a stuck workload": (scene(stuck()), "uid-web-0", NUDGE),
    "a webhook that refuses dry runs": (scene(stuck(), injectors=(NO_DRY_RUNS,)), "uid-web-0", NUDGE),
    "the same, without endpoints": (scene(stuck(), injectors=(NOBODY_THERE,)), "uid-web-0", _not("no_quorum")),
    "the same for a pod": (scene(bare(), injectors=(NO_DRY_RUNS,)), "uid-web-0-0", _not("dry_run_unsupported")),
    "two sidecars, one of which fails": (
        scene(
            bare(annotations=VAULT_ASKED),
            injectors=(LINKERD_WORKS, AnInjector("vault", Fault.NOT_INJECTING)),
        ),
        "uid-web-0-0",
        _not("no_sidecar"),
    ),
    "another injector is down, elsewhere": (
        scene(stuck(place=1), stuck(), injectors=(LINKERD_WORKS, AnInjector("istio", Fault.KILLED))),
        "uid-web-1",
        NUDGE,
    ),
    "an injector that asks who creates": (
        scene(bare(annotations=DAPR_ASKED), injectors=(AnInjector("dapr"),)),
        "uid-web-0-0",
        _not("no_sidecar"),
    ),
    "the same, asked in the controller's name": (
        scene(bare(annotations=DAPR_ASKED), injectors=(AnInjector("dapr"),), policy=AS_CONTROLLER),
        "uid-web-0-0",
        EVICT,
    ),
    "its status lags": (scene(stuck(status_lags=True)), "uid-web-0", NUDGE),
    "its owner rolls out": (scene(bare(state="updating", above=True)), "uid-web-0-0", _not("owner_unsettled")),
    "its owner is gone": (scene(bare(state="gone")), "uid-web-0-0", _not("owner_gone")),
    "a kind that is not installed": (scene(bare("Rollout")), "uid-web-0-0", _not("owner_gone")),
    "a budget": (scene(bare(), budgets=(Budget(0, "web-0"),)), "uid-web-0-0", _not("blocked_by_pdb")),
    "a budget with room": (scene(bare(), budgets=(Budget(0, "web-0", allowed=1),)), "uid-web-0-0", EVICT),
    "two budgets": (
        scene(bare(), budgets=(Budget(0, "web-0", allowed=1), Budget(0, allowed=1))),
        "uid-web-0-0",
        _not("several_pdbs"),
    ),
    "others of it are away": (scene(bare(desired=4)), "uid-web-0-0", _not("share_taken")),
    "not the last of a StatefulSet": (scene(bare("StatefulSet")), "uid-web-0-0", _not("not_its_turn")),
    "the last of a StatefulSet": (scene(bare("StatefulSet")), "uid-web-0-1", EVICT),
    "a pod alone with finalizers": (
        scene(alone(pods=(APod(finalizers=("example.com/kept",)),)), policy=BARE_PODS),
        "uid-web-0-0",
        _not("has_finalizers"),
    ),
    "finalizers, and a controller": (scene(bare(pods=(APod(finalizers=("a.b/c",)),), count=1)), "uid-web-0-0", EVICT),
    "another is Ready, and not long enough": (scene(bare(settling=1)), "uid-web-0-0", _not("share_taken")),
    "its share is taken by another's repair": (scene(bare(slots=1)), "uid-web-0-0", _not("share_taken")),
    "its share has room beside another's repair": (
        scene(bare(count=8, slots=1), policy=Policy.model_validate({"repair": {"share": 0.5}})),
        "uid-web-0-0",
        EVICT,
    ),
    "every node is cordoned": (scene(bare(), nodes="cordoned"), "uid-web-0-0", _not("no_node")),
    "the same, and a dead injector": (
        scene(bare(), nodes="cordoned", injectors=(AnInjector("linkerd", Fault.NOT_INJECTING),)),
        "uid-web-0-0",
        _not("no_sidecar"),
    ),
    "a DaemonSet's node has a taint": (scene(bare("DaemonSet"), nodes="tainted"), "uid-web-0-0", _not("no_node")),
    "the brake is shut": (scene(bare(), brake="shut"), "uid-web-0-0", _not("brake_shut")),
    "what was lost holds the brake": (scene(bare(desired=9), brake="lost"), "uid-web-0-0", _not("share_taken")),
    "the same, of another owner": (
        scene(bare(count=1, desired=9), bare(), brake="lost"),
        "uid-web-1-0",
        _not("brake_shut"),
    ),
    "what was lost is wanted no more": (scene(bare(), brake="found"), "uid-web-0-0", EVICT),
    "a canary is on its way": (scene(bare(), brake="canary"), "uid-web-0-0", _not("canary_first")),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_planned_and_done(name: str, redis: RedisClient) -> None:
    """The answers that the random clusters have to come upon, one by one."""
    known, uid, expected = KNOWN[name]
    world = known.build()
    each = next(each for each in plan(world, known, redis) if each.judged.ref.uid == uid)
    assert each.answer == expected
    outcome = repaired(each.judged.ref, world.cluster, known.policy, redis, note=known.note)
    done = effect(world.writes, each)
    assert Answer(done, "" if done != "nothing" else outcome.code) == expected
    redis.flushdb()
