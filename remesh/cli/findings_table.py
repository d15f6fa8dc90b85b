"""Findings as rows, shared by `scan`, `plan` and `repair`."""

from datetime import datetime
from typing import Any

from remesh.cli.render import Table
from remesh.cli.session import utc_now
from remesh.cli.survey import Judged, Survey
from remesh.cli.targets import short_name
from remesh.cli.text import age_of, one_line
from remesh.cli.words import trouble
from remesh.models import Action

COLUMNS = ("NAMESPACE", "OBJECT", "MISSING", "CAUSE", "MESH", "ACTION", "AGE", "REASON")


def table(all_judged: list[Judged]) -> Table:
    """One row a finding."""
    return Table(COLUMNS, [row(judged) for judged in all_judged])


def row(judged: Judged) -> list[str]:
    """What a person sees of one finding."""
    decision, ref = judged.decision, judged.ref
    return [
        ref.namespace,
        short_name(ref.kind, ref.name),
        str(decision.missing),
        trouble(decision).value,
        judged.mesh or "-",
        action_text(judged),
        age_text(judged),
        one_line(judged.not_now.reason if judged.not_now else decision.reason),
    ]


def age_text(judged: Judged) -> str:
    """For how long, or `<3d` where only its own age bounds that."""
    created = judged.obj.metadata.creation_timestamp
    if judged.since is None and created:
        return f"<{age_of(datetime.fromisoformat(created), utc_now())}"
    return age_of(judged.since, utc_now())


def action_text(judged: Judged) -> str:
    """The action of now, and what follows it: `wait_for_injector, then nudge_owner`."""
    decision = judged.decision
    later = f", then {decision.after_recovery.value}" if decision.after_recovery is not Action.NONE else ""
    if judged.not_now and judged.not_now.code == "quarantined":
        return "quarantined"
    hold = ", not now" if judged.not_now and decision.action is Action.RECREATE_POD else ""
    return decision.action.value + hold + later


def documents(survey: Survey, all_judged: list[Judged]) -> list[dict[str, Any]]:
    """The findings for JSON and YAML, with the answer of the dry run where there was one."""
    return [document(survey, judged) for judged in all_judged]


def document(survey: Survey, judged: Judged) -> dict[str, Any]:
    """One finding as plain data."""
    found = survey.finding(judged).model_dump(mode="json")
    if judged.probe is not None:
        found["dry_run"] = {
            "probe": judged.probe.probe.value,
            "code": judged.probe.code,
            "reason": judged.probe.reason,
            "seconds": round(judged.probe.seconds, 3),
        }
    if judged.not_now is not None:
        found["not_now"] = {"code": judged.not_now.code, "reason": judged.not_now.reason}
    return found
