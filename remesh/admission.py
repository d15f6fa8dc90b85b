"""Would a live webhook see this pod? Selectors, rules and match conditions, as the API server applies them. Pure.

Source: the Kubernetes documentation of dynamic admission control and of label selectors. A webhook's selectors are
compiled once (`compile_webhook`), because 150,000 pods may be asked about; `would_call` is the same for one question.

Three answers: yes, no, and None where it cannot be told from here. Match conditions are CEL and not evaluated; a
dry run at the API server tells.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remesh.objects import LabelSelector, Namespace, RuleWithOperations, SelectorRequirement, Webhook

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label that the API server sets on every Namespace."""

Labels = Mapping[str, str]
_NO_LABELS: Final[Labels] = {}
_Test = Callable[[Labels], bool | None]


class Match(NamedTuple):
    """Whether a webhook sees a pod: `matches` is None if that cannot be told; `reason` is one sentence."""

    matches: bool | None
    reason: str


_SEEN: Final = Match(True, "its rules and selectors match")


def would_call(webhook: Webhook, namespace: Namespace | None, labels: Labels | None) -> Match:
    """Whether the API server would call `webhook` when a pod with `labels` is created in `namespace`.

    `namespace` None: not known, so a namespaceSelector cannot be judged.
    """
    return compile_webhook(webhook).match(namespace_labels(namespace), labels or _NO_LABELS)


def namespace_labels(namespace: Namespace | None) -> Labels | None:
    """A namespace's labels as webhooks see them, with its name among them; None if it is not known."""
    if namespace is None:
        return None
    labels = namespace.metadata.labels
    if labels is not None and NAMESPACE_NAME_LABEL in labels:
        return labels
    return {**(labels or _NO_LABELS), NAMESPACE_NAME_LABEL: namespace.metadata.name}


class CompiledWebhook:
    """One webhook's rules and selectors, ready to be asked about many pods."""

    __slots__ = ("_namespace", "_object", "_verdict")

    def __init__(self, webhook: Webhook) -> None:
        self._verdict = _unless_selected(webhook)
        self._namespace = compile_selector(webhook.namespace_selector)
        self._object = compile_selector(webhook.object_selector)

    def match(self, namespace: Labels | None, labels: Labels) -> Match:
        """Whether a pod with these labels, in a namespace with those, is seen. `namespace` None: not known."""
        if self._verdict.matches is False:
            return self._verdict
        return _of_namespace(self._namespace, namespace) or _of_object(self._object, labels) or self._verdict


def compile_webhook(webhook: Webhook) -> CompiledWebhook:
    """Prepare one webhook for many questions."""
    return CompiledWebhook(webhook)


def _of_namespace(test: _Test | None, namespace: Labels | None) -> Match | None:
    if test is None:
        return None
    if namespace is None:
        return _NAMESPACE_UNKNOWN
    return _NAMESPACE_ANSWERS[test(namespace)]


def _of_object(test: _Test | None, labels: Labels) -> Match | None:
    return None if test is None else _OBJECT_ANSWERS[test(labels)]


_NAMESPACE_UNKNOWN: Final = Match(None, "it selects by namespace, and the namespace is not known")
_NAMESPACE_ANSWERS: Final[dict[bool | None, Match | None]] = {
    True: None,
    False: Match(False, "its namespaceSelector leaves this namespace out"),
    None: Match(None, "its namespaceSelector has an operator that is not known here"),
}
_OBJECT_ANSWERS: Final[dict[bool | None, Match | None]] = {
    True: None,
    False: Match(False, "its objectSelector leaves this pod out"),
    None: Match(None, "its objectSelector has an operator that is not known here"),
}


def _unless_selected(webhook: Webhook) -> Match:
    """The answer for pods that the selectors let through."""
    if not any(_covers_pod_creation(rule) for rule in webhook.rules or ()):
        return Match(False, "its rules do not cover the creation of pods")
    if webhook.match_conditions:
        return Match(None, "it has match conditions, which only a dry run can tell")
    return _SEEN


def _covers_pod_creation(rule: RuleWithOperations) -> bool:
    """Pods are served in one group and version only, so matchPolicy Equivalent adds nothing."""
    return (
        _any_of(rule.operations, "CREATE", "*")
        and _any_of(rule.api_groups, "", "*")
        and _any_of(rule.api_versions, "v1", "*")
        and _any_of(rule.resources, "pods", "*", "*/*")
        and rule.scope in ("*", "Namespaced", "")
    )


def _any_of(values: list[str] | None, *wanted: str) -> bool:
    return any(value in wanted for value in values or ())


def compile_selector(selector: LabelSelector | None) -> _Test | None:
    """Turn a label selector into a function of labels; None for an empty one, which selects everything."""
    if selector is None:
        return None
    tests = [_equals(key, value) for key, value in (selector.match_labels or {}).items()]
    tests += [_requirement(requirement) for requirement in selector.match_expressions or ()]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return _all_of(tuple(tests))


def _all_of(tests: tuple[_Test, ...]) -> _Test:
    def test(labels: Labels) -> bool | None:
        answer: bool | None = True
        for each in tests:
            one = each(labels)
            if one is False:
                return False
            if one is None:
                answer = None
        return answer

    return test


def _equals(key: str, value: str) -> _Test:
    return lambda labels: labels.get(key) == value


def _requirement(requirement: SelectorRequirement) -> _Test:
    key, values = requirement.key, frozenset(requirement.values or ())
    operators: dict[str, _Test] = {
        "In": lambda labels: labels.get(key) in values,
        "NotIn": lambda labels: labels.get(key) not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
    }
    return operators.get(requirement.operator, _cannot_tell)


def _cannot_tell(_labels: Labels) -> bool | None:
    return None
