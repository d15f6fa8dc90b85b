"""The same outage, mended by hand: `kubectl rollout restart`, or a shell loop that deletes the stuck ReplicaSets.

`python -m benchmarks.stuck_by_hand [--count 85] [--outage 120] [--ways restart,delete] [--json FILE]`

The workloads are Deployments, since nothing else creates a deleted ReplicaSet again. The hand is the fastest there can
be: it starts in the moment in which the injector answers again. Beside the time, what it did besides is counted:
revisions that the Deployments' histories have now and did not need, and healthy pods of a Deployment in the same
namespace that were replaced although nothing was wrong with them, as a person meets them who restarts a namespace.
"""

import argparse
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.cli import kubectl
from benchmarks.report import print_table, write
from benchmarks.stuck import cluster, say
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.stack import wait_until

NAMESPACE = "bench-by-hand"
REPLICAS = 2
HEALTHY = "healthy"
PATIENCE_SECONDS = 300.0

# What a person types. Deleting every ReplicaSet would take healthy pods along, so the loop asks for Ready ones first.
BY_HAND = {
    "restart": "{k} -n {n} rollout restart deployment",
    "delete": "for rs in $({k} -n {n} get replicaset -o jsonpath="
    "'{{range .items[?(@.status.replicas==0)]}}{{.metadata.name}}{{\"\\n\"}}{{end}}'); "
    "do {k} -n {n} delete replicaset $rs; done",
}


def play(bed: TestBed, client: Client, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One outage and one way."""
    client.create_meshed_namespace(NAMESPACE, bed.wear)
    client.create(NAMESPACE, w.deployment(HEALTHY, REPLICAS))
    client.wait_healed(NAMESPACE, bed.wear.sidecar, REPLICAS)
    before = uids(client, HEALTHY)
    bed.inject_fault(Fault.FROZEN)
    names = [f"web-{number:03d}" for number in range(options.count)]
    for name in names:
        client.create(NAMESPACE, w.deployment(name, REPLICAS))
    frozen = time.monotonic()
    say(f"{way}: the injector hangs for {options.outage:.0f} s")
    wait_until(lambda: time.monotonic() - frozen > options.outage, "the outage", options.outage + 60)
    bed.heal()
    began = time.time()
    program = kubectl() or shutil.which("kubectl") or "kubectl"
    line = BY_HAND[way].format(k=f"{program} --kubeconfig {bed.kubeconfig}", n=NAMESPACE)
    hand = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    if hand.returncode:
        raise SystemExit(f"{line} ended with {hand.returncode}: {hand.stderr.strip()[-300:]}")
    typed = time.time() - began
    healed: dict[str, float] = {}
    while len(healed) < len(names) and time.time() - began < PATIENCE_SECONDS:
        for name in names:
            if name not in healed and len(ready(client, bed, name)) >= REPLICAS:
                healed[name] = time.time() - began
        time.sleep(0.2)
    sets = client.items("ReplicaSet", NAMESPACE)
    return {
        "way": way,
        "hand_seconds": typed,
        "healed": len(healed),
        "all_ready_after": max(healed.values(), default=0.0),
        "replaced_healthy_pods": len(before - uids(client, HEALTHY)),
        "revisions_more": len(sets) - len(names) - 1,
    }


def uids(client: Client, name: str) -> set[str]:
    """UIDs of a Deployment's pods."""
    return {pod["metadata"]["uid"] for pod in client.pods(NAMESPACE) if belongs(pod, name)}


def ready(client: Client, bed: TestBed, name: str) -> list[str]:
    """Its pods that are Ready with the sidecar."""
    pods = [pod for pod in client.pods(NAMESPACE) if belongs(pod, name)]
    return [each["metadata"]["name"] for each in pods if w.has_container(each, bed.wear.sidecar) and w.is_ready(each)]


def belongs(pod: w.Object, name: str) -> bool:
    """True for a pod of one of that Deployment's ReplicaSets."""
    return any(owner["name"].rpartition("-")[0] == name for owner in pod["metadata"].get("ownerReferences", []))


def main() -> int:
    """Each way on a cluster of its own; exit code 1 if something was not healed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=85)
    parser.add_argument("--outage", type=float, default=120.0)
    parser.add_argument("--ways", default=",".join(BY_HAND))
    parser.add_argument("--controller-qps", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if kubectl() is None:
        print("kubectl is missing: build it with `python -m tests.cluster build`", file=sys.stderr)
        return 1
    rows = []
    for way in options.ways.split(","):
        with cluster("real", options.controller_qps) as bed, closing(Client(bed.kubeconfig)) as client:
            rows.append(play(bed, client, way, options))
            say(str(rows[-1]))
    table = [
        [
            row["way"],
            f"{row['all_ready_after']:.1f} s",
            f"{row['healed']} of {options.count}",
            f"{row['hand_seconds']:.1f} s",
            str(row["replaced_healthy_pods"]),
            str(row["revisions_more"]),
        ]
        for row in rows
    ]
    heads = ["by hand", "all Ready after", "healed", "the command took", "healthy pods replaced", "revisions more"]
    print_table(f"{options.count} stuck Deployments, real control plane", heads, table)
    write(options.json, "stuck_by_hand", rows, count=options.count, outage=options.outage)
    return 0 if all(row["healed"] == options.count for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
