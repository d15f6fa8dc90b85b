"""A controllable sidecar injector: `python -m tests.cluster.webhook --help`.

One process is one replica. It serves AdmissionReview v1 over HTTPS in the clothes of any mesh (`InjectorWear`), reads
namespaces from the API server as real injectors do, and behaves as the mode file tells it: that file is looked at
for every call, so a fault is in force from the next call on, for all replicas at once.
Every answered call leaves one line in the log file: the tests' own count of what the API server asked.
"""

import argparse
import asyncio
import base64
import json
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remesh.testbed import DRY_RUN_ONLY, InjectorWear
from tests.cluster.api import Api
from tests.cluster.errors import ApiError

Object = dict[str, Any]

# Connections that the kernel takes in while the process is stopped or busy.
BACKLOG = 1024
RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Mode:
    """How to misbehave. All fields at their defaults: not at all."""

    delay_ms: int = 0
    answer: str = "inject"  # inject, error-500, deny or bare


class ModeFile:
    """The mode as it stands in the file, read again whenever the file has been replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._mode = Mode()

    def current(self) -> Mode:
        """The mode now."""
        stat = self._path.stat()
        if (stat.st_ino, stat.st_mtime_ns) != self._seen:
            self._mode = Mode(**json.loads(self._path.read_text()))
            self._seen = (stat.st_ino, stat.st_mtime_ns)
        return self._mode


class Namespaces:
    """Namespaces' metadata: listed, watched, and fetched one by one where the watch has not come to it yet."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._metadata: dict[str, Object] = {}

    def start(self) -> None:
        """Watch in a thread that ends with the process."""
        threading.Thread(target=self._watch_forever, daemon=True).start()

    def metadata(self, name: str) -> Object | None:
        """What is known now, without asking anyone."""
        return self._metadata.get(name)

    def fetch(self, name: str) -> Object:
        """Ask the API server."""
        metadata: Object = self._api.get(f"/api/v1/namespaces/{name}")["metadata"]
        self._metadata[name] = metadata
        return metadata

    def _watch_forever(self) -> None:
        while True:
            try:
                self._watch(self._list())
            except (ApiError, OSError, ValueError):
                time.sleep(RETRY_SECONDS)

    def _list(self) -> str:
        listed = self._api.get("/api/v1/namespaces")
        self._metadata = {item["metadata"]["name"]: item["metadata"] for item in listed["items"]}
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _watch(self, version: str) -> None:
        for line in self._api.stream("/api/v1/namespaces", watch="true", resourceVersion=version):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            metadata = event["object"]["metadata"]
            if event["type"] == "DELETED":
                self._metadata.pop(metadata["name"], None)
            else:
                self._metadata[metadata["name"]] = metadata


def wants_sidecar(wear: InjectorWear, pod: Object, namespace: Object) -> bool:
    """Whether a real injector of this wear would inject: the pod's own word goes before its namespace's."""
    metadata = pod.get("metadata", {})
    if pod.get("spec", {}).get("hostNetwork") or _injected(wear, pod) or _carries(wear.refuse_annotation, metadata):
        return False
    asking = namespace if wear.namespace_asks else {}
    asks = [
        _asks(wear.ask_annotation, "annotations", metadata, asking),
        _asks(wear.ask_label, "labels", metadata, asking),
    ]
    # A wear without any key to ask by injects whatever its selectors let through.
    return any(asks) or (wear.ask_annotation is None and wear.ask_label is None)


def may_create(wear: InjectorWear, user: str) -> bool:
    """Whether pods that this user creates are injected."""
    return not wear.creators or user in wear.creators


def is_dry_run_only(pod: Object) -> bool:
    """Whether the pod is one of those that get the sidecar in dry runs only."""
    key, value = DRY_RUN_ONLY
    return bool((pod.get("metadata", {}).get("labels") or {}).get(key) == value)


def _injected(wear: InjectorWear, pod: Object) -> bool:
    if not wear.sidecar:
        return all(_carries(mark, pod.get("metadata", {})) for mark in wear.mark_annotations.items())
    spec = pod.get("spec", {})
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    return any(container["name"] == wear.sidecar for container in containers)


def _carries(annotation: tuple[str, str] | None, metadata: Object) -> bool:
    return annotation is not None and (metadata.get("annotations") or {}).get(annotation[0]) == annotation[1]


def _asks(key_value: tuple[str, str] | None, field: str, pod: Object, namespace: Object) -> bool:
    if key_value is None:
        return False
    key, wanted = key_value
    own = (pod.get(field) or {}).get(key)
    if own is not None:
        return bool(own == wanted)
    return bool((namespace.get(field) or {}).get(key) == wanted)


def injection_patch(wear: InjectorWear, pod: Object) -> list[Object]:
    """The JSON patch that adds the sidecar and the marks."""
    marks = [*_marks("annotations", wear.mark_annotations, pod), *_marks("labels", wear.mark_labels, pod)]
    return [*marks, _sidecar(wear, pod)] if wear.sidecar else marks


def _sidecar(wear: InjectorWear, pod: Object) -> Object:
    container: Object = {"name": wear.sidecar, "image": f"{wear.sidecar}:test"}
    if not wear.native_sidecar:
        return {"op": "add", "path": "/spec/containers/-", "value": container}
    native = {**container, "restartPolicy": "Always"}
    return {"op": "add", "path": "/spec/initContainers", "value": [native, *(pod["spec"].get("initContainers") or [])]}


def _marks(field: str, marks: Mapping[str, str], pod: Object) -> list[Object]:
    if not marks:
        return []
    present = pod.get("metadata", {}).get(field) or {}
    return [{"op": "add", "path": f"/metadata/{field}", "value": {**present, **marks}}]


class Injector:
    """Answers admission requests and writes each down."""

    def __init__(self, wear: InjectorWear, mode: ModeFile, namespaces: Namespaces, log: Path) -> None:
        self._wear = wear
        self._mode = mode
        self._namespaces = namespaces
        self._log = log.open("a", buffering=1)

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        """HTTP status and body of the reply to one AdmissionReview."""
        started = time.time()
        mode = self._mode.current()
        request: Object = json.loads(body)["request"]
        if mode.delay_ms:
            await asyncio.sleep(mode.delay_ms / 1000)
        status, outcome, reply = await self._outcome(mode, request)
        self._write_down(request, outcome, started)
        return status, reply

    async def _outcome(self, mode: Mode, request: Object) -> tuple[int, str, bytes]:
        if mode.answer == "error-500":
            return 500, "error", b"the injector is out of order"
        if mode.answer == "deny":
            message = {"message": "the injector is denying everything", "code": 403}
            return 200, "denied", _review(request, {"allowed": False, "status": message})
        pod = request["object"]
        namespace = await self._namespace(request["namespace"])
        allowed = may_create(self._wear, request["userInfo"].get("username", ""))
        if not allowed or not wants_sidecar(self._wear, pod, namespace):
            return 200, "skipped", _review(request, {"allowed": True})
        if mode.answer == "bare" or (is_dry_run_only(pod) and not request.get("dryRun")):
            return 200, "bare", _review(request, {"allowed": True})
        patch = base64.b64encode(json.dumps(injection_patch(self._wear, pod)).encode()).decode()
        return 200, "injected", _review(request, {"allowed": True, "patchType": "JSONPatch", "patch": patch})

    async def _namespace(self, name: str) -> Object:
        known = self._namespaces.metadata(name)
        return known if known is not None else await asyncio.to_thread(self._namespaces.fetch, name)

    def _write_down(self, request: Object, outcome: str, started: float) -> None:
        metadata = request["object"].get("metadata", {})
        line = {
            "time": started,
            "milliseconds": round((time.time() - started) * 1000, 3),
            "outcome": outcome,
            "dry_run": bool(request.get("dryRun")),
            "namespace": request["namespace"],
            "name": metadata.get("name") or metadata.get("generateName", ""),
            "user": request["userInfo"].get("username", ""),
            "uid": request["uid"],
        }
        self._log.write(json.dumps(line) + "\n")


def _review(request: Object, response: Object) -> bytes:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **response},
    }
    return json.dumps(review).encode()


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, no more of it than the API server speaks to webhooks."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect until a request is whole, then answer it."""
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator or len(rest) < (length := _content_length(head)):
            return
        self._buffer = rest[length:]
        task = asyncio.get_running_loop().create_task(self._answer(head, rest[:length]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"POST "):
            status, reply = await self._injector.answer(body)
        else:
            status, reply = 200, b"ok"
        if self._transport.is_closing():  # the API server gave up waiting
            return
        reason = b"OK" if status == 200 else b"Internal Server Error"
        kind = b"application/json" if reply.startswith(b"{") else b"text/plain"
        self._transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (status, reason, kind, len(reply), reply)
        )


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    wear = InjectorWear(**json.loads(arguments.wear.read_text()))
    namespaces = Namespaces(Api.from_kubeconfig(arguments.kubeconfig))
    namespaces.start()
    injector = Injector(wear, ModeFile(arguments.mode), namespaces, arguments.log)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(arguments.certificate, arguments.key)
    host, _, port = arguments.listen.rpartition(":")
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(injector), host, int(port), ssl=tls, backlog=BACKLOG
    )
    arguments.ready.write_text(str(os.getpid()))
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.webhook", description="A controllable injector.")
    parser.add_argument("--listen", required=True, help="ADDRESS:PORT")
    parser.add_argument("--ready", type=Path, required=True, help="file to write the pid to once listening")
    for name in ("wear", "mode", "log", "kubeconfig", "certificate", "key"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
