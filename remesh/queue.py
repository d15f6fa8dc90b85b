"""The queue: Celery's settings, the two queues, the names of the tasks, and `send`.

Watcher and command line send; `workers.app` serves. The queue is transport and never memory: Celery on Redis can lose a
message and can run one twice, so what must not be lost is in the trail and the ledger.

On demand goes before background, and neither starves: kombu asks Redis for both queues at once (BRPOP) and moves the
queue that it got a message from to the end (`round_robin`). Once a slot is free, a person's repair waits for one
background task at most, however long the background's backlog; and a stream of such repairs leaves every second slot to
the background. Priorities inside one queue, or a strict order of queues, would let one side starve.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from celery import Celery
from kombu import entity
from kombu.exceptions import KombuError
from redis.exceptions import RedisError, ResponseError

from remesh import amqp, crash, tracing
from remesh.broker_urls import Endpoint, endpoint, is_amqp
from remesh.celery_parts import CarefulAMQP, CompleteEvents, QuietResults, QuietSentinelResults, TellingTask
from remesh.errors import BrokerError, BrokerUnreachable, UsageError
from remesh.models import Action, RepairRequest
from remesh.redisdb import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    HEALTH_CHECK_SECONDS,
    VISIBILITY_TIMEOUT_SECONDS,
    RedisClient,
    connect_url,
    key_base,
    place_of,
    problem,
    translated,
)
from remesh.sentinel import is_sentinel
from remesh.settings import Settings

ON_DEMAND = "remesh.on-demand"
BACKGROUND = "remesh.background"

# Flower's list shows name and id: together they read as a sentence.
TASK_NUDGE = "nudge the owner past its back-off"
TASK_RECREATE = "recreate the bare pod"
TASKS: dict[Action, str] = {Action.NUDGE_OWNER: TASK_NUDGE, Action.RECREATE_POD: TASK_RECREATE}

# How long a worker waits on a socket. Longer than ANSWER_SECONDS: the consumer's blocking reads last up to 10 s.
SOCKET_SECONDS = 15.0
RESULT_SECONDS = 24 * 3600


def make_app(settings: Settings, *, consumes: bool = True) -> Celery:
    """The Celery application of one cluster. It connects at first use.

    `consumes=False` is for watcher and command line, which only send: a frozen Redis is then noticed sooner.
    Raises ConfigError for a URL that cannot be right.
    """
    variable = "REMESH_BROKER_URL" if settings.broker_url else "REMESH_REDIS_URL"
    broker = endpoint(settings.broker, variable)
    results = endpoint(settings.redis_url.get_secret_value(), "REMESH_REDIS_URL")
    base = _base(settings)
    # Flower asks the current application for results.
    app = Celery("remesh", set_as_current=consumes, events=CompleteEvents, amqp=CarefulAMQP, task_cls=TellingTask)
    app.config_from_object(
        _broker_settings(broker, base, consumes=consumes)
        | _result_settings(results, base, _socket_seconds(consumes=consumes))
        | _task_settings(base if is_amqp(broker.url) else "")
        | _worker_settings()
    )
    return app


def send(app: Celery, request: RepairRequest) -> str:
    """Queue a repair and return its task id. The ledger's `mark_released` comes before, so that none is sent twice.

    Raises BrokerUnreachable without an answer, BrokerError if the broker refuses, UsageError for an action that is no
    task.
    """
    name = TASKS.get(request.action)
    if name is None:
        raise UsageError(f"{request.action.value} is nothing to queue: only {', '.join(sorted(TASKS))} are tasks")
    try:
        with crash.around("broker.send"):
            app.send_task(
                name,
                args=[request.model_dump(mode="json")],
                task_id=request.task_id,
                queue=ON_DEMAND if request.on_demand else BACKGROUND,
                argsrepr=sentence(request),
                kwargsrepr="",
                headers=tracing.headers() or None,
            )
    # kombu's pools answer a second publish during an outage with a plain RuntimeError.
    except (KombuError, RedisError, OSError, RuntimeError) as error:
        raise _translate(app, request, error) from error
    return request.task_id


def _base(settings: Settings) -> str:
    """Beginning of every name that Celery makes in the broker and in the result backend."""
    return key_base(settings.key_prefix, settings.cluster) + "celery:"


def queue_names(settings: Settings) -> dict[str, str]:
    """The queues' names in the broker, by their short ones."""
    return {name: _base(settings) + name for name in (ON_DEMAND, BACKGROUND)}


def queue_lengths(client: RedisClient, settings: Settings) -> dict[str, int]:
    """Tasks that wait in each queue; those that a worker has fetched are not counted. Raises BrokerError.

    `client` is the trail's Redis, which is asked if it is the broker, too.
    """
    names = queue_names(settings)
    if is_amqp(settings.broker):
        return amqp.lengths(endpoint(settings.broker, "REMESH_BROKER_URL"), names)
    if settings.broker == settings.redis_url.get_secret_value():
        return _redis_lengths(client, names)
    with connect_url(settings.broker, "REMESH_BROKER_URL") as other:
        return _redis_lengths(other, names)


def _redis_lengths(client: RedisClient, names: Mapping[str, str]) -> dict[str, int]:
    with translated(client, "cannot read the queues"):
        return {name: client.llen(key) for name, key in names.items()}


def _broker_settings(broker: Endpoint, base: str, *, consumes: bool) -> dict[str, Any]:
    known = _amqp_settings(base, consumes=consumes)
    if not is_amqp(broker.url):
        known = _redis_settings(broker, base, _socket_seconds(consumes=consumes))
    return {
        **known,
        "broker_url": broker.url,
        "broker_use_ssl": broker.tls,
        "broker_connection_timeout": CONNECT_SECONDS,
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # an outage of any length is waited for
    }


def _socket_seconds(*, consumes: bool) -> float:
    return SOCKET_SECONDS if consumes else ANSWER_SECONDS


def _redis_settings(broker: Endpoint, base: str, socket_seconds: float) -> dict[str, Any]:
    transport: dict[str, Any] = {
        **broker.options,
        "global_keyprefix": base,
        "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
        # A lost worker's tasks come back within 5 s of the visibility time-out; kombu's own values make it 100 s.
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "queue_order_strategy": "round_robin",
        "socket_timeout": socket_seconds,
        "socket_connect_timeout": CONNECT_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "max_connections": 128,
    }
    if not broker.is_socket:
        transport["socket_keepalive"] = True
    return {"broker_transport_options": transport}


def _amqp_settings(base: str, *, consumes: bool) -> dict[str, Any]:
    """RabbitMQ has no prefix for everything, so each name of ours carries the cluster's."""
    transport: dict[str, Any] = {"confirm_publish": True}  # without it a lost message looks like a sent one
    if not consumes:  # a consumer waits for as long as it takes, and has its heartbeat
        transport |= {"read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS}
    return {
        "broker_transport_options": transport,
        "broker_heartbeat": HEALTH_CHECK_SECONDS,  # a half-open connection is noticed within two of them
        "control_exchange": base + "control",
        "event_exchange": base + "events",
        "event_queue_prefix": base + "events",
    }


def _result_settings(results: Endpoint, base: str, socket_seconds: float) -> dict[str, Any]:
    plain, behind = (f"{each.__module__}:{each.__qualname__}" for each in (QuietResults, QuietSentinelResults))
    return {
        "result_backend": results.url,
        "override_backends": {"redis": plain, "rediss": plain, "sentinel": behind},
        "redis_backend_use_ssl": results.tls,
        "redis_socket_timeout": socket_seconds,
        "redis_socket_connect_timeout": CONNECT_SECONDS,
        "redis_socket_keepalive": not results.is_socket,
        "redis_backend_health_check_interval": HEALTH_CHECK_SECONDS,
        "redis_max_connections": 128,
        "result_backend_transport_options": {
            **results.options,
            "global_keyprefix": base,
            "retry_policy": {"timeout": 5.0},
        },
        "result_expires": RESULT_SECONDS,
        "result_serializer": "json",
    }


def _task_settings(prefix: str) -> dict[str, Any]:
    return {
        "task_queues": [_queue(ON_DEMAND, prefix), _queue(BACKGROUND, prefix)],  # objects, for Flower reads their names
        "task_default_queue": BACKGROUND,
        "task_create_missing_queues": False,  # a mistyped queue is an error, not a queue that nobody serves
        "task_serializer": "json",
        "event_serializer": "json",
        "accept_content": ["json"],  # pickle would run whatever a message says
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_track_started": True,
        "task_send_sent_event": False,  # would add a label per sending client to Flower's metrics
        "task_publish_retry": True,
        "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0, "interval_step": 0.5, "interval_max": 1},
        "timezone": "UTC",
        "enable_utc": True,
    }


def _queue(name: str, prefix: str) -> Any:
    """`prefix` is empty where the transport has one for all names; the queue is known by its short name, too."""
    untyped: Any = entity  # kombu's constructors carry no types
    full = prefix + name
    return untyped.Queue(full, untyped.Exchange(full), routing_key=full, alias=name if prefix else None)


def _worker_settings() -> dict[str, Any]:
    return {
        # Repairs wait for the API server and do not compute: 16 threads in 72 MB do the work of 16 processes in 1 GB.
        # Celery's time limits do nothing to threads: each call has its own time-out, each task its own deadline.
        "worker_pool": "threads",
        "worker_concurrency": 64,
        "worker_prefetch_multiplier": 1,  # a task that waits in a busy worker could run in another one
        "worker_eta_task_limit": 200,
        "worker_send_task_events": True,  # Flower lives on them
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # A thread cannot be cancelled, and need not be: a second copy meets the lease and Kubernetes' preconditions.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def sentence(request: RepairRequest) -> str:
    """Whom, why and who asked: what Flower shows as a task's arguments."""
    mesh = f" in mesh {request.mesh}" if request.mesh else ""
    cause = request.cause.value.replace("_", " ")
    return f"{request.ref}{mesh}, because of: {cause}; attempt {request.attempt}, asked for by {request.actor}"


def _translate(app: Celery, request: RepairRequest, error: Exception) -> BrokerError:
    cause = error.__cause__ if isinstance(error, KombuError) and isinstance(error.__cause__, Exception) else error
    kind = BrokerError if isinstance(cause, ResponseError) else BrokerUnreachable
    first = app.conf.broker_url.partition(";")[0]  # of several sentinels
    secret = unquote(urlsplit(first).password or "")
    return kind(f"cannot queue the repair of {request.ref}: {_place(app, first)}: {problem(cause, secret)}")


def _place(app: Celery, url: str) -> str:
    """Of the broker, for messages. A sentinel's URL in Celery's form has no name of the primary: it is an option."""
    if is_sentinel(url):
        return f"the primary {app.conf.broker_transport_options['master_name']!r} behind Sentinel"
    return amqp.place_of(url) if is_amqp(url) else place_of(url)
