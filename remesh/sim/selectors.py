"""Label and field selectors, as query strings and as the objects that specs hold."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from remesh.sim.objects import Obj
from remesh.sim.status import StatusError, bad_request

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
ObjectTest = Callable[[Obj], bool]

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^)]*)\)$")
_EQUALITY = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")
# A comma ends a requirement unless it stands inside the parentheses of a set.
_COMMA = re.compile(r",(?![^(]*\))")


def parse_label_selector(text: str) -> LabelTest | None:
    """The test for a `labelSelector` query; None when it selects everything.

    Raises StatusError (400) for text that is no selector.
    """
    if not text.strip():
        return None
    tests = [_requirement(part.strip(), text) for part in _COMMA.split(text)]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(part: str, whole: str) -> LabelTest:
    if found := _SET.match(part):
        key, operator, values = found.groups()
        wanted = [value.strip() for value in values.split(",")]
        return _expression(key, "In" if operator == "in" else "NotIn", wanted)
    if found := _EQUALITY.match(part):
        key, operator, value = found.groups()
        return _expression(key, "NotIn" if operator == "!=" else "In", [value])
    if found := _EXISTS.match(part):
        negated, key = found.groups()
        return _expression(key, "DoesNotExist" if negated else "Exists", [])
    raise bad_request(f"unable to parse requirement: found '{part}' in label selector '{whole}'")


def _expression(key: str, operator: str, values: list[str]) -> LabelTest:
    wanted = frozenset(values)
    tests: dict[str, LabelTest] = {
        "In": lambda labels: key in labels and labels[key] in wanted,
        "NotIn": lambda labels: key not in labels or labels[key] not in wanted,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
    }
    return tests[operator]


def label_selector(selector: Mapping[str, Any] | None) -> LabelTest:
    """The test for a LabelSelector object. An absent one selects nothing, an empty one everything."""
    if selector is None:
        return lambda _labels: False
    tests = [_expression(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    for entry in selector.get("matchExpressions") or ():
        tests.append(_expression(entry["key"], entry["operator"], entry.get("values") or []))
    return lambda labels: all(test(labels) for test in tests)


def equality_selector(selector: Mapping[str, str] | None) -> LabelTest:
    """The test for a plain map of labels (Service, ReplicationController). An empty one selects nothing."""
    if not selector:
        return lambda _labels: False
    wanted = dict(selector)
    return lambda labels: all(labels.get(key) == value for key, value in wanted.items())


_FIELDS: dict[str, Callable[[Obj], object]] = {
    "metadata.name": lambda obj: obj["metadata"].get("name", ""),
    "metadata.namespace": lambda obj: obj["metadata"].get("namespace", ""),
    "spec.nodeName": lambda obj: obj.get("spec", {}).get("nodeName", ""),
    "status.phase": lambda obj: obj.get("status", {}).get("phase", ""),
    "involvedObject.name": lambda obj: obj.get("involvedObject", {}).get("name", ""),
    "involvedObject.namespace": lambda obj: obj.get("involvedObject", {}).get("namespace", ""),
    "involvedObject.kind": lambda obj: obj.get("involvedObject", {}).get("kind", ""),
    "involvedObject.uid": lambda obj: obj.get("involvedObject", {}).get("uid", ""),
    "reason": lambda obj: obj.get("reason", ""),
    "type": lambda obj: obj.get("type", ""),
}


def parse_field_selector(text: str) -> ObjectTest | None:
    """The test for a `fieldSelector` query; None when it selects everything. Raises StatusError (400)."""
    if not text.strip():
        return None
    tests = [_field_requirement(part.strip()) for part in text.split(",")]
    return lambda obj: all(test(obj) for test in tests)


def _field_requirement(part: str) -> ObjectTest:
    field, operator, value = _split_field(part)
    try:
        read = _FIELDS[field]
    except KeyError:
        raise unknown_field(field) from None
    if operator == "!=":
        return lambda obj: read(obj) != value
    return lambda obj: read(obj) == value


def _split_field(part: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        field, found, value = part.partition(operator)
        if found:
            return field.strip(), operator, value.strip()
    raise bad_request(f"invalid field selector: '{part}'; can't understand '{part}'")


def unknown_field(field: str) -> StatusError:
    """The refusal of a field that cannot be selected by."""
    return bad_request(f"field label not supported: {field}")
