"""What people do by hand about bare pods. Each begins at once and returns None, or the seconds that it will take."""

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.errors import ApiError

# Of kubectl: the annotation of `kubectl rollout restart`.
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
# Of Dapr's operator: its watchdog's limit for deletions.
DRIP_A_MINUTE: Final = 20
DRIP_SECONDS: Final = 60.0  # for as long it is measured
CONNECTIONS: Final = 16


def rollout(client: Client, namespace: str, name: str) -> None:
    """What `kubectl rollout restart` does."""
    annotations = {RESTARTED_AT: datetime.now(UTC).isoformat()}
    change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    client.api.patch(w.path("Deployment", namespace, name), change, kind="strategic")


def delete_all(client: Client, namespace: str, names: Collection[str]) -> None:
    """All at once, over several connections."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda name: _delete(client, namespace, name), names))


def drip(client: Client, namespace: str, names: Collection[str]) -> float | None:
    """One every three seconds, for a minute; the seconds that all would take at the rate that was reached."""
    began = time.monotonic()
    for gone, name in enumerate(names):
        passed = time.monotonic() - began
        if passed >= DRIP_SECONDS:
            return len(names) / gone * passed
        time.sleep(max(0.0, gone * 60.0 / DRIP_A_MINUTE - passed))
        _delete(client, namespace, name)
    return None


def _delete(client: Client, namespace: str, name: str) -> None:
    try:
        client.api.delete(w.path("Pod", namespace, name))
    except ApiError as error:
        if error.status != 404:
            raise
