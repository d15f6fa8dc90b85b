"""The processes of an injector: one for each of its pods, bound to the address of that pod."""

import abc
import dataclasses
import json
import signal
import sys
from functools import partial
from pathlib import Path

from remesh.testbed import InjectorWear
from tests.cluster import network
from tests.cluster.api import Object
from tests.cluster.pki import KeyPair
from tests.cluster.processes import Processes
from tests.cluster.wait import wait_for, whole_lines

LISTENING_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """One admission call, as the controllable injector wrote it down, or for Istio the API server."""

    time: float  # seconds since the epoch, when the call came in
    milliseconds: float  # until the answer
    outcome: str  # injected, skipped, bare, denied or error; for Istio see istio_admissions.py
    dry_run: bool
    namespace: str
    name: str  # the pod's name, or its generateName
    user: str  # who creates the pod
    uid: str  # of the request


class Replicas(abc.ABC):
    """Processes by name, and the pod that each of them stands for."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._pods: dict[str, Object] = {}

    @abc.abstractmethod
    def _start(self, name: str, pod: Object) -> None:
        """Start the process of this pod under this name."""

    @abc.abstractmethod
    def _listening(self, name: str, pod: Object) -> bool:
        """Whether the process takes connections. Raises `ProcessDied` if it never will."""

    @property
    def pods(self) -> dict[str, Object]:
        """The pod that each process stands for, by the process's name."""
        return dict(self._pods)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process."""
        for name in self._pods:
            self._processes.signal(name, number)

    def sync(self, pods: list[Object]) -> None:
        """Have one living, listening process for each of these pods, and no other."""
        wanted = {f"injector-{pod['metadata']['uid'][:8]}": pod for pod in pods}
        for name in set(self._pods) - set(wanted):
            self._processes.signal(name, signal.SIGKILL)
        living = self._processes.pids()
        started = [name for name in wanted if name not in living]
        for name in started:
            self._start(name, wanted[name])
        for name in started:
            wait_for(partial(self._listening, name, wanted[name]), f"{name} to listen", timeout=LISTENING_SECONDS)
        self._pods = wanted


class WebhookReplicas(Replicas):
    """Processes of `tests.cluster.webhook`, and the files that they read and write."""

    def __init__(
        self,
        wear: InjectorWear,
        processes: Processes,
        net: network.Network,
        serving: KeyPair,
        kubeconfig: Path,
    ) -> None:
        super().__init__(processes)
        self._wear = wear
        self._net = net
        self._kubeconfig = kubeconfig
        self._mode: dict[str, object] = {}
        self._directory = processes.directory / "injector"
        self._directory.mkdir()
        serving.write(self._directory, "tls")
        (self._directory / "wear.json").write_text(json.dumps(dataclasses.asdict(wear)))
        self.reset_mode()

    def reset_mode(self) -> None:
        """Behave again, from the next call on."""
        self._mode = {}
        self.change_mode()

    def change_mode(self, **changes: object) -> None:
        """Misbehave, from the next call on; the fields are those of `webhook.Mode`."""
        self._mode.update(changes)
        fresh = self._directory / "mode.new"
        fresh.write_text(json.dumps(self._mode))
        fresh.replace(self._directory / "mode.json")

    def admissions(self) -> list[Admission]:
        """Every call answered so far, by all processes there ever were, oldest first."""
        calls = [Admission(**json.loads(line)) for log in self._directory.glob("*.calls") for line in whole_lines(log)]
        return sorted(calls, key=lambda call: call.time)

    def _start(self, name: str, pod: Object) -> None:
        address, port = pod["status"]["podIP"], self._wear.target_port
        if self._net.isolated:
            network.add_address(self._processes, address)
        else:
            address, port = "127.0.0.1", self._net.ports.injector
        self._ready_file(name).unlink(missing_ok=True)
        directory = self._directory
        self._processes.spawn(
            name,
            [
                *(sys.executable, "-m", "tests.cluster.webhook"),
                *("--listen", f"{address}:{port}"),
                *("--ready", str(self._ready_file(name))),
                *("--wear", str(directory / "wear.json")),
                *("--mode", str(directory / "mode.json")),
                *("--log", str(directory / f"{name}.calls")),
                *("--kubeconfig", str(self._kubeconfig)),
                *("--certificate", str(directory / "tls.crt")),
                *("--key", str(directory / "tls.key")),
            ],
        )

    def _listening(self, name: str, pod: Object) -> bool:
        self._processes.raise_if_dead(name)
        return self._ready_file(name).exists()

    def _ready_file(self, name: str) -> Path:
        return self._directory / f"{name}.ready"
