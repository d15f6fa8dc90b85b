"""What one command works with, made when it is first asked for: settings, policy, cluster, Redis, Celery.

A command that needs no cluster never reads a kubeconfig, and one that needs no Redis never connects to it.
"""

import os
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from remesh.cli.options import Common
from remesh.errors import BrokerUnreachable, ConfigError, UsageError
from remesh.meshes import Profiles, load_profiles
from remesh.policy import Policy, load_policy
from remesh.settings import Settings, read_settings

if TYPE_CHECKING:
    from celery import Celery

    from remesh.audit import Trail
    from remesh.kube.api import Cluster
    from remesh.kube.config import Access
    from remesh.ledger import Ledger
    from remesh.redisdb import RedisClient

CLUSTER_CHARACTERS = 63
OVERRIDES = ("kubeconfig", "context", "cluster", "policy", "meshes")


class Session:
    """One command's surroundings. Everything raises RemeshError with one clear line."""

    def __init__(self, common: Common, *, kept: bool = False) -> None:
        """With `kept` a trail that `remesh run` has kept is read where neither that nor another Redis is there."""
        self.common = common
        self._kept = kept
        self.given = settings_of(common)  # as the environment and the options say

    @cached_property
    def settings(self) -> Settings:
        """Settings, with the server of a running `remesh run` where no Redis was named."""
        found = self.given.model_copy(update={"cluster": self.cluster_name})
        url = None if self.names_redis else running_embedded(self.data_folder)
        return found.model_copy(update={"redis_url": SecretStr(url)}) if url else found

    @cached_property
    def cluster_name(self) -> str:
        """The name given, or the context's, so that two clusters never share a trail unasked."""
        from remesh.kube.config import context_name

        if "cluster" in self.given.model_fields_set:
            return self.given.cluster
        try:
            name = context_name(self.given.kubeconfig, self.given.context)
        except ConfigError:  # told by whatever needs the cluster itself
            if self.given.context:
                raise
            name = None
        return cluster_name_of(name) if name else self.given.cluster

    @property
    def names_redis(self) -> bool:
        """True if the environment says which Redis to use."""
        return bool({"redis_url", "broker_url"} & self.given.model_fields_set)

    @cached_property
    def policy(self) -> Policy:
        """The operator's policy."""
        return load_policy(self.given.policy)

    @cached_property
    def profiles(self) -> Profiles:
        """Mesh profiles, shipped and added."""
        return load_profiles(self.given.meshes)

    @cached_property
    def access(self) -> "Access":
        """Where the API server is, and as whom."""
        from remesh.kube.config import load_access

        return load_access(self.given.kubeconfig, self.given.context)

    @cached_property
    def cluster(self) -> "Cluster":
        """The API server, by typed verbs."""
        from remesh.kube.api import Cluster
        from remesh.kube.transport import KubeClient

        return Cluster(KubeClient(self.access))

    @cached_property
    def redis(self) -> "RedisClient":
        """The connection to Redis; connects at the first command. Raises BrokerUnreachable where none is to be had."""
        from remesh.redisdb import connect

        if self._kept and not self.names_redis and not self._answers() and self._serve_kept():
            self.__dict__.pop("settings", None)  # they name the server, whose socket is there only now
        client = connect(self.settings)
        if not self.names_redis:
            self._require_answer(client)
        return client

    def _answers(self) -> bool:
        from redis.exceptions import RedisError

        from remesh.redisdb import connect

        try:
            return bool(connect(self.settings).ping())
        except (RedisError, OSError):
            return False

    def _serve_kept(self) -> bool:
        from remesh.cli import kept

        if not kept.is_kept(self.data_folder):
            return False
        kept.serve(self.data_folder)
        return True

    def _require_answer(self, client: "RedisClient") -> None:
        """Where no Redis was named, the one of `remesh run` is meant, or one on this machine."""
        from redis.exceptions import RedisError

        from remesh.redisdb import place

        try:
            client.ping()
        except (RedisError, OSError) as error:
            active = f"no `remesh run` is active for cluster {self.cluster_name!r}"
            raise BrokerUnreachable(
                f"{active}, and {place(client)} does not answer; start it, or set REMESH_REDIS_URL or --cluster"
            ) from error

    @cached_property
    def trail(self) -> "Trail":
        """The audit trail of this cluster."""
        from remesh.audit import Trail

        return Trail(self.redis, self.settings.cluster, self.settings.key_prefix)

    @cached_property
    def ledger(self) -> "Ledger":
        """Attempts, releases and quarantines of this cluster."""
        from remesh.ledger import Ledger

        return Ledger(self.redis, self.settings.cluster, self.settings.key_prefix)

    @cached_property
    def known_ledger(self) -> "Ledger | None":
        """The ledger, where a Redis is named or a `remesh run` is active; for commands that can do without.

        Raises BrokerUnreachable where one should be there and does not answer.
        """
        return self.ledger if self.names_redis or running_embedded(self.data_folder) else None

    @cached_property
    def app(self) -> "Celery":
        """The Celery application that tasks are sent through."""
        from remesh.queue import make_app

        return make_app(self.settings, consumes=False)

    @cached_property
    def data_folder(self) -> Path:
        """Where `remesh run` keeps the embedded server's data."""
        return data_folder(self.cluster_name)

    @property
    def namespace(self) -> str:
        """The namespace asked for, or the context's."""
        if self.common.all_namespaces and self.common.namespace:
            raise UsageError("-n and -A exclude each other; give one of them")
        return self.common.namespace or self.access.namespace

    @property
    def scope(self) -> str | None:
        """Namespace to list in; None for all."""
        if self.common.all_namespaces and not self.common.namespace:
            return None
        return self.namespace

    @property
    def actor(self) -> str:
        """The person, as the trail names them: `user@host`."""
        return actor()

    def environment(self) -> dict[str, str]:
        """Variables that give a child process these settings."""
        return environment_of(self.settings)


def settings_of(common: Common) -> Settings:
    """Settings from the environment, overridden by the options. Raises ConfigError."""
    settings = read_settings()
    changed: dict[str, Any] = {name: getattr(common, name) for name in OVERRIDES if getattr(common, name) is not None}
    if "cluster" in changed:
        check_cluster_name(changed["cluster"])
    return settings.model_copy(update=changed) if changed else settings


def check_cluster_name(name: str) -> None:
    """Raise UsageError if this cannot be a cluster's name in keys and tasks."""
    import re

    pattern = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
    if not re.fullmatch(pattern, name):
        raise UsageError(f"--cluster {name!r}: use at most 63 lower-case letters, digits, '-' and '.'")


def cluster_name_of(context: str) -> str:
    """A context's name as a cluster's: `arn:aws:eks:…` has characters that keys and tasks cannot have.

    Where it has to be changed, a few characters of its hash tell it from others that would become the same.
    """
    import re
    from hashlib import blake2s

    name = re.sub(r"[^-a-z0-9.]+", "-", context.lower()).strip("-.")
    if name == context and len(name) <= CLUSTER_CHARACTERS:
        return name
    digest = blake2s(context.encode(), digest_size=2).hexdigest()
    return f"{name[: CLUSTER_CHARACTERS - 5].strip('-.')}-{digest}".lstrip("-.")


def environment_of(settings: Settings) -> dict[str, str]:
    """The same settings as `REMESH_…` variables."""
    found: dict[str, str] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is None:
            continue
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        found[f"REMESH_{name.upper()}"] = text.lower() if isinstance(value, bool) else text
    return found


def data_folder(cluster: str) -> Path:
    """Folder of one cluster, by its name in the settings, below XDG_STATE_HOME or ~/.local/state."""
    return state_folder() / cluster


def state_folder() -> Path:
    """What remesh keeps for this user."""
    base = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(base) / "remesh"


def running_embedded(folder: Path) -> str | None:
    """URL of the embedded server on this folder, if one has its socket there."""
    from remesh.embedded import socket_path, socket_url

    return socket_url(folder) if socket_path(folder).exists() else None


def actor() -> str:
    """`user@host` of the person at the keyboard."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:253]


def utc_now() -> datetime:
    """The time, aware."""
    return datetime.now(UTC)
