"""The socket through which the other commands reach the `up` that runs: one JSON line there, one back."""

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any, Self

from remesh.testbed import Fault
from tests.cluster.build import cache_root
from tests.cluster.cluster import RealCluster
from tests.cluster.errors import ClusterError

# Of a socket's path, with the closing zero (unix(7)).
LONGEST_PATH_BYTES = 107
# To heal can mean to wait for pods and for the API server.
ANSWER_SECONDS = 300.0


class Socket:
    """Listens under the cluster's name; a second cluster of that name is refused while the first one lives."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path = _path(name)
        self._down = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _answers(self._path):
            self._listener.close()
            raise ClusterError(f"a test cluster named {self._name!r} is running already; choose another --name")
        self._path.unlink(missing_ok=True)
        self._listener.bind(str(self._path))
        self._listener.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def serve(self, cluster: RealCluster) -> None:
        """Answer the other commands until one of them is `down`."""
        while not self._down:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError), connection.makefile("rw") as stream:
                if line := stream.readline():
                    reply = self._answer(cluster, json.loads(line))
                    stream.write(json.dumps(reply) + "\n")

    def _answer(self, cluster: RealCluster, request: dict[str, Any]) -> dict[str, Any]:
        try:
            match request["command"]:
                case "fault":
                    cluster.inject_fault(Fault(request["fault"]), delay_ms=request["delay_ms"])
                case "heal":
                    cluster.heal()
                case "down":
                    cluster.stop()
                    self._down = True
                case "status":
                    return describe(self._name, cluster)
        except ClusterError as error:
            return {"error": str(error)}
        return {}


def describe(name: str, cluster: RealCluster) -> dict[str, Any]:
    """Where the cluster is and what runs."""
    namespace = cluster.network_namespace
    return {
        "name": name,
        "kubeconfig": str(cluster.kubeconfig),
        "server": cluster.api.server,
        "network": cluster.network.kind,
        "network_namespace": str(namespace) if namespace else None,
        "directory": str(cluster.processes.directory),
        "pids": cluster.pids(),
    }


def ask(name: str, **request: Any) -> dict[str, Any]:
    """Send one request to the cluster of this name. Raises `ClusterError` if it is not there or cannot do it."""
    path = _path(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                line = stream.readline()
        except OSError as error:
            raise ClusterError(
                f"no test cluster named {name!r} is running; start one with: python -m tests.cluster up"
            ) from error
    reply: dict[str, Any] = json.loads(line or '{"error": "the cluster ended before it answered"}')
    if "error" in reply:
        raise ClusterError(reply["error"])
    return reply


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True


def _path(name: str) -> Path:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name) is None:
        raise ClusterError(f"{name!r} is no name for a cluster: small letters, digits and dashes, 31 at most")
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or cache_root())
    path = base / "remesh-testcluster" / f"{name}.sock"
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        raise ClusterError(f"the path {path} is too long for a socket; set XDG_RUNTIME_DIR to a shorter directory")
    return path
