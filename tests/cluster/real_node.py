"""One node with a real kubelet, containerd, pod network, Services and names, beside kwok's nodes.

Everything runs in the cluster's network namespace. containerd is the first process of a process id and mount namespace
of its own, which the kubelet joins: when it ends, every container and mount ends with it, however the tests end. Pods
get addresses of a bridge, ClusterIPs are kube-proxy's rules, and names come from CoreDNS, a process at the usual
address. Images come from `load_image`; there is no registry, so pods use the pull policy Never or IfNotPresent.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster import build, cgroups
from tests.cluster.api import Object
from tests.cluster.archives import write_archive
from tests.cluster.errors import ApiError, BinariesUnavailable, ClusterError
from tests.cluster.wait import wait_for
from tests.cluster.workloads import condition

if TYPE_CHECKING:
    from tests.cluster.cluster import RealCluster

NAME = "real"
LABEL = "test.remesh.dev/node"
# Workloads of tests know nothing of this node and stay on kwok's.
TAINT: Object = {"key": LABEL, "value": NAME, "effect": "NoSchedule"}
NODE_PROGRAMS: tuple[build.Program, ...] = (
    build.Program("kubelet", "node", "k8s.io/kubernetes/cmd/kubelet"),
    build.Program("kube-proxy", "node", "k8s.io/kubernetes/cmd/kube-proxy"),
    build.Program("coredns", "addons", "remesh.dev/testcluster/addons/coredns"),
    build.Program("pause", "addons", "remesh.dev/testcluster/addons/pause"),
)
COMMANDS = ("containerd", "ctr", "runc", "iptables", "nsenter", "unshare")
PLUGINS = Path("/usr/lib/cni")
POD_NETWORK = "10.244.0.0/24"
NAME_SERVER = "10.96.0.10"
PAUSE_IMAGE = "remesh.test/pause:test"
# /run of its own, because containerd's shims have their sockets at a fixed place there.
PRIVATE_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'
READY_SECONDS = 120.0
PATH = os.pathsep.join(("/usr/sbin", "/sbin", "/usr/bin", "/bin"))


def unavailable_reason() -> str | None:
    """Why there can be no real node here, or None if there can be."""
    if os.geteuid() != 0:
        return "no real node here: only root can run a kubelet"
    missing = [name for name in COMMANDS if shutil.which(name, path=PATH) is None]
    if not (PLUGINS / "bridge").exists():
        missing.append("containernetworking-plugins")
    if missing:
        return f"no real node here: {', '.join(missing)} is missing; .ci/packages installs it"
    return build.unavailable_reason(NODE_PROGRAMS)


class RealNode:
    """The node `real` of one cluster."""

    def __init__(self, cluster: "RealCluster") -> None:
        if cluster.network.kind != "root":
            raise BinariesUnavailable("a real node needs the cluster's own network, made by root")
        self._cluster = cluster
        self._processes = cluster.processes
        self.directory = cluster.processes.directory / "node"
        self._socket = self.directory / "containerd.sock"
        self._group = cgroups.make("node", cluster.processes.supervisor_pid)
        self._kubeconfig = cluster.control_plane.inner_kubeconfig("admin")

    def start(self) -> "RealNode":
        """Return when the node is Ready. Raises `BinariesUnavailable`, `ProcessDied` or `NotInTime`."""
        programs = build.ensure(NODE_PROGRAMS)
        self._write_files()
        self._start_containerd()
        self._load_pause(programs["pause"])
        self._start_network(programs)
        self._start_kubelet(programs["kubelet"])
        wait_for(self._is_ready, lambda: f"the real node; {self._processes.log_tail('kubelet')}", timeout=READY_SECONDS)
        return self

    def load_image(self, archive: Path) -> None:
        """Bring an image in, from an archive as `docker save` makes it."""
        self._ctr("images", "import", str(archive))

    def stop(self) -> None:
        """End the node, its containers and mounts; the control groups that it made are removed."""
        for name in ("kubelet", "containerd", "kube-proxy", "coredns"):
            if name in self._processes.pids():
                self._processes.signal(name, signal.SIGKILL)
        cgroups.remove(self._group)

    def _write_files(self) -> None:
        networks = self.directory / "cni"
        networks.mkdir(parents=True)
        (networks / "10-bridge.conflist").write_text(json.dumps(_network()))
        (self.directory / "containerd.toml").write_text(_containerd(self.directory, self._socket, networks))
        (self.directory / "resolv.conf").write_text("")
        (self.directory / "kubelet.json").write_text(json.dumps(_kubelet(self.directory, self._socket, self._group)))
        (self.directory / "Corefile").write_text(_corefile(self._kubeconfig))

    def _start_containerd(self) -> None:
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", PRIVATE_RUN, "sh"]
        self._processes.spawn("containerd", [*alone, "containerd", f"--config={self.directory}/containerd.toml"])
        wait_for(self._containerd_answers, lambda: f"containerd; {self._processes.log_tail('containerd')}", timeout=60)

    def _containerd_answers(self) -> bool:
        self._processes.raise_if_dead("containerd")
        with suppress(ClusterError):
            self._ctr("version")
            return True
        return False

    def _load_pause(self, program: Path) -> None:
        archive = self.directory / "pause.tar"
        write_archive(archive, PAUSE_IMAGE, {"/pause": program}, command=["/pause"])
        self.load_image(archive)

    def _start_network(self, programs: Mapping[str, Path]) -> None:
        run = self._processes.run
        run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        # A packet to a ClusterIP needs some route before kube-proxy's rules give it a better destination.
        run("ip", "route", "replace", "default", "dev", "lo")
        run("ip", "addr", "replace", f"{NAME_SERVER}/32", "dev", "lo")
        self._processes.spawn("coredns", [str(programs["coredns"]), "-conf", str(self.directory / "Corefile")])
        self._processes.spawn("kube-proxy", [str(programs["kube-proxy"]), *_proxy(self._kubeconfig)])

    def _start_kubelet(self, program: Path) -> None:
        outer = self._processes.pids()["containerd"]
        inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
        joined = ["nsenter", f"--target={inner}", "--pid", "--mount"]
        self._processes.spawn(
            "kubelet",
            [
                *joined,
                str(program),
                f"--config={self.directory}/kubelet.json",
                f"--kubeconfig={self._kubeconfig}",
                f"--root-dir={self.directory}/kubelet",
                f"--cert-dir={self.directory}/pki",
                f"--hostname-override={NAME}",
                f"--node-ip={self._cluster.network.advertise}",
                f"--node-labels={LABEL}={NAME}",
            ],
        )

    def _is_ready(self) -> bool:
        self._processes.raise_if_dead("containerd", "kubelet", "kube-proxy", "coredns")
        try:
            node = self._cluster.api.get(f"/api/v1/nodes/{NAME}")
        except ApiError:
            return False
        return condition(node, "Ready").get("status") == "True"

    def _ctr(self, *arguments: str) -> None:
        command = ["ctr", f"--address={self._socket}", "--namespace=k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")


def _network() -> Object:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_NETWORK}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "portmap"}]}


def _containerd(directory: Path, socket: Path, networks: Path) -> str:
    # restrict_oom_score_adj: where CAP_SYS_RESOURCE is missing runc could not lower it, and would not start.
    return f"""
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{networks}"
"""


def _kubelet(directory: Path, socket: Path, group: str) -> Object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "clusterDNS": [NAME_SERVER],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{directory}/resolv.conf",
        "registerWithTaints": [TAINT],
        # Nobody else is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "podLogsDir": f"{directory}/pods",
        "staticPodPath": "",
        "evictionHard": {"memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "5s",
    }


def _proxy(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--proxy-mode=iptables",
        f"--hostname-override={NAME}",
        # The limits of connection tracking are the whole machine's; they are left as they are.
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]


def _corefile(kubeconfig: Path) -> str:
    return f""".:53 {{
    bind {NAME_SERVER}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
"""
