"""Servers as an administrator would run them: Redis with users and TLS, Redis behind Sentinel, RabbitMQ.

From Debian's packages (`.ci/packages`), each on loopback with ports, names and folders of its own. Whatever is started
here is ended by `stop`, by its process id.
"""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from kombu.connection import Connection

from tests.kube.tls import authority, issue, pem
from tests.needs import need
from tests.stack import free_port, wait_until

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # not the one on PATH, which changes user and folder
PASSWORD = "correct horse/battery"


@dataclass
class Server:
    """One process and its folder."""

    folder: Path
    popen: "subprocess.Popen[bytes] | None" = None

    def spawn(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output.log").open("ab") as log:
            self.popen = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return (self.folder / "output.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def kill(self) -> None:
        """SIGKILL, as a lost node would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.popen is None or self.popen.poll() is not None:
            return
        self.popen.send_signal(number)
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def certificates(folder: Path) -> None:
    """An authority, one certificate of it for each side, and an authority that issued neither."""
    ca = authority()
    (folder / "ca.pem").write_text(pem(ca.certificate))
    (folder / "other-ca.pem").write_text(pem(authority().certificate))
    for name in ("server", "client"):
        certificate, key = issue(ca, "server.test")
        (folder / f"{name}.pem").write_text(certificate)
        (folder / f"{name}.key").write_text(key)


def parameters(folder: Path, ca: str = "ca.pem") -> dict[str, str]:
    """The TLS parameters of a client's URL."""
    names = {"ssl_ca_certs": ca, "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
    return {key: str(folder / name) for key, name in names.items()}


def as_query(pairs: dict[str, str]) -> str:
    return "&".join(f"{key}={quote(value, safe='/')}" for key, value in pairs.items())


_TLS = """
tls-cert-file {folder}/server.pem
tls-key-file {folder}/server.key
tls-ca-cert-file {folder}/ca.pem
tls-auth-clients yes
tls-replication yes
"""


@dataclass
class GuardedRedis(Server):
    """Redis with TLS for both sides, a user of its own for remesh, and none for anybody else."""

    rules: str = ""
    port: int = field(default_factory=free_port)
    user: str = "remesh"

    def start(self) -> "GuardedRedis":
        need(shutil.which("redis-server"), "redis-server")
        self.folder.mkdir(parents=True, exist_ok=True)
        certificates(self.folder)
        digest = sha256(PASSWORD.encode()).hexdigest()
        (self.folder / "users.acl").write_text(
            f"user default off\nuser admin on >admin ~* &* +@all\nuser {self.user} on #{digest} {self.rules}\n"
        )
        (self.folder / "redis.conf").write_text(f"""
bind 127.0.0.1
port 0
tls-port {self.port}
{_TLS.format(folder=self.folder)}
aclfile {self.folder}/users.acl
dir {self.folder}
appendonly yes
save ""
maxmemory-policy noeviction
""")
        self.spawn("redis-server", "redis.conf")
        wait_until(lambda: _answers(self.admin()), "redis with TLS", 30)
        return self

    def files(self, ca: str = "ca.pem") -> dict[str, str]:
        return parameters(self.folder, ca)

    def url(self, *, user: str = "", password: str = PASSWORD, host: str = "127.0.0.1", **files: str) -> str:
        login = f"{user or self.user}:{quote(password, safe='')}"
        return f"rediss://{login}@{host}:{self.port}/0?{as_query(files or self.files())}"

    def admin(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url(user="admin", password="admin"), decode_responses=True)


def _answers(client: "redis.Redis") -> bool:
    with client, suppress(redis.RedisError):
        return bool(client.ping())
    return False


_NODE = """
bind 127.0.0.1
{listen}
dir {folder}
requirepass {secret}
masterauth {secret}
appendonly yes
save ""
maxmemory-policy noeviction
repl-diskless-sync-delay 0
"""

_SENTINEL = """
bind 127.0.0.1
{listen}
dir {folder}
requirepass {secret}
sentinel monitor mymaster 127.0.0.1 {primary} 2
sentinel auth-pass mymaster {secret}
sentinel sentinel-pass {secret}
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 5000
"""


@dataclass
class Sentinels:
    """A primary, a replica, and three sentinels that agree on a failover."""

    folder: Path
    nodes: list[Server] = field(default_factory=list)
    sentinels: list[Server] = field(default_factory=list)
    secret: str = "sesame"
    tls: bool = False

    def start(self) -> "Sentinels":
        need(shutil.which("redis-server") and shutil.which("redis-sentinel"), "redis-server and redis-sentinel")
        self.folder.mkdir(parents=True, exist_ok=True)
        certificates(self.folder)
        self.ports = [free_port() for _ in range(2)]
        self.sentinel_ports = [free_port() for _ in range(3)]
        for number, port in enumerate(self.ports):
            more = f"replicaof 127.0.0.1 {self.ports[0]}\n" if number else ""
            self.nodes.append(self._start("redis-server", f"node-{number}", _NODE + more, port))
        wait_until(self._replicates, "the replica to follow the primary", 30)
        for number, port in enumerate(self.sentinel_ports):
            self.sentinels.append(self._start("redis-sentinel", f"sentinel-{number}", _SENTINEL, port))
        wait_until(self._agreed, "the sentinels to know each other and the replica", 60)
        return self

    def _start(self, program: str, name: str, template: str, port: int) -> Server:
        server = Server(self.folder / name)
        server.folder.mkdir(parents=True, exist_ok=True)
        listen = f"port 0\ntls-port {port}\n{_TLS.format(folder=self.folder)}" if self.tls else f"port {port}"
        text = template.format(listen=listen, folder=server.folder, secret=self.secret, primary=self.ports[0])
        (server.folder / "server.conf").write_text(text)
        server.spawn(program, "server.conf")
        return server

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinel_ports)
        scheme, files = ("sentinels", f"&{as_query(parameters(self.folder))}") if self.tls else ("sentinel", "")
        return f"{scheme}://:{self.secret}@{hosts}/0?master=mymaster&sentinel_password={self.secret}{files}"

    def node(self, port: int) -> "redis.Redis":
        scheme, files = ("rediss", as_query(parameters(self.folder))) if self.tls else ("redis", "")
        url = f"{scheme}://:{self.secret}@127.0.0.1:{port}/0?{files}"
        return redis.Redis.from_url(url, decode_responses=True)

    def _replicates(self) -> bool:
        with suppress(redis.RedisError), self.node(self.ports[1]) as client:
            info: Any = client.info("replication")
            return bool(info["master_link_status"] == "up")
        return False

    def _agreed(self) -> bool:
        for port in self.sentinel_ports:
            with suppress(redis.RedisError), self.node(port) as client:
                known: Any = client.sentinel_masters()
                about = known.get("mymaster", {})
                if about.get("num-other-sentinels") == 2 and about.get("num-slaves") == 1:
                    continue
            return False
        return True

    def primary(self) -> int:
        """Port of whom the first sentinel takes for the primary."""
        with self.node(self.sentinel_ports[0]) as client:
            found: Any = client.sentinel_get_master_addr_by_name("mymaster")
            return int(found[1])

    def lose_primary(self) -> None:
        self.nodes[0].kill()

    def stop(self) -> None:
        for server in (*self.sentinels, *self.nodes):
            server.stop()


@dataclass
class RabbitMQ(Server):
    """One node, with an epmd of its own beside it."""

    port: int = field(default_factory=free_port)
    tls_port: int = field(default_factory=free_port)
    vhost: str = "mesh"
    names: Server | None = None  # epmd

    def start(self) -> "RabbitMQ":
        need(RABBITMQ.exists() and shutil.which("epmd"), "rabbitmq-server")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "ca.pem").exists():  # not started before
            certificates(self.folder)
        self.names = Server(self.folder / "epmd")
        names_port = free_port()
        self.names.spawn("epmd", "-port", str(names_port), "-address", "127.0.0.1")
        (self.folder / "rabbitmq.conf").write_text(f"""
listeners.tcp.1 = 127.0.0.1:{self.port}
listeners.ssl.1 = 127.0.0.1:{self.tls_port}
ssl_options.cacertfile = {self.folder}/ca.pem
ssl_options.certfile = {self.folder}/server.pem
ssl_options.keyfile = {self.folder}/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
default_user = remesh
default_pass = {PASSWORD}
default_vhost = {self.vhost}
disk_free_limit.absolute = 1MB
log.console = true
log.file = false
""")
        (self.folder / "plugins").write_text("[].\n")
        self.spawn(str(RABBITMQ), env=self._env(names_port))
        wait_until(self._serves, "rabbitmq", 120)
        return self

    def _env(self, names_port: int) -> dict[str, str]:
        return {
            "HOME": str(self.folder),  # of the Erlang cookie
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": f"remesh{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
        }

    @property
    def url(self) -> str:
        return f"amqp://remesh:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{self.vhost}"

    def tls_url(self, *, host: str = "127.0.0.1", **files: str) -> str:
        login = f"remesh:{quote(PASSWORD, safe='')}"
        return f"amqps://{login}@{host}:{self.tls_port}/{self.vhost}?{as_query(files or parameters(self.folder))}"

    def _serves(self) -> bool:
        assert self.popen is not None
        assert self.popen.poll() is None, self.log()
        untyped: Any = Connection
        with suppress(OSError), untyped(self.url, connect_timeout=2) as connection:
            connection.connect()
            return True
        return False

    def stop(self) -> None:
        super().stop()
        if self.names is not None:
            self.names.stop()
