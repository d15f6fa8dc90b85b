"""Kubernetes Events on objects that remesh has repaired: core/v1, one for each object and reason in ten minutes.

The same again raises the count of the first, whichever process writes it: the name is made of object, reason and time.
"""

from datetime import datetime
from hashlib import blake2s
from typing import Any, Final

from remesh.errors import Conflict
from remesh.kube.decode import decode_json
from remesh.kube.resources import Resource
from remesh.kube.transport import MERGE_PATCH, KubeClient
from remesh.models import ObjectRef

COMPONENT: Final = "remesh"
SERIES_SECONDS: Final = 600
SECONDS: Final = 5.0  # for one call: nobody waits for it, and the next one does
MESSAGE_CHARACTERS: Final = 1024  # the API server's limit
_EVENTS: Final = Resource("Event", "v1", "events")


def record(client: KubeClient, ref: ObjectRef, reason: str, message: str, now: datetime, *, warning: bool) -> None:
    """Write one, or raise the count of the one that is there. Needs to create and patch. Raises ClusterError."""
    body = described(ref, reason, message, now, warning=warning)
    try:
        client.request("POST", _EVENTS.path(ref.namespace), body=body, timeout=SECONDS)
    except Conflict:
        _count_one_more(client, ref, body)


def described(ref: ObjectRef, reason: str, message: str, now: datetime, *, warning: bool) -> dict[str, Any]:
    """The first Event of a series. Pure."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    slot = str(int(now.timestamp()) // SERIES_SECONDS)
    digest = blake2s("\0".join((ref.uid, reason, slot)).encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name[:200]}.{digest}", "namespace": ref.namespace},
        "involvedObject": {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _count_one_more(client: KubeClient, ref: ObjectRef, body: dict[str, Any]) -> None:
    """Two processes at the same moment may count one for both: a summary, not a ledger.

    The first patch also reads, so that no right to read Events is needed.
    """
    path = _EVENTS.path(ref.namespace, body["metadata"]["name"])
    newest = {"lastTimestamp": body["lastTimestamp"], "message": body["message"]}
    before = decode_json(client.request("PATCH", path, body=newest, content_type=MERGE_PATCH, timeout=SECONDS))
    count = {"count": int(before.get("count") or 1) + 1}
    client.request("PATCH", path, body=count, content_type=MERGE_PATCH, timeout=SECONDS)
