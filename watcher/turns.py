"""Whose turn it is: the namespaces take turns, so that a flood in one of them holds up nobody else's repair.

Fair queueing by pods: a namespace's findings go in their own order, and the next release is that of the namespace which
has had the fewest pods so far. Whoever comes anew begins where the least served of the others stands: behind nobody who
waits, and with no credit for having been away. Pure bookkeeping, and no more than one number for each namespace.
"""

from collections.abc import Callable, Sequence

from watcher.findings import Tracked

Cost = Callable[[Tracked], int]


class Turns:
    """Pods that were released for each namespace, for one gate."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._served: dict[str, int] = {}

    def arrange(self, waiting: Sequence[Tracked]) -> list[Tracked]:
        """What waits, in the order of release. `waiting` comes with each namespace's own order."""
        present = {each.finding.ref.namespace for each in waiting}
        least = min((self._served[name] for name in present if name in self._served), default=0)
        ahead = {name: self._served.setdefault(name, least) for name in present}
        placed = []
        for place, each in enumerate(waiting):
            namespace = each.finding.ref.namespace
            placed.append((ahead[namespace], place, each))
            ahead[namespace] += self._cost(each)
        return [each for _, _, each in sorted(placed, key=lambda found: found[:2])]

    def served(self, tracked: Tracked) -> None:
        """It was released."""
        namespace = tracked.finding.ref.namespace
        self._served[namespace] = self._served.get(namespace, 0) + self._cost(tracked)


def in_turn(waiting: Sequence[Tracked], turn: int) -> Tracked | None:
    """One of those that wait, another at each turn: first another namespace, then another one in it."""
    groups: dict[str, list[Tracked]] = {}
    for each in waiting:
        groups.setdefault(each.finding.ref.namespace, []).append(each)
    if not groups:
        return None
    group = list(groups.values())[turn % len(groups)]
    return group[turn // len(groups) % len(group)]
