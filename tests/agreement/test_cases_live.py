"""The public cases that end in a recreated pod, in a report or in no touch at all, each as a whole scenario.

Every case has a simulated cluster of its own. What is decided is what `plan` finds there; then a worker is sent to the
object, whatever the decision, and only the pods of `recreate_pod` cases may be written to.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from remesh.cli.survey import Judged, Survey
from remesh.cli.targets import Target, parse_target
from remesh.errors import NotFound, UsageError
from remesh.models import Action, ObjectRef, Outcome, Result
from remesh.policy import Policy
from remesh.redisdb import RedisClient
from remesh.sim.objects import Obj
from remesh.testbed import Fault
from tests.agreement.agree import repaired, survey_of
from tests.agreement.stage import CASES, LOOKED_AT, Case, Stage
from tests.cluster.workloads import has_container, path
from tests.stack import wait_until
from workers.context import Clock

# The default policy, but for its patience: a test need not wait until a workload has lacked pods for long enough.
PATIENCE: Final = {"silent_seconds": 0, "no_condition_seconds": 0}
POLICY: Final = Policy.model_validate({"detection": PATIENCE})
# Dapr's injector asks who creates a pod, so that a dry run in remesh's own name comes back bare.
AS_CONTROLLER: Final = Policy.model_validate({"detection": PATIENCE, "repair": {"impersonate_controller": True}})

CHOSEN: Final = {
    action: [case for case in CASES if case["expect_action"] == action]
    for action in ("recreate_pod", "report_only", "never_touch")
}

# Where the API cannot hold what the case is about.
NOT_IN_THE_API: Final = {
    "C030": "a ServiceProfile is refused: a custom resource, of which remesh looks at none",
    "C031": "a Namespace is refused: it creates no pods",
    "C038": "a ClusterIssuer is refused: a custom resource",
    "C039": "a SidecarSet is refused: a custom resource",
}
# A request about a pod that was refused leaves no object behind: there is nothing to look at, and nothing to repair.
NOTHING_LEFT: Final = frozenset({"C010", "C015", "C044", "C079"})

# Where a live object's state tells less than the text of the case, which stands in a Kubernetes Event or in a log.
# Then nothing is found, which is no less safe than a report.
UNTOLD: Final = {
    "C014": "the refused pod is a deployer pod; the ReplicationController wants none and has no condition",
    "C023": "a DaemonSet has no condition; no injector that remesh knows had to be asked",
    "C024": "a DaemonSet has no condition; no injector that remesh knows had to be asked",
    "C037": "a PATCH of the Deployment failed, which leaves no trace in it",
    "C042": "a StatefulSet has no condition; no injector that remesh knows had to be asked",
    "C047": "a StatefulSet has no condition; no injector that remesh knows had to be asked",
    "C056": "the reason is empty, so nothing but the missing pods is seen; no injector had to be asked",
    "C066": "a DaemonSet has no condition; nobody asks for a sidecar",
    "C068": "a DaemonSet has no condition; nobody asks for a sidecar",
    "C071": "a StatefulSet has no condition; nobody asks for a sidecar",
    "C076": "a StatefulSet has no condition; nobody asks for a sidecar",
    "C077": "a StatefulSet has no condition; nobody asks for a sidecar",
    "C080": "a DaemonSet has no condition; nobody asks for a sidecar",
    "C082": "a CronJob's pods are its Jobs': each of them is looked at by itself",
    "C118": "a DaemonSet has no condition; nobody asks for a sidecar",
}
# Where the live state leads to another word for the same thing: nothing is done.
OTHERWISE: Final = {
    "C073": ("wait_for_injector", "a Job has no condition; Istio has to be asked for its pods, and the dry run fails"),
    "C089": ("wait_for_injector", "failed repairs are counted in the ledger, which only the worker asks"),
}


def ids(case: Case) -> str:
    return str(case["id"])


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    opened = Stage(request.param)
    yield opened
    opened.close()


def on_stage(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stage", cases, indirect=True, ids=ids)


def without(cases: list[Case], *names: str) -> list[Case]:
    return [case for case in cases if case["id"] not in names]


# Setting the scene


def stuck(stage: Stage) -> str:
    """A workload whose pods are refused in the case's words; its name."""
    there = int(stage.body.get("status", {}).get("replicas", 0))
    wanted = int(stage.body.get("spec", {}).get("replicas", 1))
    stage.prepare()
    if there:
        stage.create_owner(there)
        stage.wait_pods(there)
        stage.set_injector()
        stage.refuse()
        stage.scale(wanted)
    else:
        stage.set_injector()
        stage.refuse()
        stage.create_owner(wanted)
    if wanted > there:
        wait_until(lambda: stage.refused or _failing(stage), "a refused pod", 30)
    (owner,) = wait_until(stage.owners, "the owner", 30)
    name = str(owner["metadata"]["name"])
    if stage.kind() in ("ReplicaSet", "Deployment", "ReplicationController") and wanted > there:
        wait_until(lambda: _failing(stage), "its condition", 30)
    return name


def _failing(stage: Stage) -> bool:
    return any(owner["status"].get("conditions") for owner in stage.owners())


def pod(stage: Stage) -> str:
    """A pod in the state of the case; its name."""
    stage.prepare()
    if stage.kind() in ("", "Node"):
        return _alone(stage)
    half_bare = stage.case["id"] == "C084"
    if half_bare:
        stage.create_owner(2)
        stage.wait_pods(2)
    if not _comes_injected(stage):
        stage.bed.inject_fault(Fault.NOT_INJECTING)
    if half_bare:
        stage.scale(4)
    else:
        stage.create_owner(2)
    found = stage.wait_pods(4 if half_bare else 1 if stage.kind() in ("DaemonSet", "Job") else 2)
    found.sort(key=lambda each: has_container(each, stage.wear.sidecar))
    stage.bed.heal()
    if stage.case["id"] == "C100":
        stage.recreate_configuration()
    stage.set_injector()
    name = str(found[0]["metadata"]["name"])
    _finish(stage, name)
    return name


def _comes_injected(stage: Stage) -> bool:
    return bool(stage.case["expect_class"] == "has_sidecar")


def _alone(stage: Stage) -> str:
    """A pod that nobody controls, or that mirrors one of a node's own."""
    metadata = {**stage.template()["metadata"], "name": stage.name}
    if stage.kind() == "Node":
        node = stage.client.api.get("/api/v1/nodes/sim-node-0")
        reference = {"apiVersion": "v1", "kind": "Node", "name": "sim-node-0", "uid": node["metadata"]["uid"]}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": stage.template()["spec"]}
    stage.client.create(stage.namespace, body)
    stage.wait_pods(1)
    return stage.name


def _finish(stage: Stage, name: str) -> None:
    """Let it end, where the case's pod has."""
    status = stage.body.get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        place = path("Pod", stage.namespace, name) + "/status"
        stage.client.api.patch(place, {"status": {"phase": status["phase"], "reason": status.get("reason", "")}})


# Looking and acting


def policy_of(stage: Stage) -> Policy:
    return AS_CONTROLLER if stage.wear.creators else POLICY


def looked_at(stage: Stage, name: str) -> tuple[Survey, Judged]:
    """As `plan KIND/NAME` does."""
    survey = survey_of(stage.cluster, policy_of(stage))
    kind = "ReplicaSet" if stage.body["kind"] == "Deployment" else str(stage.body["kind"])
    if kind == "Pod":
        return survey, survey.prove(survey.look(stage.cluster.pod(stage.namespace, name)))
    return survey, survey.prove(survey.look(stage.cluster.workload(kind, stage.namespace, name)))


def state(stage: Stage) -> dict[str, Obj]:
    """Everything of the case that a repair could write to, but for what its controllers keep writing."""
    found = [*stage.pods(), *(stage.owners() if stage.kind() not in ("", "Node") else [])]
    return {each["metadata"]["uid"]: each["metadata"].get("annotations", {}) for each in found}


def worked_on(stage: Stage, ref: ObjectRef, redis: RedisClient) -> Outcome:
    return repaired(ref, stage.cluster, policy_of(stage), redis, Clock())


def untouched(stage: Stage, judged: Judged, redis: RedisClient) -> None:
    """A worker that is sent there all the same, perhaps by somebody's mistake, writes nothing."""
    before = state(stage)
    outcome = worked_on(stage, judged.ref, redis)
    assert outcome.acted is False, outcome
    assert outcome.result in (Result.REPORTED, Result.ALREADY_HEALTHY, Result.WAITING), outcome
    assert stage.noting.tried == []
    assert before.items() <= state(stage).items()


# The cases


@on_stage(CHOSEN["recreate_pod"])
def test_a_bare_pod_is_recreated(stage: Stage, redis: RedisClient) -> None:
    name = pod(stage)
    before = {each["metadata"]["uid"] for each in stage.pods()}
    survey, judged = looked_at(stage, name)
    assert (judged.decision.action, judged.decision.failure_class) == (Action.RECREATE_POD, "missing_sidecar")
    assert judged.not_now is None
    bare = survey.scan(stage.namespace)
    assert len(bare) == 2
    for each in bare:
        outcome = worked_on(stage, each.ref, redis)
        assert outcome.result is Result.HEALED, outcome
    assert len(stage.noting.writes) == len(bare)
    assert all(place.endswith("/eviction") for _, place in stage.noting.writes)
    wait_until(lambda: len(stage.pods()) == len(before), "as many pods as before", 30)
    injected = before - {each.ref.uid for each in bare}
    assert before & {each["metadata"]["uid"] for each in stage.pods()} == injected
    assert survey_of(stage.cluster, policy_of(stage)).scan(stage.namespace) == []


def _works_for_others(stage: Stage) -> bool:
    """The injector works and refuses only this template: live, the dry run is of this very template, and may pass."""
    return bool(stage.context.get("injector", {}).get("probe") == "passes")


def is_workload(case: Case) -> bool:
    return case["object"]["kind"] in LOOKED_AT and case["object"]["kind"] != "Pod"


REPORTED_WORKLOADS: Final = [case for case in CHOSEN["report_only"] if is_workload(case)]


@on_stage(without(REPORTED_WORKLOADS, "C014", "C037", "C082"))
def test_a_workload_is_reported_and_not_touched(stage: Stage, redis: RedisClient) -> None:
    _, judged = looked_at(stage, stuck(stage))
    case, decision = stage.case, judged.decision
    if case["id"] in UNTOLD:
        assert decision.action in (Action.NONE, Action.REPORT_ONLY), (UNTOLD[case["id"]], decision)
    elif case["id"] in OTHERWISE:
        assert (decision.action, OTHERWISE[case["id"]][1]) == OTHERWISE[case["id"]], decision
    else:
        assert (decision.action, decision.failure_class) == (Action.REPORT_ONLY, case["expect_class"]), decision
        if not _works_for_others(stage):
            assert decision.after_recovery == case["after_recovery"]
    untouched(stage, judged, redis)


@on_stage([case for case in REPORTED_WORKLOADS if case["id"] in ("C014", "C037")])
def test_what_leaves_no_trace_is_no_finding(stage: Stage, redis: RedisClient) -> None:
    """The failed request was not for a pod of the object: it has all that it asks for."""
    stage.prepare()
    wanted = int(stage.body.get("spec", {}).get("replicas", 1))
    stage.create_owner(wanted)
    stage.wait_pods(wanted)
    (owner,) = wait_until(stage.owners, "the owner", 30)
    stage.set_injector()
    _, judged = looked_at(stage, owner["metadata"]["name"])
    assert judged.decision.action is Action.NONE, UNTOLD[stage.case["id"]]
    untouched(stage, judged, redis)


@on_stage([case for case in REPORTED_WORKLOADS if case["id"] == "C082"])
def test_a_cron_job_is_left_to_its_jobs(stage: Stage, redis: RedisClient) -> None:
    stage.prepare()
    stage.set_injector()
    template = {"spec": {"template": {"spec": {"containers": [{"name": "app"}], "restartPolicy": "Never"}}}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": template}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}
    stage.client.create(stage.namespace, body)
    survey = survey_of(stage.cluster, policy_of(stage))
    judged = survey.prove(survey.look(stage.cluster.workload("CronJob", stage.namespace, "tick")))
    assert judged.decision.action is Action.NONE, UNTOLD["C082"]
    assert survey.scan(stage.namespace) == []
    outcome = worked_on(stage, judged.ref, redis)
    assert (outcome.acted, stage.noting.tried) == (False, [])


def is_live_pod(case: Case) -> bool:
    return case["object"]["kind"] == "Pod" and case["id"] not in NOTHING_LEFT


@on_stage([case for case in CHOSEN["report_only"] if is_live_pod(case)])
def test_a_pod_is_reported_and_not_touched(stage: Stage, redis: RedisClient) -> None:
    _, judged = looked_at(stage, pod(stage))
    case, decision = stage.case, judged.decision
    expected, _ = OTHERWISE.get(case["id"], ("report_only", ""))
    assert (decision.action, decision.failure_class) == (expected, case["expect_class"]), decision
    untouched(stage, judged, redis)


@on_stage([case for case in CHOSEN["never_touch"] if is_live_pod(case)])
def test_a_pod_is_never_touched(stage: Stage, redis: RedisClient) -> None:
    survey, judged = looked_at(stage, pod(stage))
    decision = judged.decision
    assert decision.action is Action.NEVER_TOUCH, decision
    # Of a refused mirror pod (C016) the text says more than the pod that is there.
    assert stage.case["message"] or decision.failure_class == stage.case["expect_class"]
    assert judged.ref.name not in {each.ref.name for each in survey.scan(stage.namespace)}
    untouched(stage, judged, redis)


@on_stage([case for case in CHOSEN["never_touch"] if is_workload(case)])
def test_a_denied_workload_is_never_touched(stage: Stage, redis: RedisClient) -> None:
    _, judged = looked_at(stage, stuck(stage))
    expected = (Action.NEVER_TOUCH, stage.case["expect_class"])
    assert (judged.decision.action, judged.decision.failure_class) == expected, judged.decision
    untouched(stage, judged, redis)


@on_stage([case for case in CASES if case["id"] in NOTHING_LEFT])
def test_a_pod_that_was_refused_is_nowhere(stage: Stage, redis: RedisClient) -> None:
    """Whoever asked for it was told; in the cluster is nothing."""
    stage.prepare()
    stage.refuse()
    survey = survey_of(stage.cluster, policy_of(stage))
    assert survey.scan(stage.namespace) == []
    with pytest.raises(NotFound):
        survey.choose([Target("Pod", stage.name)], survey.session)
    ref = ObjectRef(api_version="v1", kind="Pod", namespace=stage.namespace, name=stage.name, uid="gone")
    outcome = worked_on(stage, ref, redis)
    assert (outcome.result, outcome.acted, stage.noting.tried) == (Result.OBSOLETE, False, [])


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in NOT_IN_THE_API], ids=ids)
def test_what_has_no_pods_cannot_even_be_asked_about(case: Case) -> None:
    target = f"{case['object']['kind']}/{case['object']['metadata']['name']}"
    with pytest.raises(UsageError, match="is not known"):
        parse_target(target)


def test_every_case_is_played() -> None:
    """None is left out without a word."""
    chosen = [case for cases in CHOSEN.values() for case in cases]
    assert len(chosen) == 71
    assert {case["id"] for case in chosen if case["object"]["kind"] not in LOOKED_AT} == set(NOT_IN_THE_API)
    assert {*UNTOLD, *OTHERWISE, *NOT_IN_THE_API, *NOTHING_LEFT} <= {case["id"] for case in chosen}
