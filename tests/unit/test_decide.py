"""What is decided for workloads and pods as a live cluster shows them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remesh.decide import NUDGED_KINDS, Counts, counts, decide, expected_sidecars, failure_text
from remesh.models import Action, FailureClass, InjectorHealth, Observed, Probe
from remesh.objects import (
    Condition,
    Container,
    LabelSelector,
    MatchCondition,
    Namespace,
    Pod,
    SelectorRequirement,
    Webhook,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from remesh.policy import Mode, Policy, RepairPolicy, Scope
from tests.unit.objects import (
    LINKERD,
    LIVE,
    PROFILES,
    REFUSED,
    controlled_by,
    meshed,
    namespace,
    pod,
    seen,
    webhook,
    workload,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
QUOTA = 'pods "web-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
DENIED = f'admission webhook "{LINKERD}" denied the request: bad value'
EXPIRED = REFUSED.split(": dial")[0] + ": x509: certificate has expired or is not yet valid"
HTTP_500 = REFUSED.split(": Post")[0] + ': an error on the server ("boom") has prevented the request from succeeding'
NO_WEBHOOK = "Timeout: request did not complete within requested timeout - context deadline exceeded"


def judge(observed: Observed, policy: Policy | None = None) -> tuple[FailureClass, Action, Action, str]:
    decision = decide(observed, policy or Policy(), PROFILES, NOW)
    assert decision.reason
    return decision.failure_class, decision.action, decision.after_recovery, decision.code


def answer(observed: Observed, policy: Policy | None = None) -> tuple[Action, str]:
    _, action, _, code = judge(observed, policy)
    return action, code


# Refused workloads.


@pytest.mark.parametrize("kind", sorted(NUDGED_KINDS))
def test_every_kind_waits_for_the_injector_and_is_nudged_once_the_probe_passes(kind: str) -> None:
    stuck = workload(kind)
    waiting = judge(seen(stuck, message=REFUSED))
    assert waiting == (
        FailureClass.WEBHOOK_CONNECTION_REFUSED,
        Action.WAIT_FOR_INJECTOR,
        Action.NUDGE_OWNER,
        "not_proven",
    )
    assert answer(seen(stuck, message=REFUSED, probe=Probe.FAILS)) == (Action.WAIT_FOR_INJECTOR, "probe_fails")
    assert answer(seen(stuck, message=REFUSED, probe=Probe.PASSES)) == (Action.NUDGE_OWNER, "probe_passes")


@pytest.mark.parametrize("text", [EXPIRED, HTTP_500])
def test_what_somebody_must_correct_is_reported_and_healed_all_the_same(text: str) -> None:
    for probe in (Probe.UNKNOWN, Probe.FAILS):
        _, action, after, code = judge(seen(workload(message=text), probe=probe))
        assert (action, after, code) == (Action.REPORT_ONLY, Action.NUDGE_OWNER, "needs_correction")
    assert answer(seen(workload(message=text), probe=Probe.PASSES)) == (Action.NUDGE_OWNER, "probe_passes")


def test_malformed_answer_for_this_template_is_reported_while_the_injector_works_for_others() -> None:
    health = InjectorHealth(probe=Probe.PASSES, own_template=False)
    observed = replace(seen(workload(message=HTTP_500)), health=health)
    assert answer(observed) == (Action.REPORT_ONLY, "template_answered_badly")


@pytest.mark.parametrize("probe", list(Probe))
@pytest.mark.parametrize("text", [DENIED, QUOTA])
def test_denial_and_quota_are_never_retried(text: str, probe: Probe) -> None:
    _, action, after, _ = judge(seen(workload(message=text), probe=probe))
    assert (action, after) == (Action.REPORT_ONLY, Action.NONE)


def test_policy_at_work_is_never_touched() -> None:
    text = 'admission webhook "validation.gatekeeper.sh" denied the request: no limits'
    assert answer(seen(workload(message=text), probe=Probe.PASSES)) == (Action.NEVER_TOUCH, "denied_by_policy")


def test_finding_says_which_injector_and_how_many_pods() -> None:
    decision = decide(seen(workload(message=REFUSED, desired=5, current=2)), Policy(), PROFILES, NOW)
    assert decision.injector is not None
    assert decision.injector.mesh == "linkerd"
    assert decision.injector.configuration == "linkerd-proxy-injector-webhook-config"
    assert decision.injector.key == "linkerd/linkerd-proxy-injector"
    assert decision.missing == 3
    assert decision.sidecar_expected is True
    assert decision.is_finding


def test_unmeshed_workload_behind_the_injector_is_nudged_on_success_alone() -> None:
    observed = seen(workload(message=REFUSED), namespace=namespace(), probe=Probe.PASSES)
    decision = decide(observed, Policy(), PROFILES, NOW)
    assert decision.action is Action.NUDGE_OWNER
    assert decision.sidecar_expected is False


def test_live_webhook_without_profile_is_no_injector() -> None:
    text = REFUSED.replace(LINKERD, "sidecar-injector.example.com").replace("linkerd-proxy-injector", "x")
    live = [*LIVE, ("sidecar-injector", webhook("sidecar-injector.example.com", "default/sidecar-injector"))]
    assert answer(seen(workload(message=text), webhooks=live, probe=Probe.PASSES)) == (
        Action.REPORT_ONLY,
        "not_an_injector",
    )


def test_shared_webhook_name_is_told_apart_by_service() -> None:
    text = REFUSED.replace(LINKERD, "mpod.kb.io")
    collector = webhook("mpod.kb.io", "obs/opentelemetry-operator-webhook", path="/mutate-v1-pod")
    other = webhook("mpod.kb.io", "sys/other-webhook", path="/mutate-v1-pod")
    assert answer(seen(workload(message=text), webhooks=[("a", other)]))[1] == "not_an_injector"
    assert answer(seen(workload(message=text), webhooks=[("b", collector)]))[0] is Action.WAIT_FOR_INJECTOR


def test_revisions_that_share_a_webhook_name_are_told_apart_by_the_called_service() -> None:
    name = "namespace.sidecar-injector.istio.io"
    live = [(f"istio-sidecar-injector-{rev}", webhook(name, f"istio-system/istiod-{rev}")) for rev in ("a", "b")]
    text = f'failed calling webhook "{name}": Post "https://istiod-b.istio-system.svc:443/inject?timeout=10s": EOF'
    decision = decide(seen(workload(message=text), webhooks=live), Policy(), PROFILES, NOW)
    assert decision.injector is not None
    assert decision.injector.service_name == "istiod-b"


def test_webhook_that_is_gone_holds_nothing_back() -> None:
    assert answer(seen(workload(message=REFUSED), webhooks=[])) == (Action.REPORT_ONLY, "webhook_gone")


def test_webhook_replaced_by_another_revision_is_followed() -> None:
    old = REFUSED.replace(LINKERD, "namespace.sidecar-injector.istio.io")
    live = [("istio-revision-tag-x", webhook("rev.namespace.sidecar-injector.istio.io", "istio-system/istiod-x"))]
    around = namespace(labels={"istio.io/rev": "x"})
    decision = decide(seen(workload(message=old), webhooks=live, namespace=around), Policy(), PROFILES, NOW)
    assert decision.action is Action.WAIT_FOR_INJECTOR
    assert decision.injector is not None
    assert decision.injector.service_name == "istiod-x"


# Off limits.


@pytest.mark.parametrize("probe", list(Probe))
def test_protected_namespace_is_only_reported(probe: Probe) -> None:
    observed = seen(workload(message=REFUSED, where="kube-system"), probe=probe)
    assert answer(observed) == (Action.REPORT_ONLY, "protected_namespace")


def test_namespace_out_of_scope_is_only_reported() -> None:
    policy = Policy(scope=Scope(namespaces=("other",)))
    assert answer(seen(workload(message=REFUSED), probe=Probe.PASSES), policy) == (Action.REPORT_ONLY, "out_of_scope")


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("linkerd-proxy-injector", None),
        ("renamed", {"linkerd.io/control-plane-component": "proxy-injector"}),
    ],
)
def test_injector_that_blocks_itself_is_reported(name: str, labels: dict[str, str] | None) -> None:
    own = workload(message=REFUSED, where="linkerd", owner=name, name=f"{name}-6d9b8f", labels=labels)
    assert answer(seen(own, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "injector_blocks_itself")


def test_other_control_plane_workloads_wait() -> None:
    other = workload(message=REFUSED, where="linkerd", owner="linkerd-destination", name="linkerd-destination-1")
    assert answer(seen(other))[0] is Action.WAIT_FOR_INJECTOR


def test_same_name_in_another_namespace_is_not_the_injector() -> None:
    same = workload(message=REFUSED, owner="linkerd-proxy-injector", name="linkerd-proxy-injector-1")
    assert answer(seen(same))[0] is Action.WAIT_FOR_INJECTOR


def test_opted_out_and_host_network_are_only_reported() -> None:
    out = workload(message=REFUSED, annotations={"linkerd.io/inject": "disabled"})
    assert answer(seen(out, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "opted_out")
    host = workload(message=REFUSED, host_network=True)
    assert answer(seen(host, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "host_network")


def test_terminating_namespace_is_never_touched() -> None:
    around = namespace(deleted=True)
    assert answer(seen(workload(message=REFUSED), namespace=around)) == (Action.NEVER_TOUCH, "namespace_terminating")


def test_terminating_object_is_left_in_peace() -> None:
    going = workload(message=REFUSED)
    going.metadata.deletion_timestamp = "2026-06-01T11:00:00Z"
    assert answer(seen(going, probe=Probe.PASSES)) == (Action.NONE, "terminating")


def test_failed_attempts_stop_hope_and_then_everything() -> None:
    stuck = workload(message=REFUSED)
    assert answer(seen(stuck, attempts=1, probe=Probe.FAILS)) == (Action.REPORT_ONLY, "attempt_failed")
    assert answer(seen(stuck, attempts=1)) == (Action.WAIT_FOR_INJECTOR, "not_proven")
    assert answer(seen(stuck, attempts=1, probe=Probe.PASSES))[0] is Action.NUDGE_OWNER
    assert answer(seen(stuck, attempts=3, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "attempts_used_up")


def test_failed_attempt_needs_proof_for_this_very_template() -> None:
    health = InjectorHealth(probe=Probe.PASSES, own_template=False)
    for stuck in (workload(message=REFUSED), pod()):
        assert answer(replace(seen(stuck, attempts=1), health=health)) == (Action.REPORT_ONLY, "attempt_failed")
        assert answer(replace(seen(stuck), health=health))[0] in (Action.NUDGE_OWNER, Action.RECREATE_POD)


def test_observe_mode_says_what_it_would_do() -> None:
    policy = Policy(mode=Mode.OBSERVE)
    decision = decide(seen(workload(message=REFUSED), probe=Probe.PASSES), policy, PROFILES, NOW)
    assert (decision.action, decision.code) == (Action.REPORT_ONLY, "observe_only")
    assert "nudge_owner" in decision.reason
    assert answer(seen(workload(message=REFUSED)), policy)[0] is Action.WAIT_FOR_INJECTOR


def test_other_kinds_are_reported_when_refused_and_ignored_otherwise() -> None:
    profile = Workload(kind="ServiceProfile", api_version="linkerd.io/v1alpha2")
    assert answer(seen(profile, message=REFUSED)) == (Action.REPORT_ONLY, "kind_not_nudged")
    assert answer(seen(profile)) == (Action.NONE, "kind_not_watched")


def test_cron_job_is_only_reported() -> None:
    cron = Workload(kind="CronJob", api_version="batch/v1")
    assert judge(seen(cron, probe=Probe.FAILS))[:2] == (FailureClass.WEBHOOK_CALL_FAILED, Action.REPORT_ONLY)
    assert answer(seen(cron, probe=Probe.PASSES, notes={"unfinished_jobs": 200}))[0] is Action.REPORT_ONLY
    assert answer(seen(cron))[0] is Action.NONE


def test_newest_text_beats_the_conditions_first_one() -> None:
    assert judge(seen(workload(message=REFUSED), message=QUOTA))[0] is FailureClass.QUOTA_EXCEEDED
    assert judge(seen(workload(message=QUOTA), message=REFUSED))[1] is Action.WAIT_FOR_INJECTOR


# Time-outs that name no webhook.


def test_unnamed_time_out_of_a_meshed_workload_waits_for_its_injector() -> None:
    decision = decide(seen(workload(message=NO_WEBHOOK), stuck_seconds=60.0), Policy(), PROFILES, NOW)
    assert (decision.failure_class, decision.action) == (FailureClass.API_TIMEOUT, Action.WAIT_FOR_INJECTOR)
    assert decision.injector is not None


def test_unnamed_time_out_of_an_unmeshed_workload_is_given_the_longest_back_off() -> None:
    stuck = seen(workload(message=NO_WEBHOOK), namespace=namespace())
    assert answer(replace(stuck, stuck_seconds=900.0)) == (Action.NONE, "too_young")
    assert answer(replace(stuck, stuck_seconds=1100.0)) == (Action.REPORT_ONLY, "no_injector_involved")
    proven = replace(stuck, stuck_seconds=1100.0, health=InjectorHealth(probe=Probe.PASSES))
    assert answer(proven)[0] is Action.NUDGE_OWNER


def test_plugin_that_ran_out_of_time_is_tied_to_the_expected_injector() -> None:
    text = 'Internal error occurred: admission plugin "MutatingAdmissionWebhook" failed to complete mutation in 13s'
    assert answer(seen(workload(message=text)))[0] is Action.WAIT_FOR_INJECTOR
    assert answer(seen(workload(message=text), namespace=namespace()))[0] is Action.REPORT_ONLY


# Silent workloads.


@pytest.mark.parametrize("kind", sorted(NUDGED_KINDS))
def test_silent_workload_counts_once_it_has_lacked_pods_long_enough(kind: str) -> None:
    limit = 30.0 if kind in ("ReplicaSet", "ReplicationController") else 15.0
    young, old = (seen(workload(kind), stuck_seconds=seconds) for seconds in (limit - 1, limit + 1))
    assert answer(young) == (Action.NONE, "too_young")
    assert judge(old) == (FailureClass.STUCK_SILENT, Action.WAIT_FOR_INJECTOR, Action.NUDGE_OWNER, "not_proven")
    proven = replace(old, health=InjectorHealth(probe=Probe.PASSES))
    assert judge(proven)[:2] == (FailureClass.STUCK_SILENT, Action.NUDGE_OWNER)
    failing = replace(old, health=InjectorHealth(probe=Probe.FAILS))
    assert judge(failing)[:2] == (FailureClass.WEBHOOK_CALL_FAILED, Action.WAIT_FOR_INJECTOR)


def test_silent_workload_is_judged_by_its_age_where_nobody_watched() -> None:
    created = (NOW - timedelta(seconds=20)).isoformat()
    assert answer(seen(workload(created=created))) == (Action.NONE, "too_young")
    created = (NOW - timedelta(hours=1)).isoformat()
    assert answer(seen(workload(created=created)))[0] is Action.WAIT_FOR_INJECTOR


def test_silent_workload_that_no_injector_sees_is_not_remeshs_business() -> None:
    assert answer(seen(workload(), namespace=namespace(), stuck_seconds=99.0)) == (Action.NONE, "no_injector_involved")
    away = [("x", webhook(selects=[SelectorRequirement(key="mesh", operator="Exists")]))]
    assert answer(seen(workload(), webhooks=away, stuck_seconds=99.0)) == (Action.NONE, "no_injector_involved")
    kube_system = seen(workload(where="kube-system"), namespace=namespace("kube-system"), stuck_seconds=99.0)
    assert answer(kube_system)[0] is Action.NONE


def test_ordered_stateful_set_waits_for_its_own_pods() -> None:
    ordered = workload("StatefulSet", desired=3, current=1)
    ordered.status.ready_replicas = 0
    assert answer(seen(ordered, stuck_seconds=99.0)) == (Action.NONE, "ordered_start")
    ordered.status.ready_replicas = 1
    assert answer(seen(ordered, stuck_seconds=99.0))[0] is Action.WAIT_FOR_INJECTOR
    ordered.status.ready_replicas, ordered.spec.pod_management_policy = 0, "Parallel"
    assert answer(seen(ordered, stuck_seconds=99.0))[0] is Action.WAIT_FOR_INJECTOR


def test_job_whose_pods_failed_is_given_its_back_off() -> None:
    job = workload("Job", desired=1)
    job.status.failed = 2
    assert answer(seen(job, stuck_seconds=300.0)) == (Action.NONE, "too_young")
    assert answer(seen(job, stuck_seconds=700.0))[0] is Action.WAIT_FOR_INJECTOR


def test_silent_deployment_is_left_to_its_replica_sets() -> None:
    assert answer(seen(workload("Deployment"), stuck_seconds=99.0)) == (Action.NONE, "see_replicaset")


@pytest.mark.parametrize("kind", sorted(NUDGED_KINDS))
def test_nothing_missing_is_healthy_whatever_was_once_written(kind: str) -> None:
    whole = workload(kind, desired=3, current=3, message="" if kind != "ReplicaSet" else REFUSED)
    assert answer(seen(whole, probe=Probe.PASSES)) == (Action.NONE, "healthy")
    assert answer(seen(workload(kind, desired=0), probe=Probe.PASSES)) == (Action.NONE, "healthy")


def test_suspended_job_is_healthy() -> None:
    job = workload("Job", desired=4)
    job.spec.suspend = True
    assert answer(seen(job, stuck_seconds=99.0)) == (Action.NONE, "healthy")


def test_manifest_alone_is_no_trouble() -> None:
    assert answer(seen(workload(), exists=False)) == (Action.NONE, "not_created")


# Bare pods.


def test_bare_pod_waits_and_is_recreated_once_the_probe_passes() -> None:
    assert judge(seen(pod())) == (
        FailureClass.MISSING_SIDECAR,
        Action.WAIT_FOR_INJECTOR,
        Action.RECREATE_POD,
        "not_proven",
    )
    assert answer(seen(pod(), probe=Probe.PASSES)) == (Action.RECREATE_POD, "probe_passes")
    assert answer(seen(pod(), probe=Probe.FAILS, attempts=1)) == (Action.REPORT_ONLY, "attempt_failed")
    assert answer(seen(pod(), probe=Probe.PASSES, attempts=3)) == (Action.REPORT_ONLY, "attempts_used_up")


@pytest.mark.parametrize("owner", ["ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "CloneSet"])
def test_pods_of_controllers_are_recreated(owner: str) -> None:
    assert answer(seen(pod(owner=owner), probe=Probe.PASSES))[0] is Action.RECREATE_POD


@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "Service", "HorizontalPodAutoscaler"])
def test_a_reference_to_a_kind_that_creates_no_pods_is_no_controller(kind: str) -> None:
    """Whatever is opted in: it was written by hand."""
    everything = Policy(repair=RepairPolicy(bare_pods=True, job_pods=True, older_pods=True, custom_owners=True))
    for policy in (Policy(), everything):
        subject = seen(pod(owner=kind), probe=Probe.PASSES)
        assert answer(subject, policy) == (Action.REPORT_ONLY, "no_controller")


def test_pods_that_run_once_and_pods_of_nobody_need_the_policys_word() -> None:
    job, bare = pod(owner="Job", restart="Never"), pod(owner=None)
    workflow = pod(owner="Workflow", restart="Never")
    for subject, code in ((job, "job_pod"), (workflow, "job_pod"), (bare, "no_controller")):
        assert answer(seen(subject, probe=Probe.PASSES)) == (Action.REPORT_ONLY, code)
    allowed = Policy(repair=RepairPolicy(bare_pods=True, job_pods=True))
    for subject in (job, workflow, bare):
        assert answer(seen(subject, probe=Probe.PASSES), allowed)[0] is Action.RECREATE_POD


def untouchable() -> list[tuple[str, Observed]]:
    going = pod()
    going.metadata.deletion_timestamp = "2026-06-01T11:00:00Z"
    return [
        ("mirror_pod", seen(pod(annotations={"kubernetes.io/config.mirror": "x", "linkerd.io/inject": "enabled"}))),
        ("mirror_pod", seen(pod(owner="Node"))),
        ("finished", seen(pod(phase="Succeeded"))),
        ("finished", seen(pod(phase="Failed"))),
        ("terminating", seen(going)),
        ("namespace_terminating", seen(pod(), namespace=namespace(deleted=True))),
        ("host_network", seen(pod(host_network=True))),
        ("protected_namespace", seen(pod(where="kube-public"), namespace=meshed("kube-public"))),
        ("opted_out", seen(pod(annotations={"linkerd.io/inject": "disabled"}))),
        ("injected", seen(pod("app", "linkerd-proxy"))),
    ]


@pytest.mark.parametrize(("code", "observed"), untouchable())
def test_pods_that_are_never_touched(code: str, observed: Observed) -> None:
    for probe in Probe:
        assert answer(replace(observed, health=InjectorHealth(probe=probe))) == (Action.NEVER_TOUCH, code)


def test_injectors_own_bare_pod_is_never_touched() -> None:
    labels = {"app.kubernetes.io/name": "vault-agent-injector"}
    own = pod(where="vault", labels=labels, annotations={"vault.hashicorp.com/agent-inject": "true"})
    live = [("vault-agent-injector-cfg", webhook("vault.hashicorp.com", "vault/vault-agent-injector-svc"))]
    observed = seen(own, webhooks=live, namespace=namespace("vault"), probe=Probe.PASSES)
    assert answer(observed) == (Action.NEVER_TOUCH, "injector_itself")


def test_pod_older_than_the_mesh_is_a_persons_rollout() -> None:
    assert answer(seen(pod(), webhook_older=False, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "older_than_mesh")


def test_pod_that_no_live_webhook_would_see_is_not_missing_anything() -> None:
    assert answer(seen(pod(), webhooks=[], probe=Probe.PASSES)) == (Action.REPORT_ONLY, "not_expected")
    away = [("x", webhook(objects=[SelectorRequirement(key="mesh", operator="In", values=["on"])]))]
    assert answer(seen(pod(), webhooks=away, probe=Probe.PASSES)) == (Action.REPORT_ONLY, "not_expected")


def test_match_conditions_leave_the_word_to_the_dry_run() -> None:
    hook = [("x", webhook(match_conditions=[MatchCondition(name="a", expression="b")]))]
    decision = decide(seen(pod(), webhooks=hook), Policy(), PROFILES, NOW)
    assert decision.action is Action.WAIT_FOR_INJECTOR
    assert "match conditions" in decision.reason


def test_every_expected_sidecar_counts() -> None:
    annotations = {"dapr.io/enabled": "true"}
    live = [*LIVE, ("dapr-sidecar-injector", webhook("sidecar-injector.dapr.io", "dapr-system/dapr-sidecar-injector"))]
    half = decide(seen(pod("app", "linkerd-proxy", annotations=annotations), webhooks=live), Policy(), PROFILES, NOW)
    assert half.injector is not None
    assert half.injector.mesh == "dapr"
    both = pod("app", "linkerd-proxy", "daprd", annotations=annotations)
    assert answer(seen(both, webhooks=live)) == (Action.NEVER_TOUCH, "injected")


def test_refused_pod_has_no_owner_to_nudge() -> None:
    assert answer(seen(pod(owner=None), message=REFUSED, exists=False)) == (Action.REPORT_ONLY, "no_owner_to_nudge")
    child = seen(pod(), message=REFUSED, exists=False)
    assert judge(child)[1:3] == (Action.WAIT_FOR_INJECTOR, Action.NUDGE_OWNER)


def test_expected_sidecars_of_a_template_and_of_a_pod() -> None:
    template = workload(annotations={"linkerd.io/inject": "enabled"}).spec.template
    assert template is not None
    for subject in (template, pod(annotations={"linkerd.io/inject": "enabled"})):
        found = expected_sidecars(subject, namespace(), LIVE, PROFILES)
        assert [(profile.name, ref.webhook) for profile, ref in found] == [("linkerd", LINKERD)]
    assert expected_sidecars(template, namespace(), [], PROFILES) == []


def test_changed_webhooks_are_seen_at_once() -> None:
    """Compiled selectors are kept for as long as the same webhooks are passed, and no longer."""
    for _ in range(100):
        away = [("x", webhook(selects=[SelectorRequirement(key="mesh", operator="Exists")]))]
        assert answer(seen(pod(), webhooks=away))[1] == "not_expected"
        assert answer(seen(pod(), webhooks=[("x", webhook())]))[1] == "not_proven"


# Counts.

COUNTS: list[tuple[str, dict[str, Any], dict[str, Any], Counts]] = [
    ("ReplicaSet", {"replicas": 3}, {"replicas": 1, "ready_replicas": 1}, Counts(3, 1, 1)),
    ("ReplicaSet", {}, {}, Counts(1, 0, 0)),
    ("StatefulSet", {"replicas": 2}, {"replicas": 2, "ready_replicas": 0}, Counts(2, 2, 0)),
    (
        "DaemonSet",
        {},
        {"desired_number_scheduled": 5, "current_number_scheduled": 3, "number_ready": 2},
        Counts(5, 3, 2),
    ),
    ("Job", {}, {}, Counts(1, 0, 0)),
    ("Job", {}, {"succeeded": 1}, Counts(0, 0, 0)),
    ("Job", {"parallelism": 3, "completions": 10}, {"active": 2, "succeeded": 4, "ready": 1}, Counts(3, 2, 1)),
    ("Job", {"parallelism": 5, "completions": 10}, {"active": 1, "succeeded": 8}, Counts(2, 1, 0)),
    ("Job", {"parallelism": 5}, {"active": 2, "succeeded": 1}, Counts(2, 2, 0)),
    ("Job", {"parallelism": 5}, {"active": 2}, Counts(5, 2, 0)),
    ("Job", {"parallelism": 0}, {}, Counts(0, 0, 0)),
    ("Job", {"suspend": True}, {}, Counts(0, 0, 0)),
    ("Job", {"completions": 2}, {"conditions": [Condition(type="Complete", status="True")]}, Counts(0, 0, 0)),
    ("Job", {"completions": 1}, {"terminating": 1}, Counts(1, 1, 0)),
    ("CronJob", {}, {}, Counts(0, 0, 0)),
]


@pytest.mark.parametrize(("kind", "spec", "status", "expected"), COUNTS)
def test_counts_by_kind(kind: str, spec: dict[str, Any], status: dict[str, Any], expected: Counts) -> None:
    assert counts(Workload(kind=kind, spec=WorkloadSpec(**spec), status=WorkloadStatus(**status))) == expected


def test_counted_pods_beat_the_status() -> None:
    assert counts(workload(desired=3, current=3), current=1) == Counts(3, 1, 3)
    assert counts(workload(desired=3, current=3), current=1).missing == 2


def test_failure_text_is_that_of_failed_creation_only() -> None:
    assert failure_text(workload(message="x")) == "x"
    stuck = workload(message="x")
    assert stuck.status.conditions is not None
    stuck.status.conditions[0].reason = "FailedDelete"
    assert failure_text(stuck) == ""
    stuck.status.conditions[0].reason, stuck.status.conditions[0].status = "FailedCreate", "False"
    assert failure_text(stuck) == ""


# Whatever the state.

words = st.sampled_from(["enabled", "disabled", "ingress", "true", "false", "1", "", "x", "injected"])
keys = st.sampled_from(
    [
        "linkerd.io/inject",
        "istio-injection",
        "istio.io/rev",
        "sidecar.istio.io/inject",
        "dapr.io/enabled",
        "kuma.io/sidecar-injection",
        "sidecar.opentelemetry.io/inject",
        "vault.hashicorp.com/agent-inject",
        "linkerd.io/control-plane-component",
        "kubernetes.io/config.mirror",
        "istio.io/dataplane-mode",
        "app",
    ]
)
maps = st.none() | st.dictionaries(keys, words, max_size=4)
names = st.sampled_from(["shop", "kube-system", "kube-public", "linkerd", "istio-system", "vault", "default"])
numbers = st.none() | st.integers(-2, 4)
texts = st.sampled_from(["", REFUSED, EXPIRED, HTTP_500, DENIED, QUOTA, NO_WEBHOOK, "Error creating: "]) | st.text(
    max_size=60
)
kinds = st.sampled_from([*NUDGED_KINDS, "Deployment", "CronJob", "Service", ""])
times = st.sampled_from(["", "2026-06-01T11:59:50Z", "2020-01-01T00:00:00Z", "nonsense", "2026-06-01"])
deletions = st.none() | st.just("2026-06-01T11:00:00Z")
requirements = st.builds(
    SelectorRequirement,
    key=keys,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Other"]),
    values=st.none() | st.lists(words, max_size=2),
)
selectors = st.none() | st.builds(
    LabelSelector, match_labels=maps, match_expressions=st.none() | st.lists(requirements, max_size=2)
)


def _selected(namespace_selector: LabelSelector | None, object_selector: LabelSelector | None) -> tuple[str, Webhook]:
    hook = webhook()
    hook.namespace_selector, hook.object_selector = namespace_selector, object_selector
    return "linkerd-proxy-injector-webhook-config", hook


charts = [("chart", each) for profile in PROFILES.all for each in profile.default_webhooks]
hooks = st.sampled_from([*LIVE, *charts]) | st.builds(_selected, selectors, selectors)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    made = workload(
        draw(kinds),
        message=draw(texts),
        labels=draw(maps),
        annotations=draw(maps),
        host_network=draw(st.booleans()),
        where=draw(names),
        created=draw(times),
    )
    made.metadata.deletion_timestamp = draw(deletions)
    made.spec.replicas, made.status.replicas, made.status.ready_replicas = draw(numbers), draw(numbers), draw(numbers)
    made.status.active, made.status.failed, made.spec.suspend = draw(numbers), draw(numbers), draw(st.booleans())
    if draw(st.booleans()):
        made.spec.template = None
    return made


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    made = pod(
        *draw(st.lists(st.sampled_from(["app", "linkerd-proxy", "istio-proxy", "daprd"]), max_size=3)),
        labels=draw(maps),
        annotations=draw(maps),
        owner=draw(st.sampled_from([None, "ReplicaSet", "StatefulSet", "Job", "Node", "Other"])),
        where=draw(names),
        phase=draw(st.sampled_from(["Running", "Pending", "Failed", "Succeeded", "Unknown", ""])),
        host_network=draw(st.booleans()),
        init=draw(st.none() | st.just([Container(name="linkerd-proxy", restart_policy="Always")])),
        restart=draw(st.sampled_from(["Always", "Never", "OnFailure", ""])),
    )
    made.metadata.deletion_timestamp = draw(deletions)
    return made


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    obj = draw(workloads() | pods())
    around = draw(
        st.none()
        | st.builds(namespace, st.just(obj.metadata.namespace), labels=maps, annotations=maps, deleted=st.booleans())
    )
    return Observed(
        obj=obj,
        namespace=around,
        webhooks=draw(st.none() | st.lists(hooks, max_size=3)),
        webhooks_complete=draw(st.booleans()),
        message=draw(texts),
        health=InjectorHealth(
            ready=draw(st.none() | st.booleans()), probe=draw(st.sampled_from(Probe)), own_template=draw(st.booleans())
        ),
        current=draw(st.none() | st.integers(0, 4)),
        stuck_seconds=draw(st.none() | st.floats(0, 1e6)),
        attempts=draw(st.integers(0, 5)),
        exists=draw(st.booleans()),
        webhook_older=draw(st.none() | st.booleans()),
        no_events=draw(st.booleans()),
    )


policies = st.builds(
    Policy,
    mode=st.sampled_from(Mode),
    scope=st.builds(Scope, namespaces=st.sampled_from([(), ("shop",)])),
    repair=st.builds(RepairPolicy, bare_pods=st.booleans(), job_pods=st.booleans()),
)
ACTS = (Action.NUDGE_OWNER, Action.RECREATE_POD)


def _host_network(obj: Workload | Pod) -> bool:
    if isinstance(obj, Pod):
        return obj.spec.host_network
    return obj.spec.template is not None and obj.spec.template.spec.host_network


def _leaving(obj: Workload | Pod, around: Namespace | None) -> bool:
    return obj.metadata.deletion_timestamp is not None or (around is not None and around.terminating)


@settings(max_examples=400)
@given(observations(), policies)
def test_every_state_has_an_answer_and_acting_has_its_conditions(observed: Observed, policy: Policy) -> None:
    decision = decide(observed, policy, PROFILES, NOW)
    obj, meta = observed.obj, observed.obj.metadata
    assert decision.reason
    assert decision.code
    may_act = {decision.action, decision.after_recovery} & set(ACTS)
    if decision.action in ACTS:
        assert observed.health.probe is Probe.PASSES
        assert policy.mode is Mode.REPAIR
        assert observed.attempts < policy.repair.max_attempts
    if may_act:
        assert meta.namespace not in policy.scope.protected_namespaces
        assert not policy.scope.namespaces or meta.namespace in policy.scope.namespaces
        assert not _host_network(obj)
        assert not _leaving(obj, observed.namespace)
        assert "kubernetes.io/config.mirror" not in (meta.annotations or {}) or isinstance(obj, Workload)
        assert (
            (meta.annotations or {}).get("linkerd.io/inject") != "disabled"
            or decision.injector is None
            or (decision.injector.mesh != "linkerd")
        )
    if Action.RECREATE_POD in may_act:
        assert isinstance(obj, Pod)
        assert obj.status.phase not in ("Succeeded", "Failed")
        assert meta.controller is None or meta.controller.kind != "Node"
        assert decision.sidecar_expected is True
    if decision.action is Action.WAIT_FOR_INJECTOR:
        assert decision.after_recovery in ACTS


@given(observations())
def test_same_facts_same_answer(observed: Observed) -> None:
    assert decide(observed, Policy(), PROFILES, NOW) == decide(observed, Policy(), PROFILES, NOW)


def test_controlled_by_node_is_never_evicted() -> None:
    owned = pod()
    owned.metadata.owner_references = [controlled_by("node-a", "Node")]
    assert answer(seen(owned, probe=Probe.PASSES))[0] is Action.NEVER_TOUCH
