"""Marked secrets are planted in everything that remesh handles, an incident is played, and every place is searched.

A pod without a controller is evicted and created again, by a watcher and a worker that say all they can: debug logs as
JSON, traces, metrics, Kubernetes Events. Then Redis goes away, so that they say what errors say. Of all the places, the
one key that is documented to hold a manifest may hold one.
"""

import base64
import json
import re
import secrets
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from remesh import queue
from remesh.embedded import EmbeddedRedis
from remesh.models import RecordType, Result
from remesh.settings import Settings
from remesh.sim import SimCluster
from remesh.testbed import Fault
from tests.cli.conftest import run_apart
from tests.client import Client
from tests.cluster import workloads as w
from tests.monitoring.collector import Received, receiver
from tests.monitoring.scene import fetch
from tests.stack import Stack, free_port, wait_until

pytestmark = pytest.mark.timeout(280)

POLICY = "[repair]\nbare_pods = true\ncooldown_seconds = 0.0\nverify_seconds = 20.0\n[gate]\ninterval_seconds = 1.0\n"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def mark(what: str) -> str:
    return f"marked-{what}-{secrets.token_hex(8)}"


@dataclass
class Planted:
    """Secrets by where they were put, and what was found in each place that could show one."""

    secrets: dict[str, str]
    places: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)  # the documented keys
    outcomes: list[Result] = field(default_factory=list)


def marked_pod(marks: dict[str, str]) -> dict[str, Any]:
    pod = w.pod("lonely")
    pod["metadata"]["annotations"] = {
        **pod["metadata"].get("annotations", {}),
        LAST_APPLIED: json.dumps({"data": marks["annotation"]}),
    }
    container = pod["spec"]["containers"][0]
    pod["spec"]["imagePullSecrets"] = [{"name": "a-name-and-no-secret"}]
    container["env"] = [{"name": "PASSWORD", "value": marks["env"]}]
    container["args"] = ["--token", marks["argument"]]
    return pod


def guarded(folder: Path, marks: dict[str, str]) -> tuple[EmbeddedRedis, str, str]:
    """A Redis with a password for trail and ledger, and a user of its own for the broker."""
    server = EmbeddedRedis(folder / "guarded").start()
    socket = server.url.partition("://")[2]
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "tasks", "on", f">{marks['broker']}", "~*", "&*", "+@all")
        admin.execute_command("ACL", "SETUSER", "default", "resetpass", f">{marks['redis']}")
    return server, f"unix://:{marks['redis']}@{socket}", f"unix://tasks:{marks['broker']}@{socket}"


def contents(connection: Any) -> dict[str, str]:
    """Every key of a Redis with all that is in it, and what base64 hides."""
    readers = {
        "string": connection.get,
        "hash": connection.hgetall,
        "list": lambda key: connection.lrange(key, 0, -1),
        "set": connection.smembers,
        "zset": lambda key: connection.zrange(key, 0, -1, withscores=True),
        "stream": connection.xrange,
    }
    found = {}
    for key in connection.scan_iter(count=1000):
        text = str(readers[connection.type(key)](key))
        hidden = [base64.b64decode(each) for each in re.findall(r"(?:[A-Za-z0-9+/]{4}){6,}", text)]
        found[key] = text + "".join(each.decode("utf-8", "replace") for each in hidden)
    return found


def flower_says(port: int, login: str) -> dict[str, str]:
    header = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}

    def get(path: str) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=header)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.read().decode())

    tasks = get("/api/tasks")
    pages = [get(f"/task/{task}") + get(f"/api/task/info/{task}") for task in json.loads(tasks)]
    worker = next(iter(json.loads(get("/api/workers?refresh=1"))), "")
    found = {path: get(path) for path in ("/workers", "/broker", "/metrics", "/api/workers", f"/worker/{worker}")}
    return {"/tasks": "".join([tasks, *pages]), **found}


COMMANDS = [
    each.split()
    for each in (
        "status -A",
        "scan -A",
        "scan -A -o json",
        "plan -A",
        "audit",
        "audit export",
        "audit manifest",
        "audit manifest pod/lonely -n secrets",
        "audit verify",
        "quarantine list",
        "check",
        "explain pod/lonely -n secrets",
        "version",
    )
]


@pytest.fixture(scope="module")
def planted(sim_cluster: SimCluster, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    marks = {name: mark(name) for name in ("env", "argument", "annotation", "redis", "broker", "signing")}
    login = f"ada:{mark('flower')}"
    folder = tmp_path_factory.mktemp("secrets")
    document = yaml.safe_load(sim_cluster.kubeconfig.read_text(encoding="utf-8"))
    marks |= {"token": document["users"][0]["user"]["token"], "flower": login.partition(":")[2]}
    found = Planted(marks)
    with ExitStack() as exits:
        server, url, broker = guarded(folder, marks)
        exits.callback(server.stop)
        received: Received = exits.enter_context(receiver())
        ports = free_port(), free_port(), free_port()
        told = {
            "REMESH_BROKER_URL": broker,
            "REMESH_SIGNING_KEY": marks["signing"],
            "REMESH_LOG_LEVEL": "DEBUG",
            "REMESH_LOG_FORMAT": "json",
            "REMESH_TRACING": "true",
            "REMESH_KUBERNETES_EVENTS": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "REMESH_FLOWER_BASIC_AUTH": login,
        }
        stack, client = Stack(sim_cluster, folder, told, redis_url=url), Client(sim_cluster.kubeconfig)
        stack.policy(POLICY)
        exits.callback(client.close)
        exits.callback(client.delete_workloads, "secrets")
        exits.callback(client.change_webhooks, sim_cluster.wear.configuration, failurePolicy="Fail")
        exits.callback(sim_cluster.heal)
        exits.callback(stack.stop)
        client.create_meshed_namespace("secrets", sim_cluster.wear)
        client.change_webhooks(sim_cluster.wear.configuration, failurePolicy="Ignore")
        sim_cluster.inject_fault(Fault.KILLED)
        client.create("secrets", marked_pod(marks))
        wait_until(lambda: client.ready("secrets"), "the pod came up bare")
        flower = stack.start("flower", f"--port={ports[2]}", "--address=127.0.0.1")
        worker = stack.start("worker", "--loglevel=DEBUG", env={"REMESH_METRICS_PORT": str(ports[1])})
        flower.wait_for("Visit me")
        worker.wait_for("ready.")
        watcher = stack.start_watcher(REMESH_METRICS_PORT=str(ports[0]))
        wait_until(lambda: stack.records(types=[RecordType.FINDING]), "a finding")
        sim_cluster.heal()
        wait_until(stack.outcomes, "an outcome", 90)
        found.outcomes = [Result(each.details["result"]) for each in stack.outcomes()]

        found.places |= {f"metrics {n}": fetch(port, "/metrics")[1] for n, port in enumerate(ports[:2])}
        found.places |= {f"flower {path}": text for path, text in flower_says(ports[2], login).items()}
        found.places["events"] = json.dumps(client.api.items("/api/v1/namespaces/secrets/events"))
        pods = client.pods("secrets")
        found.places["annotations of remesh"] = str([key for pod in pods for key in pod["metadata"]["annotations"]])
        for command in COMMANDS:
            answer = run_apart(*command, **stack.env)
            found.places[f"remesh {' '.join(command)}"] = answer.out + answer.err
        wrong = stack.env | {"REMESH_REDIS_URL": url.replace(marks["redis"], marks["redis"][::-1])}
        answer = run_apart("audit", **wrong)
        found.places["a wrong password"] = (answer.out + answer.err).replace(marks["redis"][::-1], marks["redis"])
        for key, text in contents(stack.connection).items():
            (found.kept if ":manifest:" in key else found.places)[f"key {key}"] = text
        found.places["traces"] = received.raw.decode("utf-8", "replace")
        server.stop()
        watcher.wait_for("redis failed", 30)
        stack.stop()
        found.places |= {each.name: each.text() for each in stack.processes}
    return found


def test_the_incident_was_one(planted: Planted) -> None:
    """A pod without a controller was replaced, and everything had something to say of it."""
    assert planted.outcomes[-1] in (Result.HEALED, Result.INJECTED)
    silent = [name for name, text in planted.places.items() if not text]
    assert silent == []
    assert "lonely" in planted.places["flower /tasks"]
    assert "lonely" in planted.places["remesh audit export"]
    assert "RepairHealed" in planted.places["events"] or "RepairInjected" in planted.places["events"]
    assert '"level": "debug"' in planted.places["worker-0"]
    assert "remesh_" in planted.places["metrics 0"]
    assert "remesh.finding" in planted.places["traces"]


def test_the_manifest_is_where_it_is_documented_to_be(planted: Planted) -> None:
    kept = "".join(planted.kept.values())
    assert planted.kept
    assert planted.secrets["env"] in kept


@pytest.mark.parametrize("secret", ["env", "argument", "annotation", "redis", "broker", "signing", "token", "flower"])
def test_no_place_shows_a_secret(planted: Planted, secret: str) -> None:
    value = planted.secrets[secret]
    assert [name for name, text in planted.places.items() if value in text] == []


BROKERS = [
    "unix://tasks:{}@/run/redis.sock",
    "redis://tasks:{}@host:1/0",
    "rediss://tasks:{}@host:1/0",
    "sentinel://tasks:{}@a:1,b:2/0?master=m&sentinel_password={}",
    "amqp://tasks:{}@host:1/v",
    "amqps://tasks:{}@host:1/v",
]


@pytest.mark.parametrize("broker", BROKERS)
def test_what_a_worker_tells_of_its_broker_holds_no_password(broker: str) -> None:
    """Celery's own words: `inspect stats` (without its password), `inspect conf`, `report`, and Flower's heading."""
    secret = mark("broker")
    settings = Settings.model_validate({"broker_url": broker.format(secret, secret)})
    with queue.make_app(settings, consumes=False) as app, app.connection() as connection:
        told = dict(connection.info())
        told.pop("password", None)
        assert secret not in str(told)
        assert secret not in app.bugreport() + str(app.conf.table(with_defaults=False, censored=True))
        assert secret not in connection.as_uri() + repr(connection) + repr(settings)
        assert secret in connection.as_uri(include_password=True), "Flower asks for the lengths of the queues with it"


@pytest.mark.parametrize("secret", ["redis", "broker", "signing", "token", "flower"])
def test_remeshs_own_secrets_are_not_in_the_kept_manifest_either(planted: Planted, secret: str) -> None:
    assert planted.secrets[secret] not in "".join(planted.kept.values())
