"""Real istiod processes: one for each pod of the istiod Deployment, started as that pod says, at that pod's address."""

from pathlib import Path

from tests.cluster import network
from tests.cluster.api import Object
from tests.cluster.processes import Processes
from tests.cluster.replicas import Replicas

WEBHOOK_PORT = 15017
# Flag and port of istiod's listeners. Each is bound to the pod's address, so that several share one network.
LISTENERS = {
    "httpAddr": 8080,
    "httpsAddr": WEBHOOK_PORT,
    "grpcAddr": 15010,
    "secureGRPCAddr": 15012,
    "monitoringAddr": 15014,
}
# Of a socket in /proc/PID/net/tcp, from the kernel's include/net/tcp_states.h.
TCP_LISTEN = "0A"


class Istiods(Replicas):
    """Processes of `pilot-discovery`, under the identity of `kubeconfig`."""

    def __init__(self, processes: Processes, program: Path, kubeconfig: Path) -> None:
        super().__init__(processes)
        self._program = program
        self._kubeconfig = kubeconfig

    def logs(self) -> list[Path]:
        """What all processes there ever were have said."""
        return sorted(self._processes.directory.glob("injector-*.log"))

    def _start(self, name: str, pod: Object) -> None:
        address = pod["status"]["podIP"]
        network.add_address(self._processes, address)
        # istiod looks for mounted files under its working directory, and writes there.
        home = self._processes.directory / name
        home.mkdir(exist_ok=True)
        container = pod["spec"]["containers"][0]
        variables = [f"{key}={value}" for key, value in environment(pod).items()]
        listeners = [f"--{flag}={address}:{port}" for flag, port in LISTENERS.items()]
        self._processes.spawn(
            name,
            [
                *("env", *variables, str(self._program), *container["args"]),
                *listeners,
                f"--ctrlz_address={address}",
                f"--kubeconfig={self._kubeconfig}",
            ],
            cwd=home,
        )

    def _listening(self, name: str, pod: Object) -> bool:
        self._processes.raise_if_dead(name)
        pid = self._processes.pids()[name]
        return is_listening(Path(f"/proc/{pid}/net/tcp").read_text(), pod["status"]["podIP"], WEBHOOK_PORT)


def environment(pod: Object) -> dict[str, str]:
    """The variables of a pod's first container that do not depend on where it runs."""
    variables = {}
    for entry in pod["spec"]["containers"][0].get("env", []):
        source = entry.get("valueFrom", {}).get("fieldRef")
        if source:
            variables[entry["name"]] = _field(pod, source["fieldPath"])
        elif "value" in entry:
            variables[entry["name"]] = entry["value"]
    return variables


def is_listening(table: str, address: str, port: int) -> bool:
    """Whether somebody listens at this address, by a table in the form of /proc/net/tcp (proc(5))."""
    octets = reversed(address.split("."))  # the kernel prints the address as a little-endian number
    local = "".join(f"{int(octet):02X}" for octet in octets) + f":{port:04X}"
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(row[1] == local and row[3] == TCP_LISTEN for row in rows)


def _field(pod: Object, path: str) -> str:
    value = pod
    for part in path.split("."):
        value = value[part]
    return str(value)
