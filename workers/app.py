"""The Celery application: `celery -A workers.app worker --pool threads -E` and `celery -A workers.app flower`.

The edge of these processes: what is wrong with settings, policy, profiles, kubeconfig or broker ends the start with one
line on standard error and the exit code of `remesh.errors`.
"""

import logging
import os
import sys
from dataclasses import replace
from typing import Any, NoReturn

import click
from celery import Celery, signals

from remesh import __version__, brokers, crash, logs, tracing
from remesh.errors import ConfigError, RemeshError
from remesh.meter import NOBODY, Meter
from remesh.metrics import Metrics
from remesh.metrics_table import WORKER
from remesh.queue import make_app
from remesh.settings import Settings, read_settings
from workers.context import ContextSource, build_context
from workers.owed import Sweeper
from workers.quiet import in_single_lines, only_log_lines
from workers.revocation import is_revoked
from workers.seeing import BrokerPort, Seeing
from workers.tasks import register, revoked_before_start

log = logs.get("worker")

FLOWER_VARIABLE = "REMESH_FLOWER_BASIC_AUTH"
FLOWER_COLUMNS = "name,uuid,state,result,args,received,runtime,worker"
"""Flower's own list leaves out whom and why (args) and what came of it (result)."""


def _celery_command() -> str:
    """The subcommand of `celery -A workers.app …` that imports this module; "" for any other importer."""
    context = click.get_current_context(silent=True)
    return (context.invoked_subcommand or "") if context is not None else ""


COMMAND = _celery_command()


def _refused(error: RemeshError) -> NoReturn:
    print(f"{COMMAND or 'worker'}: {error}", file=sys.stderr)
    raise SystemExit(error.exit_code) from None


_meter: Meter = NOBODY  # until the worker starts; Flower and others that import this count nothing


def _make() -> tuple[Celery, Settings, ContextSource]:
    settings = read_settings()
    made = make_app(settings)
    contexts = ContextSource(lambda: replace(build_context(settings, _meter), revoked=is_revoked))
    register(made, contexts)
    return made, settings, contexts


def _loaded() -> tuple[Celery, Settings, ContextSource]:
    """At the command line an error is one line; another importer gets the error itself."""
    if not COMMAND:
        return _make()
    try:
        return _make()
    except RemeshError as error:
        _refused(error)


app, _settings, _contexts = _loaded()


@signals.setup_logging.connect(weak=False)
def configure_logs(loglevel: int = logging.INFO, logfile: str | None = None, **_: Any) -> None:
    """Celery's own lines in the form of ours, so that JSON stays JSON; `--loglevel` and `--logfile` are theirs."""
    logs.configure(style=_settings.log_format, level=_settings.log_level)
    ours = logging.getLogger("remesh")
    if logfile:
        to_file = logging.FileHandler(logfile, encoding="utf-8")
        to_file.setFormatter(ours.handlers[0].formatter)
        ours.handlers[:] = [to_file]
    logs.take_over(_settings.log_format)
    for name in ("celery", "kombu", "py.warnings"):
        theirs = logging.getLogger(name)
        theirs.handlers[:] = ours.handlers
        theirs.setLevel(loglevel or logging.INFO)
        theirs.propagate = False


@signals.celeryd_init.connect(weak=False)
def check_before_start(instance: Any, **_: Any) -> None:
    """A worker that could not repair anything does not start: it would take tasks and lose them."""
    logs.configure(style=_settings.log_format, level=_settings.log_level)
    logs.take_over(_settings.log_format)
    if _settings.log_format == "json":
        only_log_lines(instance)
    try:
        _see()
        tracing.start(_settings, "worker")
        check(_settings, _contexts)
    except RemeshError as error:
        _refused(error)


_seeing: Seeing | None = None


def _see() -> None:
    global _meter, _seeing
    metrics = Metrics(_settings.cluster, WORKER)
    _meter = metrics
    _seeing = Seeing(_settings, metrics, lambda: _contexts().policy.mode.value, BrokerPort(app))
    _seeing.start()


@signals.heartbeat_sent.connect(weak=False)
def note_heartbeat(**_: Any) -> None:
    """The consumer goes round."""
    if _seeing is not None:
        _seeing.consumer.beat()


@signals.task_revoked.connect(weak=False)
def note_revocation(request: Any, *, expired: bool = False, **_: Any) -> None:
    """A task that was revoked while it waited in the queue; one under way ends by itself, before its intent."""
    payload = next(iter(request.args), None) if not expired else None
    if payload is not None:
        revoked_before_start(payload, str(request.id), _contexts())


_sweeper = Sweeper(_contexts)


@signals.worker_ready.connect(weak=False)
def look_after_what_is_owed(**_: Any) -> None:
    """From now on, and until the worker ends."""
    _sweeper.start()
    if _seeing is not None:
        _seeing.takes_tasks(True)


@signals.worker_shutting_down.connect(weak=False)
def end_looking_after(**_: Any) -> None:
    """What is under way goes on; nothing else is begun."""
    _sweeper.stop()
    if _seeing is not None:
        _seeing.takes_tasks(False)


@signals.worker_shutdown.connect(weak=False)
def end_traces(**_: Any) -> None:
    """What is left of them is sent."""
    tracing.stop()


def check(settings: Settings, contexts: ContextSource) -> None:
    """Load policy, profiles and cluster access, and see that the broker keeps what it is given.

    Raises ConfigError, BrokerUnreachable or BrokerUnsafe.
    """
    context = contexts()
    brokers.require_safe_in_time(settings)
    log.info("worker starts", version=__version__, cluster=settings.cluster, mode=context.policy.mode.value)
    if context.policy.repair.bare_pods and not context.signing_key:
        log.warning("pods without a controller are lost with the worker that evicted them", set="REMESH_SIGNING_KEY")
    if os.environ.get(crash.VARIABLE):
        log.warning("this worker will kill itself", at=os.environ[crash.VARIABLE])


# Flower: it can revoke tasks and shows all of them, and without a password it serves whoever reaches its port.


def _prepare_flower() -> None:
    """Hand our variable to Flower, and look at what it made of all its options before it serves."""
    secret = os.environ.get(FLOWER_VARIABLE)
    if secret:
        os.environ.setdefault("FLOWER_BASIC_AUTH", secret)
    os.environ.setdefault("FLOWER_TASKS_COLUMNS", FLOWER_COLUMNS)
    signals.import_modules.connect(_check_flower, weak=False)


def _check_flower(**_: Any) -> None:
    """Sent when Flower has read its options, from environment, file and command line, and is about to start."""
    from tornado.options import options

    in_single_lines()
    try:
        require_password(options.basic_auth or (), options.auth or "")
    except ConfigError as error:
        _refused(error)


def require_password(basic_auth: "list[str] | tuple[str, ...]", oauth: str) -> None:
    """Raise ConfigError unless Flower asks for a password or an OAuth login."""
    if oauth:
        return
    if not basic_auth:
        raise ConfigError(f"Flower would be open to everybody: set {FLOWER_VARIABLE} to user:password")
    for each in basic_auth:
        user, _, password = each.partition(":")
        if not user or not password:
            raise ConfigError(f"{FLOWER_VARIABLE} must be user:password (several with commas between); correct it")


if COMMAND == "flower":
    _prepare_flower()
