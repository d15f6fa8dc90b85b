"""A generated cluster served over HTTP as the API server would: lists in pages, watches, discovery.

`python -m benchmarks.apiserver --pods 10000` prints its address and serves until its input ends. It stores nothing
that is written to it: every write is answered as during an outage of the injector, and counted. Not compressed; the
real one compresses lists for those who ask. The bytes are made before the first request, so that serving costs
little beside what is measured.
"""

import argparse
import json
import random
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from benchmarks import scenery
from benchmarks.pods import REPLICAS

PLACES = {
    "/api/v1": {"pods": "Pod", "namespaces": "Namespace", "nodes": "Node", "replicationcontrollers": ""},
    "/apis/apps/v1": {"replicasets": "ReplicaSet", "deployments": "", "statefulsets": "", "daemonsets": ""},
    "/apis/batch/v1": {"jobs": "", "cronjobs": ""},
    "/apis/discovery.k8s.io/v1": {"endpointslices": "EndpointSlice"},
    "/apis/admissionregistration.k8s.io/v1": {"mutatingwebhookconfigurations": "MutatingWebhookConfiguration"},
}
UNSCOPED = {"namespaces", "nodes", "mutatingwebhookconfigurations"}
TICK_SECONDS = 0.01
BOOKMARK_SECONDS = 30.0


@dataclass
class Collection:
    """The objects of one kind by "namespace/name", and every change so far. Changed inside the store's lock."""

    kind: str
    version: str  # apiVersion
    objects: dict[str, bytes] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # resourceVersions of the lines
    lines: list[bytes] = field(default_factory=list)

    def line(self, event: str, blob: bytes) -> bytes:
        """One line of a watch."""
        head = f'{{"type":"{event}","object":{{"kind":"{self.kind}","apiVersion":"{self.version}",'
        return head.encode() + blob[1:] + b"}\n"

    def has_more(self, at: int) -> bool:
        """True if there are lines beyond so many."""
        return len(self.lines) > at

    def bookmark(self, number: int, *, complete: bool = False) -> bytes:
        """A bookmark; `complete` is the one after the initial events of a streamed list."""
        notes = ',"annotations":{"k8s.io/initial-events-end":"true"}' if complete else ""
        meta = f'{{"metadata":{{"resourceVersion":"{number}","creationTimestamp":null{notes}}}}}'
        return self.line("BOOKMARK", meta.encode())


class Store:
    """All collections, and what changes in them."""

    def __init__(self, pods: int, replica_sets: int, nodes: int) -> None:
        self.changed = threading.Condition()
        self.number = 2_000_000  # resourceVersion
        self.requests: Counter[str] = Counter()
        self.committed: dict[str, float] = {}  # name of a failing ReplicaSet → when its failure was committed
        self.changes = 0
        self.changing = False
        self._render = scenery.Pods()
        self._fresh = pods  # number of the next new pod
        self._gone: tuple[str, bytes] | None = None  # the pod that was deleted last, until it is replaced
        self.collections = {
            f"{root}/{plural}": Collection(kind or plural, root.removeprefix("/apis/").removeprefix("/api/"))
            for root, plurals in PLACES.items()
            for plural, kind in plurals.items()
        }
        self.pods = self.collections["/api/v1/pods"]
        self.replica_sets = self.collections["/apis/apps/v1/replicasets"]
        self._fill(pods, replica_sets, nodes)

    def _fill(self, pods: int, replica_sets: int, nodes: int) -> None:
        for number in range(pods):
            self.pods.objects[pod_key(number)] = self._render(number)
        live = -(-pods // REPLICAS)
        for number in range(replica_sets):  # those of one Deployment beside each other, as lists are sorted
            group, old = (number // 2, number % 2 == 1) if replica_sets > live else (number, False)
            made = scenery.replica_set(group, 0 if old or group >= live else REPLICAS, old=old)
            self._add("/apis/apps/v1/replicasets", made)
        for number in range(max(nodes, 40)):
            self._add("/api/v1/nodes", scenery.node(number))
        for name in ("default", "linkerd", *(f"team-{number}" for number in range(scenery.NAMESPACES))):
            self._add("/api/v1/namespaces", scenery.namespace(name, meshed=name.startswith("team-")))
        self._add(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", scenery.webhook_configuration()
        )
        self._add("/apis/discovery.k8s.io/v1/endpointslices", scenery.endpoint_slice())

    def _add(self, place: str, document: dict[str, Any]) -> None:
        meta = document["metadata"]
        self.collections[place].objects[f"{meta.get('namespace', '')}/{meta['name']}"] = scenery.compact(document)

    def versions(self) -> dict[str, str]:
        """UID → resourceVersion of every pod."""
        found = {}
        with self.changed:
            for blob in self.pods.objects.values():
                meta = json.loads(blob)["metadata"]
                found[meta["uid"]] = meta["resourceVersion"]
        return found

    # --- changes ---

    def change(self, seconds: float, rate: float, failing: float) -> None:
        """`rate` pods a second change, and `failing` ReplicaSets a second appear whose pods are refused."""
        began = time.monotonic()
        owed = failed = 0
        names = list(self.pods.objects)
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate)
            with self.changed:
                for _ in range(due - owed):
                    self._change_one(names)
                owed = max(owed, due)
                if int(passed * failing) > failed:
                    failed += 1
                    self.fail(len(self.committed))
                self.changed.notify_all()
            time.sleep(TICK_SECONDS)
        self.changing = False

    def _change_one(self, names: list[str]) -> None:
        """Mostly another status; one in twenty is deleted, and the next change brings its replacement."""
        self.changes += 1
        if self._gone is not None:
            key, made = self._replacement(*self._gone)
            self._gone = None
            names.append(key)
            self._commit(self.pods, "ADDED", key, made)
        elif random.random() < 0.05:
            at = random.randrange(len(names))
            names[at], names[-1] = names[-1], names[at]
            key = names.pop()
            self._gone = key, self.pods.objects[key]
            self._commit(self.pods, "DELETED", key, self.pods.objects[key])
        else:
            key = random.choice(names)
            blob = self.pods.objects[key].replace(b'"restartCount":', b'"restartCount":1', 1)
            self._commit(self.pods, "MODIFIED", key, blob)

    def _replacement(self, key: str, blob: bytes) -> tuple[str, bytes]:
        """Another pod of the same owner, by name and UID."""
        old, new = key.rpartition("/")[2], f"{key.rpartition('-')[0]}-{self._fresh:05}"
        uid = json.loads(blob)["metadata"]["uid"]
        made = blob.replace(old.encode(), new.rpartition("/")[2].encode())
        made = made.replace(uid.encode(), f"{self._fresh:08x}{uid[8:]}".encode())
        self._fresh += 1
        return new, made

    def fail(self, number: int) -> None:
        """A ReplicaSet whose pods the webhook refused. Inside the lock."""
        made = scenery.replica_set(number, 1, name=f"stuck-{number}", refused=True)
        key = f"{made['metadata']['namespace']}/{made['metadata']['name']}"
        self._commit(self.replica_sets, "ADDED", key, scenery.compact(made))
        self.committed[made["metadata"]["name"]] = time.time()

    def _commit(self, collection: Collection, event: str, key: str, blob: bytes) -> None:
        self.number += 1
        mark = b'"resourceVersion":"'
        begin = blob.index(mark) + len(mark)
        blob = blob[:begin] + str(self.number).encode() + blob[blob.index(b'"', begin) :]
        if event == "DELETED":
            del collection.objects[key]
        else:
            collection.objects[key] = blob
        collection.numbers.append(self.number)
        collection.lines.append(collection.line(event, blob))


def pod_key(number: int) -> str:
    """ "namespace/name" of the pod of that number."""
    group = number // REPLICAS
    return f"team-{group % scenery.NAMESPACES}/service-{group}-{group:08x}bf-{number:05d}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    store: Store
    snapshots: dict[str, list[bytes]]
    answer_seconds = 0.0

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        place, namespace, name = locate(parts.path)
        watching = query.get("watch") in ("true", "1")
        self.store.requests["watch" if watching else "get"] += 1
        if parts.path.startswith("/bench/"):
            self._bench(parts.path.removeprefix("/bench/"))
        elif place not in self.store.collections:
            self._discover(parts.path)
        elif name:
            self._object(self.store.collections[place], f"{namespace}/{name}")
        elif watching:
            self._watch(self.store.collections[place], query)
        else:
            self._list(self.store.collections[place], namespace, query)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        if parts.path == "/bench/changes":
            wanted = json.loads(body)
            self.store.changing = True
            threading.Thread(target=self.store.change, kwargs=wanted, daemon=True).start()
            self._answer({})
            return
        dry = "dryRun" in dict(parse_qsl(parts.query))
        self.store.requests["dry run" if dry else self.command] += 1
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError"}
        self._answer(status | {"message": scenery.REFUSAL, "metadata": {}}, 500)

    do_PATCH = do_PUT = do_DELETE = do_POST  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _bench(self, what: str) -> None:
        store = self.store
        if what == "pods":
            self._answer(store.versions())
        elif what == "failures":
            self._answer(store.committed)
        else:
            self._answer({"changing": store.changing, "changes": store.changes, "requests": dict(store.requests)})

    def _answer(self, document: Any, status: int = 200) -> None:
        self._send([scenery.compact(document)], status)

    def _send(self, pieces: list[bytes], status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(sum(map(len, pieces))))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
        self.wfile.flush()

    def _object(self, collection: Collection, key: str) -> None:
        time.sleep(self.answer_seconds)
        found = collection.objects.get(key)
        if found is None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
            self._answer(status | {"message": f"{key} not found", "metadata": {}}, 404)
            return
        head = f'{{"kind":"{collection.kind}","apiVersion":"{collection.version}",'
        self._send([head.encode(), found[1:]])

    def _list(self, collection: Collection, namespace: str, query: dict[str, str]) -> None:
        limit, token = int(query.get("limit") or 0), query.get("continue", "")
        number, _, begin = token.partition(".")
        if not token:
            with self.store.changed:
                items = [
                    blob
                    for key, blob in collection.objects.items()
                    if key.startswith(f"{namespace}/" * bool(namespace))
                ]
                number = str(self.store.number)
            if limit and len(items) > limit:
                self.snapshots[f"{collection.kind}.{number}"] = items
        else:
            items = self.snapshots[f"{collection.kind}.{number}"]
        first = int(begin or 0)
        last = first + limit if limit else len(items)
        more = (
            f'"continue":"{number}.{last}","remainingItemCount":{len(items) - last}'
            if last < len(items)
            else '"continue":""'
        )
        head = (
            f'{{"kind":"{collection.kind}List","apiVersion":"{collection.version}",'
            f'"metadata":{{"resourceVersion":"{number}",{more}}},"items":['
        )
        self._send([head.encode(), b",".join(items[first:last]), b"]}\n"])

    def _watch(self, collection: Collection, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        end = time.monotonic() + float(query.get("timeoutSeconds") or 3600)
        at = self._begin(collection, query)
        while (now := time.monotonic()) < end:
            with self.store.changed:
                self.store.changed.wait_for(partial(collection.has_more, at), min(BOOKMARK_SECONDS, end - now))
                lines = collection.lines[at:]
                number = self.store.number
            at += len(lines)
            self._chunk(b"".join(lines) or collection.bookmark(number))
        self._chunk(b"")

    def _begin(self, collection: Collection, query: dict[str, str]) -> int:
        """Where in the lines this watch goes on; without a resourceVersion it begins with all objects as ADDED."""
        version = query.get("resourceVersion") or "0"
        streamed = query.get("sendInitialEvents") in ("true", "1")
        if version != "0" and not streamed:
            with self.store.changed:
                return bisect_right(collection.numbers, int(version))
        with self.store.changed:
            items, at, number = list(collection.objects.values()), len(collection.lines), self.store.number
        for first in range(0, len(items), 100):
            self._chunk(b"".join(collection.line("ADDED", blob) for blob in items[first : first + 100]))
        if streamed:
            self._chunk(collection.bookmark(number, complete=True))
        return at

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _discover(self, path: str) -> None:
        path = path.rstrip("/")
        if path == "/version":
            self._answer({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        elif path == "/api":
            self._answer({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        elif path == "/apis":
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": list(map(_group, list(PLACES)[1:]))})
        elif path in PLACES:
            version = path.removeprefix("/apis/").removeprefix("/api/")
            resources = [_resource(plural, kind or plural) for plural, kind in PLACES[path].items()]
            self._answer(
                {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
            )
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
            self._answer(status | {"message": "the server could not find the requested resource", "metadata": {}}, 404)


def _group(place: str) -> dict[str, Any]:
    group, _, version = place.removeprefix("/apis/").partition("/")
    known = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [known], "preferredVersion": known}


def _resource(plural: str, kind: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    named = {"name": plural, "singularName": kind.lower(), "kind": kind, "verbs": verbs}
    return named | {"namespaced": plural not in UNSCOPED, "shortNames": ["po"] if plural == "pods" else []}


def locate(path: str) -> tuple[str, str, str]:
    """A path's collection, namespace and name."""
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    root, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    return f"{root}/{rest[0]}" if rest else "", namespace, rest[1] if len(rest) > 1 else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients go away in the middle


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--replica-sets", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--answer-ms", type=float, default=0.0, help="how long a single object's answer takes")
    options = parser.parse_args()
    store = Store(options.pods, options.replica_sets, options.nodes)
    bound = type(
        "BoundHandler", (Handler,), {"store": store, "snapshots": {}, "answer_seconds": options.answer_ms / 1000}
    )
    server = _Server(("127.0.0.1", 0), bound)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
