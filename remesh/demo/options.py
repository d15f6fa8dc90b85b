"""The demo's choices, apart from the rest so that `remesh demo --help` imports nothing heavy."""

from enum import StrEnum


class On(StrEnum):
    """Where to play."""

    AUTO = "auto"
    SIM = "sim"
    REAL = "real"


class Cause(StrEnum):
    """Faults that leave ReplicaSets stuck, by the names of `remesh.testbed.Fault`."""

    KILLED = "killed"
    FROZEN = "frozen"
    ERROR_500 = "error-500"
    WRONG_CA = "wrong-ca"
    NO_ENDPOINTS = "no-endpoints"
