"""Is something in the place of a pod that was evicted earlier, and did not come back then?

Used by `workers.recreate_attempt` before a shut brake may open. What is kept of an eviction is small: whose pod it was,
and how many of that owner's pods there were and were Ready right before.
"""

import json
from collections.abc import Iterable
from typing import Any

from remesh.errors import NotFound
from remesh.models import ObjectRef
from remesh.objects import OwnerReference, Pod
from remesh.tally import COUNTED_KINDS, active, counts
from workers.context import ClusterPort, PodPort


def what_goes(pod: Pod, owner: ObjectRef | None, pods: Iterable[Pod]) -> str:
    """What to keep of an eviction. `pods` are the owner's right before it."""
    there = [each for each in pods if active(each)]
    kept: dict[str, Any] = {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}
    if owner is not None:
        kept["owner"] = [owner.api_version, owner.kind, owner.name, owner.uid]
        kept |= {"there": len(there), "ready": sum(1 for each in there if each.ready)}
    return json.dumps(kept, separators=(",", ":"))


def whose(about: str) -> str:
    """For people: the owner of a pod that was evicted, or a pod without one. The UID alone is not known here: ""."""
    try:
        kept = json.loads(about)
        kind, name = kept["owner"][1:3] if "owner" in kept else ("Pod", kept["name"])
        return f"{kept['namespace']}/{kind}/{name}"
    except (ValueError, TypeError, KeyError):
        return ""


def still_missing(about: str, cluster: ClusterPort, pods: PodPort) -> str:
    """For people: what is still missing, or ""; an owner that is gone, or wants fewer by now, misses none.

    Raises ClusterError if that cannot be read now.
    """
    try:
        kept = json.loads(about)
        return _of_owner(kept, cluster, pods) if "owner" in kept else _alone(kept, pods)
    except (ValueError, TypeError, KeyError):
        return ""  # nobody can look for it


def _of_owner(kept: dict[str, Any], cluster: ClusterPort, pods: PodPort) -> str:
    version, kind, name, uid = kept["owner"]
    reference = OwnerReference(kind=kind, name=name, uid=uid, api_version=version, controller=True)
    try:
        owner = pods.owner(kept["namespace"], reference)
    except NotFound:
        return ""
    there = [each for each in cluster.pods_of(owner) if active(each)]
    ready = sum(1 for each in there if each.ready)
    wanted = counts(owner).desired if kind in COUNTED_KINDS else kept["there"]
    if len(there) >= min(kept["there"], wanted) and ready >= min(kept["ready"], wanted):
        return ""
    return f"{kept['namespace']}/{name} ({kind}) has {ready} Ready of {min(kept['there'], wanted)}"


def _alone(kept: dict[str, Any], pods: PodPort) -> str:
    what = f"{kept['namespace']}/{kept['name']} (Pod)"
    try:
        found = pods.pod(kept["namespace"], kept["name"])
    except NotFound:
        return f"{what} is not there"
    return "" if found.metadata.uid != kept["uid"] and found.ready else f"{what} is not Ready"
