"""`remesh repair`: hands findings to the workers in a person's name, and waits for them if asked to."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from remesh.cli import completions
from remesh.cli.app import one_command
from remesh.cli.options import Common, Mesh, with_common

if TYPE_CHECKING:
    from remesh.cli.dispatch import Kept, Sent
    from remesh.cli.session import Session
    from remesh.cli.survey import Judged, Survey
    from remesh.models import Outcome

OBSERVED = ("observe_mode", "observe_only")  # codes of what a worker leaves alone because its policy only observes


@with_common
def repair(
    common: Common,
    *,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND/NAME]...", help="Targets.", show_default=False, autocompletion=completions.targets
        ),
    ] = None,
    all_findings: Annotated[
        bool, typer.Option("--all", help="Every finding in the namespace, or in all with -A.")
    ] = False,
    mesh: Mesh = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the outcomes; exit with 1 if any target was not repaired.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="How long --wait waits, in seconds.", min=1)] = 300.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="The same as `remesh plan`.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress; only the outcomes at the end.")] = False,
) -> None:
    """Repair targets, or every finding with --all, through the workers.

    Each repair is a task on the on-demand queue: a worker reads the object again, decides again, proves by a dry run
    that the sidecar would be injected, writes down what it will do, nudges, and watches the result.
    """
    from remesh.cli.session import Session
    from remesh.cli.survey import Survey
    from remesh.cli.targets import parse_targets
    from remesh.errors import UsageError

    if bool(targets) == all_findings:
        raise UsageError("give targets (KIND/NAME …) or --all, one of them")
    wanted = parse_targets(targets or [])
    session = Session(common)
    survey = Survey(session)
    chosen = survey.choose(wanted, session, mesh)
    if dry_run:
        _plan(common, survey, chosen)
        return
    _repair(session, survey, chosen, timeout if wait else None, quiet=quiet)


def _plan(common: Common, survey: "Survey", chosen: "list[Judged]") -> None:
    from remesh.cli.plan import show

    show(common.format, survey, list(survey.prove_all(chosen)))


def _repair(
    session: "Session", survey: "Survey", chosen: "list[Judged]", timeout: float | None, *, quiet: bool
) -> None:
    from remesh.brokers import require_safe
    from remesh.cli.dispatch import Dispatcher, Kept, Sent
    from remesh.errors import RepairIncomplete, UsageError
    from remesh.policy import Mode

    if session.policy.mode is Mode.OBSERVE:
        raise UsageError('the policy says mode = "observe", so nothing is repaired; see `remesh plan`, or change it')
    _ = session.redis  # where none is there, what to do about it is said best by the session
    require_safe(session.settings)
    dispatcher = Dispatcher(session, survey)
    answers = [dispatcher.dispatch(judged) for judged in chosen]
    sent = [answer for answer in answers if isinstance(answer, Sent)]
    kept = [answer for answer in answers if isinstance(answer, Kept)]
    ended = _wait(session, sent, dispatcher.position, timeout, quiet=quiet) if timeout is not None else {}
    waits = {} if timeout is not None else _what_for(session, chosen)
    _show(session.common, sent, kept, ended, waits)
    problem = _problem(sent, kept, ended, timeout)
    if problem:
        raise RepairIncomplete(problem)


def _wait(
    session: "Session", sent: "list[Sent]", position: str, timeout: float, *, quiet: bool
) -> "dict[str, Outcome]":
    from remesh.cli.dispatch import outcomes
    from remesh.cli.progress import Counter

    ended: dict[str, Outcome] = {}
    with Counter("ended", len(sent), quiet=quiet) as counter:
        for each, outcome in outcomes(session, sent, position, timeout):
            ended[each.finding.id] = outcome
            counter.step(f"{each.finding.ref}: {_result(outcome)}: {outcome.reason}")
    return ended


def _what_for(session: "Session", chosen: "list[Judged]") -> dict[str, str]:
    """What each repair waits for, by the object's UID: the gate of its injector, where that is shut."""
    from remesh.cli.gates import watched

    known = watched(session)
    if known.only_observes:
        return {each.ref.uid: "the watcher only observes; workers of the same policy repair nothing" for each in chosen}
    shut = ((each.ref.uid, gate) for each in chosen if (gate := known.gate_of(each)) and not gate.open)
    found = {uid: f"waits until the gate of its injector opens, which is closed: {gate.reason}" for uid, gate in shut}
    unknown = "waits until its injector works, if a dry run shows that it does not; see `remesh status`"
    return {each.ref.uid: unknown for each in chosen if not known.gate_of(each)} | found


def _show(
    common: Common, sent: "list[Sent]", kept: "list[Kept]", ended: "dict[str, Outcome]", waits: dict[str, str]
) -> None:
    from remesh.cli.render import Table, emit

    rows = [_sent_row(each, ended.get(each.finding.id), waits) for each in sent] + [_kept_row(each) for each in kept]
    documents = [_sent_document(each, ended.get(each.finding.id)) for each in sent]
    documents += [_kept_document(each) for each in kept]
    table = Table(("NAMESPACE", "OBJECT", "FINDING", "RESULT", "TASK", "REASON"), rows)
    emit(common.format, documents, table.shown(hide=common.hidden), empty="Nothing to repair.", kind="RepairList")


def _sent_row(each: "Sent", outcome: "Outcome | None", waits: dict[str, str]) -> list[str]:
    from remesh.cli.targets import short_name

    ref = each.finding.ref
    result = _result(outcome) if outcome else ("joined" if each.joined else "sent")
    reason = outcome.reason if outcome else waits.get(ref.uid, "")
    return [ref.namespace, short_name(ref.kind, ref.name), each.finding.id, result, each.task_id, reason]


def _result(outcome: "Outcome") -> str:
    return "not repaired: observe mode" if outcome.code in OBSERVED else outcome.result.value


def _kept_row(each: "Kept") -> list[str]:
    from remesh.cli.targets import short_name

    ref = each.judged.ref
    result = "nothing to do" if each.fine else "not repaired"
    return [ref.namespace, short_name(ref.kind, ref.name), "-", result, "-", each.reason]


def _sent_document(each: "Sent", outcome: "Outcome | None") -> dict[str, Any]:
    return {
        "object": each.finding.ref.model_dump(mode="json"),
        "finding_id": each.finding.id,
        "task_id": each.task_id,
        "attempt": each.attempt,
        "joined": each.joined,
        "outcome": outcome.model_dump(mode="json") if outcome else None,
    }


def _kept_document(each: "Kept") -> dict[str, Any]:
    return {"object": each.judged.ref.model_dump(mode="json"), "not_repaired": each.code, "reason": each.reason}


def _problem(sent: "list[Sent]", kept: "list[Kept]", ended: "dict[str, Outcome]", timeout: float | None) -> str | None:
    """What was not repaired, in one line; None if nothing."""
    from remesh.cli.dispatch import ENDED_WELL, FAILURES
    from remesh.cli.text import count

    of = f"of {count(len(sent) + len(kept), 'target')}"
    outcomes = [outcome for outcome in ended.values() if outcome.result not in ENDED_WELL]
    observed = sum(1 for outcome in outcomes if outcome.code in OBSERVED)
    failed = sum(1 for outcome in outcomes if outcome.result in FAILURES)
    refused = len(outcomes) - observed - failed + sum(1 for each in kept if not each.fine)
    late = len(sent) - len(ended) if timeout is not None else 0
    parts = []
    if observed:
        parts.append(f"{observed} {of} not repaired: observe mode")
    if refused:
        parts.append(f"{refused} {of} not repaired, for the reason given")
    if failed:
        parts.append(f"{failed} {of} not repaired: the repair failed; see `remesh audit --finding ID`")
    if late:
        parts.append(f"{late} {of} without outcome after {timeout:g} s; is a worker running?")
    return "; ".join(parts) or None


app = one_command(repair)
