"""Targets as kubectl has them: `KIND/NAME` with plural, singular and short names, an API group allowed."""

from dataclasses import dataclass

from remesh.errors import UsageError

# kubectl's names of the kinds whose pods remesh can judge: kind, singular, plural, short.
_NAMES = {
    "Pod": ("pod", "pods", "po"),
    "ReplicaSet": ("replicaset", "replicasets", "rs"),
    "ReplicationController": ("replicationcontroller", "replicationcontrollers", "rc"),
    "StatefulSet": ("statefulset", "statefulsets", "sts"),
    "DaemonSet": ("daemonset", "daemonsets", "ds"),
    "Deployment": ("deployment", "deployments", "deploy"),
    "Job": ("job", "jobs"),
    "CronJob": ("cronjob", "cronjobs", "cj"),
}
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names}
# Kinds above those that create pods themselves: their targets are what they own.
OWNED_KIND = {"Deployment": "ReplicaSet", "CronJob": "Job"}


@dataclass(frozen=True, slots=True)
class Target:
    """One object that was asked for."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def parse_target(text: str) -> Target:
    """`rs/app-59ff54b4c6`, `deployments.apps/app`, `StatefulSet/db`. Raises UsageError that lists the kinds."""
    kind_text, slash, name = text.partition("/")
    if not slash or not kind_text or not name or "/" in name:
        raise UsageError(f"target {text!r} is not KIND/NAME, such as rs/app-59ff54b4c6 or deploy/app")
    kind = _KIND_OF.get(kind_text.partition(".")[0].lower())
    if kind is None:
        raise UsageError(f"kind {kind_text!r} is not known; known are {known_kinds()}")
    return Target(kind, name)


def parse_targets(texts: list[str]) -> list[Target]:
    """Several targets, each once."""
    return list(dict.fromkeys(parse_target(text) for text in texts))


def short_name(kind: str, name: str) -> str:
    """`rs/web-59ff54b4c6`: short for a screen, and a target again when copied."""
    names = _NAMES.get(kind, (kind.lower(),))
    return f"{names[2] if len(names) > 2 else names[0]}/{name}"


def kind_names() -> list[tuple[str, ...]]:
    """Every kind's names: singular, plural and, where it has one, short."""
    return list(_NAMES.values())


def known_kinds() -> str:
    """Every kind with its short name, for messages."""
    return ", ".join(f"{names[0]} ({names[2]})" if len(names) > 2 else names[0] for names in _NAMES.values())
