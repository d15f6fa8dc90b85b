"""Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as processes of one cluster."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import pki
from tests.cluster.api import Api, Object
from tests.cluster.errors import ApiError
from tests.cluster.network import Network
from tests.cluster.processes import Processes
from tests.cluster.wait import wait_for, whole_lines

# On a busy machine of two cores; a quiet one needs three seconds.
READY_SECONDS = 120.0

# User and groups by the name of the component that gets the token.
IDENTITIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", ("system:masters",)),
    "injector": ("injector", ("system:masters",)),
}

# The cluster's own components, among them an Istio that it runs: what they write is not told as somebody's doing.
OWN_USERS = ("kwok", "injector", "system:apiserver", "system:kube-scheduler", "system:kube-controller-manager")
OWN_GROUPS = ("system:serviceaccounts:kube-system", "system:serviceaccounts:istio-system")
# Every write of anyone else, with its author: proof of what was and was not done. And every pod that is created by
# anyone, with what each webhook made of it.
AUDIT_POLICY: Object = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "None", "users": list(OWN_USERS)},
        {"level": "None", "userGroups": list(OWN_GROUPS)},
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    ],
}


# Those that act on what the tests create. Each further one makes the start slower: they get their service accounts
# one after the other, at 20 requests a second.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)

# A kubelet starts them again. The scheduler ends itself when a binding got lost with the API server that it was sent to
# and the pod turns up on another node (k8s.io/kubernetes/pkg/scheduler/backend/cache: "Scheduler cache is corrupted").
KEPT: Final = frozenset({"kube-controller-manager", "kube-scheduler"})


@dataclass(frozen=True, slots=True)
class Tuning:
    """Departures from Kubernetes' defaults. None leaves the default: 20 requests a second for each controller."""

    controller_qps: int | None = None
    apiserver_arguments: tuple[str, ...] = ()
    controller_manager_arguments: tuple[str, ...] = ()


class ControlPlane:
    """One running control plane. Made by `launch`; ends with its `Processes`."""

    def __init__(self, processes: Processes, network: Network, binaries: Mapping[str, Path], tuning: Tuning) -> None:
        self.processes = processes
        self.network = network
        self.directory = processes.directory
        self._why_not_ready = ""
        self.ca = pki.authority("remesh-test-cluster")
        self._tokens = {name: secrets.token_hex(16) for name in IDENTITIES}
        self._inside = f"https://127.0.0.1:{network.ports.apiserver}"
        self._outside = f"https://{network.host}:{network.port}"
        self._commands = self._write_files_and_commands(binaries, tuning)
        self.kubeconfig = self._kubeconfig("kubeconfig", self._outside, {"token": self._tokens["admin"]})
        self.api = Api.from_kubeconfig(self.kubeconfig)

    def launch(self) -> None:
        """Start everything and return when the API server is ready and the controllers have been started."""
        self.start("etcd")
        self.start("kube-apiserver")
        self.wait_ready()
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self.start(name)

    def start(self, name: str) -> None:
        """Start one component, for the first time or again."""
        self.processes.spawn(name, self._commands[name], keep=name in KEPT)

    def wait_ready(self) -> None:
        """Return when the API server says that it is ready. Raises `ProcessDied` or `NotInTime`."""
        wait_for(self._is_ready, lambda: f"the API server; {self._why_not_ready}", timeout=READY_SECONDS)

    def inner_kubeconfig(self, identity: str) -> Path:
        """The kubeconfig that a process inside the cluster's network uses."""
        return self.directory / f"{identity}.kubeconfig"

    def user_kubeconfig(self, user: str, groups: tuple[str, ...], *, inside: bool = False) -> Path:
        """A kubeconfig of any user: a client certificate that the API server trusts.

        For the host, or for a process inside the cluster's network.
        """
        pair = pki.issue(self.ca, user, organizations=groups)
        certificate, key = pair.write(self.directory, f"user-{secrets.token_hex(4)}")
        identity = {"client-certificate": str(certificate), "client-key": str(key)}
        server = self._inside if inside else self._outside
        return self._kubeconfig(f"{certificate.stem}.kubeconfig", server, identity)

    def audit_events(self) -> list[Object]:
        """The API server's own account so far: everything that `AUDIT_POLICY` has it write down."""
        return [json.loads(line) for line in whole_lines(self.directory / "audit.log")]

    def _is_ready(self) -> bool:
        self.processes.raise_if_dead("etcd", "kube-apiserver")
        try:
            return self.api.request("GET", "/readyz", timeout=5).get("message") == "ok"
        except ApiError as error:
            self._why_not_ready = str(error)
            return False

    def _write_files_and_commands(self, binaries: Mapping[str, Path], tuning: Tuning) -> dict[str, list[str]]:
        directory = self.directory
        (directory / "ca.crt").write_bytes(self.ca.certificate_pem)
        pki.issue(
            self.ca,
            "kube-apiserver",
            hosts=(
                "127.0.0.1",
                self.network.host,
                self.network.advertise,
                "10.96.0.1",
                "localhost",
                "kubernetes.default.svc",
            ),
        ).write(directory, "apiserver")
        pki.authority("service-accounts").write(directory, "service-accounts")
        (directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        self._write_tokens()
        for name in IDENTITIES:
            self._kubeconfig(f"{name}.kubeconfig", self._inside, {"token": self._tokens[name]})
        return {
            name: [str(binaries[name]), *arguments]
            for name, arguments in _arguments(directory, self.network, tuning).items()
        }

    def _write_tokens(self) -> None:
        path = self.directory / "tokens.csv"
        path.touch(mode=0o600)
        lines = [
            f'{self._tokens[name]},{user},{name},"{",".join(groups)}"' for name, (user, groups) in IDENTITIES.items()
        ]
        path.write_text("\n".join(lines) + "\n")

    def _kubeconfig(self, name: str, server: str, user: Mapping[str, str]) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "remesh-test",
            "contexts": [{"name": "remesh-test", "context": {"cluster": "remesh-test", "user": "user"}}],
            "clusters": [
                {
                    "name": "remesh-test",
                    "cluster": {"server": server, "certificate-authority": str(self.directory / "ca.crt")},
                }
            ],
            "users": [{"name": "user", "user": dict(user)}],
        }
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path


def is_own(event: Object) -> bool:
    """Whether an audit event tells what one of the cluster's own components did."""
    user = event["user"]
    return user["username"] in OWN_USERS or not set(OWN_GROUPS).isdisjoint(user.get("groups", ()))


def _arguments(directory: Path, network: Network, tuning: Tuning) -> dict[str, list[str]]:
    return {
        "etcd": _etcd(directory, network),
        "kube-apiserver": _apiserver(directory, network, tuning),
        "kube-controller-manager": _controller_manager(directory, network, tuning),
        "kube-scheduler": _scheduler(directory, network, tuning),
        "kwok": [
            f"--kubeconfig={directory}/kwok.kubeconfig",
            f"--config={Path(__file__).with_name('stages.yaml')}",
            "--manage-nodes-with-label-selector=kwok.x-k8s.io/node=fake",
        ],
    }


def _etcd(directory: Path, network: Network) -> list[str]:
    client = f"http://127.0.0.1:{network.ports.etcd}"
    peer = f"http://127.0.0.1:{network.ports.etcd_peer}"
    return [
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nobody needs this data after a crash
        "--log-level=warn",
    ]


def _apiserver(directory: Path, network: Network, tuning: Tuning) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{network.ports.etcd}",
        f"--secure-port={network.ports.apiserver}",
        f"--bind-address={'0.0.0.0' if network.isolated else '127.0.0.1'}",
        f"--advertise-address={network.advertise}",
        *([] if network.isolated else ["--endpoint-reconciler-type=none"]),
        f"--tls-cert-file={directory}/apiserver.crt",
        f"--tls-private-key-file={directory}/apiserver.key",
        f"--client-ca-file={directory}/ca.crt",
        f"--requestheader-client-ca-file={directory}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        f"--token-auth-file={directory}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={directory}/service-accounts.key",
        f"--service-account-key-file={directory}/service-accounts.crt",
        "--service-cluster-ip-range=10.96.0.0/16",
        # Webhook calls go to the endpoints of their Service: there is no kube-proxy to serve a cluster address.
        "--enable-aggregator-routing=true",
        f"--audit-policy-file={directory}/audit-policy.json",
        f"--audit-log-path={directory}/audit.log",
        # Nothing here resolves the names of nodes.
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        *tuning.apiserver_arguments,
    ]


def _controller_manager(directory: Path, network: Network, tuning: Tuning) -> list[str]:
    kubeconfig = f"{directory}/kube-controller-manager.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={network.ports.controller_manager}",
        f"--cert-dir={directory}/kube-controller-manager",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        f"--controllers={','.join(CONTROLLERS)}",
        # Each controller under its own service account, as clusters have it: some webhooks ask who creates a pod.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={directory}/service-accounts.key",
        f"--root-ca-file={directory}/ca.crt",
        "--profiling=false",
        *_qps(tuning),
        *tuning.controller_manager_arguments,
    ]


def _scheduler(directory: Path, network: Network, tuning: Tuning) -> list[str]:
    kubeconfig = f"{directory}/kube-scheduler.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={network.ports.scheduler}",
        f"--cert-dir={directory}/kube-scheduler",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
        *_qps(tuning),
    ]


def _qps(tuning: Tuning) -> list[str]:
    if tuning.controller_qps is None:
        return []
    return [f"--kube-api-qps={tuning.controller_qps}", f"--kube-api-burst={2 * tuning.controller_qps}"]
