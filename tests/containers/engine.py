"""A Docker engine of the tests' own, in the network of a test cluster, and ended with it."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.processes import Processes
from tests.cluster.wait import wait_for
from tests.containers import images, needs

READY_SECONDS = 60.0
WHEELS_PORT = 8099
REDIS = "redis:test"
# /run of its own, because containerd's shims have their sockets at a fixed place there.
PRIVATE_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'


class DockerError(Exception):
    """A docker or compose command failed; the text has the end of what it said."""


class Engine:
    """dockerd with its own data, sockets, mounts, process ids and network.

    It lives in the network namespace of `processes`, so a container reaches what listens there and nothing else, and
    the rules and bridges that it makes go with the namespace. It is the first process of a process id namespace: when
    it ends, however it ends, every container and its mounts end too.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.directory = processes.directory
        self._client = needs.command("docker")
        self._group = cgroups.make("engine", processes.supervisor_pid)
        self.socket = self.directory / "docker.sock"

    def start(self) -> "Engine":
        """Return when the engine answers. Raises `ProcessDied` or `NotInTime`."""
        dockerd = [
            needs.command("dockerd"),
            f"--data-root={self.directory}/docker",
            "--exec-root=/run/docker",
            "--pidfile=/run/docker.pid",
            f"--host=unix://{self.socket}",
            f"--cgroup-parent=/{self._group}",
        ]
        alone = [needs.command("unshare"), "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.processes.spawn("dockerd", [*alone, "sh", "-c", PRIVATE_RUN, "sh", *dockerd])
        wait_for(self._answers, "the Docker engine to answer", timeout=READY_SECONDS)
        return self

    def stop(self) -> None:
        """End the engine and what it runs, and remove the empty control groups that it leaves behind."""
        with suppress(DockerError):
            if running := self.docker("ps", "--quiet").split():
                self.docker("kill", *running)
            if there := self.docker("ps", "--all", "--quiet").split():
                self.docker("rm", "--force", "--volumes", *there)
        self.processes.signal("dockerd", signal.SIGKILL)
        cgroups.remove(self._group)

    @property
    def environment(self) -> dict[str, str]:
        """For commands that find the engine by DOCKER_HOST."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE_"))}
        return {
            **mine,
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(self.directory / "docker-client"),
            "DOCKER_BUILDKIT": "1",
        }

    def docker(self, *arguments: str, seconds: float = 120.0) -> str:
        """Run the client and return its standard output. Raises `DockerError`."""
        return self.run([self._client, *arguments], seconds=seconds)

    def run(
        self, argv: list[str], *, seconds: float, environment: dict[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        """Run a command against this engine and return its standard output. Raises `DockerError`."""
        done = subprocess.run(
            argv,
            env={**self.environment, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode != 0:
            raise DockerError(
                f"{' '.join(argv[:3])} … ended with {done.returncode}: {(done.stderr or done.stdout)[-3000:]}"
            )
        return done.stdout

    def import_tar(self, tar: Path, tag: str, *changes: str) -> None:
        """Make an image of one layer out of a root file system."""
        options = [part for change in changes for part in ("--change", change)]
        self.docker("import", *options, str(tar), tag)

    def import_bases(self) -> None:
        """The images `base` and `runtime`, for BASE_IMAGE and RUNTIME_IMAGE."""
        folder = images.root_file_systems()
        for name, tag in (("python", "base"), ("runtime", "runtime")):
            self.import_tar(folder / f"{name}.tar", tag)

    def import_redis(self) -> None:
        """The image `REDIS`, with redis-server and what compose.yaml and the chart need besides."""
        tar = self.directory / "redis.tar"
        images.redis_tar(tar)
        self.import_tar(tar, REDIS, "WORKDIR /data", "VOLUME /data", "ENV PATH=/usr/bin")
        tar.unlink()

    def build(self, tag: str, **arguments: str) -> None:
        """Build the project's Dockerfile on the images of `import_bases`, with wheels instead of an index."""
        self._serve_wheels()
        secret = self.directory / "pip.conf"
        secret.write_text(
            f"[global]\nno-index = true\nfind-links = http://127.0.0.1:{WHEELS_PORT}/\n", encoding="utf-8"
        )
        given = {"BASE_IMAGE": "base", "RUNTIME_IMAGE": "runtime", **arguments}
        options = [part for name, value in given.items() for part in ("--build-arg", f"{name}={value}")]
        self.docker(
            "build", "--network", "host", "--secret", f"id=pip,src={secret}", *options, "--tag", tag, str(images.ROOT),
            seconds=400,
        )  # fmt: skip

    def _serve_wheels(self) -> None:
        version = (images.root_file_systems() / "version").read_text(encoding="utf-8")
        if "wheels" not in self.processes.pids():
            server = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(images.wheels(version))]
            self.processes.spawn("wheels", [*server, str(WHEELS_PORT)])

    def _answers(self) -> bool:
        self.processes.raise_if_dead("dockerd")
        with suppress(DockerError, subprocess.TimeoutExpired):
            return bool(self.docker("version", "--format", "{{.Server.Version}}", seconds=10))
        return False
