"""The words of remesh: what a finding, a decision, an outcome and an audit record are.

Data only: no clock, no I/O. Times are passed in as aware UTC datetimes and written as RFC 3339.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2s
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from remesh.objects import Namespace, Pod, Webhook, Workload

TEXT_CHARACTERS: Final = 2000
"""What is kept of one text: a webhook's denial may have any length."""


def shortened(text: str) -> str:
    """The text, or its beginning."""
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"


class FailureClass(StrEnum):
    """Why a pod is missing or bare. The words are those of the public cases."""

    WEBHOOK_TIMEOUT = "webhook_timeout"
    WEBHOOK_UNREACHABLE = "webhook_unreachable"
    WEBHOOK_CONNECTION_REFUSED = "webhook_connection_refused"
    WEBHOOK_NO_ENDPOINTS = "webhook_no_endpoints"
    WEBHOOK_SERVICE_NOT_FOUND = "webhook_service_not_found"
    WEBHOOK_X509 = "webhook_x509"
    WEBHOOK_BAD_RESPONSE = "webhook_bad_response"
    WEBHOOK_CALL_FAILED = "webhook_call_failed"  # the wrapper is there, the reason is not
    WEBHOOK_DENIED = "webhook_denied"
    API_TIMEOUT = "api_timeout"
    QUOTA_EXCEEDED = "quota_exceeded"
    LIMIT_RANGE = "limit_range"
    POD_SECURITY = "pod_security"
    SERVICE_ACCOUNT_MISSING = "service_account_missing"
    PRIORITY_CLASS_MISSING = "priority_class_missing"
    NAMESPACE_TERMINATING = "namespace_terminating"
    NAME_CONFLICT = "name_conflict"
    INVALID_POD = "invalid_pod"
    FORBIDDEN_OTHER = "forbidden_other"
    UNKNOWN_API_ERROR = "unknown_api_error"
    MISSING_SIDECAR = "missing_sidecar"
    HAS_SIDECAR = "has_sidecar"
    NOT_EXPECTED = "not_expected"
    NOT_APPLICABLE = "not_applicable"
    STUCK_SILENT = "stuck_silent"  # fewer pods than wanted, and no text that says why
    HEALTHY = "healthy"


class BaseClass(StrEnum):
    """Families of failure classes."""

    WEBHOOK_INFRA = "webhook_infra"
    WEBHOOK_DENIED = "webhook_denied"
    QUOTA = "quota"
    POD_SECURITY = "pod_security"
    SERVICE_ACCOUNT = "serviceaccount"
    OTHER_API = "other_api"
    MISSING_SIDECAR = "missing_sidecar"
    NO_PROBLEM = "no_problem"


class Action(StrEnum):
    """What is right to do now."""

    NUDGE_OWNER = "nudge_owner"
    RECREATE_POD = "recreate_pod"
    WAIT_FOR_INJECTOR = "wait_for_injector"
    REPORT_ONLY = "report_only"
    NEVER_TOUCH = "never_touch"
    NONE = "none"  # nothing is wrong


class Probe(StrEnum):
    """What a dry run of the pod's own template showed."""

    PASSES = "passes"  # came back with the sidecar, fast enough
    FAILS = "fails"
    UNKNOWN = "unknown"  # not tried, or not possible


class ObjectRef(BaseModel):
    """Identity of one object in one cluster. Only this travels in tasks, never the object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_version: str = Field(max_length=253)
    kind: str = Field(max_length=253)
    namespace: str = Field(default="", max_length=253)
    name: str = Field(max_length=253)
    uid: str = Field(default="", max_length=64)

    def __str__(self) -> str:
        """`Kind/name -n namespace`, as a person would type it."""
        return f"{self.kind}/{self.name}" + (f" -n {self.namespace}" if self.namespace else "")


class InjectorRef(BaseModel):
    """The webhook that should have injected: identified by configuration and Service, never by a word in a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mesh: str  # name of the mesh profile
    configuration: str = ""  # MutatingWebhookConfiguration
    webhook: str = ""
    service_namespace: str = ""
    service_name: str = ""

    @property
    def key(self) -> str:
        """Name of the gate that this injector's findings wait behind."""
        service = f"{self.service_namespace}/{self.service_name}" if self.service_name else ""
        return service or self.configuration or self.mesh


class Decision(BaseModel):
    """What `decide()` answers. Every answer has a reason: `code` for machines, `reason` for people."""

    model_config = ConfigDict(frozen=True)

    failure_class: FailureClass
    action: Action
    code: str  # short and stable, such as "injector_not_ready"
    reason: str  # one sentence
    after_recovery: Action = Action.NONE  # what may follow once a dry run shows the sidecar
    injector: InjectorRef | None = None
    missing: int = 0  # pods that should be there (injected) and are not
    # True: its pods come with this injector's sidecar, so a dry run proves by the mark. False: the webhook sees them
    # and lets them pass as they are, so a dry run proves by its success. None: not known, or no injector.
    sidecar_expected: bool | None = None

    @property
    def is_finding(self) -> bool:
        """True if this is to be recorded and followed up; False if nothing is wrong or it must not be touched."""
        return self.action in (
            Action.NUDGE_OWNER,
            Action.RECREATE_POD,
            Action.WAIT_FOR_INJECTOR,
            Action.REPORT_ONLY,
        ) and self.failure_class not in (
            FailureClass.HEALTHY,
            FailureClass.HAS_SIDECAR,
            FailureClass.NOT_EXPECTED,
        )


@dataclass(slots=True)
class InjectorHealth:
    """What is known of one injector now."""

    ready: bool | None = None  # ready endpoints at quorum; None: not known
    probe: Probe = Probe.UNKNOWN
    # True: `probe` is a dry run of this very object's template. False: it only says that the injector works.
    own_template: bool = True


@dataclass(slots=True)
class Observed:
    """All that `decide()` may look at: one object and its surroundings, read a moment ago."""

    obj: Workload | Pod
    namespace: Namespace | None = None
    # Live mutating webhooks as (configuration name, webhook); None: not known (offline), charts' defaults apply.
    # The same Webhook objects for every object until the configuration changes: their selectors are compiled once.
    webhooks: list[tuple[str, Webhook]] | None = None
    webhooks_complete: bool = True  # False: `webhooks` names some; charts' defaults apply to all other meshes
    message: str = ""  # newest failure text; "" where the trouble leaves none
    health: InjectorHealth = field(default_factory=InjectorHealth)
    current: int | None = None  # the owner's pods that exist, counted; None: trust its status
    # Since when the object lacks pods, in seconds; None: not known, judged by age.
    stuck_seconds: float | None = None
    attempts: int = 0  # repairs that already failed for this owner and template
    exists: bool = True  # False: the object is only a manifest, or was refused at creation
    # False: the pod is older than the webhook or the namespace's request for injection. None: `configured` tells.
    webhook_older: bool | None = None
    configured: dict[str, datetime] = field(default_factory=dict)  # when what a configuration sees changed last
    no_events: bool = False  # True: known that its controller wrote no Kubernetes Event, so it is not retrying
    notes: dict[str, Any] = field(default_factory=dict)


class Finding(BaseModel):
    """One object in trouble, from first sight to outcome."""

    model_config = ConfigDict(frozen=True)

    id: str
    cluster: str
    ref: ObjectRef
    owner: ObjectRef | None = None  # its controller, such as the Deployment, or a pod's ReplicaSet
    above: ObjectRef | None = None  # the owner's controller, such as the Deployment over a pod's ReplicaSet
    mesh: str = ""
    injector: InjectorRef | None = None
    failure_class: FailureClass
    action: Action
    after_recovery: Action = Action.NONE
    code: str
    reason: str
    message: str = ""  # failure text, shortened to 500 characters
    sidecar_expected: bool | None = None  # as in Decision
    missing: int = 0
    desired: int = 0
    template_hash: str = ""
    priority_class: str = ""
    first_seen: datetime


def finding_id(cluster: str, uid: str, template_hash: str, episode: str) -> str:
    """Stable id of a finding: the same trouble of the same object gets the same id after a restart.

    `episode` tells one outage from the next: the condition's lastTransitionTime, or the generation.
    """
    text = "\0".join((cluster, uid, template_hash, episode))
    return "f-" + blake2s(text.encode(), digest_size=6).hexdigest()


class RepairRequest(BaseModel):
    """Payload of a repair task: identity only; the worker reads everything again.

    `version` grows when a field changes its meaning; unknown fields of a newer sender are ignored, a newer
    version is refused (and reported), so old and new workers can share a queue.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    cluster: str = Field(max_length=253)
    finding_id: str = Field(max_length=64, pattern=r"^f-[0-9a-f]{1,32}$")
    ref: ObjectRef
    mesh: str = Field(default="", max_length=63)
    cause: FailureClass
    action: Action
    attempt: int = Field(default=1, ge=1, le=1000)
    actor: str = Field(default="watcher", max_length=253)  # "watcher", or the person who asked
    on_demand: bool = False
    requested_at: datetime

    @property
    def task_id(self) -> str:
        """What Flower shows as id: a sentence that a person can read, and safe inside a URL path."""
        return f"{self.task_stem}{self.attempt}"

    @property
    def task_stem(self) -> str:
        """The id but for the attempt's number."""
        parts = (
            self.action.value.replace("_", "-"),
            self.ref.kind,
            self.ref.namespace,
            self.ref.name,
            self.mesh or "no-mesh",
            self.cause.value.replace("_", "-"),
            f"{self.finding_id}-",
        )
        return ".".join(parts)


class Result(StrEnum):
    """How a repair ended."""

    HEALED = "healed"  # all pods are there, marked and Ready
    INJECTED = "injected"  # all pods are there and marked, not all Ready yet: the injector's part is done
    ALREADY_HEALTHY = "already_healthy"  # nothing was left to do
    OBSOLETE = "obsolete"  # the object is gone, or another one has its name
    WAITING = "waiting"  # the injector does not work (again): back behind the gate
    REPORTED = "reported"  # not ours to repair; the reason says why
    SKIPPED = "skipped"  # another worker holds the object, or it cools down
    FAILED = "failed"  # acted, and the pods did not come, or came bare
    QUARANTINED = "quarantined"  # failed too often: left alone until template or webhook change
    ERROR = "error"  # the API server or Redis failed; released again later


REVOKED = "revoked"
"""Code of an outcome: a person revoked the task before anything was done."""


DRY_RUN_NEW = "dry_run_new"
"""Detail of an intent: True if its dry run passed for this repair, and was not one that another had asked for."""


class Outcome(BaseModel):
    """End of one repair attempt, and the return value of its task."""

    model_config = ConfigDict(frozen=True)

    finding_id: str
    result: Result
    code: str
    reason: Annotated[str, AfterValidator(shortened)]
    created: int = 0  # pods that appeared, marked
    ready: int = 0
    bare: int = 0  # pods that appeared without the mark
    acted: bool = False  # True if anything was written to the cluster
    # What failures and quarantine are counted by, as `<uid>:<template hash>`; empty if the object was never read.
    account: str = ""


class RecordType(StrEnum):
    """Kinds of audit record, in the order in which a chain has them."""

    FINDING = "finding"
    WAIT = "wait"
    GATE = "gate"
    RELEASE = "release"
    DECISION = "decision"
    REFUSAL = "refusal"
    INTENT = "intent"
    ACTION = "action"
    OUTCOME = "outcome"
    NOTE = "note"


class AuditRecord(BaseModel):
    """One line of the audit trail.

    `record_id` makes a repeat harmless: the trail keeps the first record of that id and returns its position.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    record_id: str
    type: RecordType
    at: datetime
    cluster: str
    finding_id: str = ""
    ref: ObjectRef | None = None
    owner: ObjectRef | None = None
    above: ObjectRef | None = None  # the owner's controller, so that a Deployment's pods are found by its name
    mesh: str = ""
    cause: str = ""
    actor: str = ""  # who asked for it: "watcher", or a person
    task_id: str = ""
    action: str = ""
    code: str = ""
    reason: str = ""
    details: dict[str, Any] = Field(default_factory=dict)
    position: str = ""  # stream id, filled in when read back
