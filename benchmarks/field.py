"""remesh's own processes against a generated cluster, as they are shipped: Redis with AOF, audit trail on."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.served import Served
from tests.stack import Stack


@contextmanager
def field(served: Served, policy: str = "") -> Iterator[Stack]:
    """Redis, and what starts watchers and workers for that cluster; all of it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="remesh-bench-") as folder:
        bed: Any = SimpleNamespace(kubeconfig=served.kubeconfig(Path(folder)))
        stack = Stack(cast("Any", bed), Path(folder))
        try:
            if policy:
                stack.policy(policy)
            yield stack
        finally:
            stack.stop()


def place_seconds(position: str) -> float:
    """When Redis took a record, in seconds since the epoch: the first half of its position in the stream."""
    return int(position.partition("-")[0]) / 1000
