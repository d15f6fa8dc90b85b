"""Where the test cluster lives on the network, and how the host reaches it.

Three ways, the best that the machine allows:
- `root`: a network namespace of its own and a pair of interfaces. Pod addresses exist inside it, so an injector
  binds to the address of its pod and the API server reaches it by Service and EndpointSlice, as on a real network.
- `user`: the same namespace, made without root by a user namespace; the host reaches the API server through a
  small forwarder on its loopback.
- `none`: everything on the host's loopback, on free ports. The injector is reached by URL, so faults that need
  endpoints are not to be had.
"""

import fcntl
import ipaddress
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.cluster.errors import ClusterError
from tests.cluster.processes import Processes

Kind = Literal["root", "user", "none"]

# RFC 2544 sets it aside for tests between networks; nobody routes it.
HOST_RANGE = ipaddress.ip_network("198.18.0.0/15")
INTERFACE_PREFIX = "remesh"
# What the API server calls itself where no pair of interfaces gives it an address.
ADVERTISED_ALONE = "198.18.0.2"


@dataclass(frozen=True, slots=True)
class Ports:
    """Port of each listener on 127.0.0.1 of the cluster's network."""

    etcd: int = 2379
    etcd_peer: int = 2380
    apiserver: int = 6443
    controller_manager: int = 10257
    scheduler: int = 10259
    injector: int = 0


# In a network of its own a cluster has the usual ports for itself.
INSIDE = Ports()


@dataclass(frozen=True, slots=True)
class Network:
    """The way to the API server, from the host and from inside."""

    kind: Kind
    host: str  # the API server's address as the host sees it
    port: int
    advertise: str  # the API server's address as pods would see it
    ports: Ports

    @property
    def isolated(self) -> bool:
        """True where the cluster has a network of its own, and with it pod addresses."""
        return self.kind != "none"


def choose_kind() -> Kind:
    """The best way this machine allows. `REMESH_TESTCLUSTER_NETWORK` (root, user, none) overrides it."""
    wish = os.environ.get("REMESH_TESTCLUSTER_NETWORK")
    if wish in ("root", "user", "none"):
        return wish  # type: ignore[return-value]
    if wish:
        raise ClusterError(f"REMESH_TESTCLUSTER_NETWORK is {wish!r}; it can be root, user or none")
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "none"
    if _may(["unshare", "--net", "true"]) and _may_add_pairs():
        return "root"
    return "user" if _may(["unshare", "--user", "--map-root-user", "--net", "true"]) else "none"


def build(processes: Processes, kind: Kind) -> Network:
    """Make the network of the given kind; processes spawned from now on live in it."""
    if kind == "none":
        ports = Ports(*free_ports(6))
        return Network("none", "127.0.0.1", ports.apiserver, "127.0.0.1", ports)
    if shutil.which("ip") is None:
        raise ClusterError("the command `ip` is missing; install iproute2")
    way_in = processes.isolate(kind)
    processes.run("ip", "link", "set", "lo", "up")
    if way_in is None:
        address = _add_pair(processes)
        return Network("root", address, INSIDE.apiserver, address, INSIDE)
    processes.run("ip", "addr", "add", f"{ADVERTISED_ALONE}/32", "dev", "lo")
    processes.spawn("forwarder", _forwarder_command(), pass_listener=True)
    return Network("user", "127.0.0.1", way_in, ADVERTISED_ALONE, INSIDE)


def add_address(processes: Processes, address: str) -> None:
    """Give the cluster's network the address of a pod. Adding it twice is harmless."""
    processes.run("ip", "addr", "replace", f"{address}/32", "dev", "lo")


def free_ports(count: int) -> list[int]:
    """Ports that are free now on the loopback. All are held at once, so no two are the same."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def _forwarder_command() -> list[str]:
    script = str(Path(__file__).with_name("forwarder.py"))
    return [sys.executable, "-I", "-S", script, "{listener}", "127.0.0.1", str(INSIDE.apiserver)]


def _add_pair(processes: Processes) -> str:
    """A pair of interfaces between the host and the namespace. Returns the address inside.

    The pair goes when the namespace goes.
    """
    pid = str(processes.supervisor_pid)
    outer = f"{INTERFACE_PREFIX}{pid}"
    with _one_at_a_time():
        first, second = _free_pair()
        _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _ip("addr", "add", f"{first}/30", "dev", outer)
    _ip("link", "set", outer, "up")
    processes.run("ip", "addr", "add", f"{second}/30", "dev", "eth0")
    processes.run("ip", "link", "set", "eth0", "up")
    return str(second)


def _free_pair() -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
    used = _used_networks()
    for _ in range(1000):
        base = int(HOST_RANGE.network_address) + 4 * random.randrange(1, HOST_RANGE.num_addresses // 4)
        candidate = ipaddress.IPv4Network((base, 30))
        if not any(candidate.overlaps(network) for network in used):
            return candidate[1], candidate[2]
    raise ClusterError(f"no free network left in {HOST_RANGE}")


def _used_networks() -> list[ipaddress.IPv4Network]:
    links = json.loads(_ip("-j", "-4", "addr", "show"))
    return [
        ipaddress.IPv4Interface(f"{address['local']}/{address['prefixlen']}").network
        for link in links
        for address in link.get("addr_info", [])
        if "local" in address
    ]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "remesh-cluster.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _may_add_pairs() -> bool:
    # Root in a container can often make a namespace and yet not join it to its own network.
    name = f"{INTERFACE_PREFIX}t{os.getpid()}"
    made = _may(["ip", "link", "add", name, "type", "veth"])
    return made and _may(["ip", "link", "delete", name])


def _may(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
