"""What the live webhook configuration looks like, in a few characters: another one means that things changed. Pure.

A quarantine remembers it, because an owner that failed under one configuration may do well under the next; a proof by
dry run is only good for the configuration under which it was made.
"""

from collections.abc import Collection, Mapping
from hashlib import blake2s
from typing import Any, Final

import msgspec

from remesh.meshes import Profiles
from remesh.objects import Pod, PodTemplate, Webhook, Workload
from remesh.observe import View
from remesh.sidecars import expected_sidecars

ENDED: Final = "quarantine_ended"
"""Code of the note that a quarantine ended."""

ENDED_BECAUSE: Final = "the webhook configuration has changed since, so its quarantine ends"


def fingerprint(webhooks: list[tuple[str, Webhook]] | None, configurations: Collection[str] | None = None) -> str:
    """Of these webhooks, or only of those in the named configurations. The order in which they are given is no change.

    Certificates count: a corrected one is a change, too.
    """
    chosen = [(name, hook) for name, hook in webhooks or () if configurations is None or name in configurations]
    chosen.sort(key=lambda pair: (pair[0], pair[1].name))
    return blake2s(msgspec.json.encode(chosen, order="sorted"), digest_size=6).hexdigest()


def fingerprint_around(obj: Pod | Workload, view: View, profiles: Profiles) -> str:
    """Of the configurations that inject a pod, or a workload's pods; of all, where it should have no sidecar."""
    subject: Pod | PodTemplate | None = obj if isinstance(obj, Pod) else obj.spec.template
    webhooks = view.webhooks()
    if subject is None:
        return fingerprint(webhooks)
    expected = expected_sidecars(subject, view.namespace(obj.metadata.namespace), webhooks, profiles)
    return fingerprint(webhooks, {injector.configuration for _, injector in expected} or None)


def is_outdated(evidence: Mapping[str, Any], now: str) -> bool:
    """True for a quarantine from under another webhook configuration: what failed under that one is tried again.

    `now` is the fingerprint around the object. Evidence without one, as of an older version, is never outdated.
    """
    before = evidence.get("webhooks")
    return bool(before) and before != now
