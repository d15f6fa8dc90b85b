"""How fast a list of pods becomes objects, and what they weigh: `python -m benchmarks.decode [--pods 5000]`.

The pods carry a sidecar, statuses, managedFields and all, about 6.4 KB each, as a mesh's pods do. Compared are the
projection of `remesh.kube.decode`, plain `json`, the same projection by pydantic, lightkube's objects, lazily as it
makes them and with what a look reads, and the official client's models.
Each runs in a process of its own, so that memory is its own. What counts are the ratios; times are this machine's.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import resident_bytes
from benchmarks.pods import pod_list

Decode = Callable[[bytes], Any]


def projection() -> Decode:
    from remesh.kube.decode import decode_list

    return lambda data: decode_list("Pod", data).items


def shared_projection() -> Decode:
    from remesh.kube.decode import decode_list
    from remesh.kube.sharing import Siblings

    siblings = Siblings()

    def decode(data: bytes) -> Any:
        pods = decode_list("Pod", data).items
        for pod in pods:
            siblings.share(pod)
        return pods

    return decode


def plain_json() -> Decode:
    return lambda data: json.loads(data)["items"]


def pydantic_projection() -> Decode:
    from pydantic import BaseModel, ConfigDict, Field
    from pydantic.alias_generators import to_camel

    class Slim(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    class Owner(Slim):
        kind: str = ""
        name: str = ""
        uid: str = ""
        controller: bool | None = None

    class Meta(Slim):
        name: str = ""
        namespace: str = ""
        uid: str = ""
        resource_version: str = ""
        generate_name: str = ""
        creation_timestamp: str = ""
        deletion_timestamp: str | None = None
        labels: dict[str, str] | None = None
        annotations: dict[str, str] | None = None
        owner_references: list[Owner] | None = None

    class Container(Slim):
        name: str = ""
        image: str = ""
        restart_policy: str | None = None

    class Spec(Slim):
        containers: list[Container] | None = None
        init_containers: list[Container] | None = None
        host_network: bool = False
        node_name: str = ""
        priority_class_name: str = ""
        restart_policy: str = ""

    class Condition(Slim):
        type: str = ""
        status: str = ""
        reason: str = ""
        message: str = ""
        last_transition_time: str | None = None

    class Status(Slim):
        phase: str = ""
        reason: str = ""
        conditions: list[Condition] | None = None

    class Pod(Slim):
        metadata: Meta = Field(default_factory=Meta)
        spec: Spec = Field(default_factory=Spec)
        status: Status = Field(default_factory=Status)

    class Pods(Slim):
        items: list[Pod]

    return lambda data: Pods.model_validate_json(data).items


def lightkube_objects(*, read: bool = False) -> Decode:
    """lightkube parses JSON and makes each part an object when it is first asked for; `read` asks as a look would."""
    from lightkube.resources.core_v1 import Pod

    made: Any = Pod

    def decode(data: bytes) -> Any:
        pods = [made.from_dict(each) for each in json.loads(data)["items"]]
        for pod in pods if read else ():
            _ = (pod.metadata.uid, pod.metadata.labels, pod.metadata.annotations, pod.metadata.ownerReferences[0].uid)
            _ = [each.name for each in (*pod.spec.containers, *pod.spec.initContainers)]
            _ = [(each.type, each.status) for each in pod.status.conditions]
        return pods

    return decode


def lightkube_read() -> Decode:
    return lightkube_objects(read=True)


def official_models() -> Decode:
    from kubernetes import client

    api: Any = client.ApiClient()
    return lambda data: api.deserialize(data.decode(), "V1PodList", "application/json").items


WAYS: dict[str, Callable[[], Decode]] = {
    "remesh projection": projection,
    "… siblings sharing": shared_projection,
    "json": plain_json,
    "pydantic projection": pydantic_projection,
    "lightkube": lightkube_objects,
    "lightkube, read": lightkube_read,
    "official models": official_models,
}
OTHERS = ("lightkube", "lightkube, read")
"""Ways that need an environment of their own."""
SLOW = {"official models": 5}
"""Ways that get this fraction of the pods; they would take minutes, and the rate is the same."""
PAGE = 500


def measure(name: str, pods: int) -> dict[str, float]:
    """Rate, resident memory per pod while all are held, and time and memory of the import alone."""
    before, began = resident_bytes(), time.perf_counter()
    decode = WAYS[name]()
    decode(pod_list(0, 1))
    start = {"import_seconds": time.perf_counter() - began, "import_bytes": resident_bytes() - before}
    pages = [pod_list(first, min(PAGE, pods - first)) for first in range(0, pods, PAGE)]
    gc.collect()
    held, before, seconds = [], resident_bytes(), 0.0
    for page in pages:
        began = time.process_time()
        held.append(decode(page))
        seconds += time.process_time() - began  # other programs on this machine do not count
    kept = (resident_bytes() - before) / pods
    return start | {"rate": pods / seconds, "pod_bytes": kept, "size": sum(map(len, pages)) / pods}


def main() -> None:
    """Measure each way in a process of its own and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)  # one way, as JSON: what the children run
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measure(chosen.only, chosen.pods)))
        return
    from benchmarks.report import write  # not for the children: they are measured

    found = {name: _in_child(name, chosen.pods // SLOW.get(name, 1)) for name in WAYS}
    best = next(iter(found.values()))
    print(f"{chosen.pods} pods of {best['size'] / 1000:.1f} KB")
    print(f"{'way':<22}{'pods/s':>10}{'ratio':>8}{'KB/pod held':>13}{'10,000 pods':>13}{'import':>18}")
    for name, row in found.items():
        start = f"{row['import_seconds']:.2f} s {row['import_bytes'] / 1e6:.0f} MB"
        held = f"{row['pod_bytes'] / 1000:>13.1f}{row['pod_bytes'] / 100:>10.0f} MB"
        print(f"{name:<22}{row['rate']:>10,.0f}{best['rate'] / row['rate']:>8.1f}{held}{start:>18}")
    write(chosen.json, "decode", found, pods=chosen.pods)


def _in_child(name: str, pods: int) -> dict[str, float]:
    from benchmarks.others import python_with_clients

    python = str(python_with_clients()) if name in OTHERS else sys.executable
    command = [python, "-m", "benchmarks.decode", "--pods", str(pods), "--only", name]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


if __name__ == "__main__":
    main()
