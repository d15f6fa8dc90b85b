"""What the brake on evictions says to one eviction, as a verdict. Used by the workers and by `remesh plan`. Pure."""

from remesh.ledger_brake import Braked
from remesh.models import Result
from workers.verdicts import Verdict


def from_brake(found: Braked, missing: str = "") -> Verdict | None:
    """Why it waits, or None. `missing` is what was evicted before and is not back, where that is known."""
    if found.free:
        return None
    if found.code == "canary":
        reason = "the first pod that was evicted has to come back Ready before another one is evicted"
        return Verdict(Result.SKIPPED, "canary_first", reason)
    if found.code == "shut":
        reason = f"evicted pods did not come back Ready: no other is evicted for {found.number:.0f} s more"
    elif missing:
        reason = f"evicted pods did not come back: {missing}; no other is evicted before"
    else:
        reason = "evicted pods did not come back Ready"
    return Verdict(Result.SKIPPED, "brake_shut", f"{reason}; see `remesh brake list`")
