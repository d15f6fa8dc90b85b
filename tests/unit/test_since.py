"""Bare pods that are older than what makes an injector see them: they missed no injection, and are only reported."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from remesh.decide import decide
from remesh.kube.decode import decode_object
from remesh.models import Action, Probe
from remesh.objects import (
    ConfigurationMeta,
    ManagedFields,
    Namespace,
    NamespaceMeta,
    SelectorRequirement,
    Webhook,
    WebhookConfiguration,
)
from remesh.policy import Policy, RepairPolicy
from remesh.since import configured_times, requested_since
from tests.unit.objects import LIVE, PROFILES, pod, seen, webhook
from watcher.store import Store

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BEFORE, CREATED, LATER = "2026-06-01T09:00:00Z", "2026-06-01T10:00:00Z", "2026-06-01T11:00:00Z"
OPT_OUT = "config.linkerd.io/admission-webhooks"
OLDER, EVICTED = (Action.REPORT_ONLY, "older_than_mesh"), (Action.RECREATE_POD, "probe_passes")
ISTIO = [
    ("istio-sidecar-injector", webhook("rev.namespace.sidecar-injector.istio.io", "istio-system/istiod", selects=needs))
    for needs in [[SelectorRequirement("istio.io/rev", "In", ["default"])]]
]


OPTS_OUT = [(LIVE[0][0], webhook(selects=[SelectorRequirement(OPT_OUT, "NotIn", ["disabled"])]))]


def entry(time: str, labels: tuple[str, ...] = (), annotations: tuple[str, ...] = (), operation: str = "Update") -> Any:
    groups = {"f:labels": labels, "f:annotations": annotations}
    fields: dict[str, Any] = {kind: {f"f:{key}": {} for key in keys} for kind, keys in groups.items() if keys}
    return ManagedFields(operation, time, {"f:metadata": fields})


def namespace(*entries: ManagedFields, labels: dict[str, str] | None = None) -> Namespace:
    annotations = {"linkerd.io/inject": "enabled"}
    return Namespace(
        metadata=NamespaceMeta(
            name="shop", uid="uid-shop", labels=labels, annotations=annotations, managed_fields=list(entries)
        )
    )


def judged(where: Namespace, webhooks: list[tuple[str, Webhook]] = LIVE, **more: Any) -> tuple[Action, str]:
    bare = pod()
    bare.metadata.creation_timestamp = CREATED
    observed = seen(bare, namespace=where, webhooks=webhooks, probe=Probe.PASSES, **more)
    decision = decide(observed, Policy(), PROFILES, NOW)
    return decision.action, decision.code


def test_pods_that_came_after_their_namespaces_request_are_replaced() -> None:
    assert judged(namespace(entry(BEFORE, annotations=("linkerd.io/inject",)))) == EVICTED


def test_a_request_that_came_later_makes_pods_older_than_it() -> None:
    assert judged(namespace(entry(LATER, annotations=("linkerd.io/inject",)))) == OLDER


def test_a_label_that_only_the_live_selector_names_counts() -> None:
    asks = {"istio.io/rev": "default"}

    assert judged(namespace(entry(BEFORE, ("istio.io/rev",)), labels=asks), ISTIO) == EVICTED
    assert judged(namespace(entry(LATER, ("istio.io/rev",)), labels=asks), ISTIO) == OLDER


def test_an_opt_out_that_was_turned_round_counts() -> None:
    assert judged(namespace(entry(LATER, (OPT_OUT,)), labels={OPT_OUT: "enabled"}), OPTS_OUT) == OLDER


def test_other_labels_and_the_namespaces_own_name_do_not_count() -> None:
    where = namespace(entry(LATER, ("team", "kubernetes.io/metadata.name"), ("cattle.io/status",)))
    selects = [SelectorRequirement("kubernetes.io/metadata.name", "NotIn", ["kube-system"])]

    assert judged(where, [("linkerd-proxy-injector-webhook-config", webhook(selects=selects))]) == EVICTED


@pytest.mark.parametrize(
    "applied",
    [
        entry(LATER, annotations=("kubectl.kubernetes.io/last-applied-configuration",)),
        entry(LATER, labels=("team",), operation="Apply"),
    ],
    ids=["client-side", "server-side"],
)
def test_a_manifest_applied_later_may_have_lost_an_opt_out(applied: ManagedFields) -> None:
    assert judged(namespace(applied)) == OLDER


def test_the_policy_may_allow_older_pods() -> None:
    observed = seen(pod(), namespace=namespace(entry(LATER, annotations=("linkerd.io/inject",))), probe=Probe.PASSES)
    observed.obj.metadata.creation_timestamp = CREATED

    assert decide(observed, Policy(repair=RepairPolicy(older_pods=True)), PROFILES, NOW).action is Action.RECREATE_POD


# Taken away: the API server keeps no entry for that


def test_an_opt_out_that_is_taken_away_while_the_watcher_runs_makes_pods_older() -> None:
    store = Store()
    store.replace("Namespace", [namespace(entry(BEFORE, (OPT_OUT,)), labels={OPT_OUT: "disabled"})])
    for version in ("2", "3"):  # it is remembered over further changes
        freed = namespace()
        freed.metadata.resource_version = version
        store.apply("Namespace", "MODIFIED", freed)

    found = store.namespace("shop")
    since = requested_since(found, PROFILES.by_name("linkerd"))
    assert since is not None
    assert since.date() == datetime.now(UTC).date()
    assert found is not None
    assert judged(found, OPTS_OUT) == OLDER


def test_another_label_that_is_taken_away_changes_nothing() -> None:
    store = Store()
    store.replace("Namespace", [namespace(labels={"team": "a"})])
    store.replace("Namespace", [namespace()])

    assert requested_since(store.namespace("shop"), PROFILES.by_name("linkerd")) is None


def read_again(namespace_version: str, pod_version: str, *entries: ManagedFields, **labels: str) -> tuple[Action, str]:
    """What somebody says who has not seen how it was before."""
    where, bare = namespace(*entries, labels=labels or None), pod()
    where.metadata.resource_version, bare.metadata.resource_version = namespace_version, pod_version
    bare.metadata.creation_timestamp = CREATED
    decision = decide(seen(bare, namespace=where, webhooks=LIVE, probe=Probe.PASSES), Policy(), PROFILES, NOW)
    return decision.action, decision.code


def test_a_namespace_written_after_the_pod_by_nobody_who_set_anything_has_lost_something() -> None:
    asked = entry(BEFORE, annotations=("linkerd.io/inject",))

    assert read_again("120", "99", asked) == OLDER
    assert read_again("99", "120", asked) == EVICTED
    assert read_again("120", "99") == OLDER


def test_a_later_entry_tells_what_was_written_after_the_pod() -> None:
    assert read_again("120", "99", entry(LATER, ("team",)), team="a") == EVICTED


@pytest.mark.parametrize("versions", [("", "99"), ("120", ""), ("opaque", "99"), ("99", "99")], ids=str)
def test_versions_that_cannot_be_compared_tell_nothing(versions: tuple[str, str]) -> None:
    assert read_again(*versions) == EVICTED


# The configuration


def configuration(*entries: tuple[str, dict[str, Any]]) -> WebhookConfiguration:
    fields = [ManagedFields("Update", time, {"f:webhooks": webhooks}) for time, webhooks in entries]
    meta = ConfigurationMeta(name=LIVE[0][0], creation_timestamp=BEFORE, managed_fields=fields)
    return WebhookConfiguration(metadata=meta, webhooks=[LIVE[0][1]])


NAME = 'k:{"name":"linkerd-proxy-injector.linkerd.io"}'
INSTALLED: tuple[str, dict[str, Any]] = (
    BEFORE,
    {".": {}, NAME: {".": {}, "f:namespaceSelector": {}, "f:rules": {}, "f:failurePolicy": {}}},
)


@pytest.mark.parametrize("field", ["f:namespaceSelector", "f:objectSelector", "f:rules", "f:matchConditions"])
def test_a_webhook_that_sees_others_since_later_makes_pods_older(field: str) -> None:
    times = configured_times([configuration(INSTALLED, (LATER, {NAME: {field: {}}}))])

    assert judged(namespace(), configured=times) == OLDER


@pytest.mark.parametrize(
    "fields", [{"f:failurePolicy": {}}, {"f:clientConfig": {"f:caBundle": {}}}, {"f:timeoutSeconds": {}}], ids=str
)
def test_what_an_operator_or_the_injector_patches_in_an_outage_does_not(fields: dict[str, Any]) -> None:
    times = configured_times([configuration(INSTALLED, (LATER, {NAME: fields}))])

    assert judged(namespace(), configured=times) == EVICTED


@pytest.mark.parametrize("webhooks", [5, [], {NAME: 1}], ids=str)
def test_managed_fields_of_a_configuration_that_cannot_be_told_count(webhooks: Any) -> None:
    assert judged(namespace(), configured=configured_times([configuration((LATER, webhooks))])) == OLDER


def test_managed_fields_of_a_configuration_are_read_from_the_api_server() -> None:
    changed = {"operation": "Update", "time": LATER, "fieldsV1": {"f:webhooks": {NAME: {"f:rules": {}}}}}
    document = {"metadata": {"name": "x", "creationTimestamp": BEFORE, "managedFields": [changed]}}

    times = configured_times([decode_object("MutatingWebhookConfiguration", json.dumps(document).encode())])
    assert times["x"] == datetime(2026, 6, 1, 11, tzinfo=UTC)
