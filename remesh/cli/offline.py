"""`remesh explain -f`: manifests and cases judged by the same `decide()`, without a cluster."""

import sys
from pathlib import Path
from typing import Any

from remesh.cli.options import Common, Output
from remesh.cli.render import Table, emit
from remesh.cli.session import Session, utc_now
from remesh.cli.text import one_line
from remesh.detect import explain_document, explain_line
from remesh.documents import load_documents
from remesh.errors import UsageError
from remesh.models import Action, Decision


def explain_file(common: Common, path: Path) -> None:
    """Judge every object of a file and print the answers. Raises UsageError where the file cannot be right."""
    session = Session(common)
    name = "standard input" if str(path) == "-" else str(path)
    judged = [(document, _judge(session, name, document)) for document in load_documents(_text(path), name)]
    lines = [(explain_line(document, decision), decision) for document, decision in judged]
    emit(
        common.format,
        [_document(common.format, line, decision) for line, decision in lines],
        Table(("ID", "CLASS", "ACTION", "REASON"), [_row(line, decision) for line, decision in lines]),
        empty="",
        kind="DecisionList",
    )


def _judge(session: Session, name: str, document: dict[str, Any]) -> Decision:
    try:
        return explain_document(document, session.policy, session.profiles, utc_now())
    except UsageError as error:
        of = f" ({document['id']})" if "id" in document else ""
        raise type(error)(f"{name}{of}: {error}") from error


def _text(path: Path) -> str:
    try:
        return sys.stdin.buffer.read().decode() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "cannot be read").lower() if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"file {path}: {reason}; give a readable file with -f") from error


def _row(line: dict[str, str], decision: Decision) -> list[str]:
    later = f", then {decision.after_recovery.value}" if decision.after_recovery is not Action.NONE else ""
    return [line["id"], line["class"], line["action"] + later, one_line(decision.reason)]


def _document(output: Output, line: dict[str, str], decision: Decision) -> dict[str, Any]:
    if output is Output.JSONL:
        return dict(line)
    return {**line, **decision.model_dump(mode="json", exclude={"failure_class", "action", "reason"})}
