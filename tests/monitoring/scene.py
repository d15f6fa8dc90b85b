"""A running incident with watcher and worker that serve their metrics, and a Prometheus that scrapes them."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.e2e.test_main_job import long_in_backoff
from tests.needs import need
from tests.stack import ROOT, Process, Stack, free_port, wait_until

MONITORING = ROOT / "config" / "monitoring"
DASHBOARD = MONITORING / "dashboard.json"
ALERTS = MONITORING / "alerts.yaml"
QUICK = "[detection]\nsilent_seconds = 5.0\nno_condition_seconds = 3.0\n"


def fetch(port: int, path: str) -> tuple[int, str]:
    """Status and body of one GET on loopback; status 0 if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def program(name: str) -> str:
    """Path of a Debian program of .ci/packages; fails in CI and skips elsewhere without it."""
    found = shutil.which(name)
    need(found, f"{name}, of the Debian packages that .ci/packages installs")
    return str(found)


@dataclass
class Served:
    """A process and the port of its metrics."""

    process: Process
    port: int

    def get(self, path: str) -> tuple[int, str]:
        return fetch(self.port, path)

    def metric(self, line: str) -> float | None:
        """The value of the series that begins with `line`, or None."""
        for each in self.get("/metrics")[1].splitlines():
            if each.startswith(line):
                return float(each.rpartition(" ")[2])
        return None


def start_served(stack: Stack, **env: str) -> tuple[Served, Served]:
    """Watcher and worker, each with a port for its metrics."""
    ports = free_port(), free_port()
    worker = stack.start_worker(REMESH_METRICS_PORT=str(ports[1]), **env)
    watcher = stack.start_watcher(REMESH_METRICS_PORT=str(ports[0]), **env)
    return Served(watcher, ports[0]), Served(worker, ports[1])


def break_and_deploy(bed: TestBed, client: Client, namespace: str, names: list[str], replicas: int = 2) -> None:
    """The injector dies, and these ReplicaSets get stuck behind it, one after the other."""
    bed.inject_fault(Fault.KILLED)
    for name in names:
        client.create(namespace, w.replica_set(name, replicas))
        # So that Kubernetes' own tries do not all fall into the moment in which the injector is back.
        long_in_backoff(client, namespace, name, 2.0)


class Prometheus:
    """A real one on loopback, with the project's rules, scraping every second."""

    def __init__(self, folder: Path, targets: dict[str, int]) -> None:
        self.port = free_port()
        self._folder = folder
        folder.mkdir()
        shutil.copy(ALERTS, folder / "alerts.yaml")
        jobs = [
            {"job_name": f"remesh-{name}", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for name, port in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, (self._folder / "log").read_text(encoding="utf-8")[-2000:]
            return fetch(self.port, "/-/ready")[0] == 200

        wait_until(ready, "Prometheus is ready")

    def api(self, path: str, **params: str | float) -> Any:
        query = urllib.parse.urlencode(params)
        status, body = fetch(self.port, f"/api/v1/{path}?{query}")
        answer = json.loads(body)
        assert (status, answer["status"]) == (200, "success"), f"{path} {params}: {body[:500]}"
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series of an instant query, now."""
        return list(self.api("query", query=expression)["result"])

    def range(self, expression: str, start: float, end: float, step: float = 1.0) -> list[dict[str, Any]]:
        return list(self.api("query_range", query=expression, start=start, end=end, step=step)["result"])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
