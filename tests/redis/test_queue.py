"""What is sent says who it is about, goes to the right queue under the right keys, or is one clear line."""

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

from remesh.broker_urls import endpoint
from remesh.embedded import EmbeddedRedis
from remesh.errors import BrokerError, BrokerUnreachable, ConfigError, UsageError
from remesh.models import Action, RepairRequest
from remesh.queue import (
    BACKGROUND,
    ON_DEMAND,
    TASK_NUDGE,
    TASK_RECREATE,
    TASKS,
    make_app,
    queue_lengths,
    send,
)
from remesh.redisdb import VISIBILITY_TIMEOUT_SECONDS, RedisClient
from remesh.settings import Settings
from tests.redis.conftest import request_for, settings_for

PREFIX = "remesh:{test}:celery:"


@pytest.fixture
def app(server: EmbeddedRedis, real: RedisClient) -> Iterator[Celery]:
    with make_app(settings_for(server), consumes=False) as sender:
        yield sender


def app_for(url: str) -> Celery:
    return make_app(Settings.model_validate({"redis_url": url, "cluster": "test"}), consumes=False)


def queued(redis: RedisClient, queue: str) -> list[dict[str, Any]]:
    return [json.loads(str(text)) for text in redis.lrange(PREFIX + queue, 0, -1)]


def test_a_request_goes_to_its_queue_and_nowhere_else(app: Celery, server: EmbeddedRedis, real: RedisClient) -> None:
    assert send(app, request_for(1)) == request_for(1).task_id
    send(app, request_for(2, on_demand=True))
    send(app, request_for(3))
    assert queue_lengths(real, settings_for(server)) == {ON_DEMAND: 1, BACKGROUND: 2}


def test_the_message_carries_identity_as_its_only_argument(app: Celery, real: RedisClient) -> None:
    request = request_for(action=Action.RECREATE_POD, actor="alice", attempt=2)
    send(app, request)
    (message,) = queued(real, BACKGROUND)
    args, kwargs, embed = json.loads(b64decode(message["body"]))
    assert [RepairRequest.model_validate(payload) for payload in args] == [request]
    assert kwargs == {}
    assert not any(embed.values())
    headers = message["headers"]
    assert (headers["task"], headers["id"]) == (TASK_RECREATE, request.task_id)
    assert headers["argsrepr"] == (
        "ReplicaSet/web-1 -n shop in mesh istio, because of: webhook timeout; attempt 2, asked for by alice"
    )
    assert not headers["stamps"]


def test_every_key_has_the_prefix_of_its_cluster(app: Celery, real: RedisClient) -> None:
    send(app, request_for(1))
    send(app, request_for(2, on_demand=True))
    assert all(str(key).startswith(PREFIX) for key in real.keys("*"))


def test_sending_subscribes_to_nothing(app: Celery, real: RedisClient) -> None:
    for number in range(5):
        send(app, request_for(number))
    assert not any("subscribe" in client["cmd"] for client in real.client_list())


def test_every_action_that_writes_is_a_task_with_a_readable_name() -> None:
    assert TASKS == {Action.NUDGE_OWNER: TASK_NUDGE, Action.RECREATE_POD: TASK_RECREATE}


@pytest.mark.parametrize("action", [Action.REPORT_ONLY, Action.NEVER_TOUCH, Action.WAIT_FOR_INJECTOR, Action.NONE])
def test_an_action_that_is_no_task_is_refused(app: Celery, real: RedisClient, action: Action) -> None:
    with pytest.raises(UsageError, match=f"{action.value} is nothing to queue"):
        send(app, request_for(action=action))
    assert real.keys("*") == []


def test_a_mistyped_queue_is_an_error(app: Celery) -> None:
    with pytest.raises(Exception, match=r"remesh\.on-demnd"):
        app.send_task(TASK_NUDGE, args=[{}], queue="remesh.on-demnd")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@127.0.0.1:1/0",
        "unix://user:hunter2@/nowhere/redis.sock",
        "sentinel://user:hunter2@127.0.0.1:1,127.0.0.1:2/0?master=mymaster",
    ],
)
def test_without_a_broker_each_send_is_one_clear_line(url: str) -> None:
    with app_for(url) as app:
        for _ in range(3):  # kombu's first error is another than its later ones
            with pytest.raises(
                BrokerUnreachable,
                match=r"cannot queue the repair of ReplicaSet/web-1 -n shop: (Redis at|the primary 'mymaster') ",
            ) as caught:
                send(app, request_for())
            assert "hunter2" not in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_full_broker_is_one_clear_line(app: Celery, real: RedisClient) -> None:
    real.set("filler", "x")
    real.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(BrokerError, match="Redis is full"):
            send(app, request_for())
    finally:
        real.config_set("maxmemory", "0")
    send(app, request_for())
    assert len(queued(real, BACKGROUND)) == 1


def test_a_task_that_comes_out_of_a_full_redis_is_done_all_the_same(app: Celery, real: RedisClient) -> None:
    """Its worker would end, and with it all that the worker had begun."""
    send(app, request_for(1))
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        real.config_set("maxmemory", "1")
        try:
            message = channel.basic_get("remesh.background")
            assert message.headers["id"] == request_for(1).task_id
            message.ack()
        finally:
            real.config_set("maxmemory", "0")
        channel.qos.restore_visible()
    assert [key for key in real.keys("*") if "unacked" in str(key) and "mutex" not in str(key)] == []
    assert queued(real, BACKGROUND) == []


def test_after_an_outage_the_same_app_sends_again(server: EmbeddedRedis, real: RedisClient) -> None:
    with EmbeddedRedis() as broker, make_app(settings_for(server, broker_url=broker.url), consumes=False) as app:
        send(app, request_for(1))
        broker.kill()
        for _ in range(2):
            with pytest.raises(BrokerUnreachable):
                send(app, request_for(2))
        broker.start()
        send(app, request_for(2))
        with real.from_url(broker.url, decode_responses=True) as client:
            assert client.llen(PREFIX + BACKGROUND) == 2
    assert real.keys("*") == [], "the broker is another server than the trail's"


@pytest.mark.parametrize(
    ("ours", "celerys"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///tmp/redis.sock", "redis+socket:///tmp/redis.sock?virtual_host=0"),
        ("unix:///tmp/redis.sock?db=3", "redis+socket:///tmp/redis.sock?virtual_host=3"),
        ("unix://user:p%40ss@/run/r.sock", "redis+socket://user:p%40ss@/run/r.sock?virtual_host=0"),
        ("unix:///run/r.sock?password=p@ss", "redis+socket://:p%40ss@/run/r.sock?virtual_host=0"),
        ("rediss://:secret@host:6380/1?ssl_ca_certs=/ca.pem", "rediss://:secret@host:6380/1"),
        ("redis://host:6379/1?db=3", "redis://host:6379/3"),
        ("redis://[::1]:6379?username=user&password=p@ss", "redis://user:p%40ss@[::1]:6379"),
        ("rediss://:secret@host/1?db=3&ssl_ca_certs=/ca.pem", "rediss://:secret@host/3"),
    ],
)
def test_urls_are_turned_into_celerys_form(ours: str, celerys: str) -> None:
    assert endpoint(ours, "REMESH_BROKER_URL").url == celerys


def test_tls_checks_certificates_unless_told_otherwise() -> None:
    assert endpoint("redis://host", "X").tls is None
    assert endpoint("rediss://host", "X").tls == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    told = endpoint("rediss://host?ssl_cert_reqs=none&ssl_check_hostname=false&ssl_ca_certs=/ca.pem", "X").tls
    assert told == {"ssl_cert_reqs": ssl.CERT_NONE, "ssl_check_hostname": False, "ssl_ca_certs": "/ca.pem"}
    with pytest.raises(ConfigError, match="X: ssl_cert_reqs is 'perhaps'"):
        endpoint("rediss://host?ssl_cert_reqs=perhaps", "X")


def test_tls_reaches_broker_and_results() -> None:
    with app_for("rediss://:hunter2@127.0.0.1:1/0") as app:
        assert app.conf.broker_use_ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        assert app.backend.connparams["ssl_cert_reqs"] == ssl.CERT_REQUIRED
        with pytest.raises(BrokerUnreachable):
            send(app, request_for())


@pytest.mark.parametrize("variable", ["broker_url", "redis_url"])
def test_a_url_that_cannot_be_right_names_its_setting(variable: str) -> None:
    settings = Settings.model_validate({variable: "http://:hunter2@host"})
    with pytest.raises(ConfigError, match=f"^REMESH_{variable.upper()}: scheme 'http'") as caught:
        make_app(settings)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["redis://:hunter2@host?foo=bar", "redis://host?socket_timeout=1", "amqp://host?foo=bar", "amqps://h?ssl_foo=1"],
)
def test_a_parameter_that_is_not_known_names_its_setting(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^REMESH_BROKER_URL: parameter '(ssl_)?[a-z_]+' is not known; known"
    ) as caught:
        make_app(Settings.model_validate({"broker_url": url}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # Celery's own call
def test_results_are_kept_apart_by_cluster_and_end(app: Celery, real: RedisClient) -> None:
    app.backend.store_result("task-1", {"result": "healed"}, "SUCCESS")
    assert AsyncResult("task-1", app=app).result == {"result": "healed"}
    (key,) = real.keys("*")
    assert str(key) == f"{PREFIX}celery-task-meta-task-1"
    assert 0 < int(real.ttl(str(key))) <= 24 * 3600


def test_an_event_that_comes_while_others_are_published_is_not_lost() -> None:
    published: list[str] = []
    with app_for("redis://127.0.0.1:1") as app:
        dispatcher = app.events.Dispatcher(buffer_group=["task"], enabled=False)

        class Producer:
            """Publishes slowly: a task of another thread ends meanwhile."""

            def publish(self, events: list[dict[str, Any]], **_: object) -> None:
                names = [event["type"] for event in events]
                if not published:
                    dispatcher.send("task-succeeded")
                published.extend(names)

        dispatcher.producer, dispatcher.enabled = Producer(), True
        dispatcher.send("task-started")
        dispatcher.flush()
        dispatcher.flush()
        dispatcher.flush()
    assert published == ["task-started", "task-succeeded"]


def test_the_settings_under_which_a_redis_restart_loses_nothing_stay() -> None:
    with app_for("redis://host") as app:
        conf, transport = app.conf, app.conf.broker_transport_options
        assert conf.task_acks_late
        assert conf.task_reject_on_worker_lost
        assert conf.worker_prefetch_multiplier == 1
        assert (conf.task_serializer, conf.result_serializer, conf.accept_content) == ("json", "json", ["json"])
        assert not conf.task_create_missing_queues
        assert not conf.worker_hijack_root_logger
        assert conf.worker_pool == "threads"
        assert conf.broker_connection_max_retries is None
        assert transport["visibility_timeout"] == VISIBILITY_TIMEOUT_SECONDS
        assert transport["unacked_restore_interval"] * transport["unacked_restore_throttle"] == 5 * 1
        assert transport["socket_keepalive"]
    with app_for("unix:///tmp/redis.sock") as app:
        assert "socket_keepalive" not in app.conf.broker_transport_options
