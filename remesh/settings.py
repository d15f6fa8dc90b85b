"""Process settings from the environment (prefix `REMESH_`), the same for watcher, workers and command line."""

from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from remesh.errors import ConfigError
from remesh.plain_words import problem_of


class Settings(BaseSettings):
    """All settings of a process. Secrets are SecretStr and never printed."""

    model_config = SettingsConfigDict(env_prefix="REMESH_", env_ignore_empty=True, extra="ignore", frozen=True)

    cluster: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")
    """Name of this cluster in every key, record and task; several clusters may share one broker."""
    kubeconfig: Path | None = None
    """kubeconfig file; default: KUBECONFIG, then ~/.kube/config, then the pod's service account."""
    context: str | None = None
    """Context of the kubeconfig; default: its current one."""
    redis_url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Redis of the audit trail and the ledger. `redis://`, `rediss://` or `unix://`."""
    broker_url: SecretStr | None = None
    """Celery broker; default: the same Redis."""
    key_prefix: str = Field(default="remesh:", max_length=64)
    """Prefix of every key in Redis."""
    policy: Path | None = None
    """Policy file; default: the shipped one."""
    meshes: Path | None = None
    """Folder of mesh profiles that add to or override the shipped ones."""
    allow_unsafe_broker: bool = False
    """Start although Redis has no AOF or may evict keys. Tasks and trail can then be lost."""
    start_seconds: int = Field(default=0, ge=0, le=3600)
    """Watchers and workers: wait so long for Redis and broker to answer at the start; 0: end at once without them."""
    signing_key: SecretStr | None = Field(default=None, min_length=16)
    """Key of the workers, the same for all of them and not in Redis: only with it one worker brings back a pod without
    a controller that another one evicted. At least 16 characters."""
    leader_election: bool = False
    """Watchers: release only while holding a Lease, so that several may run and one leads."""
    lease_namespace: str | None = None
    """Namespace of the Lease; default: the pod's."""
    lease_duration_seconds: int = Field(default=15, ge=2, le=3600)
    """A standby takes over so long after the leader's last renewal."""
    lease_renew_deadline_seconds: int = Field(default=10, ge=2, le=3600)
    """A leader that could not renew for so long releases nothing more; shorter than the duration."""
    lease_retry_seconds: int = Field(default=2, ge=1, le=600)
    """Between two tries to renew or to take the Lease."""
    shard: str | None = None
    """Watchers: `i/N` with i from 0: look only at the i-th of N shares of the namespaces. All N have to run."""
    metrics_port: int = Field(default=9464, ge=0, le=65535)
    """Port of /metrics, /livez and /readyz; 0: none. One that is taken costs a warning, not the process."""
    metrics_host: str = "127.0.0.1"
    """Address that they are served on; in a cluster 0.0.0.0."""
    tracing: bool = False
    """Send OpenTelemetry traces to where OTEL_EXPORTER_OTLP_ENDPOINT points; needs the extra `otel`."""
    kubernetes_events: bool = False
    """Workers say on a repaired owner how it ended, as a Kubernetes Event; needs the right to create and patch them."""
    log_format: str = Field(default="text", pattern="^(text|json)$")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @property
    def broker(self) -> str:
        """URL of the Celery broker, with its secret."""
        return (self.broker_url or self.redis_url).get_secret_value()


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Settings of this process, read once. Raises ConfigError naming the variable that is wrong."""
    return read_settings()


def read_settings() -> Settings:
    """Settings from the environment as it is now. Raises ConfigError naming the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "REMESH_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(f"{name}: {problem_of(first)}; correct the variable") from error
