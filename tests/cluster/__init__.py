"""A real Kubernetes control plane for tests: etcd, API server, controllers, scheduler, kwok, and an injector to break.

`RealCluster.start()` for code, `python -m tests.cluster up` for people, the fixtures of `tests.cluster.fixtures` for
tests.
"""

import tests.cluster._needed  # noqa: F401  first of all: it may end the process with one line
from tests.cluster.cluster import RealCluster
from tests.cluster.controlplane import Tuning
from tests.cluster.errors import (
    ApiError,
    BinariesUnavailable,
    ClusterError,
    FaultUnavailable,
    NotInTime,
    ProcessDied,
)
from tests.cluster.replicas import Admission

__all__ = [
    "Admission",
    "ApiError",
    "BinariesUnavailable",
    "ClusterError",
    "FaultUnavailable",
    "NotInTime",
    "ProcessDied",
    "RealCluster",
    "Tuning",
]
