"""The operator's policy: what remesh may do, where, and how fast. One TOML file, every key documented here.

The defaults are the shipped `config/policy.toml`. Durations are in seconds, and the key says so.
"""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from remesh.errors import ConfigError
from remesh.tomlfile import parse_toml


class Mode(StrEnum):
    """How far remesh may go."""

    OBSERVE = "observe"  # find, prove and record; never write to the cluster
    REPAIR = "repair"


_DAY_SECONDS: Final = 86_400
_WEEK_SECONDS: Final = 7 * _DAY_SECONDS


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, so that a typing mistake is seen; so are `inf` and `nan`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scope(Section):
    """Where remesh looks and acts."""

    protected_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease")
    """Never repaired; trouble there is only reported. Injectors' own namespaces' injector pods are always protected."""
    namespaces: tuple[str, ...] = ()
    """If not empty, only these namespaces are repaired."""

    def bars(self, namespace: str) -> str:
        """Why nothing may be written in this namespace; empty if it may."""
        if namespace in self.protected_namespaces:
            return f"{namespace} is protected"
        if self.namespaces and namespace not in self.namespaces:
            return f"{namespace} is not among the policy's namespaces"
        return ""


class Detection(Section):
    """When a workload counts as stuck."""

    silent_seconds: float = Field(default=30.0, ge=0, le=_WEEK_SECONDS)
    """A ReplicaSet or ReplicationController without condition that lacks pods for this long is stuck."""
    no_condition_seconds: float = Field(default=15.0, ge=0, le=_WEEK_SECONDS)
    """The same for StatefulSet, DaemonSet and Job, whose status never says why."""
    api_timeout_seconds: float = Field(default=1020.0, ge=0, le=_WEEK_SECONDS)
    """After a time-out that names no webhook, of a workload that no injector had to be asked for: longer than the
    controller's longest back-off of 1000 s."""


class GatePolicy(Section):
    """When an injector counts as working again."""

    quorum: int = Field(default=1, ge=1, le=1000)
    """Ready endpoints that its Service must have."""
    successes: int = Field(default=3, ge=1, le=100)
    """Dry runs in a row that must come back with the sidecar."""
    latency_seconds: float = Field(default=2.0, gt=0, le=30)
    """A dry run slower than this is a failure."""
    interval_seconds: float = Field(default=0.2, gt=0, le=3600)
    """Pause between dry runs while they succeed."""
    retry_seconds: float = Field(default=1.0, gt=0, le=3600)
    """Pause after a dry run that failed."""


class WindowPolicy(Section):
    """How many pods may be about to be created through one injector."""

    initial: int = Field(default=32, ge=1, le=100_000)
    """Pods at first. It grows by what went well, and halves on a failure."""
    minimum: int = Field(default=1, ge=1, le=100_000)
    """It never shrinks below this."""
    maximum: int = Field(default=1000, ge=1, le=100_000)
    """It never grows beyond this. Not below `minimum`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum is {self.minimum} and maximum {self.maximum}: give a maximum that is not less")
        return self


class RepairPolicy(Section):
    """How often, and what is opted in."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    """Failed repairs of one owner and template before it is quarantined."""
    cooldown_seconds: float = Field(default=60.0, ge=0, le=_WEEK_SECONDS)
    """Pause after a failed repair of one owner."""
    verify_seconds: float = Field(default=40.0, gt=0, le=50)
    """How long a worker watches for the result. Tasks stay below 60 s because of the visibility time-out."""
    release_deadline_seconds: float = Field(default=120.0, ge=10, le=_DAY_SECONDS)
    """A released finding without outcome after this long is released again: the queue may lose a task.
    More than `verify_seconds`."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Part of an owner's pods replaced at once, one at least. Default: as its own rolling update allows (nothing if its
    maxUnavailable is 0), else a quarter."""
    bare_pods: bool = False
    """Recreate pods that have no controller."""
    older_pods: bool = False
    """Recreate bare pods that are older than the webhook or their namespace's request: adopts a mesh for them."""
    job_pods: bool = False
    """Recreate pods of Jobs."""
    custom_owners: bool = False
    """Recreate pods whose controller is of a custom kind: only if it puts new pods in the place of evicted ones."""
    impersonate_controller: bool = False
    """Dry-run pods in their controllers' names, for injectors that ask who creates (Dapr). Watcher and workers need
    the right to impersonate the controllers' service accounts in kube-system."""

    @model_validator(mode="after")
    def _deadline_after_verification(self) -> Self:
        if self.release_deadline_seconds <= self.verify_seconds:
            raise ValueError(
                f"release_deadline_seconds is {self.release_deadline_seconds:g} and verify_seconds"
                f" {self.verify_seconds:g}: a finding would be released again while its worker still watches;"
                " give a later deadline"
            )
        return self


class TrailPolicy(Section):
    """Retention of the audit trail by the watcher, once an hour. Without these keys nothing is ever removed by itself.

    What is removed is exported first. A repair that is begun or waited for keeps its chain's beginning for a time.
    """

    keep_seconds: float | None = Field(default=None, ge=86_400)
    """Records older than this are exported and removed. Default: none is too old."""
    keep_records: int | None = Field(default=None, ge=1000)
    """Records beyond so many are exported and removed, the oldest first. Default: none is too many."""
    export_folder: str | None = Field(default=None, min_length=1)
    """Folder for the exports, one new file each time; on a volume that outlives the watcher. Needed with the others."""

    @property
    def asks(self) -> bool:
        """True if anything is to be removed."""
        return self.keep_seconds is not None or self.keep_records is not None

    @model_validator(mode="after")
    def _export_first(self) -> Self:
        if self.asks and self.export_folder is None:
            raise ValueError("keep_seconds or keep_records without export_folder: nothing is removed without an export")
        return self


class Policy(Section):
    """The whole policy file."""

    mode: Mode = Mode.REPAIR
    scope: Scope = Scope()
    detection: Detection = Detection()
    gate: GatePolicy = GatePolicy()
    window: WindowPolicy = WindowPolicy()
    repair: RepairPolicy = RepairPolicy()
    trail: TrailPolicy = TrailPolicy()


def load_policy(path: Path | None = None) -> Policy:
    """Read the policy file, or the shipped defaults when `path` is None.

    Raises ConfigError with file, key and line where the file is missing, no TOML, or breaks the model.
    """
    name, text = _read(path)
    return parse_toml(name, text, Policy, "see the policy reference")


def _read(path: Path | None) -> tuple[str, str]:
    if path is None:
        shipped = resources.files("config") / "policy.toml"
        return "config/policy.toml", shipped.read_text(encoding="utf-8")
    try:
        return str(path), path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"policy file {path}: {reason}; give an existing file with --policy") from error
