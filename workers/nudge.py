"""The nudge: one annotation on, then off. Any update of its metadata makes a controller try again at once.

Used by `workers.repair` alone. It guarantees that the annotation is taken off on every path after it may be on: left
there, `kubectl rollout undo` would copy it to the Deployment. Taking it off is a second nudge, for free.
"""

import re
from typing import Final

from remesh import logs, tracing
from remesh.errors import ClusterError, Conflict, Forbidden, NotFound, Rejected, Unauthorized
from remesh.models import ObjectRef, RecordType
from remesh.objects import Workload
from workers.chain import Chain
from workers.context import Clock, ClusterPort, Step, reached

log = logs.get("worker.nudge")

NUDGE_ANNOTATION: Final = "remesh.dev/nudge"
# Pauses between tries to take it off. An API server that restarts is mostly back by then.
PAUSES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)


_FINDING_ID: Final = re.compile(r"f-[0-9a-f]{1,32}")


class Nudge:
    """The nudges of one object in one repair."""

    def __init__(self, cluster: ClusterPort, ref: ObjectRef, chain: Chain, clock: Clock) -> None:
        self._cluster = cluster
        self._ref = ref
        self._chain = chain
        self._clock = clock
        self.written = False  # True once anything may have been written to the cluster
        self.problem = ""  # why the annotation may still be there

    def give(self, value: str) -> None:
        """On, then off. Raises ClusterError if it could not be set, TrailUnavailable if it could not be recorded."""
        with tracing.inner("nudge", {"remesh.object": str(self._ref)}):
            self._put_on(value)
            try:
                reached(Step.NUDGE_ON)
                self._chain.write(RecordType.ACTION, step="nudge_on", code="nudge_on", reason="annotation set")
            finally:
                removed = self._take_off()
            self._record(removed, "nudge_off")

    def clean_up(self) -> None:
        """Remove an annotation that a dead worker left. Its intent is the caller's to write before."""
        self._record(self._take_off(), "nudge_removed")

    def _put_on(self, value: str) -> None:
        try:
            self._cluster.annotate(self._ref, {NUDGE_ANNOTATION: value})
        except (NotFound, Conflict, Rejected, Forbidden, Unauthorized):
            raise  # refused, so it is not there
        except ClusterError:
            self._take_off()  # no answer, so it may be there
            raise
        self.written = True

    def _take_off(self) -> bool:
        self.written = True
        for pause in (*PAUSES_SECONDS, 0.0):
            try:
                self._cluster.annotate(self._ref, {NUDGE_ANNOTATION: None})
            except NotFound:
                return True  # gone, and the annotation with it
            except ClusterError as error:
                self.problem = f"the annotation {NUDGE_ANNOTATION} could not be removed: {error}"
                self._clock.sleep(pause)
            else:
                self.problem = ""
                return True
        log.warning("nudge annotation left behind", object=str(self._ref), error=self.problem)
        return False

    def _record(self, removed: bool, code: str) -> None:
        code, reason = (code, "annotation removed") if removed else ("nudge_left", self.problem)
        self._chain.write(RecordType.ACTION, step=code, code=code, reason=reason)


def left_on(workload: Workload) -> bool:
    """True if the object carries the annotation as a worker sets it, who died before it took it off.

    Any other value somebody else has set, and it is theirs.
    """
    value = (workload.metadata.annotations or {}).get(NUDGE_ANNOTATION)
    return value is not None and bool(_FINDING_ID.fullmatch(value))
