"""The whole decision: what is wrong with one object, and what is right to do now. Pure; start reading here.

`decide()` answers for workloads (pods that were never created) and for pods (created without their sidecar). It looks
at `Observed` and nothing else, the time is an argument, and every answer carries its reason. Plan and repair ask the
same function, so what `plan` prints is what `repair` does.

The principles, in the order in which they are asked:

Leave alone
  1. What is going away (object or namespace being deleted) is never touched, nor is what does not run in the cluster's
     own hands (mirror pods, finished pods).
  2. A policy's denial is a policy at work: never touched. An injector's own denial, a quota, pod security and
     validation are somebody's to correct: reported, never retried.
  3. A protected namespace, a namespace out of scope and an injector's own pods are only reported: a repairer must not
     lean on what it repairs. An injector that blocks itself never heals by waiting.
  4. Only injectors are waited for. Any other webhook that cannot be called is reported; who is an injector, the live
     configuration and the mesh profiles say, never a word in a text.
  5. Who opted out, or runs on the host's network, is not repaired.

Wait, then act
  6. Readiness proves nothing; a dry run does. Nothing is nudged or recreated unless the probe passes *now*.
  7. A fault that goes away by itself (time-out, no endpoints, refused connection) is waited for. One that somebody
     must correct (certificate, malformed answer) is reported at once, and healed all the same once the probe passes.
  8. A malformed answer is an answer, perhaps to this template only. If the injector works for others, and not shown
     for this template, it will answer the same again: reported.
  9. A failed repair is not repeated on hope: it takes a dry run of that very template that passes; until then it is
     reported, and after `max_attempts` it rests.

No text
 10. A workload that lacks pods without a word is stuck once it has lacked them long enough, its controller is not just
     waiting for its own pods, and an injector had to be asked. Its cause is read off the injector: down means that the
     call failed; working, with no Kubernetes Event written, means that the controller swallowed a time-out and does
     not retry; otherwise it stays `stuck_silent`.
 11. A bare pod counts per expected sidecar, by marks that only the webhook writes, and only if a live webhook would
     have seen it and the pod is younger than webhook and request. Adopting a mesh is a person's rollout.
 12. Pods that nobody would create again (no controller), or that must not run twice (Jobs), need the policy's word.
"""

from datetime import datetime

from remesh.bare import of_pod
from remesh.meshes import Profiles
from remesh.models import Action, Decision, Observed
from remesh.objects import Workload
from remesh.policy import Mode, Policy
from remesh.refused import NUDGED_KINDS, of_workload
from remesh.sidecars import expected_sidecars
from remesh.tally import Counts, counts, failure_text

__all__ = ["NUDGED_KINDS", "Counts", "counts", "decide", "expected_sidecars", "failure_text"]


def decide(observed: Observed, policy: Policy, profiles: Profiles, now: datetime) -> Decision:
    """What is wrong with one object and what is right to do now. Never raises, whatever the object's state."""
    obj = observed.obj
    if isinstance(obj, Workload):
        decision = of_workload(observed, obj, policy, profiles, now)
    else:
        decision = of_pod(observed, obj, policy, profiles)
    return decision if policy.mode is Mode.REPAIR else _only_observed(decision)


def _only_observed(decision: Decision) -> Decision:
    if decision.action not in (Action.NUDGE_OWNER, Action.RECREATE_POD):
        return decision
    reason = f"observing only: would be {decision.action.value} now, because {decision.reason}"
    return decision.model_copy(update={"action": Action.REPORT_ONLY, "code": "observe_only", "reason": reason})
