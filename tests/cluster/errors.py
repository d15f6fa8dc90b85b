"""Errors of the test cluster. Each carries one line: what is wrong and what to do."""


class ClusterError(Exception):
    """Anything that keeps the test cluster from doing what it was asked."""


class BinariesUnavailable(ClusterError):
    """A control plane program is neither there nor can it be built."""


class FaultUnavailable(ClusterError):
    """This fault needs something (a network namespace, an injector) that this cluster does not have."""


class NetworkUnavailable(FaultUnavailable):
    """This fault needs a network namespace, and this machine allows none."""


class ProcessDied(ClusterError):
    """A process of the cluster ended although nobody asked it to."""


class NotInTime(ClusterError):
    """A state that was waited for did not come about within its time."""


class ApiError(ClusterError):
    """The API server answered with an error. `status` is the HTTP status, 0 where no answer came."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
