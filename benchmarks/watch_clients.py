"""The clients that `benchmarks.watch` compares: `python -m benchmarks.watch_clients WAY KUBECONFIG`, one a process.

Each lists all pods and follows their changes as its makers' documentation shows it, says "synced", and answers every
line of its input with what it holds now: UID → resourceVersion, as one line of JSON. A client that has no store of its
own gets a dict, which is what its users write.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Held = Callable[[], dict[str, str]]


def answer(held: Held) -> None:
    """Say that all is there, then answer until the input ends."""
    print("synced", flush=True)
    for _ in sys.stdin:
        print(json.dumps(held()), flush=True)


def remesh(kubeconfig: str) -> None:
    """remesh's reflector and store, as the watcher runs them."""
    from remesh.kube.config import load_access
    from remesh.kube.transport import KubeClient
    from remesh.kube.watch import Reflector
    from watcher.store import Store

    store, stop = Store(), threading.Event()
    reflector = Reflector(
        KubeClient(load_access(Path(kubeconfig))),
        "Pod",
        lambda items: store.replace("Pod", items),
        lambda event, item: store.apply("Pod", event, item),
    )
    threading.Thread(target=reflector.run, args=(stop,), daemon=True).start()
    threading.Thread(target=_take, args=(store,), daemon=True).start()
    reflector.synced.wait()
    answer(lambda: {uid: pod.metadata.resource_version for uid, pod in list(store._objects["Pod"].items())})


def _take(store: Any) -> None:
    """What the watcher's thread does first: take what changed. Judging it is not a client's part."""
    while True:
        store.wait(1.0)
        while store.take_dirty(2000):
            pass


def official(kubeconfig: str) -> None:
    """The official client's SharedInformer."""
    from kubernetes import client, config
    from kubernetes import informer as informers

    load: Any = config.load_kube_config
    load(config_file=kubeconfig)
    made: Any = informers.SharedInformer
    informer = made(client.CoreV1Api().list_pod_for_all_namespaces)
    informer.start()
    while informer._resource_version is None:  # it has no sign of its own that it has synced
        threading.Event().wait(0.05)
    answer(lambda: {pod.metadata.uid: pod.metadata.resource_version for pod in informer.cache.list()})


def lightkube(kubeconfig: str) -> None:
    """lightkube's list and watch into a dict."""
    from lightkube import Client, KubeConfig
    from lightkube.resources.core_v1 import Pod

    client: Any = Client(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    found = client.list(Pod, namespace="*", chunk_size=500)
    held = {pod.metadata.uid: pod for pod in found}

    def follow() -> None:
        for event, pod in client.watch(Pod, namespace="*", resource_version=found.resourceVersion):
            if event == "DELETED":
                held.pop(pod.metadata.uid, None)
            else:
                held[pod.metadata.uid] = pod

    threading.Thread(target=follow, daemon=True).start()
    answer(lambda: {uid: pod.metadata.resourceVersion for uid, pod in list(held.items())})


def kr8s(kubeconfig: str) -> None:
    """kr8s' list and watch into a dict."""
    import kr8s as library

    api: Any = library.api(kubeconfig=kubeconfig)
    held = {pod.raw["metadata"]["uid"]: pod for pod in api.get("pods", namespace=library.ALL)}

    def follow() -> None:
        # From the newest version that the list showed: kr8s does not hand over the list's own.
        since = max((int(pod.raw["metadata"]["resourceVersion"]) for pod in held.values()), default=0)
        for event, pod in api.watch("pods", namespace=library.ALL, since=str(since)):
            if event == "DELETED":
                held.pop(pod.raw["metadata"]["uid"], None)
            else:
                held[pod.raw["metadata"]["uid"]] = pod

    threading.Thread(target=follow, daemon=True).start()
    answer(lambda: {uid: pod.raw["metadata"]["resourceVersion"] for uid, pod in list(held.items())})


def kopf(kubeconfig: str) -> None:
    """kopf's index of pods, which is how its operators hold objects."""
    import kopf as library

    held: dict[str, str] = {}
    ready = threading.Event()

    os.environ["KUBECONFIG"] = kubeconfig

    @library.on.login()  # type: ignore[untyped-decorator]
    def login(**known: Any) -> Any:
        return library.login_with_kubeconfig(**known)

    @library.index("pods")  # type: ignore[untyped-decorator]
    def pods(body: Any, **_: Any) -> Any:
        return {body["metadata"]["uid"]: dict(body)}

    @library.on.event("pods")  # type: ignore[untyped-decorator]
    def seen(event: Any, **_: Any) -> None:
        ready.set()  # the first event is handled after all objects of the list have been indexed
        meta = event["object"]["metadata"]
        if event["type"] == "DELETED":
            held.pop(meta["uid"], None)
        else:
            held[meta["uid"]] = meta["resourceVersion"]

    def run() -> None:
        asyncio.run(library.operator(clusterwide=True, standalone=True))

    threading.Thread(target=run, daemon=True).start()
    ready.wait()
    answer(lambda: dict(held))


WAYS: dict[str, Callable[[str], None]] = {
    "remesh": remesh,
    "official": official,
    "lightkube": lightkube,
    "kr8s": kr8s,
    "kopf": kopf,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[2])
