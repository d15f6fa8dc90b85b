"""Would a new pod come with every sidecar that it should have? A dry run, judged for one sidecar after the other.

Used by the other `workers.recreate` modules. Nothing is evicted on less than this, and on less than all of them: a pod
that lacks one sidecar is no better off with another one that lacks the other.
"""

from collections.abc import Iterable
from typing import Final

from remesh.kube.api import DryRun
from remesh.kube.probe import DRY_RUN_UNSUPPORTED, Injected, ProbeResult, judge
from remesh.meter import NOBODY, Meter
from remesh.models import Probe, Result
from remesh.policy import GatePolicy
from workers.verdicts import Verdict, from_probe

# A proof may be as old as the slowest dry run that passes may take: one that began just now says no more. Never older
# than this, whatever the policy calls slow. So a hundred pods of one owner do not mean a hundred dry runs.
LONGEST_PROOF_SECONDS: Final = 5.0


def proof_seconds(gate: GatePolicy) -> float:
    """How long a proof is believed."""
    return min(LONGEST_PROOF_SECONDS, gate.latency_seconds)


def passes(proof: ProbeResult) -> bool:
    """True if every sidecar was in the reply."""
    return proof.probe is Probe.PASSES


def judge_all(
    answer: DryRun, sidecars: Iterable[Injected], latency_seconds: float, meter: Meter = NOBODY
) -> ProbeResult:
    """The first sidecar's result that does not pass, or else the last one's."""
    found, mesh = ProbeResult(Probe.UNKNOWN, answer.seconds, "nothing_expected", "no sidecar is expected of it"), ""
    for sidecar in sidecars:
        found, mesh = judge(answer, sidecar, latency_seconds), sidecar.name
        if found.probe is not Probe.PASSES:
            break
    meter.dry_run(mesh, found.probe.value, found.code, found.seconds)
    return found


def from_proof(seen: ProbeResult) -> Verdict | None:
    """Why not to evict after this dry run, or None to go on. Ready endpoints alone never do: they prove nothing."""
    if seen.code == DRY_RUN_UNSUPPORTED:
        reason = f"{seen.reason}: nothing proves that another pod would come with its sidecar"
        return Verdict(Result.REPORTED, DRY_RUN_UNSUPPORTED, reason)
    if seen.code == "owner_gone":
        return Verdict(
            Result.REPORTED, "owner_gone", "its controller is gone: nobody would put another pod in its place"
        )
    return from_probe(seen, at_quorum=False)
