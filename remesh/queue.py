"""The queue: Celery's settings, the two queues, the names of the tasks, and `send`.

Watcher and command line send; `workers.app` serves. The queue is transport and never memory: Celery on Redis can lose a
message and can run one twice, so what must not be lost is in the trail and the ledger.

On demand goes before background, and neither starves: kombu asks Redis for both queues at once (BRPOP) and moves the
queue that it got a message from to the end (`round_robin`). Once a slot is free, a person's repair waits for one
background task at most, however long the background's backlog; and a stream of such repairs leaves every second slot to
the background. Priorities inside one queue, or a strict order of queues, would let one side starve.
"""

import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from celery import Celery
from kombu import entity
from kombu.exceptions import KombuError
from redis.exceptions import RedisError, ResponseError

from remesh.celery_parts import CarefulAMQP, CompleteEvents, QuietResults
from remesh.errors import BrokerError, BrokerUnreachable, ConfigError, UsageError
from remesh.models import Action, RepairRequest
from remesh.redisdb import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    HEALTH_CHECK_SECONDS,
    VISIBILITY_TIMEOUT_SECONDS,
    RedisClient,
    check_url,
    key_base,
    place_of,
    problem,
    translated,
)
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
    prefix = key_base(settings.key_prefix, settings.cluster) + "celery:"
    socket_seconds = SOCKET_SECONDS if consumes else ANSWER_SECONDS
    # Flower asks the current application for results.
    app = Celery("remesh", set_as_current=consumes, events=CompleteEvents, amqp=CarefulAMQP)
    app.config_from_object(
        _broker_settings(broker, prefix, socket_seconds)
        | _result_settings(results, prefix, socket_seconds)
        | _task_settings()
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
        app.send_task(
            name,
            args=[request.model_dump(mode="json")],
            task_id=request.task_id,
            queue=ON_DEMAND if request.on_demand else BACKGROUND,
            argsrepr=_sentence(request),
            kwargsrepr="",
        )
    # kombu's pools answer a second publish during an outage with a plain RuntimeError.
    except (KombuError, RedisError, OSError, RuntimeError) as error:
        raise _translate(app, request, error) from error
    return request.task_id


def queue_lengths(client: RedisClient, settings: Settings) -> dict[str, int]:
    """Tasks that wait in each queue; those that a worker has fetched are not counted. Raises BrokerUnreachable."""
    prefix = key_base(settings.key_prefix, settings.cluster) + "celery:"
    with translated(client, "cannot read the queues"):
        return {name: client.llen(prefix + name) for name in (ON_DEMAND, BACKGROUND)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Redis URL as Celery understands it, and its TLS parameters apart."""

    url: str
    tls: dict[str, Any] | None

    @property
    def is_socket(self) -> bool:
        """True for a unix socket, which knows no keep-alive."""
        return self.url.startswith("redis+socket://")


def endpoint(url: str, variable: str) -> Endpoint:
    """Turn one of our URLs into Celery's form. `variable` is the setting that an error names. Raises ConfigError."""
    check_url(url, variable)
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Endpoint(_socket_url(parts), None)
    if parts.scheme == "redis":
        return Endpoint(url, None)
    # Without parameters kombu would accept any certificate.
    tls: dict[str, Any] = {"ssl_cert_reqs": "required"}
    rest = []
    for key, value in parse_qsl(parts.query):
        if key.startswith("ssl_"):
            tls[key] = value
        else:
            rest.append((key, value))
    tls["ssl_cert_reqs"] = _certificate_rule(str(tls["ssl_cert_reqs"]), variable)
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = str(tls["ssl_check_hostname"]).lower() not in ("false", "no", "0")
    return Endpoint(urlunsplit(parts._replace(query=urlencode(rest))), tls)


def _socket_url(parts: SplitResult) -> str:
    query = dict(parse_qsl(parts.query))
    user = unquote(parts.username or "") or query.get("username", "")
    secret = unquote(parts.password or "") or query.get("password", "")
    login = f"{quote(user, safe='')}:{quote(secret, safe='')}@" if user or secret else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={query.get('db', '0')}"


def _certificate_rule(text: str, variable: str) -> ssl.VerifyMode:
    rules = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
    rule = rules.get(text.lower().removeprefix("cert_"))
    if rule is None:
        raise ConfigError(f"{variable}: ssl_cert_reqs is {text[:20]!r}; give required, optional or none")
    return rule


def _broker_settings(broker: Endpoint, prefix: str, socket_seconds: float) -> dict[str, Any]:
    transport: dict[str, Any] = {
        "global_keyprefix": prefix,
        "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
        # A lost worker's tasks come back within 5 s of the visibility time-out; kombu's own values make it 100 s.
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "queue_order_strategy": "round_robin",
        "socket_timeout": socket_seconds,
        "socket_connect_timeout": CONNECT_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "max_connections": 64,
    }
    if not broker.is_socket:
        transport["socket_keepalive"] = True
    return {
        "broker_url": broker.url,
        "broker_use_ssl": broker.tls,
        "broker_transport_options": transport,
        "broker_connection_timeout": CONNECT_SECONDS,
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # an outage of any length is waited for
    }


def _result_settings(results: Endpoint, prefix: str, socket_seconds: float) -> dict[str, Any]:
    path = f"{QuietResults.__module__}:{QuietResults.__qualname__}"
    return {
        "result_backend": results.url,
        "override_backends": {"redis": path, "rediss": path},
        "redis_backend_use_ssl": results.tls,
        "redis_socket_timeout": socket_seconds,
        "redis_socket_connect_timeout": CONNECT_SECONDS,
        "redis_socket_keepalive": not results.is_socket,
        "redis_backend_health_check_interval": HEALTH_CHECK_SECONDS,
        "redis_max_connections": 64,
        "result_backend_transport_options": {"global_keyprefix": prefix, "retry_policy": {"timeout": 5.0}},
        "result_expires": RESULT_SECONDS,
        "result_serializer": "json",
    }


def _task_settings() -> dict[str, Any]:
    return {
        "task_queues": [_queue(ON_DEMAND), _queue(BACKGROUND)],  # objects, for Flower reads their names
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


def _queue(name: str) -> Any:
    untyped: Any = entity  # kombu's constructors carry no types
    return untyped.Queue(name, untyped.Exchange(name), routing_key=name)


def _worker_settings() -> dict[str, Any]:
    return {
        # Repairs wait for the API server and do not compute: 16 threads in 72 MB do the work of 16 processes in 1 GB.
        # Celery's time limits do nothing to threads: each call has its own time-out, each task its own deadline.
        "worker_pool": "threads",
        "worker_concurrency": 16,
        "worker_prefetch_multiplier": 1,  # a task that waits in a busy worker could run in another one
        "worker_eta_task_limit": 200,
        "worker_send_task_events": True,  # Flower lives on them
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # A thread cannot be cancelled, and need not be: a second copy meets the lease and Kubernetes' preconditions.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def _sentence(request: RepairRequest) -> str:
    mesh = f" in mesh {request.mesh}" if request.mesh else ""
    cause = request.cause.value.replace("_", " ")
    return f"{request.ref}{mesh}, because of: {cause}; attempt {request.attempt}, asked for by {request.actor}"


def _translate(app: Celery, request: RepairRequest, error: Exception) -> BrokerError:
    cause = error.__cause__ if isinstance(error, KombuError) and isinstance(error.__cause__, Exception) else error
    kind = BrokerError if isinstance(cause, ResponseError) else BrokerUnreachable
    parts = urlsplit(app.conf.broker_url)
    where = place_of(app.conf.broker_url)
    return kind(f"cannot queue the repair of {request.ref}: {where}: {problem(cause, unquote(parts.password or ''))}")
