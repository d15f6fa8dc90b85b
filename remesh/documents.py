"""Files that people give: JSON lines, JSON or YAML, taken apart into documents. Pure.

Such a file may come from anyone. What cannot be a manifest is refused in one line, before it costs memory or time.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from remesh.errors import UsageError

_MAX_ALIASED: Final = 200_000
"""Values that a YAML document may repeat by its aliases. Without a bound, one kilobyte stands for billions."""

_UNCONSTRUCTED: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What PyYAML lets through for a value that its tag does not allow, such as `!!int ""` or the date 2026-99-99."""


def load_documents(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Every document of a file: JSON lines, one JSON object, or YAML with any number of documents; Lists are opened.

    Raises UsageError naming file and line where it cannot be read, or where it is empty.
    """
    documents = list(_json_lines(text, name) if _looks_like_json_lines(text) else _yaml(text, name))
    if "\\" in text or not _encodable(text):
        _refuse_surrogates(documents, name)
    opened = [item for document in documents for item in _opened(document, name)]
    if not opened:
        raise UsageError(f"{name}: no document in it; give a manifest or a cases file")
    yield from opened


def _looks_like_json_lines(text: str) -> bool:
    first = text.lstrip()[:1]
    line = text.lstrip().split("\n", 1)[0].rstrip()
    return first == "{" and line.endswith("}") and len(line) > 2


def _json_lines(text: str, name: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{name}:{number}: not JSON: {_problem(error)}; correct the line") from error


def _yaml(text: str, name: str) -> Iterator[Any]:
    import yaml  # late: the command line starts without it

    try:
        yield from (document for document in yaml.load_all(text, _bounded_loader()) if document is not None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "cannot be read"
        raise UsageError(f"{where}: not YAML: {problem}; correct the file") from error
    except (*_UNCONSTRUCTED, RecursionError) as error:
        raise UsageError(f"{name}: not YAML: {_problem(error)}; correct the file") from error


@cache
def _bounded_loader() -> Any:
    """PyYAML's safe loader, which counts what aliases repeat while it composes, before anything is constructed."""
    import yaml

    refusal: Any = yaml.composer.ComposerError

    class Bounded(yaml.SafeLoader):
        values = 0  # with everything that aliases repeat
        aliased = 0  # of them

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            before = self.values
            node: Any = super().compose_node(parent, index)
            if isinstance(event, yaml.AliasEvent):
                repeated = getattr(node, "remesh_values", None)  # of a node that is not complete, there is none
                if repeated is None:
                    raise refusal(None, None, "an alias inside what it names", event.start_mark)
                self.values += repeated
                self.aliased += repeated
                if self.aliased > _MAX_ALIASED:
                    problem = f"its aliases repeat more than {_MAX_ALIASED} values"
                    raise refusal(None, None, problem, event.start_mark)
            else:
                self.values += 1
                node.remesh_values = self.values - before
            return node

    return Bounded


def _problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if "integer string conversion" in str(error):  # Python's own bound, against quadratic time
        return "a number with thousands of digits"
    return str(error) if type(error) is ValueError else "a value that its tag does not allow"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_surrogates(documents: list[Any], name: str) -> None:
    """Half of a UTF-16 pair, escaped in a file, is no character: it can be neither printed nor sent."""
    waiting = list(documents)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and not _encodable(value):
            shown = value.encode(errors="backslashreplace")[:60].decode()
            raise UsageError(f"{name}: {shown!r}: an unpaired surrogate is no character; correct the file")
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            waiting += value


def _opened(document: Any, name: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise UsageError(f"{name}: {type(document).__name__} where a manifest was expected; give a mapping")
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _opened(item, name)
    else:
        yield document
