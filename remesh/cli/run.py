"""`remesh run`: watcher, worker and an embedded Valkey in one command, against the current context."""

from typing import TYPE_CHECKING, Annotated

import typer

from remesh.cli.app import one_command
from remesh.cli.options import Common, with_common_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from remesh.cli.processes import Processes
    from remesh.cli.session import Session
    from remesh.embedded import EmbeddedRedis
    from remesh.policy import Policy


@with_common_but("namespace", "all_namespaces", "output")
def run(
    common: Common,
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--namespace",
            help="Repair only in this namespace; several with commas, or repeated. Default: as the policy says.",
            show_default=False,
        ),
    ] = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Find, prove and record; never write to the cluster.")
    ] = False,
    flower: Annotated[bool, typer.Option("--flower", help="Run Flower, too, on loopback with a password.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Threads of the worker.", min=1)] = 64,
) -> None:
    """Run watcher, worker and an embedded Valkey against the current context, until Ctrl-C ends all of them.

    No set-up is needed. The trail is kept in ~/.local/state/remesh/CLUSTER and is there again at the next start;
    `remesh audit` and `remesh status` read it at any time, `remesh repair` and the others while this runs. With
    REMESH_REDIS_URL that server is used. A second run on the same cluster is refused while the first is alive, whatever
    the cluster is called; with REMESH_REDIS_URL also one of another person or machine. CLUSTER is the context's name,
    unless REMESH_CLUSTER or --cluster gives another.
    """
    from remesh.cli.only_run import only_run
    from remesh.cli.policies import policy_of_run
    from remesh.cli.processes import Processes, interrupt_on_sigterm
    from remesh.cli.run_lease import run_lease
    from remesh.cli.runlog import RunLog
    from remesh.cli.session import Session

    session = Session(common)
    policy = policy_of_run(session.policy, _names([common.namespace or "", *(namespace or [])]), observe=observe)
    version = _look_before_leaping(session)
    with only_run(session):
        interrupt_on_sigterm()
        server = _own_server(session)
        try:
            with run_lease(session) as lease, Processes(RunLog(_say_ready)) as processes:
                _say_what(session, policy, version, server)
                _start_all(processes, session, policy, flower=flower, concurrency=concurrency)
                _wait(processes, lease.keep)
        finally:
            if server is not None:
                server.stop()


def _names(given: list[str]) -> list[str]:
    """`-n a,b -n c` as three names."""
    return [name.strip() for each in given for name in each.split(",") if name.strip()]


def _look_before_leaping(session: "Session") -> str:
    """Say in one line what would otherwise come as two processes' logs: a bad policy, profile, kubeconfig, cluster.

    Returns Kubernetes' version.
    """
    _ = session.profiles
    return session.cluster.client.version()


def _say_what(session: "Session", policy: "Policy", version: str, server: "EmbeddedRedis | None") -> None:
    """Which cluster, what is done to it, and where that is written down. Only once nothing can be refused any more."""
    from remesh.cli.render import note
    from remesh.redisdb import place

    where = f"{session.access.context} at {session.access.server}, Kubernetes {version}"
    note(f"cluster   {session.cluster_name}: {where}")
    note(f"mode      {_MODES[policy.mode.value]}")
    note(f"scope     {_scope(policy)}")
    for name in policy.scope.namespaces:
        if not _is_there(session, name):
            note(f"          there is no namespace {name} yet")
    note(f"trail     kept in {session.data_folder}" if server else f"broker    {place(session.redis)}")


def _is_there(session: "Session", namespace: str) -> bool:
    from remesh.errors import NotFound

    try:
        session.cluster.namespace(namespace)
    except NotFound:
        return False
    return True


_MODES = {
    "repair": "repair: what an outage left broken is repaired",
    "observe": "observe: nothing is written to the cluster",
}


def _scope(policy: "Policy") -> str:
    scope = policy.scope
    if scope.namespaces:
        return f"only {', '.join(scope.namespaces)}"
    return f"every namespace but {', '.join(scope.protected_namespaces) or 'none'}"


def _own_server(session: "Session") -> "EmbeddedRedis | None":
    """The embedded server, unless another one is named by REMESH_REDIS_URL; checked either way."""
    from remesh.redisdb import check_broker, require_safe

    server = None
    session.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if "redis_url" not in session.given.model_fields_set:
        server = _start_server(session)
    try:
        require_safe(check_broker(session.redis), allow_unsafe=session.settings.allow_unsafe_broker)
    except BaseException:
        if server is not None:
            server.stop()
        raise
    if server is None:
        _refuse_a_second(session)
    return server


def _refuse_a_second(session: "Session") -> None:
    """Two of them would be two watchers and twice the workers of one cluster, each sure to be the only one."""
    import math
    import time

    from remesh.cli.text import clock
    from remesh.errors import BrokerError
    from remesh.presence import Presence
    from remesh.redisdb import place

    seen = Presence(session.redis, session.cluster_name, session.settings.key_prefix).seen()
    if seen is None:
        return
    who = f"{seen.identity}, since {clock(seen.since)}, mode {seen.mode}"
    left = max(1, math.ceil(seen.until - time.time()))
    raise BrokerError(
        f"a watcher of cluster {session.cluster_name!r} is alive already at {place(session.redis)} ({who}); end it, "
        f"or wait: one that was killed counts as gone in {left} s"
    )


def _start_server(session: "Session") -> "EmbeddedRedis":
    from remesh.embedded import EmbeddedRedis, FolderInUse
    from remesh.errors import BrokerUnreachable

    try:
        return EmbeddedRedis(session.data_folder).start()
    except FolderInUse as error:
        cluster = session.cluster_name
        raise BrokerUnreachable(
            f"the trail kept for cluster {cluster!r} in {session.data_folder} is in use, by the `remesh run` of "
            "another cluster of the same name or by somebody who reads it; end that, or name this cluster by --cluster"
        ) from error


def _start_all(processes: "Processes", session: "Session", policy: "Policy", *, flower: bool, concurrency: int) -> None:
    from remesh.cli.policies import write_policy
    from remesh.cli.processes import WATCHER, WORKER

    environment = session.environment()
    if policy != session.policy:  # for the worker, too: it may get a repair that a person asks for
        environment["REMESH_POLICY"] = str(write_policy(policy, session.data_folder / "policy-of-run.toml"))
    worker = (*WORKER, "--concurrency", str(concurrency), "--loglevel", "INFO")
    # On one host each needs a port of its own: the watcher has the usual one, the worker the next.
    port = session.settings.metrics_port
    beside = {"REMESH_METRICS_PORT": str(port + 1 if 0 < port < 65535 else 0)}
    processes.start_python("worker", worker, {**environment, **beside})
    processes.start_python("watcher", WATCHER, environment)
    if flower:
        start_flower(processes, environment)


def start_flower(processes: "Processes", environment: dict[str, str]) -> str:
    """Start Flower on loopback with a password made now; returns its URL, having shown how to log in."""
    import secrets

    from remesh.cli.processes import FLOWER, free_port
    from remesh.cli.render import note

    port, password = free_port(5555), secrets.token_urlsafe(12)
    # Through the environment, because a command line can be read by everybody on the machine.
    secret = {"REMESH_FLOWER_BASIC_AUTH": f"remesh:{password}", "FLOWER_ADDRESS": "127.0.0.1", "FLOWER_PORT": str(port)}
    processes.start_python("flower", FLOWER, {**environment, **secret})
    url = f"http://127.0.0.1:{port}"
    note(f"flower    {url}  user remesh  password {password}")
    return url


def _wait(processes: "Processes", meanwhile: "Callable[[], None]") -> None:
    child = processes.wait(meanwhile)
    if child.code:
        raise typer.Exit(_report(child.name, child.code))


def _report(name: str, code: int) -> int:
    from remesh.cli.render import note

    note(f"remesh: the {name} ended with exit code {code}; the others are ended, too")
    return code


def _say_ready() -> None:
    from remesh.cli.render import note

    note("ready     watching; `remesh status` and `remesh audit` show what happens; Ctrl-C ends it")


app = one_command(run)
