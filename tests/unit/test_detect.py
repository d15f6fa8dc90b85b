"""From documents to `Observed`, and from decisions to findings."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remesh.decide import decide
from remesh.detect import (
    explain_document,
    explain_line,
    finding_for,
    manifest_observed,
    stuck_reference,
)
from remesh.documents import load_documents
from remesh.errors import UsageError
from remesh.models import Action, FailureClass, Probe
from remesh.objects import Pod, Workload
from remesh.policy import Policy
from tests.unit.objects import PROFILES, REFUSED, pod, seen, workload

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SINCE = "2026-06-01T11:50:00Z"


def case(context: dict[str, Any] | None = None, message: str = "", **more: Any) -> dict[str, Any]:
    replica_set: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "spec": {"replicas": 2, "template": {"metadata": {"annotations": {"linkerd.io/inject": "enabled"}}}},
        "status": {"replicas": 0},
        "context": context or {},
    }
    return {"id": "X1", "message": message, "object": replica_set | more}


# Findings.


def test_finding_carries_identity_cause_and_time() -> None:
    stuck = workload(message=REFUSED)
    stuck.template_hash = "t1"
    assert stuck.status.conditions is not None
    stuck.status.conditions[0].last_transition_time = SINCE
    observed = seen(stuck)
    finding = finding_for(observed, decide(observed, Policy(), PROFILES, NOW), cluster="c", now=NOW)
    assert (finding.ref.kind, finding.ref.namespace, finding.ref.uid) == ("ReplicaSet", "shop", "uid-1")
    assert finding.owner is not None
    assert (finding.owner.kind, finding.owner.name) == ("Deployment", "web")
    assert (finding.mesh, finding.failure_class) == ("linkerd", FailureClass.WEBHOOK_CONNECTION_REFUSED)
    assert (finding.desired, finding.missing) == (3, 3)
    assert finding.first_seen == datetime(2026, 6, 1, 11, 50, tzinfo=UTC)
    assert finding.message == REFUSED
    assert finding.sidecar_expected is True


def test_finding_id_lasts_as_long_as_the_trouble() -> None:
    def found(template: str, since: str) -> str:
        stuck = workload(message=REFUSED)
        stuck.template_hash = template
        assert stuck.status.conditions is not None
        stuck.status.conditions[0].last_transition_time = since
        observed = seen(stuck)
        return finding_for(observed, decide(observed, Policy(), PROFILES, NOW), cluster="c", now=NOW).id

    assert found("t1", SINCE) == found("t1", SINCE)
    assert len({found("t1", SINCE), found("t2", SINCE), found("t1", "2026-06-01T11:55:00Z")}) == 3


def test_finding_of_a_pod() -> None:
    observed = seen(pod())
    finding = finding_for(observed, decide(observed, Policy(), PROFILES, NOW), cluster="c", now=NOW)
    assert (finding.ref.kind, finding.missing, finding.first_seen) == ("Pod", 1, NOW)


def test_long_texts_are_shortened() -> None:
    observed = seen(workload(message=REFUSED + "x" * 5000))
    finding = finding_for(observed, decide(observed, Policy(), PROFILES, NOW), cluster="c", now=NOW)
    assert len(finding.message) == 500


def test_since_when_it_lacks_pods() -> None:
    stuck = workload(message="x", created="2026-06-01T10:00:00Z")
    assert stuck.status.conditions is not None
    stuck.status.conditions[0].last_transition_time = SINCE
    assert stuck_reference(stuck) == datetime(2026, 6, 1, 11, 50, tzinfo=UTC)
    assert stuck_reference(workload(created="2026-06-01T10:00:00Z")) == datetime(2026, 6, 1, 10, tzinfo=UTC)
    looked_at = workload(created="2026-06-01T10:00:00Z")
    looked_at.status.observed_generation = 1
    assert stuck_reference(looked_at) is None
    job = workload("Job")
    job.status.start_time = SINCE
    assert stuck_reference(job) == datetime(2026, 6, 1, 11, 50, tzinfo=UTC)


# Cases.


def test_context_is_read() -> None:
    observed = manifest_observed(
        case(
            {
                "injector": {"ready": True, "probe": "fails"},
                "attempts": 2,
                "age": "8h",
                "events": "<none>",
                "created": "before the mesh",
                "namespace": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "deletionTimestamp": "set"},
                "webhook": {"name": "x.y.z", "failurePolicy": "Ignore", "service": "mesh/injector"},
            },
            message="Error creating: ",
        )
    )
    assert observed.message == "Error creating: "
    assert (observed.health.ready, observed.health.probe, observed.health.own_template) == (True, Probe.FAILS, False)
    assert (observed.attempts, observed.stuck_seconds, observed.no_events) == (2, 28_800.0, True)
    assert observed.webhook_older is False
    assert observed.namespace is not None
    assert observed.namespace.terminating
    assert (observed.namespace.metadata.labels, observed.namespace.metadata.annotations) == ({"a": "b"}, {"c": "d"})
    assert observed.webhooks is not None
    hook = observed.webhooks[0][1]
    assert hook.client_config.service is not None
    assert (hook.client_config.service.namespace, hook.client_config.service.name) == ("mesh", "injector")
    assert (hook.failure_policy, observed.webhooks_complete) == ("Ignore", False)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("8h", 28_800.0),
        ("45m, until a node event", 2700.0),
        ("10s", 10.0),
        ("2d", 172_800.0),
        (90, 90.0),
        ("hours", None),
        ("", None),
        (None, None),
        (True, None),
        ("12", None),
        ("h", None),
        (["1h"], None),
    ],
)
def test_ages_are_read_and_words_mean_long_enough(given: Any, seconds: float | None) -> None:
    assert manifest_observed(case({"stuck": given})).stuck_seconds == seconds


def test_dry_run_of_the_template_itself_beats_what_is_known_of_the_injector() -> None:
    observed = manifest_observed(case({"injector": {"probe": "fails"}, "probe_dry_run": "passes"}))
    assert (observed.health.probe, observed.health.own_template) == (Probe.PASSES, True)


def test_webhook_told_by_name_keeps_its_charts_selectors() -> None:
    hook = {"name": "namespace.sidecar-injector.istio.io", "service": "istio-system/istiod"}
    bare: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "ownerReferences": [{"kind": "ReplicaSet", "controller": True}]},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"phase": "Running"},
    }
    unlabelled = {"object": {**bare, "context": {"webhook": hook}}}
    assert explain_document(unlabelled, Policy(), PROFILES, NOW).failure_class is FailureClass.NOT_EXPECTED
    labelled = {
        "object": {**bare, "context": {"webhook": hook, "namespace": {"labels": {"istio-injection": "enabled"}}}}
    }
    assert explain_document(labelled, Policy(), PROFILES, NOW).failure_class is FailureClass.MISSING_SIDECAR


def test_no_webhook_and_all_webhooks_can_be_said() -> None:
    assert manifest_observed(case({"webhook": None})).webhooks == []
    both = manifest_observed(case({"webhooks": [{"name": "a"}, {"name": "b", "service": {"name": "s"}}]}))
    assert both.webhooks is not None
    assert ([name for _, name in ((c, w.name) for c, w in both.webhooks)], both.webhooks_complete) == (["a", "b"], True)


def test_silent_job_whose_injector_works_was_a_swallowed_time_out() -> None:
    job = case({"events": "<none>", "injector": {"probe": "passes"}}, kind="Job", spec={}, status={"active": 0})
    decision = explain_document(job, Policy(), PROFILES, NOW)
    assert (decision.failure_class, decision.action) == (FailureClass.API_TIMEOUT, Action.NUDGE_OWNER)
    down = case({"events": "<none>", "injector": {"probe": "fails"}}, kind="Job", spec={}, status={"active": 0})
    decision = explain_document(down, Policy(), PROFILES, NOW)
    assert decision.failure_class is FailureClass.WEBHOOK_CALL_FAILED
    assert (decision.action, decision.after_recovery) == (Action.WAIT_FOR_INJECTOR, Action.NUDGE_OWNER)


def test_case_without_text_is_one_whose_trouble_left_none() -> None:
    assert manifest_observed(case()).no_events
    assert not manifest_observed(case(message="x")).no_events
    assert not manifest_observed(case({"events": [{"reason": "FailedCreate"}]})).no_events
    assert not manifest_observed(case()["object"]).no_events


# Manifests.

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  creationTimestamp: null
spec:
  replicas: 2
  template:
    metadata:
      creationTimestamp: null
      annotations: {linkerd.io/inject: enabled}
    spec:
      containers:
      - name: app
        image: example/app:1
        resources: null
---
# nothing
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  creationTimestamp: 2026-01-01T00:00:00Z
spec: [1, 2]
"""


def test_manifests_of_any_kind_are_read() -> None:
    documents = list(load_documents(DEPLOYMENT, "web.yaml"))
    assert [document["kind"] for document in documents] == ["Deployment", "ConfigMap"]
    deployment = manifest_observed(documents[0])
    assert isinstance(deployment.obj, Workload)
    assert (deployment.exists, deployment.webhooks) == (False, None)
    answers = [explain_document(document, Policy(), PROFILES, NOW) for document in documents]
    assert [(each.action, each.code) for each in answers] == [
        (Action.NONE, "not_created"),
        (Action.NONE, "kind_not_watched"),
    ]


def test_pod_manifest_says_what_would_be_injected() -> None:
    manifest = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"dapr.io/enabled": "true"}},
        "spec": {"containers": [{"name": "app"}]},
    }
    observed = manifest_observed(manifest)
    assert isinstance(observed.obj, Pod)
    decision = explain_document(manifest, Policy(), PROFILES, NOW)
    assert (decision.action, decision.code) == (Action.NONE, "not_created")
    assert "Dapr" in decision.reason
    assert explain_line(manifest, decision)["id"] == "Pod/p"


def test_lists_and_json_are_opened() -> None:
    items = [{"kind": "Pod", "metadata": {"name": str(number)}} for number in range(3)]
    text = json.dumps({"kind": "List", "items": items}, indent=2)
    assert list(load_documents(text, "list.json")) == items
    lines = "\n".join(json.dumps(item) for item in items) + "\n\n"
    assert list(load_documents(lines, "cases.jsonl")) == items


UNREADABLE = [
    ("", "file: no document in it"),
    ("---\n---\n", "file: no document in it"),
    ('{"id": "C1", "object": {}}\n{"id": \n', "file:2: not JSON"),
    ("kind: Pod\n  name: x\n", "file:2: not YAML"),
    ("a: [1, 2\nb: 3\n", "not YAML"),
    ("just words", "file: str where a manifest was expected"),
    ("- kind: Pod\n", "file: list where a manifest was expected"),
    ("\x00", "not YAML"),
    ("a: !!python/object:os.system {}", "not YAML"),
    ("a: 2026-99-99\n", "not YAML"),
    ("a: !!int ''\n", "not YAML: a value that its tag does not allow"),
    ("a: !!bool perhaps\n", "not YAML: a value that its tag does not allow"),
    ('{"replicas":' + "9" * 5000 + "}", "file:1: not JSON: a number with thousands of digits"),
    ("replicas: " + "9" * 5000, "file: not YAML: a number with thousands of digits"),
    ('{"kind":"Pod","metadata":{"name":"a\\ud800b"}}', "file: 'a\\\\ud800b': an unpaired surrogate"),
    ('{"kind":"Pod","metadata":{"\\udfff":"b"}}', "unpaired surrogate"),
    ('kind: Pod\nmetadata: {name: "\\ud800"}\n', "unpaired surrogate"),
    ("kind: Pod\nmetadata: &m {labels: *m}\n", "file:2: not YAML: an alias inside what it names"),
]


@pytest.mark.parametrize(("text", "expected"), UNREADABLE)
def test_unreadable_files_are_said_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(load_documents(text, "file"))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({}, "kind: missing"),
    ({"kind": 7}, "kind: missing"),
    ({"object": "x"}, "object: str where a mapping was expected"),
    ({"object": {"kind": "Pod", "context": "x"}}, "object.context: str where a mapping was expected"),
    ({"object": {"kind": "Pod", "context": {"webhook": "x"}}}, "object.context.webhook: str where a mapping"),
    ({"object": {"kind": "Pod", "context": {"namespace": []}, "metadata": []}}, "metadata: expected `object`"),
    ({"kind": "ReplicaSet", "spec": {"replicas": "three"}}, "spec.replicas: expected `int | null`, got `str`"),
    ({"kind": "Pod", "metadata": {"labels": {"a": 1}}}, "metadata.labels[...]: expected `str`, got `int`"),
    ({"kind": "Pod", "spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name: expected `str`"),
]


@pytest.mark.parametrize(("document", "expected"), MALFORMED)
def test_malformed_documents_are_said_in_one_line(document: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        manifest_observed(document)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_endless_nesting_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(UsageError, match="nested deeper"):
        manifest_observed({"kind": "Pod", "metadata": deep})
    for text in ("[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "- " * 20_000):
        with pytest.raises(UsageError):
            list(load_documents(text, "file"))


def bomb(levels: int, width: int) -> str:
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_that_stand_for_billions_are_refused_before_anything_is_built() -> None:
    with pytest.raises(UsageError, match=r"file:6: not YAML: its aliases repeat more than 200000 values"):
        list(load_documents(bomb(levels=30, width=9), "file"))


def test_aliases_within_reason_are_read() -> None:
    text = "base: &base {labels: {app: web}}\nkind: Pod\nmetadata:\n  <<: *base\n  name: p\n"
    assert next(load_documents(text, "file"))["metadata"] == {"name": "p", "labels": {"app": "web"}}
    assert len(next(load_documents(bomb(levels=4, width=9), "file"))["a3"]) == 9


def test_a_list_of_any_length_is_read() -> None:
    text = "kind: List\nitems:\n" + "- {kind: Pod, metadata: {name: p, labels: {a: b}}}\n" * 3000
    assert len(list(load_documents(text, "file"))) == 3000


def one_line(read: Callable[[], str]) -> str:
    """What was read, or why it was refused, which has to be one line."""
    try:
        return read()
    except UsageError as error:
        return str(error) if "\n" not in str(error) else ""


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
parts = st.sampled_from(["kind", "metadata", "spec", "status", "context", "webhook", "namespace", "injector", "labels"])
documents = st.dictionaries(parts, anything | st.dictionaries(parts, anything, max_size=4), max_size=6)


@given(documents, st.sampled_from(["Pod", "ReplicaSet", "Job", "CronJob", "X", None]), st.booleans())
def test_any_document_is_judged_or_refused_in_one_line(document: dict[str, Any], kind: str | None, wrap: bool) -> None:
    if kind is not None:
        document["kind"] = kind
    whole = {"object": document, "message": ""} if wrap else document
    assert one_line(lambda: explain_document(whole, Policy(), PROFILES, NOW).reason)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    assert one_line(lambda: str(list(load_documents(text, "file"))))
