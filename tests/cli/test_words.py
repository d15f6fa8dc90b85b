"""Decisions as people read them."""

from datetime import UTC, datetime, timedelta

from remesh.cli.findings_table import row
from remesh.cli.survey import Judged
from remesh.cli.words import trouble, verdict
from remesh.models import Action, Decision, FailureClass, Observed
from remesh.objects import ObjectMeta, Pod, Workload

BARE = Decision(
    failure_class=FailureClass.NOT_APPLICABLE,
    action=Action.REPORT_ONLY,
    code="no_controller",
    reason="nobody would create it again",
    missing=1,
    sidecar_expected=True,
)


def test_a_bare_pod_out_of_reach_is_named_by_what_is_wrong_with_it() -> None:
    assert trouble(BARE) is FailureClass.MISSING_SIDECAR
    assert verdict(BARE) == (
        "a finding: it runs without its sidecar. It is only reported: nobody would create it again"
    )
    mirrored = BARE.model_copy(update={"sidecar_expected": None, "action": Action.NEVER_TOUCH})
    assert trouble(mirrored) is FailureClass.NOT_APPLICABLE


def test_what_only_a_dry_run_tells_is_said_to_be_from_a_dry_run() -> None:
    found = BARE.model_copy(update={"failure_class": FailureClass.WEBHOOK_CALL_FAILED})
    assert verdict(found, silent=True).startswith(
        "a finding: it lacks pods, and nothing says why; from a dry run: webhook call failed. "
    )
    assert "nothing says why" not in verdict(found)


def test_the_table_says_what_is_wrong_and_at_most_how_long() -> None:
    born = (datetime.now(UTC) - timedelta(minutes=3, seconds=30)).isoformat()
    meta = ObjectMeta(name="db", namespace="shop", uid="u", creation_timestamp=born)
    pod = Pod(metadata=meta)
    assert row(Judged(pod, Observed(obj=pod), BARE))[3] == "missing_sidecar"
    silent = Workload(kind="StatefulSet", api_version="apps/v1", metadata=meta)
    silent.status.observed_generation = 1
    decision = BARE.model_copy(update={"failure_class": FailureClass.STUCK_SILENT})
    judged = Judged(silent, Observed(obj=silent), decision)
    assert row(judged)[6].startswith("<3m3")
    seen = Judged(silent, Observed(obj=silent), decision, first_seen=datetime.now(UTC) - timedelta(seconds=50))
    assert row(seen)[6].startswith("5")
