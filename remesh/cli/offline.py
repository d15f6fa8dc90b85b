"""`remesh explain -f`: manifests and cases judged by the same `decide()`, without a cluster."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remesh.admission import would_call
from remesh.cli.context_docs import in_namespace, names_namespace, pod_of, with_surroundings
from remesh.cli.live import WHOLE, namespace_facts, pod_labels
from remesh.cli.options import Common, Output
from remesh.cli.render import Table, emit, say
from remesh.cli.session import Session, utc_now
from remesh.cli.text import one_line
from remesh.cli.words import verdict
from remesh.decide import failure_text
from remesh.detect import explain_document, explain_line, manifest_observed
from remesh.documents import load_documents
from remesh.errors import UsageError
from remesh.models import Action, Decision, FailureClass, Observed
from remesh.objects import Workload

MOST_BYTES = 64 << 20
"""Of what is read with -f: hundreds of times a large cluster's manifests."""


def explain_file(common: Common, path: Path) -> None:
    """Judge every object of a file and print the answers. Raises UsageError where the file cannot be right."""
    session = Session(common)
    name = "standard input" if str(path) == "-" else str(path)
    documents = with_surroundings(in_namespace(list(load_documents(_text(path), name)), common.namespace))
    judged = [(document, _judge(session, name, document)) for document in documents]
    if common.format is Output.TABLE and len(judged) == 1 and "object" not in judged[0][0]:
        _show_steps(session, *judged[0])
        return
    lines = [(explain_line(document, decision), decision) for document, decision in judged]
    emit(
        common.format,
        [_document(common.format, line, decision) for line, decision in lines],
        Table(("ID", "CLASS", "ACTION", "REASON"), [_row(line, decision) for line, decision in lines]),
        empty="",
        kind="DecisionList",
    )


def _show_steps(session: Session, document: dict[str, Any], decision: Decision) -> None:
    """One manifest, step by step as `explain` does for an object of a cluster."""
    steps = list(_steps(session, document, decision))
    width = max(len(name) for name, _ in steps)
    say(explain_line(document, decision)["id"])
    for name, text in steps:
        say(f"  {name.ljust(width)}  {text}")


def _steps(session: Session, document: dict[str, Any], decision: Decision) -> Iterator[tuple[str, str]]:
    observed = manifest_observed(document)
    obj = observed.obj
    controller = obj.metadata.controller
    alone = "without a controller; " if obj.kind == "Pod" else ""
    owner = f"owned by {controller.kind}/{controller.name}; " if controller else alone
    yield "object", f"{owner}a manifest {'with' if observed.exists else 'without'} a status"
    if message := observed.message or (failure_text(obj) if isinstance(obj, Workload) else ""):
        yield "condition", one_line(message, WHOLE)
    yield "namespace", _namespace_words(document, observed, session)
    if observed.webhooks is None:
        yield "webhooks", "none in the file: the meshes' own charts stand in for them"
    for configuration, webhook in observed.webhooks or ():
        profile = session.profiles.for_webhook(configuration, webhook)
        match = would_call(webhook, observed.namespace, pod_labels(obj))
        sees = {True: "sees its pods", False: "does not see its pods", None: "may see its pods"}[match.matches]
        whose = f"{profile.name}'s injector" if profile else "no injector"
        yield "webhook", one_line(f"{configuration}/{webhook.name} ({whose}) {sees}: {match.reason}")
    yield "dry run", "not asked: a file has no cluster"
    yield "decision", one_line(verdict(decision, in_cluster=observed.exists), WHOLE)


def _namespace_words(document: dict[str, Any], observed: Observed, session: Session) -> str:
    name = observed.obj.metadata.namespace or "default"
    if not names_namespace(document) or observed.namespace is None:
        return f"namespace {name} is not in the file, so what it asks for is not known"
    return f"{name}: {namespace_facts(observed.namespace, session, observed.webhooks or ())}"


def _judge(session: Session, name: str, document: dict[str, Any]) -> Decision:
    try:
        decision = explain_document(document, session.policy, session.profiles, utc_now())
        pod = pod_of(document)
        if pod is None or decision.failure_class is not FailureClass.HEALTHY or manifest_observed(document).exists:
            return decision
        of_pod = explain_document(pod, session.policy, session.profiles, utc_now())
        return _of_template(decision, of_pod, knows_namespace=names_namespace(document))
    except UsageError as error:
        of = f" ({document['id']})" if "id" in document else ""
        raise type(error)(f"{name}{of}: {error}") from error


def _of_template(decision: Decision, of_pod: Decision, *, knows_namespace: bool) -> Decision:
    """A workload that is only a manifest, with what is to be said of the pods that it would create."""
    expected = {FailureClass.HEALTHY: True, FailureClass.HAS_SIDECAR: True, FailureClass.NOT_EXPECTED: False}
    answer, said = expected.get(of_pod.failure_class), of_pod.reason
    if of_pod.code == "not_expected" and not knows_namespace:
        answer, said = (
            None,
            "its template asks no mesh for a sidecar, and what its namespace asks for is not in the file",
        )
    told = {"code": "not_created", "sidecar_expected": answer, "injector": of_pod.injector}
    return decision.model_copy(update={**told, "reason": f"it is not in the cluster yet; a pod of it: {said}"})


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "cannot be read").lower() if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"file {path}: {reason}; give a readable file with -f") from error


def _bytes(path: Path) -> bytes:
    """A file's, a pipe's or standard input's, up to MOST_BYTES: a device, for one, has no end."""
    if str(path) == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):  # opening a folder says what it is
            raise UsageError(f"file {path}: neither a file nor a pipe; give a readable file with -f")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"file {path}: longer than {MOST_BYTES >> 20} MiB; give its documents in smaller files")
    return data


def _row(line: dict[str, str], decision: Decision) -> list[str]:
    later = f", then {decision.after_recovery.value}" if decision.after_recovery is not Action.NONE else ""
    return [line["id"], line["class"], line["action"] + later, one_line(decision.reason)]


def _document(output: Output, line: dict[str, str], decision: Decision) -> dict[str, Any]:
    if output is Output.JSONL:
        return dict(line)
    return {**line, **decision.model_dump(mode="json", exclude={"failure_class", "action", "reason"})}
