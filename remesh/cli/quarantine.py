"""`remesh quarantine list` and `remesh quarantine clear`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli import completions
from remesh.cli.app import new_app
from remesh.cli.options import Common, with_common

if TYPE_CHECKING:
    from remesh.cli.session import Session
    from remesh.ledger import Quarantine

app = new_app(help="List or clear owners that are left alone after failed repairs.", no_args_is_help=True)


@with_common
def list_(common: Common) -> None:
    """List the quarantined owners: each is left alone until its template or the webhook configuration changes."""
    from remesh.cli.render import Table, emit
    from remesh.cli.session import Session, utc_now
    from remesh.cli.text import age_of, one_line

    found = Session(common).ledger.quarantines()
    now = utc_now()
    rows = [
        [_object(each), each.uid, each.template_hash, age_of(each.since, now), one_line(_reason(each))]
        for each in found
    ]
    emit(
        common.format,
        [each.model_dump(mode="json") for each in found],
        Table(("OBJECT", "UID", "TEMPLATE", "AGE", "REASON"), rows).shown(hide=common.hidden),
        empty="Nothing is quarantined.",
        kind="QuarantineList",
    )


@with_common
def clear(
    common: Common,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND/NAME | UID]...", help="Owners.", show_default=False, autocompletion=completions.targets
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every quarantine of this cluster.")] = False,
) -> None:
    """End quarantines, so that the owners are repaired again; your name goes into the trail."""
    from remesh.cli.render import say
    from remesh.cli.session import Session
    from remesh.errors import UsageError

    if bool(targets) == everything:
        raise UsageError("give owners (KIND/NAME or UID) or --all, one of them")
    session = Session(common)
    for each in _chosen(session, targets or []):
        _note(session, each)  # first, so that nothing is cleared that is not written down
        session.ledger.clear_quarantine(each.uid, each.template_hash)
        say(f"cleared: {_object(each)} ({each.uid})")


def _chosen(session: "Session", targets: list[str]) -> "list[Quarantine]":
    from remesh.errors import NotFound

    found = session.ledger.quarantines()
    if not targets:
        return found
    wanted = {target: [each for each in found if each.uid == _uid(session, target)] for target in targets}
    for target, matches in wanted.items():
        if not matches:
            raise NotFound(f"{target} is not quarantined; see `remesh quarantine list`")
    return [each for matches in wanted.values() for each in matches]


def _uid(session: "Session", target: str) -> str:
    if "/" not in target:
        return target
    from remesh.cli.targets import parse_target

    parsed = parse_target(target)
    if parsed.kind == "Pod":
        return session.cluster.pod(session.namespace, parsed.name).metadata.uid
    return session.cluster.workload(parsed.kind, session.namespace, parsed.name).metadata.uid


def _note(session: "Session", each: "Quarantine") -> None:
    from remesh.audit import record
    from remesh.cli.session import utc_now
    from remesh.models import RecordType

    reason = "the quarantine was cleared on the command line"
    details = {"uid": each.uid, "template_hash": each.template_hash, "evidence": each.evidence}
    cleared = record(
        RecordType.NOTE,
        cluster=session.settings.cluster,
        at=utc_now(),
        ref=_ref(each),
        finding_id=str(each.evidence.get("finding_id", "")),
        actor=session.actor,
        code="quarantine_cleared",
        reason=reason,
        details=details,
    )
    session.trail.append(cleared)


def _ref(each: "Quarantine") -> Any:
    from pydantic import ValidationError

    from remesh.models import ObjectRef

    try:
        return ObjectRef.model_validate(each.evidence.get("ref"))
    except ValidationError:
        return None


def _object(each: "Quarantine") -> str:
    ref = _ref(each)
    return f"{ref.namespace}/{ref.kind}/{ref.name}" if ref else "-"


def _reason(each: "Quarantine") -> str:
    return str(each.evidence.get("reason", ""))


app.command("list")(list_)
app.command("clear")(clear)
