"""A small simulated Kubernetes cluster in one process, for machines and tests that have only Python.

It is named as simulated wherever it shows itself. See `remesh.sim.cluster`.
"""

from remesh.sim.cluster import SimCluster

__all__ = ["SimCluster"]
