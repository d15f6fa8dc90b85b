"""The main job with RabbitMQ for the tasks, with a guarded Redis, and with a Redis that fails over in its middle."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redispy
import urllib3
from kombu.exceptions import OperationalError
from pydantic import SecretStr

from remesh import brokers, redisdb
from remesh.embedded import EmbeddedRedis
from remesh.errors import BrokerError, BrokerUnreachable, BrokerUnsafe
from remesh.models import RecordType
from remesh.queue import BACKGROUND, ON_DEMAND, TASK_NUDGE, make_app, queue_lengths, queue_names, send
from remesh.settings import Settings
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.e2e import test_main_job as main_job
from tests.e2e.test_ha import NARROW, ON_SIM, stuck
from tests.redis.conftest import request_for
from tests.servers import GuardedRedis, RabbitMQ, Sentinels, parameters
from tests.stack import ROOT, Stack, free_port, types, wait_until

# As docs/brokers.md gives them.
RULES = "~remesh:* &* -@all +@read +@write +@scripting +@connection +@transaction +@pubsub -@dangerous +info +time"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRedis]:
    server = GuardedRedis(tmp_path_factory.mktemp("redis"), rules=RULES)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def rabbit_stack(rabbit: RabbitMQ, bed: TestBed, tmp_path: Path) -> Iterator[Stack]:
    """Trail, ledger and results in Redis, tasks in RabbitMQ; a cluster of its own for each test."""
    cluster = f"e2e-{tmp_path.name[-12:].strip('_-').replace('_', '-')}"
    started = Stack(bed, tmp_path, {"REMESH_BROKER_URL": rabbit.url}, cluster=cluster)
    started.settings = started.settings.model_copy(update={"broker_url": SecretStr(rabbit.url)})
    yield started
    started.stop()


# RabbitMQ


def test_rabbitmq_carries_the_main_job(
    bed: TestBed, client: Client, namespace: str, rabbit_stack: Stack, rabbit: RabbitMQ
) -> None:
    _put_rubbish(rabbit_stack.settings)
    main_job.test_stuck_replicasets_are_healed_once_the_injector_works_again(
        bed, client, namespace, rabbit_stack, Fault.KILLED
    )
    lengths = queue_lengths(rabbit_stack.connection, rabbit_stack.settings)
    assert lengths == {ON_DEMAND: 0, BACKGROUND: 0}
    queued = [key for key in rabbit_stack.connection.scan_iter(count=1000) if "remesh.background" in str(key)]
    assert queued == []


def test_rabbitmq_brings_back_the_task_of_a_killed_worker(
    bed: TestBed, client: Client, namespace: str, rabbit_stack: Stack
) -> None:
    main_job.test_a_worker_killed_between_intent_and_action_leaves_one_nudge_in_effect(
        bed, client, namespace, rabbit_stack
    )


@ON_SIM
def test_flower_shows_the_tasks_that_went_over_rabbitmq(
    bed: TestBed, client: Client, namespace: str, rabbit_stack: Stack
) -> None:
    stack, port, login = rabbit_stack, free_port(), "ada:correct-horse"
    env = {"REMESH_FLOWER_BASIC_AUTH": login}
    stack.start("flower", f"--port={port}", "--address=127.0.0.1", env=env).wait_for("Visit me")

    def shown(path: str) -> dict[str, Any]:
        answer = urllib3.request(
            "GET", f"http://127.0.0.1:{port}/api/{path}", headers=urllib3.make_headers(basic_auth=login), retries=False
        )
        assert answer.status == 200, answer.data
        return dict(answer.json())

    bed.inject_fault(Fault.KILLED)
    stuck(client, namespace, ["web"])
    main_job.start_all(stack)
    main_job.waiting(stack, 1)
    main_job.long_in_backoff(client, namespace, "web")
    bed.heal()
    assert main_job.outcome_of(stack, "web") == "healed"

    wait_until(lambda: [task["state"] for task in shown("tasks").values()] == ["SUCCESS"], "Flower shows the task")
    [task] = shown("tasks").values()
    assert task["name"] == TASK_NUDGE
    assert f"ReplicaSet/web -n {namespace}" in task["args"]
    assert "healed: " in task["result"]
    assert shown("workers?refresh=1"), "Flower reaches the workers"


@ON_SIM
def test_rabbitmq_restarted_in_the_middle_loses_nothing(
    bed: TestBed, client: Client, namespace: str, rabbit_stack: Stack, rabbit: RabbitMQ
) -> None:
    stack, names = rabbit_stack, ["web-0", "web-1", "web-2"]
    bed.inject_fault(Fault.KILLED)
    stuck(client, namespace, names)
    stack.policy(main_job.QUICK)
    watcher = stack.start_watcher()
    main_job.waiting(stack, len(names))
    main_job.long_in_backoff(client, namespace, names[-1])  # or Kubernetes heals all before the gate opens
    bed.heal()
    watcher.wait_for(": released ")  # and no worker yet: its task waits in the queue
    rabbit.stop()
    rabbit.start()
    stack.start_worker()
    client.wait_healed(namespace, bed.wear.sidecar, 2 * len(names))
    for name in names:
        assert main_job.outcome_of(stack, name, 90) in ("healed", "already_healthy")
        assert types(stack.chain(name)).count("release") <= 1


def test_rabbitmq_does_not_let_a_person_wait_for_the_background(rabbit: RabbitMQ, tmp_path: Path) -> None:
    with EmbeddedRedis() as results:
        settings = Settings.model_validate({"broker_url": rabbit.url, "redis_url": results.url, "cluster": "persons"})
        person = request_for(1000, on_demand=True, actor="alice", cluster="persons")
        with make_app(settings, consumes=False) as app:
            for number in range(200):
                send(app, request_for(number, cluster="persons"))
            worker = _worker(settings, tmp_path)
            try:
                wait_until(lambda: len(_lines(tmp_path)) == 1, "the first task to run", 90)
                assert queue_lengths(redispy.Redis(), settings) == {ON_DEMAND: 0, BACKGROUND: 199}
                send(app, person)
                wait_until(lambda: _received(tmp_path) == 2, "the person's task to be with the worker")
                (tmp_path / "go").touch()
                wait_until(lambda: person.finding_id in _lines(tmp_path), "the person's task to run", 90)
            finally:
                worker.kill()
                worker.wait()
    assert _lines(tmp_path).index(person.finding_id) <= 3


def _worker(settings: Settings, folder: Path) -> "subprocess.Popen[bytes]":
    env = {
        **os.environ,
        "REMESH_BROKER_URL": settings.broker,
        "REMESH_REDIS_URL": settings.redis_url.get_secret_value(),
        "REMESH_CLUSTER": settings.cluster,
        "REMESH_TEST_FOLDER": str(folder),
    }
    command = [sys.executable, "-m", "celery", "-A", "tests.redis.worker_app", "worker"]
    command += ["--concurrency", "1", "--loglevel", "info"]
    with (folder / "worker.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)


def _received(folder: Path) -> int:
    """How many tasks the broker has given to the worker."""
    return (folder / "worker.log").read_text(encoding="utf-8").count(" received")


def _lines(folder: Path) -> list[str]:
    started = folder / "started"
    return started.read_text(encoding="utf-8").split() if started.exists() else []


def test_a_rabbitmq_that_is_away_is_named_without_its_password() -> None:
    url = "amqp://remesh:letmein@127.0.0.1:1/mesh"
    settings = Settings.model_validate({"broker_url": url, "cluster": "away"})
    with make_app(settings, consumes=False) as app, pytest.raises(BrokerUnreachable) as caught:
        send(app, request_for(1))
    assert "RabbitMQ at 127.0.0.1:1, vhost mesh" in str(caught.value)
    assert "letmein" not in str(caught.value)


def _put_rubbish(settings: Settings) -> None:
    """What is no task must neither stop a worker nor stay."""
    with make_app(settings, consumes=False) as app, app.connection_for_write() as connection:
        channel = connection.default_channel
        queue = app.amqp.queues[BACKGROUND](channel)
        queue.declare()
        producer = connection.Producer(channel)
        for body, kind in (("no json", "application/json"), ("[1,", "application/json"), ("\x80", "text/plain")):
            producer.publish(body, routing_key=queue.name, content_type=kind, content_encoding="utf-8")


def test_rabbitmq_is_checked_before_anything_begins(rabbit: RabbitMQ, tmp_path: Path) -> None:
    def settings(url: str) -> Settings:
        return Settings.model_validate({"broker_url": url, "cluster": "checked"})

    report = brokers.broker_report(settings(rabbit.url))
    assert (report.server, report.problems) == ("rabbitmq", ())
    assert report.place == f"RabbitMQ at 127.0.0.1:{rabbit.port}, vhost {rabbit.vhost}"
    with pytest.raises(BrokerError, match="correct user, password or vhost") as refused:
        brokers.broker_report(settings(rabbit.url.replace("battery", "letmein")))
    assert "letmein" not in str(refused.value)
    with pytest.raises(BrokerError, match="vhost"):
        brokers.broker_report(settings(rabbit.url.replace("/mesh", "/elsewhere")))
    with pytest.raises(BrokerUnreachable):
        brokers.broker_report(settings("amqp://nobody:nothing@127.0.0.1:1/mesh"))


@pytest.mark.parametrize(
    "properties",
    [{"durable": False}, {"durable": True, "arguments": {"x-queue-type": "quorum"}}],
    ids=["transient", "quorum"],
)
def test_a_queue_of_another_kind_is_a_problem(rabbit: RabbitMQ, properties: dict[str, Any]) -> None:
    settings = Settings.model_validate({"broker_url": rabbit.url, "cluster": f"other-{len(properties)}"})
    with make_app(settings, consumes=False) as app, app.connection_for_write() as connection:
        full = queue_names(settings)[BACKGROUND]
        connection.default_channel.queue_declare(full, auto_delete=False, **properties)
    report = brokers.broker_report(settings)
    assert len(report.problems) == 1
    assert full in report.problems[0]


def test_clusters_on_one_rabbitmq_have_names_of_their_own(rabbit: RabbitMQ) -> None:
    known = {}
    for cluster in ("east", "west"):
        settings = Settings.model_validate({"broker_url": rabbit.url, "cluster": cluster})
        with make_app(settings, consumes=False) as app:
            known[cluster] = {app.conf.control_exchange, app.conf.event_exchange, app.conf.event_queue_prefix}
            known[cluster] |= {queue.name for queue in app.amqp.queues.values()}
            if cluster == "east":
                send(app, request_for(1, cluster="east"))
        expected = {ON_DEMAND: 0, BACKGROUND: int(cluster == "east")}
        assert queue_lengths(redispy.Redis(), settings) == expected
    assert known["east"].isdisjoint(known["west"])
    assert all("{east}" in name for name in known["east"])


def test_rabbitmqs_certificate_is_verified(rabbit: RabbitMQ) -> None:
    def report(url: str) -> brokers.Report:
        return brokers.broker_report(Settings.model_validate({"broker_url": url, "cluster": "tls"}))

    files = parameters(rabbit.folder)
    assert report(rabbit.tls_url()).server == "rabbitmq"
    with make_app(Settings.model_validate({"broker_url": rabbit.tls_url(), "cluster": "tls"}), consumes=False) as app:
        send(app, request_for(1, cluster="tls"))
    for wrong in (
        rabbit.tls_url(**parameters(rabbit.folder, "other-ca.pem")),
        rabbit.tls_url(host="localhost", **files),
        rabbit.tls_url(ssl_ca_certs=files["ssl_ca_certs"]),
        rabbit.tls_url(**{key: value for key, value in files.items() if key != "ssl_ca_certs"}),
    ):
        with pytest.raises(BrokerError):
            report(wrong)


# Redis with users and TLS


@ON_SIM
def test_a_user_with_few_rights_and_tls_are_enough(
    bed: TestBed, client: Client, namespace: str, tmp_path: Path, guarded: GuardedRedis
) -> None:
    stack = Stack(bed, tmp_path, cluster="guarded", redis_url=guarded.url())
    try:
        main_job.test_stuck_replicasets_are_healed_once_the_injector_works_again(
            bed, client, namespace, stack, Fault.KILLED
        )
        with make_app(stack.settings, consumes=False) as app:
            assert len(app.control.ping(timeout=3.0)) == 1
        assert all("NOPERM" not in each.text() and "lacks a right" not in each.text() for each in stack.processes)
    finally:
        stack.stop()


@pytest.mark.parametrize("command", [("FLUSHALL",), ("CONFIG", "GET", "*"), ("GET", "other"), ("KEYS", "*")], ids=str)
def test_that_user_can_do_nothing_else(guarded: GuardedRedis, command: tuple[str, ...]) -> None:
    with redisdb.connect_url(guarded.url()) as client, pytest.raises(redispy.exceptions.NoPermissionError):
        client.execute_command(*command)


@pytest.mark.parametrize("wrong", ["authority", "name", "no certificate of its own", "no authority"])
def test_a_certificate_is_verified_by_both_clients(guarded: GuardedRedis, wrong: str) -> None:
    files = guarded.files()
    url = {
        "authority": guarded.url(**guarded.files("other-ca.pem")),
        "name": guarded.url(host="localhost"),
        "no certificate of its own": guarded.url(ssl_ca_certs=files["ssl_ca_certs"]),
        "no authority": guarded.url(**{k: v for k, v in files.items() if k != "ssl_ca_certs"}),
    }[wrong]
    with redisdb.connect_url(url) as client, pytest.raises(BrokerUnreachable):
        redisdb.check_broker(client)
    settings = Settings.model_validate({"redis_url": url, "cluster": "guarded"})
    with make_app(settings, consumes=False) as app, app.connection_for_write() as connection:
        with pytest.raises((OperationalError, redispy.exceptions.ConnectionError)):
            connection.default_channel.client.ping()
        with pytest.raises(redispy.exceptions.ConnectionError):
            app.backend.client.ping()


# Sentinel


@pytest.fixture
def sentinels(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sentinels]:
    started = Sentinels(tmp_path / "sentinel", tls=getattr(request, "param", False))
    try:
        yield started.start()
    finally:
        started.stop()


@ON_SIM
def test_a_failover_in_the_middle_of_an_incident_repairs_nothing_twice(
    bed: TestBed, client: Client, namespace: str, tmp_path: Path, sentinels: Sentinels
) -> None:
    stack = Stack(bed, tmp_path, cluster="failover", redis_url=sentinels.url)
    try:
        names = [f"web-{number}" for number in range(4)]
        bed.inject_fault(Fault.KILLED)
        stuck(client, namespace, names)
        stack.policy(NARROW)
        worker, watcher = stack.start_worker(), stack.start_watcher()
        main_job.waiting(stack, len(names))
        # Kubernetes' own next retries, at 164 s, are over a minute away: longer than failover and deadline together.
        main_job.long_in_backoff(client, namespace, names[-1], 88.0)
        before = sentinels.primary()

        bed.heal()
        watcher.wait_for(": released ")
        sentinels.lose_primary()

        client.wait_healed(namespace, bed.wear.sidecar, 2 * len(names), 120)
        assert sentinels.primary() != before
        assert len(stack.records(types=[RecordType.INTENT])) > 0
        for name in names:
            assert main_job.outcome_of(stack, name, 120) in ("healed", "already_healthy")
            assert types(stack.chain(name)).count("intent") <= 1
            assert types(stack.chain(name)).count("finding") == 1
        assert client.nudge_annotations(namespace) == []
        assert worker.popen.poll() is None
        assert watcher.popen.poll() is None
    finally:
        stack.stop()


@pytest.mark.parametrize("sentinels", [False, True], ids=["plain", "tls"], indirect=True)
def test_sentinels_are_asked_with_their_own_password(sentinels: Sentinels) -> None:
    def settings(url: str) -> Settings:
        return Settings.model_validate({"redis_url": url, "cluster": "behind"})

    [report] = brokers.reports(settings(sentinels.url))
    assert report.problems == ()
    assert "mymaster" in report.place
    with make_app(settings(sentinels.url), consumes=False) as app:
        send(app, request_for(1))
        assert app.backend.client.ping()
    with redisdb.connect_url(sentinels.url) as client:
        assert queue_lengths(client, settings(sentinels.url))[BACKGROUND] == 1
    with pytest.raises(BrokerError):
        brokers.reports(settings(sentinels.url.replace("sentinel_password=sesame", "sentinel_password=letmein")))


def test_a_primary_without_aof_behind_sentinel_is_refused(sentinels: Sentinels) -> None:
    settings = Settings.model_validate({"redis_url": sentinels.url})
    with sentinels.node(sentinels.primary()) as client:
        client.config_set("appendonly", "no")
    with pytest.raises(BrokerUnsafe, match="appendonly"):
        brokers.require_safe(settings)
