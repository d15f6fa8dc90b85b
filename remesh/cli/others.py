"""What other workers are doing and have seen, as far as the ledger can be asked: `plan` says what `repair` would meet.

Reads only. `plan` needs no Redis: without one, or with one that does not answer, nothing is known of the others, which
`remesh.cli.held` says in one line.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from remesh.cli.session import Session
from remesh.errors import BrokerError
from remesh.kube.api import Cluster
from remesh.ledger import Ledger
from remesh.ledger_brake import Braked
from workers.recreate_brake import from_brake
from workers.recreate_lost import still_missing
from workers.verdicts import Verdict

T = TypeVar("T")

_FREE = Braked("free", 0.0)


class Others:
    """Asks for one command. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lost = False  # True once Redis did not answer

    def slots(self, owner_uid: str, pod_uid: str) -> list[str]:
        """UIDs of the owner's other pods that are being replaced, or were a moment ago."""
        none: list[str] = []
        taken = self._ask(lambda ledger: ledger.slots_taken(owner_uid), none)
        return [each for each in taken if each != pod_uid]

    def seen(self, owner_uid: str, pod_uids: Sequence[str]) -> int:
        """How many pods of an owner were ever seen, with these."""
        return self._ask(lambda ledger: ledger.pods_seen(owner_uid, pod_uids), len(pod_uids))

    def brake(self, injector_key: str, pod_uid: str, cluster: Cluster) -> Verdict | None:
        """What the brake of the injector says to an eviction now. Raises ClusterError."""
        found = self._ask(lambda ledger: ledger.brakes.ask(injector_key, pod_uid), _FREE)
        if found.code != "lost":
            return from_brake(found)
        nothing: dict[str, str] = {}
        for about in self._ask(lambda ledger: ledger.brakes.lost(injector_key), nothing).values():
            missing = still_missing(about, cluster, cluster)
            if missing:
                return from_brake(found, missing)
        return from_brake(self._ask(lambda ledger: ledger.brakes.ask(injector_key, pod_uid, all_back=True), _FREE))

    def _ask(self, question: Callable[[Ledger], T], unknown: T) -> T:
        if self._lost:
            return unknown
        try:
            ledger = self._session.known_ledger
            return unknown if ledger is None else question(ledger)
        except BrokerError:
            self._lost = True
            return unknown
