"""May a pod be created from a manifest that was found in Redis? Used by `workers.recreate_alone`.

Whoever can write to that Redis could have put any pod there. So a manifest is believed if this very process kept it, or
if it is signed, together with the intent, by a key that is not in Redis (REMESH_SIGNING_KEY); and never beyond what the
policy allows, nor for another pod than the one that was evicted.
"""

import hmac
import json
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from remesh.models import AuditRecord, RepairRequest
from remesh.policy import Mode, Policy

Manifest = dict[str, Any]


class Memory:
    """What this process itself took away and has to bring back. Thread-safe; ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Manifest, str]] = {}
        self._tried: dict[str, float] = {}

    def keep(self, uid: str, manifest: Manifest, digest: str) -> None:
        """Until forgotten."""
        with self._lock:
            self._kept[uid] = (manifest, digest)

    def recall(self, uid: str) -> tuple[Manifest, str] | None:
        """Manifest and digest, or None: another process took it away, or nobody."""
        with self._lock:
            return self._kept.get(uid)

    def forget(self, uid: str) -> None:
        """It is back, or a person was told."""
        with self._lock:
            self._kept.pop(uid, None)
            self._tried.pop(uid, None)

    def tried_since(self, uid: str, now: float) -> float:
        """When this process first tried in vain to bring it back: `now` at the first call."""
        with self._lock:
            return self._tried.setdefault(uid, now)


def signature(key: bytes, request: RepairRequest, digest: str, manifest: Mapping[str, Any]) -> str:
    """Binds a manifest to finding, object and digest of its intent. Empty without a key."""
    if not key:
        return ""
    ref = request.ref.model_dump(mode="json")
    text = json.dumps([request.cluster, request.finding_id, ref, digest, manifest], sort_keys=True)
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), sha256).hexdigest()


def forbidden(policy: Policy, request: RepairRequest) -> str:
    """Why the policy does not allow to create this pod again; empty if it does."""
    if policy.mode is not Mode.REPAIR:
        return f"the policy's mode is {policy.mode.value}"
    if not policy.repair.bare_pods:
        return "the policy does not allow it (repair.bare_pods)"
    return policy.scope.bars(request.ref.namespace)


def mismatch(request: RepairRequest, intent: AuditRecord, manifest: Mapping[str, Any], digest: str) -> str:
    """Why this is not the manifest of the pod that the intent names; empty if it is."""
    ref, meta = request.ref, manifest.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    found = (manifest.get("apiVersion"), manifest.get("kind"), meta.get("namespace"), meta.get("name"))
    if found != ("v1", "Pod", ref.namespace, ref.name) or intent.ref != ref:
        return "what is kept is the manifest of another object"
    if told(intent).get("digest") != digest:
        return "what is kept is not what its intent names"
    return ""


def signed(key: bytes, request: RepairRequest, intent: AuditRecord, manifest: Mapping[str, Any], digest: str) -> bool:
    """True if the intent's signature is by this key, and about this manifest."""
    claimed = told(intent).get("signature")
    expected = signature(key, request, digest, manifest)
    return bool(expected) and isinstance(claimed, str) and hmac.compare_digest(claimed.encode(), expected.encode())


def told(intent: AuditRecord) -> Mapping[str, Any]:
    """What the intent says of the manifest."""
    found = intent.details.get("manifest")
    return found if isinstance(found, Mapping) else {}
