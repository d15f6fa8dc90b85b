"""`remesh audit manifest`: what is kept of pods without a controller, for the person who has to create one again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remesh.cli.options import Output
from remesh.cli.render import Table, emit, emit_one, note

if TYPE_CHECKING:
    from remesh.cli.session import Session
    from remesh.ledger_manifests import Kept
    from remesh.models import AuditRecord, ObjectRef

COLUMNS: Final = ("NAMESPACE", "POD", "UID", "KEPT", "DROPPED IN", "RESULT", "REASON")
UNPROVEN: Final = "not the one that its intent in the trail names: it may be forged"


@dataclass(frozen=True, slots=True)
class _Told:
    """What the trail says of the pod whose manifest this is."""

    named: bool  # an intent names this very manifest
    result: str
    reason: str


def show(session: "Session", pod: str | None, *, whole: bool) -> None:
    """List what is kept, or print one manifest. Raises UsageError, NotFound, BrokerError."""
    from remesh.errors import UsageError

    if pod is not None:
        _print_one(session, _chosen(session, pod), whole=whole)
    elif whole:
        raise UsageError("--show-secrets needs one pod: `remesh audit manifest pod/NAME -n NAMESPACE --show-secrets`")
    else:
        _print_list(session)


def _print_list(session: "Session") -> None:
    found = [(each, _told(session, each)) for each in session.ledger.manifests.all() if _in_scope(session, each)]
    emit(
        session.common.format,
        [_document(each, told) for each, told in found],
        Table(COLUMNS, [_row(each, told) for each, told in found]),
        empty=f"No manifests are kept for cluster {session.settings.cluster!r}.",
        kind="KeptManifestList",
    )


def _in_scope(session: "Session", kept: "Kept") -> bool:
    wanted = session.common.namespace
    return wanted is None or kept.namespace == wanted


def _chosen(session: "Session", pod: str) -> "Kept":
    """The one of this UID, or the newest of this name."""
    from remesh.errors import NotFound

    if "/" not in pod:
        found = session.ledger.manifests.get(pod)
        if found is None:
            raise NotFound(f"no manifest is kept under UID {pod}; see `remesh audit manifest`")
        return found
    name, namespace = _pod_name(pod), session.namespace
    fitting = [each for each in session.ledger.manifests.all() if (each.namespace, each.name) == (namespace, name)]
    if not fitting:
        raise NotFound(f"no manifest is kept of pod {namespace}/{name}; see `remesh audit manifest`")
    if fitting[1:]:
        others = ", ".join(each.uid for each in fitting[1:])
        note(f"This is the newest, of {fitting[0].uid}; older ones are kept under {others}.")
    return fitting[0]


def _pod_name(text: str) -> str:
    from remesh.cli.targets import parse_target
    from remesh.errors import UsageError

    target = parse_target(text)
    if target.kind != "Pod":
        raise UsageError(f"{text!r} is no pod; only of pods without a controller a manifest is kept")
    return target.name


def _print_one(session: "Session", kept: "Kept", *, whole: bool) -> None:
    from remesh.kube.manifest import covered

    told = _told(session, kept)
    if not told.named:
        note(f"This manifest is {UNPROVEN}. Read it before you use it.")
    output = Output.JSON if session.common.format in (Output.JSON, Output.JSONL) else Output.YAML
    if whole:
        _write_down(session, kept)
        emit_one(output, kept.manifest)
        return
    # Wrapped, so that nobody creates a pod whose values are gone.
    emit_one(output, {**_document(kept, told), "manifest": covered(kept.manifest)})
    note("What may be secret is covered; --show-secrets prints the manifest that `kubectl create -f -` takes.")


def _write_down(session: "Session", kept: "Kept") -> None:
    """Who has seen it. A trail that cannot be written does not keep a person from bringing the pod back."""
    from remesh.audit import record
    from remesh.cli.session import utc_now
    from remesh.errors import BrokerError
    from remesh.models import RecordType

    shown = record(
        RecordType.NOTE,
        cluster=session.settings.cluster,
        at=utc_now(),
        ref=_ref(kept),
        actor=session.actor,
        code="manifest_shown",
        reason="the kept manifest was shown whole on the command line",
        details={"digest": kept.digest},
    )
    try:
        session.trail.append(shown)
    except BrokerError as error:
        note(f"Not written down: {error}")


def _told(session: "Session", kept: "Kept") -> _Told:
    from remesh.models import RecordType

    chain = list(session.trail.read(ref=_ref(kept)))
    named = any(_digest_of(each) == kept.digest for each in chain if each.type is RecordType.INTENT)
    outcomes = [each for each in chain if each.type is RecordType.OUTCOME]
    if not outcomes:
        return _Told(named, "open", chain[-1].reason if chain else "")
    return _Told(named, str(outcomes[-1].details.get("result", "")), outcomes[-1].reason)


def _digest_of(intent: "AuditRecord") -> str:
    kept = intent.details.get("manifest")
    return str(kept.get("digest", "")) if isinstance(kept, dict) else ""


def _ref(kept: "Kept") -> "ObjectRef":
    from remesh.models import ObjectRef

    # Cut, because whoever can write to Redis chooses their lengths.
    namespace, name, uid = kept.namespace[:253], kept.name[:253], kept.uid[:64]
    return ObjectRef(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid)


def _document(kept: "Kept", told: _Told) -> dict[str, Any]:
    return {
        "kind": "KeptManifest",
        "namespace": kept.namespace,
        "name": kept.name,
        "uid": kept.uid,
        "digest": kept.digest,
        "named_by_an_intent": told.named,
        "seconds_left": round(kept.seconds_left),
        "result": told.result,
        "reason": told.reason,
    }


def _row(kept: "Kept", told: _Told) -> list[str]:
    from remesh.cli.text import age, one_line
    from remesh.ledger_manifests import MANIFEST_SECONDS

    reason = told.reason if told.named else f"{UNPROVEN}. {told.reason}"
    return [
        kept.namespace,
        kept.name,
        kept.uid,
        age(MANIFEST_SECONDS - kept.seconds_left),
        age(kept.seconds_left),
        told.result,
        one_line(reason),
    ]
