"""One bare pod: read again, decide again, prove, evict, verify, write the outcome.

Called by `workers.repair`, which holds the lease on the pod. One request is about one pod. It guarantees:

- nothing is evicted whose replacement has not just come back from a dry run with every sidecar that it should have;
- nothing is touched unless its intent stands in the trail, and nothing at all in mode "observe";
- a request that is delivered twice evicts one pod: what a dead worker evicted is looked after, and no other touched.

`workers.recreate_evict` is for pods with a controller, `workers.recreate_alone` for those without.
"""

from remesh.errors import NotFound, RemeshError
from remesh.models import Outcome, RepairRequest, Result
from remesh.objects import Pod
from workers.context import LeasePort, RepairContext
from workers.recreate_alone import Alone
from workers.recreate_attempt import Attempt, Progress
from workers.recreate_evict import Eviction
from workers.verdicts import Verdict, from_error


def recreate(request: RepairRequest, ctx: RepairContext, lease: LeasePort, task_id: str, progress: Progress) -> Outcome:
    """Replace one bare pod once, and write down how it ended, unless the outcome is left for another try.

    Raises BrokerError if trail or ledger cannot be read or written.
    """
    attempt = Attempt(request, ctx, lease, task_id, progress)
    attempt.owed = attempt.acted = attempt.begun is not None and attempt.begun.code == "recreate"
    done = attempt.chain.outcome()
    if done is not None:
        attempt.ending.settle_again(done)
        return done
    try:
        verdict = _run(attempt)
    except RemeshError as error:
        verdict = from_error(error)
    return attempt.end(verdict)


def _run(attempt: Attempt) -> Verdict:
    if attempt.ref.kind != "Pod":
        return Verdict(Result.REPORTED, "bad_request", f"only pods are recreated, and this is a {attempt.ref.kind}")
    attempt.progress("reading", {})
    found = _read(attempt)
    if isinstance(found, Verdict):
        return _resume(attempt, found)
    attempt.owed = attempt.acted = False
    return Alone(attempt).run(found) if found.metadata.controller is None else Eviction(attempt).run(found)


def _read(attempt: Attempt) -> Pod | Verdict:
    """The pod, or why there is nothing to evict."""
    ref = attempt.ref
    try:
        found = attempt.ctx.pods.pod(ref.namespace, ref.name)
    except NotFound:
        return Verdict(Result.OBSOLETE, "gone", "it is gone")
    if found.metadata.uid != ref.uid:
        return Verdict(Result.OBSOLETE, "replaced", "another pod has its name by now")
    if found.metadata.deletion_timestamp is not None:
        return Verdict(Result.OBSOLETE, "being_deleted", "it is being deleted")
    return found


def _resume(attempt: Attempt, gone: Verdict) -> Verdict:
    """The pod is gone: by itself, or evicted by a worker that could not end it."""
    intent = attempt.begun
    if intent is None:
        return gone
    if intent.code == "recreate":
        return Alone(attempt).resume(intent, gone)
    return Eviction(attempt).resume(intent, gone)
