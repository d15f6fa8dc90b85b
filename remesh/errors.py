"""The tree of errors. Each carries one clear line: what is wrong, where, what to do.

    RemeshError
    ├── UsageError            a command line, a target or a flag that cannot be right          exit 2
    │   └── ConfigError       a malformed policy, mesh profile, setting or kubeconfig          exit 2
    ├── ClusterError          the API server did not do what was asked                         exit 3
    │   ├── ClusterUnreachable   no connection, TLS failure, time-out                          exit 3
    │   ├── Unauthorized         expired or wrong credentials (401)                            exit 4
    │   ├── Forbidden            a missing right (403 from RBAC)                               exit 4
    │   ├── NotFound             the object is not there (404)                                 exit 6
    │   ├── Conflict             a precondition failed: other UID or resourceVersion (409)     exit 3
    │   ├── Gone                 the resourceVersion is too old: list again (410)              exit 3
    │   ├── Throttled            come back later (429), `retry_after` in seconds               exit 3
    │   └── Rejected             admission, quota or validation refused the request            exit 3
    ├── BrokerError           Redis or the broker did not do what was asked                    exit 5
    │   ├── BrokerUnreachable                                                                  exit 5
    │   ├── BrokerUnsafe         no AOF, or a policy that evicts keys                          exit 5
    │   └── TrailUnavailable     the audit trail cannot be written: nothing may be touched     exit 5
    └── RepairIncomplete      a repair that was waited for failed or did not end in time       exit 1

Dependencies' errors (urllib3, redis, kombu, pydantic, tomllib) are translated into these in one place each:
`remesh.kube.transport`, `remesh.redisdb`, `remesh.queue`, `remesh.policy` and `remesh.meshes`.
"""

from typing import ClassVar


class RemeshError(Exception):
    """Base of everything remesh raises on purpose. `str(error)` is the one line a person reads."""

    exit_code: ClassVar[int] = 1


class UsageError(RemeshError):
    """What was asked for cannot be right."""

    exit_code = 2


class ConfigError(UsageError):
    """A file or a setting is malformed; the line names file, key and, where known, line."""


class ClusterError(RemeshError):
    """The API server did not do what was asked. `status` is the HTTP status, 0 if there was none."""

    exit_code = 3

    def __init__(self, line: str, *, status: int = 0, reason: str = "", message: str = "") -> None:
        super().__init__(line)
        self.status = status
        self.reason = reason  # the machine-readable reason of the Status object, such as "AlreadyExists"
        self.message = message  # the Status object's own message, unchanged


class ClusterUnreachable(ClusterError):
    """No connection to the API server, or no answer in time."""


class Unauthorized(ClusterError):
    """The API server does not know the credentials (401)."""

    exit_code = 4


class Forbidden(ClusterError):
    """RBAC refuses the verb (403); the line names the missing right."""

    exit_code = 4


class NotFound(ClusterError):
    """The object is not there (404)."""

    exit_code = 6


class Conflict(ClusterError):
    """A precondition failed (409, or 422 for a changed UID)."""


class Gone(ClusterError):
    """The resourceVersion or continue token is too old (410)."""


class Throttled(ClusterError):
    """Not now (429). `retry_after` is in seconds."""

    def __init__(
        self,
        line: str,
        *,
        retry_after: float = 1.0,
        reason: str = "",
        message: str = "",
        budgets: tuple[str, ...] = (),
    ) -> None:
        super().__init__(line, status=429, reason=reason, message=message)
        self.retry_after = retry_after
        self.budgets = budgets  # what the API server says of each PodDisruptionBudget in the way of an eviction


class Rejected(ClusterError):
    """Admission, quota or validation refused the request; `message` is the API server's text to classify."""


class BrokerError(RemeshError):
    """Redis or the broker did not do what was asked."""

    exit_code = 5


class BrokerUnreachable(BrokerError):
    """No connection to Redis or the broker, or no answer in time."""


class BrokerUnsafe(BrokerError):
    """Redis runs without AOF or evicts keys: tasks and trail could vanish."""


class TrailUnavailable(BrokerError):
    """The audit trail cannot be written, so nothing may be touched."""


class RepairIncomplete(RemeshError):
    """A repair that somebody waited for failed, or did not end in time."""

    exit_code = 1
