"""pydantic's complaints as words for whoever wrote the value. Used for settings, TOML files and the command line.

Source of the types: https://docs.pydantic.dev/latest/errors/validation_errors/
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_PLAIN: Final[dict[str, str]] = {
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": 'must be a text in quotes, such as "shop"',
    "tuple_type": 'must be a list, such as ["shop"]',
    "list_type": 'must be a list, such as ["shop"]',
    "frozen_set_type": 'must be a list, such as ["shop"]',
    "dict_type": "must be a table of keys and values",
    "model_type": "must be a table of keys and values",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} {unit}",
    "too_long": "must have at most {max_length} {unit}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}
_CLUSTER: Final = "^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
_CHOICE: Final = re.compile(r"\^\(([A-Za-z0-9|]+)\)\$")
# What reaches the command line's parser is text alone, without a type.
_TEXTS: Final = (
    (re.compile(r"Input should be a valid integer\b.*"), "must be a whole number"),
    (re.compile(r"Input should be a valid number\b.*"), "must be a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"must be at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"must be at most \1"),
    (re.compile(r"Input should be "), "must be "),
    (re.compile(r"Value error, "), ""),
)


def problem_of(error: Mapping[str, Any]) -> str:
    """What is wrong, from one entry of `ValidationError.errors()`: `must be at least 1`."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "string_pattern_mismatch":
        return _of_pattern(str(context.get("pattern", "")))
    if kind in _PLAIN:
        unit = "entries" if context.get("field_type") in ("Tuple", "List", "Dictionary") else "characters"
        return _PLAIN[kind].format_map({"unit": unit, **{name: _number(value) for name, value in context.items()}})
    text = plain_text(str(error["msg"]))
    return text[:1].lower() + text[1:]


def plain_text(text: str) -> str:
    """The same for pydantic's words inside a longer text."""
    for pattern, words in _TEXTS:
        text = pattern.sub(words, text)
    return text


def _of_pattern(pattern: str) -> str:
    if pattern == _CLUSTER:
        return "must be at most 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
    choice = _CHOICE.fullmatch(pattern)
    return f"must be {' or '.join(choice[1].split('|'))}" if choice else f"must have the form {pattern}"


def _number(value: Any) -> Any:
    """`1.0` as `1`."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
