"""Points at which the reliability tests let a process die: every write to Redis and to the API server, and the steps.

Off unless `REMESH_CRASH_AT` or `REMESH_CRASH_LOG` is set; never set them where a cluster matters. A point is a name and
how often it was reached, `redis.XADD.trail.after#2`; the process that reaches the one in `REMESH_CRASH_AT` is killed by
SIGKILL, as by the kernel when memory runs out, or as on a lost node. `REMESH_CRASH_LOG` names a file that gets a line
for each point that is reached: that is how the tests learn which there are.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

VARIABLE: Final = "REMESH_CRASH_AT"
LOG_VARIABLE: Final = "REMESH_CRASH_LOG"

Client = TypeVar("Client")

# What changes nothing is no point to die at.
_READ_COMMANDS: Final = """
AUTH CLIENT CONFIG EXISTS GET HELLO HGET HGETALL HLEN HMGET INFO KEYS LLEN LRANGE MEMORY MGET PING PTTL SCAN SCARD
SCRIPT SELECT SISMEMBER SMEMBERS SUBSCRIBE TIME TTL TYPE XINFO XLEN XRANGE XREAD XREVRANGE ZCARD ZRANGE
ZRANGEBYSCORE ZSCORE
"""
_READS: Final = frozenset(_READ_COMMANDS.split())

_lock = threading.Lock()
_reached: Counter[str] = Counter()


def is_set() -> bool:
    """True in a process that is to die, or to tell its points."""
    return bool(os.environ.get(VARIABLE) or os.environ.get(LOG_VARIABLE))


def reached(point: str) -> None:
    """Does nothing, unless the variables say otherwise."""
    if not is_set():
        return
    with _lock:
        _reached[point] += 1
        numbered = f"{point}#{_reached[point]}"
        log = os.environ.get(LOG_VARIABLE)
        if log:
            with open(log, "a", encoding="utf-8") as lines:  # noqa: PTH123  a dying process keeps nothing open
                lines.write(numbered + "\n")
    if os.environ.get(VARIABLE) in (point, numbered):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def around(point: str) -> Iterator[None]:
    """Two points: right before an effect, and right after it when nobody has taken note of it yet."""
    reached(f"{point}.before")
    yield
    reached(f"{point}.after")


def on_redis(client: Client) -> Client:
    """The same client; each command that writes has its two points."""
    if is_set():
        _wrap_commands(client)
    return client


def _wrap_commands(client: Any) -> None:
    execute, pipeline = client.execute_command, client.pipeline

    def execute_command(*args: Any, **options: Any) -> Any:
        name = str(args[0]).upper()
        if name.split(" ", maxsplit=1)[0] in _READS:
            return execute(*args, **options)
        with around(f"redis.{name}.{_kind(args)}"):
            return execute(*args, **options)

    def make_pipeline(*args: Any, **options: Any) -> Any:
        made = pipeline(*args, **options)
        send = made.execute

        def execute_all(*more: Any, **known: Any) -> Any:
            with around("redis.pipeline"):
                return send(*more, **known)

        made.execute = execute_all
        return made

    client.execute_command, client.pipeline = execute_command, make_pipeline


def _kind(args: tuple[Any, ...]) -> str:
    """What is written: the first key without prefix, cluster and identity."""
    keys = [str(part) for part in args[1:] if "}:" in str(part)]
    return keys[0].rsplit("}:", 1)[1].split(":", 1)[0] if keys else "none"


def kube_point(method: str, path: str) -> str:
    """A write to the API server, by verb and resource and without names: `kube.PATCH.replicasets`."""
    parts = [part for part in path.split("?", 1)[0].split("/") if part]
    if "namespaces" in parts[:-2]:
        parts = parts[parts.index("namespaces") + 2 :]
    resource = parts[0] if parts else "none"
    return f"kube.{method}.{'/'.join([resource, *parts[2:3]])}"
