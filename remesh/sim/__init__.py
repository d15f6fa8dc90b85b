"""A small simulated Kubernetes cluster in one process, for machines and tests that have only Python.

It is named as simulated wherever it shows itself. `SimCluster.start()` gives a `remesh.testbed.TestBed`;
`python -m remesh.sim up` is for a person. It behaves as a Kubernetes 1.36 control plane does where that matters to
remesh: the scenarios of `tests/testbed` run against both.

From the outside in: `http` and `routes` (requests), `api` (verbs), `admission` (webhooks, quota) and `injector`
(what they call), `store` (objects, versions, history), `controllers` and `kubelet` (what happens by itself).

Left out: TLS, RBAC beyond `SimCluster.refuse`, server-side apply, protobuf, server-side tables and OpenAPI (so kubectl
needs `--validate=false`), field ownership, webhooks' match conditions and re-invocation, validating webhooks, quotas of
anything but pods, adoption of orphaned pods, CronJobs' runs, volumes, resource requests, ControllerRevisions, eviction
of pods from lost nodes.
"""

from remesh.sim.cluster import SimCluster

__all__ = ["SimCluster"]
