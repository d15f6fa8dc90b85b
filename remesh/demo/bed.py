"""Which cluster the demo plays on: a real control plane where that is possible, or the simulated API server."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remesh.demo.options import On
from remesh.errors import ClusterUnreachable, UsageError
from remesh.sim import SimCluster
from remesh.testbed import TestBed

Say = Callable[[str], None]


def start(on: On, say: Say) -> TestBed:
    """Start the cluster that was asked for; `auto` falls back to the simulated one and says why.

    Raises UsageError where a real one was asked for and cannot be had, ClusterUnreachable where it does not come up.
    """
    if on is On.SIM:
        return _simulated(say)
    reason = why_not_real()
    if reason is None:
        try:
            return _real(say)
        except ClusterUnreachable as error:
            if on is On.REAL:
                raise
            reason = str(error)
    elif on is On.REAL:
        raise UsageError(f"a real control plane cannot be had here: {reason}")
    say(f"No real control plane: {reason}")
    return _simulated(say)


def why_not_real() -> str | None:
    """Why there can be no real control plane, or None if there can be one."""
    if not (checkout() / "tests" / "cluster").is_dir():
        return "it is part of the source tree, and this is an installed package"
    try:
        reason: str | None = _tests("build").unavailable_reason()
        _tests("pki")
    except ImportError as error:
        return f"{error.name} is not installed; `make demo CLUSTER=real` installs what it needs"
    return reason


def checkout() -> Path:
    """Root of the source tree, if this runs from one."""
    return Path(__file__).resolve().parents[2]


def _simulated(say: Say) -> TestBed:
    say("Cluster: SIMULATED API server (an in-process stand-in; controllers, webhook calls and back-off as measured).")
    return SimCluster.start()


def _real(say: Say) -> TestBed:
    build = _tests("build")
    missing = [program.name for program in build.PROGRAMS if build.find(program) is None]
    say("Cluster: REAL control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok nodes).")
    if missing:
        say(f"Building {', '.join(missing)} with Go: the first build takes minutes, later starts take seconds.")
    package = importlib.import_module("tests.cluster")
    try:
        bed: TestBed = package.RealCluster.start()
    except package.ClusterError as error:
        raise ClusterUnreachable(f"the real control plane did not come up: {error}") from error
    return bed


def _tests(module: str) -> Any:
    root = str(checkout())
    if root not in sys.path:
        sys.path.append(root)
    return importlib.import_module(f"tests.cluster.{module}")
