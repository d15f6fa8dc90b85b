"""`remesh explain -f`: manifests and cases judged by the same `decide()`, without a cluster."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from remesh.cli.options import Common, Output
from remesh.cli.render import Table, emit
from remesh.cli.session import Session, utc_now
from remesh.cli.text import one_line
from remesh.decide import decide
from remesh.detect import manifest_observed
from remesh.errors import RemeshError, UsageError
from remesh.models import Action, Decision


class Source(NamedTuple):
    """One document and where it stands."""

    where: str
    document: dict[str, Any]


def explain_file(common: Common, path: Path) -> None:
    """Judge every object of a file and print the answers. Raises UsageError where the file cannot be right."""
    session = Session(common)
    name = "standard input" if str(path) == "-" else str(path)
    sources = list(documents(name, _text(path)))
    if not sources:
        raise UsageError(f"{name} holds no object; give a manifest or a cases file")
    answers = [(_id(source.document), judge(session, source)) for source in sources]
    emit(
        common.format,
        [_document(common.format, id_, decision) for id_, decision in answers],
        Table(("ID", "CLASS", "ACTION", "REASON"), [_row(id_, decision) for id_, decision in answers]),
        empty="",
        kind="DecisionList",
    )


def judge(session: Session, source: Source) -> Decision:
    """What `decide()` says of one document."""
    try:
        observed = manifest_observed(source.document)
    except RemeshError as error:
        raise UsageError(f"{source.where}: {error}") from error
    return decide(observed, session.policy, session.profiles, utc_now())


def documents(name: str, text: str) -> Iterator[Source]:
    """Every object of a text: JSON lines, or YAML documents (JSON is YAML); a List is taken apart."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for _, line in lines):
        parts: Iterator[tuple[str, Any]] = _json_lines(name, lines)
    else:
        parts = _yaml(name, text)
    for where, document in parts:
        yield from _objects(where, document)


def _json_lines(name: str, lines: list[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        try:
            yield f"{name}:{number}", json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}:{number}: not valid JSON: {error.msg}; correct the line") from error


def _yaml(name: str, text: str) -> Iterator[tuple[str, Any]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for number, document in enumerate(yaml.load_all(text, loader), 1):
            yield f"{name}, document {number}", document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "not YAML"
        raise UsageError(f"{where}: not valid YAML: {problem}; correct the file") from error


def _objects(where: str, document: Any) -> Iterator[Source]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise UsageError(f"{where}: not a Kubernetes object (no mapping at the top); correct the file")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(where, item)
    else:
        yield Source(where, document)


def _text(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "cannot be read").lower() if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"file {path}: {reason}; give a readable file with -f") from error


def _id(document: dict[str, Any]) -> str:
    if "id" in document:
        return str(document["id"])
    meta = document.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return f"{document.get('kind', 'Object')}/{meta.get('name') or meta.get('generateName') or '?'}"


def _row(id_: str, decision: Decision) -> list[str]:
    later = f", then {decision.after_recovery.value}" if decision.after_recovery is not Action.NONE else ""
    return [id_, decision.failure_class.value, decision.action.value + later, one_line(decision.reason)]


def _document(output: Output, id_: str, decision: Decision) -> dict[str, Any]:
    short = {
        "id": id_,
        "class": decision.failure_class.value,
        "action": decision.action.value,
        "reason": decision.reason,
    }
    if output is Output.JSONL:
        return short
    return {**short, **decision.model_dump(mode="json", exclude={"failure_class", "action", "reason"})}
