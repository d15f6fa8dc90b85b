"""From an object and its surroundings to `Observed`, the input of `decide()`.

Watcher, workers and the command line read the surroundings differently (a store kept by watches, live reads), but
build `Observed` here, so that plan and repair judge the same facts. Pure: the surroundings come in through `View`.
"""

from datetime import datetime
from typing import Protocol

from remesh.decide import failure_text
from remesh.models import InjectorHealth, Observed
from remesh.objects import Namespace, Pod, Webhook, Workload


class View(Protocol):
    """What is known of a cluster around one object."""

    def namespace(self, name: str) -> Namespace | None:
        """The namespace, or None if it is not there."""

    def webhooks(self) -> list[tuple[str, Webhook]]:
        """Every live mutating webhook with the name of its configuration."""

    def configured(self) -> dict[str, datetime]:
        """When what each live webhook configuration sees may have changed last, by name."""


def observe(
    obj: Workload | Pod,
    view: View,
    *,
    health: InjectorHealth,
    now: datetime,
    stuck_since: datetime | None = None,
    current: int | None = None,
    attempts: int = 0,
) -> Observed:
    """Gather what `decide()` may look at. `stuck_since`: since when the object lacks pods, if the caller knows."""
    message = failure_text(obj) if isinstance(obj, Workload) else ""
    return Observed(
        obj=obj,
        namespace=view.namespace(obj.metadata.namespace),
        webhooks=view.webhooks(),
        configured=view.configured() if isinstance(obj, Pod) else {},
        message=message,
        health=health,
        current=current,
        stuck_seconds=(now - stuck_since).total_seconds() if stuck_since else None,
        attempts=attempts,
    )
