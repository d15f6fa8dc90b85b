"""What rests in quarantine among the findings, as far as the ledger can be asked.

`scan` and `plan` need no Redis: without one they say nothing of quarantine nor of what workers are doing, and one that
fails is named in one line.
"""

from collections.abc import Iterable
from dataclasses import replace

from remesh.cli.render import note
from remesh.cli.session import Session
from remesh.cli.survey import Judged, Survey
from remesh.cli.text import one_line
from remesh.errors import BrokerError
from remesh.models import Result
from workers.verdicts import Verdict

QUARANTINED = "quarantined"


def hold_quarantined(session: Session, survey: Survey, all_judged: Iterable[Judged]) -> list[Judged]:
    """The same findings, those of quarantined owners marked so: they are left alone until it ends."""
    found = list(all_judged)
    if not found:
        return found
    try:
        ledger = session.known_ledger
        known = {(each.uid, each.template_hash): each for each in (ledger.quarantines() if ledger else ())}
    except BrokerError as error:
        note(f"quarantine, and what workers are doing, not known: {one_line(str(error))}")
        return found
    held = []
    for judged in found:
        quarantine = known.get(((judged.owner or judged.ref).uid, judged.template_hash))
        if quarantine is not None and judged.repairable and not survey.is_outdated(judged, quarantine):
            reason = f"quarantined since {quarantine.since:%Y-%m-%d %H:%M:%SZ}; see `remesh quarantine list`"
            judged = replace(judged, not_now=Verdict(Result.QUARANTINED, QUARANTINED, reason))  # noqa: PLW2901
        held.append(judged)
    return held
