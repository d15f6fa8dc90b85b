"""What the live webhook configuration looks like, in a few characters: another one means that things changed. Pure.

A quarantine remembers it, because an owner that failed under one configuration may do well under the next; a proof by
dry run is only good for the configuration under which it was made.
"""

from collections.abc import Collection
from hashlib import blake2s

import msgspec

from remesh.objects import Webhook


def fingerprint(webhooks: list[tuple[str, Webhook]] | None, configurations: Collection[str] | None = None) -> str:
    """Of these webhooks, or only of those in the named configurations. The order in which they are given is no change.

    Certificates count: a corrected one is a change, too.
    """
    chosen = [(name, hook) for name, hook in webhooks or () if configurations is None or name in configurations]
    chosen.sort(key=lambda pair: (pair[0], pair[1].name))
    return blake2s(msgspec.json.encode(chosen, order="sorted"), digest_size=6).hexdigest()
