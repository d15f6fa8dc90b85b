"""What a deletion does to an object: preconditions, finalizers, and the time that a pod is given (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remesh.sim import resources as res
from remesh.sim import status
from remesh.sim.objects import Obj, copy, is_finished, is_terminating, meta, now
from remesh.sim.resources import Resource

_BY_PROPAGATION = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


@dataclass(slots=True)
class DeleteOptions:
    """The body of a DELETE (or of an eviction's deleteOptions), read leniently. `grace` is in seconds."""

    uid: str = ""
    version: str = ""
    propagation: str = ""
    grace: int | None = None
    dry_run: bool = False

    @classmethod
    def read(cls, body: Mapping[str, Any] | None) -> "DeleteOptions":
        """From the decoded body of a request."""
        body = body or {}
        preconditions = body.get("preconditions") or {}
        return cls(
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            propagation=body.get("propagationPolicy") or "",
            grace=body.get("gracePeriodSeconds"),
            dry_run="All" in (body.get("dryRun") or ()),
        )


def check_preconditions(resource: Resource, obj: Obj, options: DeleteOptions) -> None:
    """Raises StatusError (409) when the object is not, or no longer, the one that is meant."""
    metadata = meta(obj)
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise status.precondition_failed(resource, metadata["name"], why)
    if options.version and options.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion"
            f" in record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise status.precondition_failed(resource, metadata["name"], why)


def terminating(resource: Resource, old: Obj, options: DeleteOptions) -> Obj | None:
    """The object as it stays for a while after its deletion; None when nothing holds it and it simply goes."""
    new = copy(old)
    metadata = meta(new)
    finalizers = _finalizers(resource, metadata.get("finalizers") or [], options.propagation)
    grace = _grace(resource, old, options)
    if not finalizers and not grace and resource is not res.NAMESPACES:
        return None
    if resource.has_generation and not is_terminating(old):
        metadata["generation"] = metadata.get("generation", 1) + 1
    metadata.setdefault("deletionTimestamp", now())
    metadata["deletionGracePeriodSeconds"] = grace
    if finalizers:
        metadata["finalizers"] = finalizers
    if resource is res.NAMESPACES:
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
    return new


def _finalizers(resource: Resource, present: list[str], propagation: str) -> list[str]:
    if not propagation and resource.orphans_by_default:
        propagation = "Orphan"
    if not propagation:
        return present
    kept = [name for name in present if name not in _BY_PROPAGATION.values()]
    return [*kept, _BY_PROPAGATION[propagation]] if propagation in _BY_PROPAGATION else kept


def _grace(resource: Resource, obj: Obj, options: DeleteOptions) -> int:
    """Seconds that a deleted object stays for its kubelet to stop it; only pods on a node have any."""
    if resource is not res.PODS or is_finished(obj) or not obj["spec"].get("nodeName"):
        return 0
    grace: int = obj["spec"].get("terminationGracePeriodSeconds", 30)
    if options.grace is not None:
        grace = max(0, options.grace)
    # A second deletion can only shorten the time that the first one has given.
    given: int = meta(obj).get("deletionGracePeriodSeconds", grace)
    return min(grace, given)
