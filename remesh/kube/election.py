"""Leader election over a Lease: the official client's `LeaderElection`, with a lock of our own under it.

Imported only where an election is held: the official client costs 40 MB. `watcher.leader` uses it. Why the lock is not
the official one: docs/decisions/0010. It guarantees, beyond that one:

- time is monotonic: a clock that jumps neither ends a leader's term early nor lets a second one begin early;
- every request has a time-out, and a failure of whatever kind is "not renewed", never the end of the election's thread;
- the Lease is given back at the end, so that the next one need not wait for it to expire.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes.leaderelection import electionconfig, leaderelection, leaderelectionrecord

from remesh import logs
from remesh.errors import ClusterError, Conflict, Forbidden, NotFound, Unauthorized
from remesh.kube.resources import Resource
from remesh.kube.transport import KubeClient

log = logs.get("election")

# The official client carries no types.
_Config: Any = electionconfig.Config
_LeaderElection: Any = leaderelection.LeaderElection
_Record: Any = leaderelectionrecord.LeaderElectionRecord

LEASE = Resource("Lease", "coordination.k8s.io/v1", "leases")


@dataclass(frozen=True, slots=True)
class Terms:
    """The Lease's place, who asks for it, and the times in seconds, named as client-go names them."""

    namespace: str
    name: str
    identity: str
    lease_duration: int = 15  # others wait so long after the last renewal that they saw
    renew_deadline: int = 10  # a leader that could not renew for so long stops
    retry_period: int = 2  # between two tries, of leader and standby alike

    @property
    def request_seconds(self) -> float:
        """Time-out of one request: two of them, and a pause, fit into the deadline."""
        return max(1.0, (self.renew_deadline - self.retry_period) / 2)


class Ended(Exception):
    """Raised inside the official client's endless loop, which knows no other way out."""


@dataclass(frozen=True, slots=True)
class _NotGot:
    """What the official client looks at when the Lease could not be read."""

    body: str
    reason: str


_ABSENT = '{"code": 404}'


class LeaseLock:
    """The lock of the official client's `LeaderElection`, for one candidate."""

    def __init__(self, client: KubeClient, terms: Terms, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name, self.namespace, self.identity = terms.name, terms.namespace, terms.identity
        self._client = client
        self._terms = terms
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._lease: dict[str, Any] = {}  # as last read or written
        self._unchanged_since = (("", ""), 0.0)  # holder and renewTime, and when they were first seen so
        self._renewed: float | None = None  # just before the last request that renewed it; None: not ours
        self._closed = False
        self.holder = ""  # as last seen, "" for nobody
        self.trouble = ""  # why the last try failed, "" if it did not

    def leads(self) -> bool:
        """True while the Lease is certainly ours: nobody else takes it before `lease_duration` is over."""
        renewed = self._renewed
        return renewed is not None and self._monotonic() < renewed + self._terms.renew_deadline

    # What LeaderElection calls. Its own time strings are of the local wall clock, and not used.

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """The Lease as an election record, or the reason why there is none."""
        if self._closed:
            raise Ended
        try:
            lease = self._client.get(LEASE.path(namespace, name), timeout=self._terms.request_seconds)
        except NotFound as error:
            return False, _NotGot(_ABSENT, str(error))
        except ClusterError as error:
            self._failed("the Lease cannot be read", error)
            return False, _NotGot("", str(error))
        self._lease = lease
        return True, self._record(lease)

    def create(self, name: str, namespace: str, election_record: Any) -> bool:  # noqa: ARG002
        """Create the Lease as ours."""
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": {"name": name, "namespace": namespace}}
        return self._write("POST", LEASE.path(namespace), body)

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:  # noqa: ARG002
        """Renew or take the Lease as it was last read; another one's write in between refuses this one."""
        if self.holder not in ("", self.identity) and not self._expired():
            return False  # the official client's wall clock was ahead
        return self._write("PUT", LEASE.path(namespace, name), self._lease)

    # Ours

    def close(self) -> None:
        """End the election, and give the Lease back if it is ours. Nothing may be released any more by now."""
        with self._mutex:
            self._closed = True
            ours, self._renewed = self._renewed is not None, None
            if not ours:
                return
            spec = {**self._lease.get("spec", {}), "renewTime": _now(), "leaseDurationSeconds": 1}
            spec.pop("holderIdentity", None)
            try:
                self._send("PUT", LEASE.path(self.namespace, self.name), {**self._lease, "spec": spec})
            except ClusterError as error:
                log.warning("the lease was not given back and has to expire", lease=self.name, error=str(error))

    def _record(self, lease: dict[str, Any]) -> Any:
        spec = lease.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        if self.holder != self.identity:
            self._renewed = None
        known, _ = self._unchanged_since
        if known != (seen := (self.holder, str(spec.get("renewTime")))):
            self._unchanged_since = (seen, self._monotonic())
        if not self.holder or (self.holder != self.identity and self._expired()):
            return None  # free: may be taken at once
        duration = str(self._terms.lease_duration)
        return _Record(self.holder, duration, str(spec.get("acquireTime")), str(spec.get("renewTime")))

    def _expired(self) -> bool:
        spec = self._lease.get("spec") or {}
        _, since = self._unchanged_since
        seconds = int(spec.get("leaseDurationSeconds") or self._terms.lease_duration)
        return self._monotonic() >= since + seconds

    def _write(self, method: str, path: str, lease: dict[str, Any]) -> bool:
        with self._mutex:
            if self._closed:
                raise Ended
            began = self._monotonic()
            try:
                self._lease = self._send(method, path, {**lease, "spec": self._spec(lease.get("spec") or {})})
            except Conflict as error:
                log.debug("another candidate was faster", lease=self.name, error=str(error))
                return False
            except ClusterError as error:
                self._failed("the Lease cannot be written", error)
                return False
            self._renewed, self.holder, self.trouble = began, self.identity, ""
            return True

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        now, ours = _now(), before.get("holderIdentity") == self.identity
        return {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._terms.lease_duration,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if ours or not before else 1),
        }

    def _send(self, method: str, path: str, lease: dict[str, Any]) -> dict[str, Any]:
        from remesh.kube.decode import decode_json

        answer = self._client.request(method, path, body=lease, timeout=self._terms.request_seconds)
        return decode_json(answer)

    def _failed(self, what: str, error: ClusterError) -> None:
        if str(error) != self.trouble:
            log.warning(what, lease=self.name, error=str(error))
        self.trouble = str(error)


def _now() -> str:
    """As Kubernetes' MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    """One candidate's election, in a thread of its own from `start` to `stop`."""

    def __init__(self, client: KubeClient, terms: Terms) -> None:
        self._client = client
        self._terms = terms
        self._lock = LeaseLock(client, terms)
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def holder(self) -> str:
        """Identity of who leads as far as is known; "" for nobody."""
        return self._lock.holder

    def leads(self) -> bool:
        """True while this candidate certainly leads."""
        return self._lock.leads()

    def check(self) -> None:
        """Raise Forbidden or Unauthorized if the Lease may not even be read."""
        try:
            self._client.get(LEASE.path(self._terms.namespace, self._terms.name), timeout=self._terms.request_seconds)
        except (Forbidden, Unauthorized):
            raise
        except ClusterError as error:  # not there yet, or the API server is away: the election waits for it
            log.debug("no Lease yet", error=str(error))

    def start(self) -> None:
        """Ask for the Lease from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Give the Lease back."""
        self._lock.close()

    def _run(self) -> None:
        """One term after the other. The official client ends with each loss; whatever it raises is no end of ours."""
        terms = self._terms
        while True:
            config = _Config(
                self._lock,
                terms.lease_duration,
                terms.renew_deadline,
                terms.retry_period,
                onstarted_leading=lambda: None,
                onstopped_leading=lambda: None,
            )
            try:
                _LeaderElection(config).run()
            except Ended:
                return
            except Exception:
                log.exception("the election failed and goes on")
                time.sleep(terms.retry_period)
