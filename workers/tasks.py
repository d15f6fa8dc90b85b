"""The Celery tasks: decode, call, map the outcome to retry or done. What a repair does is in `workers.repair`.

A task's result is the outcome as a dict. It never fails for a reason that is known: a failure in Flower is a defect.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from pydantic import ValidationError

from remesh import logs, tracing
from remesh.errors import BrokerError, RemeshError
from remesh.models import REVOKED, AuditRecord, Outcome, RecordType, RepairRequest, Result
from remesh.queue import TASKS, sentence
from workers.chain import Chain
from workers.context import RepairContext
from workers.repair import give_up, repair
from workers.verdicts import RETRIES, leaves_for_another_try, retries_for, revoked

log = logs.get("worker.tasks")

Contexts = Callable[[], RepairContext]

LONGEST_COUNTDOWN_SECONDS: Final = 30

REQUEST: Final = "workers.revocation:GentleRequest"

# Until the intent a task stays "started" in Flower, which then has a button to stop it.
STILL_STOPPABLE: Final = frozenset({"reading", "proving"})

_FINDING_ID = re.compile(r"f-[0-9a-f]{1,32}")


def register(app: Celery, contexts: Contexts) -> None:
    """Give the application its tasks: one for each action, by the names of `remesh.queue`."""
    for name in TASKS.values():
        app.task(_body(contexts), bind=True, name=name, max_retries=None, acks_late=True, Request=REQUEST)


def _body(contexts: Contexts) -> Callable[[Task, Any], dict[str, Any]]:
    def run(self: Task, payload: Any) -> dict[str, Any]:
        return serve(self, payload, contexts())

    return run


def serve(task: Task, payload: Any, ctx: RepairContext) -> dict[str, Any]:
    """One delivery of one task. Raises celery's Retry for what is soon over, Ignore if it was revoked."""
    ctx.meter.task_began()
    try:
        return _serve(task, payload, ctx)
    finally:
        ctx.meter.task_over()


def _serve(task: Task, payload: Any, ctx: RepairContext) -> dict[str, Any]:
    try:
        request = decode(payload, ctx.cluster_name)
    except Malformed as error:
        return refuse(payload, str(error), str(task.request.id), ctx)
    outcome, seconds = _once(task, request, ctx)
    waited = 0
    while leaves_for_another_try(outcome):
        tries = task.request.retries + waited
        if tries >= retries_for(outcome):
            _give_up(task, request, outcome, ctx)
            break
        _again(task, request, outcome, ctx, tries=tries, may_wait=waited < RETRIES)
        waited += 1
        outcome, seconds = _once(task, request, ctx)
    ctx.meter.repaired(request.action, outcome.result, seconds)
    if outcome.code == REVOKED:
        _tell(task, "task-revoked", {"terminated": False, "signum": None, "expired": False})
        raise Ignore
    _tell(task, "task-outcome", outcome.model_dump(mode="json"))
    return told(outcome)


def _carried(task: Task) -> dict[str, str]:
    """The trace that the task was sent in. It came by the broker, so it may be anything."""
    found = {name: getattr(task.request, name, None) for name in tracing.HEADERS}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def told(outcome: Outcome) -> dict[str, Any]:
    """A task's result. Flower's list shows its beginning, so that is a sentence."""
    return {"outcome": f"{outcome.result.value}: {outcome.reason}", **outcome.model_dump(mode="json")}


def revoked_before_start(payload: Any, task_id: str, ctx: RepairContext) -> None:
    """Celery dropped a revoked task that had not begun: write the outcome down, so that nobody waits for it.

    What a worker had begun goes on with the watcher's next release: nothing is left half done. An outage of Redis
    costs the record only; the watcher's deadline does the rest.
    """
    try:
        request = decode(payload, ctx.cluster_name)
        chain = Chain(ctx.trail, request, ctx.clock.now, task_id)
        if chain.unfinished_intent() is not None or chain.outcome() is not None:
            return
        verdict = revoked()
        outcome = Outcome(
            finding_id=request.finding_id, result=verdict.result, code=verdict.code, reason=verdict.reason
        )
        chain.write_outcome(outcome)
        ctx.ledger.set_outcome(outcome)
    except RemeshError as error:
        log.warning("a revocation could not be written", task=task_id, error=str(error))


def _once(task: Task, request: RepairRequest, ctx: RepairContext) -> tuple[Outcome, float]:
    """One try, and how many seconds it took."""
    began = ctx.clock.monotonic()
    with tracing.span("task", tracing.of_request(request), kind="consumer", of=_carried(task)) as span:
        outcome = repair(request, ctx, task_id=str(task.request.id), progress=_telling(task))
        span.set({"remesh.result": outcome.result.value, "remesh.code": outcome.code})
    return outcome, ctx.clock.monotonic() - began


def _again(
    task: Task, request: RepairRequest, outcome: Outcome, ctx: RepairContext, *, tries: int, may_wait: bool
) -> None:
    """Queue the next try, which ends this one. Returns after the pause if the queue takes nothing now.

    The message would be lost then, and with it whoever verifies what has begun: so the next try is this task's own.
    """
    pause = min(LONGEST_COUNTDOWN_SECONDS, 2 ** (tries + 1))
    log.info("trying again", finding=outcome.finding_id, code=outcome.code, seconds=pause, reason=outcome.reason)
    ctx.meter.retried(request.action)
    try:
        raise task.retry(countdown=pause, throw=False, argsrepr=sentence(request), kwargsrepr="")
    except Reject as error:
        if not may_wait:
            raise
        log.warning(
            "the queue does not take the next try, waiting here", finding=outcome.finding_id, error=str(error.reason)
        )
        ctx.clock.sleep(pause)


def _give_up(task: Task, request: RepairRequest, outcome: Outcome, ctx: RepairContext) -> None:
    """End with the outcome of the last try."""
    try:
        give_up(request, ctx, outcome, task_id=str(task.request.id))
    except BrokerError as error:  # the watcher releases it again after its deadline
        log.warning("an outcome could not be written", finding=outcome.finding_id, error=str(error))


class Malformed(RemeshError):
    """A payload that is no repair request of this cluster, or of a newer version."""


def decode(payload: Any, cluster: str) -> RepairRequest:
    """The request in a payload. Raises Malformed: whoever can write to the broker can send anything."""
    try:
        request = RepairRequest.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ascii(".".join(str(part)[:100] for part in first["loc"][:3]))[1:-1]  # a key may be anybody's text
        raise Malformed(f"not a repair request: {key or 'payload'}: {first['msg'][:200]}") from error
    if request.cluster != cluster:
        raise Malformed(f"a request for cluster {request.cluster[:63]!r} came to the worker of {cluster!r}")
    if not request.ref.uid:
        raise Malformed("not a repair request: ref.uid: it is empty")
    if not (request.actor + request.task_id + request.ref.uid + request.ref.api_version).isprintable():
        raise Malformed("not a repair request: a name in it holds control characters, as no object's can")
    return request


def refuse(payload: Any, why: str, task_id: str, ctx: RepairContext) -> dict[str, Any]:
    """Write down that a payload was refused. Nothing was read or touched, and nothing is tried again."""
    claimed = str(payload.get("finding_id", "")) if isinstance(payload, Mapping) else ""
    known = claimed if _FINDING_ID.fullmatch(claimed) else ""
    ctx.meter.refused()
    log.warning("task refused", task=task_id, finding=known, reason=why)
    outcome = Outcome(finding_id=known, result=Result.SKIPPED, code="malformed", reason=why)
    record = AuditRecord(
        record_id=f"task:{task_id}:refusal",
        type=RecordType.REFUSAL,
        at=ctx.clock.now(),
        cluster=ctx.cluster_name,
        finding_id=known,
        actor="worker",
        task_id=task_id,
        code=outcome.code,
        reason=why,
    )
    try:
        ctx.trail.append(record)
    except BrokerError as error:
        log.warning("a refusal could not be written", task=task_id, error=str(error))
    return told(outcome)


def _telling(task: Task) -> Callable[[str, dict[str, int]], None]:
    """Progress as task events: once something is done, Flower shows the phase as the task's state."""

    def tell(phase: str, numbers: dict[str, int]) -> None:
        if phase not in STILL_STOPPABLE:
            _tell(task, f"task-{phase}", dict(numbers))

    return tell


def _tell(task: Task, event: str, fields: dict[str, Any]) -> None:
    try:
        task.send_event(event, retry=False, **fields)
    except Exception as error:  # an event is for the eye only, and a repair goes on without
        log.debug("event not sent", task_event=event, error=str(error))
