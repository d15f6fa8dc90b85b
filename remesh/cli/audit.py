"""`remesh audit`: reads the trail. Needs Redis, and no cluster unless a namespace has to be looked up."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli import completions
from remesh.cli.app import one_command
from remesh.cli.options import Common, Output, with_common

if TYPE_CHECKING:
    from remesh.audit import Trail
    from remesh.cli.session import Session
    from remesh.models import AuditRecord, ObjectRef, RecordType

EXPORT = "export"
MANIFEST = "manifest"
COLUMNS = ("TIME", "TYPE", "NAMESPACE", "OBJECT", "MESH", "CODE", "ASKED BY", "FINDING", "REASON")
WIDTHS = (20, 8, 14, 34, 8, 20, 16, 14, 0)  # for lines that come one by one
TAIL_SECONDS = 1.0  # Ctrl-C is noticed within it


@with_common
def audit(
    common: Common,
    *,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND/NAME | export | manifest]",
            help="Only this object and what it owns, such as a Deployment's ReplicaSets and their pods; `export` "
            "prints whole records as JSON lines; `manifest` shows what is kept of pods without a controller.",
            show_default=False,
            autocompletion=completions.records,
        ),
    ] = None,
    pod: Annotated[
        str | None,
        typer.Argument(
            metavar="[pod/NAME | UID]", help="After `manifest`: only this pod's, as YAML.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only the last span of time, such as 90s, 15m, 2h, 1d.", show_default=False),
    ] = None,
    finding: Annotated[
        str | None, typer.Option("--finding", help="Only this finding's chain.", show_default=False)
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type of record; may be repeated.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")] = False,
    show_secrets: Annotated[
        bool,
        typer.Option(
            "--show-secrets", help="After `manifest pod/NAME`: the whole manifest, for `kubectl create -f -`."
        ),
    ] = False,
) -> None:
    """Read the audit trail: every finding, wait, decision, refusal, action and outcome, oldest first.

    Nothing is ever dropped from it. `remesh audit export > trail.jsonl` keeps it outside of Redis,
    `remesh audit verify` proves it, and `remesh audit prune` takes what is old out of it.

    `remesh audit manifest` lists the pods without a controller whose manifest was kept before they were evicted, and
    `remesh audit manifest pod/NAME` shows one, without what may be secret in it. Where remesh could not create the pod
    again: `remesh audit manifest pod/NAME -n NS --show-secrets | kubectl create -f -`.
    """
    from remesh.cli.session import Session

    session = Session(common, kept=True)
    if subject == MANIFEST:
        from remesh.cli.manifests import show

        _refuse_filters(since=since, finding=finding, type=types, follow=follow)
        show(session, pod, whole=show_secrets)
        return
    _refuse_for_records(pod, show_secrets)
    output = Output.JSONL if subject == EXPORT else common.format
    query = _Query(session, None if subject == EXPORT else subject, since, finding, types or [])
    if follow:
        _follow(session.trail, query, output)
    elif subject == EXPORT and query.everything:
        from remesh.cli.audit_export import export

        export(session.trail, query.since)
    else:
        found = query.records(session.trail)
        where = f"in the trail of cluster {session.settings.cluster!r}"
        _print(found, output, lambda: f"{query.nothing(session.trail)} {where}.")


def _refuse_filters(**given: object) -> None:
    from remesh.errors import UsageError

    for name, value in given.items():
        if value:
            raise UsageError(f"`remesh audit manifest` takes no --{name}; leave it out")


def _refuse_for_records(pod: str | None, show_secrets: bool) -> None:
    from remesh.errors import UsageError

    if pod is not None:
        raise UsageError(f"{pod!r} is one argument too many; give one KIND/NAME, or `manifest` before a pod")
    if show_secrets:
        raise UsageError("--show-secrets is for `remesh audit manifest pod/NAME`; the trail holds no secrets")


class _Query:
    """What is asked for; raises UsageError where it cannot be right."""

    def __init__(
        self, session: "Session", subject: str | None, since: str | None, finding: str | None, types: list[str]
    ) -> None:
        self.ref = _reference(session, subject)
        self.namespace = session.common.namespace if subject is None else None
        self.since = _span(since)
        self.finding = finding
        self.types = _types(types)

    def nothing(self, trail: "Trail") -> str:
        """What was not found, for people: whether nothing is known of it at all, or only none of this kind."""
        what = f"finding {self.finding}" if self.finding else ""
        if self.ref is not None:
            what = f"{self.ref}" if not what else f"{what} and {self.ref}"
        elif self.namespace is not None:
            what = f"{what} in namespace {self.namespace}" if what else f"namespace {self.namespace}"
        if not what:
            return "No records of this kind"
        narrowed = self.types is not None or self.since is not None
        known = narrowed and any(map(self._in_namespace, trail.read(ref=self.ref, finding_id=self.finding)))
        return f"There are records of {what}, but none of this kind," if known else f"Nothing is known of {what}"

    @property
    def everything(self) -> bool:
        """True if no record is left out, but for those before a moment."""
        return self.namespace is None and self.finding is None and self.types is None and self.ref is None

    def records(self, trail: "Trail", after: str | None = None) -> "Iterator[AuditRecord]":
        found = trail.read(since=self.since, after=after, ref=self.ref, finding_id=self.finding, types=self.types)
        return (record for record in found if self._in_namespace(record))

    def fits(self, record: "AuditRecord") -> bool:
        """The same filters for a record that has just come."""
        from remesh.audit import about

        right_object = self.ref is None or any(_same(each, self.ref) for each in about(record))
        right_type = self.types is None or record.type in self.types
        return right_object and right_type and self.finding in (None, record.finding_id) and self._in_namespace(record)

    def _in_namespace(self, record: "AuditRecord") -> bool:
        return self.namespace is None or (record.ref is not None and record.ref.namespace == self.namespace)


def _reference(session: "Session", subject: str | None) -> "ObjectRef | None":
    from remesh.cli.targets import parse_target
    from remesh.models import ObjectRef

    if subject is None:
        return None
    target = parse_target(subject)
    return ObjectRef(api_version="", kind=target.kind, namespace=session.namespace, name=target.name)


def _span(since: str | None) -> Any:
    from datetime import timedelta

    from remesh.cli.text import seconds_of
    from remesh.errors import UsageError

    if since is None:
        return None
    try:
        return timedelta(seconds=seconds_of(since))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--since {since!r} is no span of time; write 90s, 15m, 2h or 1d") from error


def _types(names: list[str]) -> "list[RecordType] | None":
    from remesh.errors import UsageError
    from remesh.models import RecordType

    known = [kind.value for kind in RecordType]
    for name in names:
        if name not in known:
            raise UsageError(f"--type {name!r} is not known; known are {', '.join(known)}")
    return [RecordType(name) for name in names] or None


def _same(candidate: "ObjectRef", wanted: "ObjectRef") -> bool:
    return (candidate.kind, candidate.namespace, candidate.name) == (wanted.kind, wanted.namespace, wanted.name)


def _print(records: "Iterator[AuditRecord]", output: Output, nothing: Callable[[], str]) -> None:
    """Every form but JSON lines holds all records at once. `nothing` says on standard error that there are none."""
    from remesh.audit import to_json_line
    from remesh.cli.render import Table, emit, line, note

    count = 0
    if output is Output.JSONL:
        for count, record in enumerate(records, 1):  # noqa: B007
            line(to_json_line(record))
    else:
        found = list(records)
        count = len(found)
        table = Table(COLUMNS, [_row(record) for record in found])
        documents = [record.model_dump(mode="json") for record in found]
        if found or output is not Output.TABLE:
            emit(output, documents, table, empty="", kind="AuditRecordList")
    if not count:
        note(nothing())


def _row(record: "AuditRecord") -> list[str]:
    from remesh.cli.targets import short_name
    from remesh.cli.text import clock, one_line

    ref = record.ref
    return [
        clock(record.at),
        record.type.value,
        ref.namespace if ref else "-",
        short_name(ref.kind, ref.name) if ref else str(record.details.get("injector", "-")),
        record.mesh or "-",
        record.code or "-",
        record.actor or "-",
        record.finding_id or "-",
        one_line(record.reason),
    ]


def _follow(trail: "Trail", query: _Query, output: Output) -> None:
    """What is there, then what comes, until Ctrl-C."""
    position = trail.last_position()
    if output is Output.TABLE:
        _stream_row(list(COLUMNS))
    for record in query.records(trail):
        position = max(position, record.position, key=_order)
        _stream(record, output)
    while True:
        for record in trail.tail(position, TAIL_SECONDS):
            position = record.position
            if query.fits(record):
                _stream(record, output)


def _order(position: str) -> tuple[int, int]:
    from remesh.audit import order

    return order(position)


def _stream(record: "AuditRecord", output: Output) -> None:
    from remesh.audit import to_json_line
    from remesh.cli.render import emit_one, line

    if output is Output.TABLE:
        _stream_row(_row(record))
    elif output is Output.YAML:
        line("---")
        emit_one(output, record.model_dump(mode="json"))
    else:
        line(to_json_line(record))
    _flush()


def _stream_row(cells: list[str]) -> None:
    from remesh.cli.render import GAP, say

    say(GAP.join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip())
    _flush()


def _flush() -> None:
    import sys

    sys.stdout.flush()


app = one_command(audit)
