"""Whether a live webhook sees a pod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remesh.admission import NAMESPACE_NAME_LABEL, compile_selector, would_call
from remesh.objects import LabelSelector, MatchCondition, RuleWithOperations, SelectorRequirement, Webhook
from tests.unit.objects import namespace, webhook


def requires(key: str, operator: str, *values: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator=operator, values=list(values) or None)


TABLE = [
    ("In", ("a", "b"), {"k": "a"}, True),
    ("In", ("a", "b"), {"k": "c"}, False),
    ("In", ("a",), {}, False),
    ("NotIn", ("a",), {"k": "a"}, False),
    ("NotIn", ("a",), {"k": "b"}, True),
    ("NotIn", ("a",), {}, True),
    ("Exists", (), {"k": ""}, True),
    ("Exists", (), {}, False),
    ("DoesNotExist", (), {}, True),
    ("DoesNotExist", (), {"k": "a"}, False),
    ("Matches", ("a",), {"k": "a"}, None),
]


@pytest.mark.parametrize(("operator", "values", "labels", "expected"), TABLE)
def test_operators_on_namespace_and_pod(
    operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool | None
) -> None:
    requirement = requires("k", operator, *values)
    assert would_call(webhook(selects=[requirement]), namespace(labels=labels), None).matches is expected
    assert would_call(webhook(objects=[requirement]), namespace(), labels).matches is expected


def test_all_requirements_must_hold() -> None:
    both = [requires("a", "Exists"), requires("b", "In", "1")]
    assert would_call(webhook(objects=both), namespace(), {"a": "", "b": "1"}).matches is True
    assert would_call(webhook(objects=both), namespace(), {"a": "", "b": "2"}).matches is False


def test_a_plain_no_beats_what_cannot_be_told() -> None:
    both = [requires("a", "Unheard"), requires("b", "Exists")]
    assert would_call(webhook(objects=both), namespace(), {}).matches is False
    assert would_call(webhook(objects=both), namespace(), {"b": ""}).matches is None


def test_match_labels() -> None:
    hook = webhook()
    hook.namespace_selector = LabelSelector(match_labels={"a": "1", "b": "2"})
    assert would_call(hook, namespace(labels={"a": "1", "b": "2", "c": "3"}), None).matches is True
    assert would_call(hook, namespace(labels={"a": "1"}), None).matches is False


def test_every_namespace_carries_its_name() -> None:
    hook = webhook(selects=[requires(NAMESPACE_NAME_LABEL, "NotIn", "kube-system")])
    assert would_call(hook, namespace("shop"), None).matches is True
    assert would_call(hook, namespace("kube-system"), None).matches is False


def test_unknown_namespace_matters_only_to_a_namespace_selector() -> None:
    assert would_call(webhook(), None, None).matches is True
    assert would_call(webhook(selects=[requires("a", "Exists")]), None, None).matches is None


def test_match_conditions_cannot_be_told() -> None:
    match = would_call(webhook(match_conditions=[MatchCondition(name="x", expression="true")]), namespace(), None)
    assert match.matches is None
    assert "dry run" in match.reason


def test_selector_that_leaves_it_out_beats_match_conditions() -> None:
    hook = webhook(
        objects=[requires("a", "Exists")], match_conditions=[MatchCondition(name="x", expression="object.x")]
    )
    assert would_call(hook, namespace(), {}).matches is False


RULES = [
    (RuleWithOperations(["CREATE"], [""], ["v1"], ["pods"]), True),
    (RuleWithOperations(["*"], ["*"], ["*"], ["*"]), True),
    (RuleWithOperations(["CREATE", "UPDATE"], ["", "apps"], ["v1"], ["pods", "deployments"]), True),
    (RuleWithOperations(["CREATE"], [""], ["v1"], ["*/*"]), True),
    (RuleWithOperations(["CREATE"], [""], ["v1"], ["pods"], "Namespaced"), True),
    (RuleWithOperations(["CREATE"], [""], ["v1"], ["pods"], "Cluster"), False),
    (RuleWithOperations(["UPDATE"], [""], ["v1"], ["pods"]), False),
    (RuleWithOperations(["CREATE"], ["apps"], ["v1"], ["pods"]), False),
    (RuleWithOperations(["CREATE"], [""], ["v1beta1"], ["pods"]), False),
    (RuleWithOperations(["CREATE"], [""], ["v1"], ["pods/ephemeralcontainers", "pods/*"]), False),
    (RuleWithOperations(), False),
]


@pytest.mark.parametrize(("rule", "expected"), RULES)
def test_rules_must_cover_the_creation_of_pods(rule: RuleWithOperations, expected: bool) -> None:
    assert would_call(webhook(rules=[rule]), namespace(), None).matches is expected


def test_webhook_without_rules_sees_nothing() -> None:
    assert would_call(Webhook(name="x"), namespace(), None).matches is False


def test_empty_selector_selects_everything() -> None:
    assert compile_selector(None) is None
    assert compile_selector(LabelSelector()) is None


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)
requirement = st.builds(
    SelectorRequirement,
    key=st.sampled_from("abc"),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(st.sampled_from("12"), max_size=2),
)


@given(requirement, labels)
def test_operators_come_in_opposites(requirement: SelectorRequirement, labels: dict[str, str]) -> None:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    other = SelectorRequirement(key=requirement.key, operator=opposite[requirement.operator], values=requirement.values)
    answers = [would_call(webhook(objects=[each]), namespace(), labels).matches for each in (requirement, other)]
    assert sorted(answers, key=bool) == [False, True]
