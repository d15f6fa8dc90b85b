"""One incident, whole, with something going wrong in it: what there is, and what must hold in the end.

The story: a namespace with a Deployment of which some pods came up bare, a StatefulSet and a lonely pod that did, one
that opted out, a ReplicaSet and a Job that are refused, and a disruption budget. The injector comes back with remesh's
processes at work; whatever a run does to them, they recover by themselves, and the invariants hold.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from remesh.errors import ClusterError
from remesh.kube.config import load_access
from remesh.kube.transport import KubeClient, Stream
from remesh.models import AuditRecord, RecordType
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.cluster.errors import ApiError
from tests.stack import Stack, wait_until
from tests.wears import IN_BACK_OFF_SECONDS
from watcher.trailkeeper import CLOCK_JUMPED

WEB, WEB_BARE, MIN_WEB = 4, 2, 3
BUDGET = "web-stays"
OPTED_OUT = {"linkerd.io/inject": "disabled"}  # the test beds wear Linkerd's clothes unless told otherwise

# What a run waits for when a process died, shortened: a release without outcome is released again after this long.
POLICY = """
[scope]
namespaces = ["{namespace}"]
[detection]
silent_seconds = 3.0
no_condition_seconds = 3.0
[repair]
bare_pods = true
verify_seconds = 8.0
release_deadline_seconds = 10.0
cooldown_seconds = 2.0
"""


@dataclass
class Story:
    """The cluster's side of it."""

    bed: TestBed
    client: Client
    stack: Stack
    namespace: str
    sound: dict[str, str] = field(default_factory=dict)  # UID → name of the pods that nobody may touch
    bare: dict[str, str] = field(default_factory=dict)
    fewest: int = WEB  # Ready pods of the Deployment at any look
    slack: timedelta = timedelta()  # by which two writers may differ about what time it is
    refused_at: float = 0.0  # monotonic time at which the refused ones were created

    def begin(self) -> None:
        """Everything is broken as the story says; no process of remesh runs yet."""
        wear, client, ns = self.bed.wear, self.client, self.namespace
        client.change_webhooks(wear.configuration, failurePolicy="Ignore")
        self.bed.heal()
        client.create(ns, w.deployment("web", WEB - WEB_BARE))
        client.create(ns, w.deployment("out", 1, annotations=OPTED_OUT))
        wait_until(lambda: len(client.ready(ns)) == WEB - WEB_BARE + 1, "the sound pods are Ready")
        self.sound = self._uids()
        self.bed.inject_fault(Fault.NOT_INJECTING)
        client.scale("Deployment", ns, "web", WEB)
        client.create(ns, w.stateful_set("db", 2, parallel=True))
        client.create(ns, w.pod("lonely"))
        wait_until(lambda: len(client.ready(ns)) == WEB + 1 + 2 + 1, "the bare pods are Ready")
        self.bare = {uid: name for uid, name in self._uids().items() if uid not in self.sound}
        client.create(ns, w.disruption_budget(BUDGET, "web", MIN_WEB))
        client.change_webhooks(wear.configuration, failurePolicy="Fail")
        self.bed.heal()
        self.bed.inject_fault(Fault.KILLED)
        self.refused_at = time.monotonic()
        client.create(ns, w.replica_set("stuck", 2))
        client.create(ns, w.job("report", 1))
        client.wait_failing("ReplicaSet", ns, ["stuck"])
        self.stack.policy(POLICY.format(namespace=ns))

    def heal(self) -> None:
        """The injector is back, while the refused ones' controllers are in a pause of twenty seconds."""
        wait_until(lambda: time.monotonic() > self.refused_at + IN_BACK_OFF_SECONDS, "a long pause of the controllers")
        self.bed.heal()

    def _uids(self) -> dict[str, str]:
        return {p["metadata"]["uid"]: p["metadata"]["name"] for p in self.client.pods(self.namespace)}

    # The end

    def healed(self) -> bool:
        """All that should have the sidecar has it and is Ready, and every finding has its end in the trail."""
        pods = [p for p in self.client.pods(self.namespace) if "deletionTimestamp" not in p["metadata"]]
        lacking = [p for p in pods if not p["metadata"]["name"].startswith("out-") and not self._fine(p)]
        return len(pods) == WEB + 1 + 2 + 1 + 2 + 1 and not lacking and not self.open_findings()

    def _fine(self, pod: dict[str, Any]) -> bool:
        return w.is_injected(pod, self.bed.wear) and w.is_ready(pod)

    def chains(self) -> dict[str, list[AuditRecord]]:
        """The trail of this namespace's objects, by finding."""
        found: dict[str, list[AuditRecord]] = {}
        for record in self.stack.trail.read():
            if record.finding_id and record.ref is not None and record.ref.namespace == self.namespace:
                found.setdefault(record.finding_id, []).append(record)
        return found

    def open_findings(self) -> list[str]:
        """Findings whose last word is not yet an outcome."""
        return [key for key, chain in self.chains().items() if not _ended(chain)]

    def budget_in_the_way(self) -> bool:
        """True if a finding's last try was put off by a disruption budget."""
        tries = ([r for r in chain if r.type is RecordType.OUTCOME][-1:] for chain in self.chains().values())
        return any(record.code == "blocked_by_pdb" for last in tries for record in last)

    def violations(self) -> list[str]:
        """What does not hold, in words; empty if all is well."""
        return [*self._pods_hurt(), *self._chains_broken(), *self._left_behind()]

    def _pods_hurt(self) -> Iterator[str]:
        now = self._uids()
        for uid, name in self.sound.items():
            if uid not in now:
                yield f"a sound or opted-out pod is gone: {name}"
        if self.fewest < MIN_WEB:
            yield f"the budget was broken: {self.fewest} of the Deployment's pods were Ready, {MIN_WEB} must be"
        evicted = self._evictions()
        for uid, times in evicted.items():
            if times > 1:
                yield f"evicted {times} times: {uid}"
            if uid not in self.bare:
                yield f"evicted, and was not bare: {uid}"

    def _evictions(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for chain in self.chains().values():
            for record in chain:
                if record.type is RecordType.ACTION and record.code == "evicted" and record.ref is not None:
                    found[record.ref.uid] = found.get(record.ref.uid, 0) + 1
        return found

    def _chains_broken(self) -> Iterator[str]:
        proven: set[str] = set()
        for key, chain in self.chains().items():
            kinds = [record.type for record in chain]
            if kinds[0] is not RecordType.FINDING:
                yield f"{key}: begins with {kinds[0].value}"
            for index, record in enumerate(chain):
                if record.type is RecordType.ACTION and RecordType.INTENT not in kinds[:index]:
                    yield f"{key}: an action without an intent before it"
                if record.type is RecordType.INTENT and RecordType.DECISION not in kinds[:index]:
                    yield f"{key}: an intent without a decision before it"
                if record.type is RecordType.INTENT and record.code == "evict" and record.ref is not None:
                    proven.add(record.ref.uid)
                    if not str(record.details.get("dry_run")).startswith("sidecar"):
                        yield f"{key}: an eviction whose dry run said {record.details.get('dry_run')!r}"
            for writer in {_writer(record) for record in chain}:  # several write at once; each one's are in order
                times = [record.at for record in chain if _writer(record) == writer]
                back = sum(later < earlier - self.slack for earlier, later in pairwise(times))
                if back > self._times_set_back():
                    yield f"{key}: the records of {writer} are not in the order of their times"
        gone = set(self.bare) - set(self._uids())
        for uid in gone - proven:
            if self.bare[uid] != "lonely":
                yield f"gone without a proven intent: {self.bare[uid]}"

    def _times_set_back(self) -> int:
        """How often the trail says that the clock by which records are written went back."""
        notes = (record.details for record in self.stack.trail.read() if record.code == CLOCK_JUMPED)
        return sum(note["clock"] == "the API server's" and note["seconds"] < 0 for note in notes)

    def _left_behind(self) -> Iterator[str]:
        for owner in self.client.nudge_annotations(self.namespace):
            yield f"an annotation was left on {owner}"


def _writer(record: AuditRecord) -> str:
    """Whose record it is: a task's, whoever asked for it, or the one's who asked."""
    return record.task_id if record.task_id and record.type is not RecordType.RELEASE else record.actor


def _ended(chain: list[AuditRecord]) -> bool:
    last = max((i for i, r in enumerate(chain) if r.type in (RecordType.FINDING, RecordType.INTENT)), default=-1)
    return any(record.type is RecordType.OUTCOME for record in chain[last + 1 :])


@contextmanager
def told(bed: TestBed, folder: Path) -> Iterator[Story]:
    """A story in a namespace of its own, with a Redis of its own."""
    client = Client(bed.kubeconfig)
    namespace = f"story-{secrets.token_hex(4)}"
    client.create_meshed_namespace(namespace, bed.wear)
    stack = Stack(bed, folder)
    try:
        yield Story(bed, client, stack, namespace)
    finally:
        stack.stop()
        bed.heal()
        client.change_webhooks(bed.wear.configuration, failurePolicy=bed.wear.failure_policy)
        client.delete_workloads(namespace)
        with suppress(ApiError):
            client.api.delete(w.path("PodDisruptionBudget", namespace, BUDGET))
        client.close()


class BudgetWatch:
    """Follows the Deployment's pods by a watch of its own, for the fewest Ready ones that there ever were."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._client = KubeClient(load_access(story.bed.kubeconfig, ""))
        self._stream: Stream | None = None

    def __enter__(self) -> "BudgetWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._stream is not None:
            self._stream.abort()
        self._thread.join(10)
        self._client.close()

    def _look(self) -> None:
        while not self._stop.is_set():
            with suppress(ClusterError, ValueError, KeyError):
                self._follow()
            self._stop.wait(0.05)

    def _follow(self) -> None:
        place = w.collection("Pod", self._story.namespace)
        listed = self._client.get(place)
        ready = {pod["metadata"]["uid"] for pod in listed["items"] if _is_ready_web(pod)}
        self._count(ready)
        version = listed["metadata"]["resourceVersion"]
        params: dict[str, str | int] = {"watch": 1, "resourceVersion": version, "timeoutSeconds": 300}
        with self._client.stream(place, params=params, silence=310) as self._stream:
            for line in self._stream.lines():
                event = json.loads(line)
                pod, there = event["object"], event["type"] != "DELETED"
                (ready.add if there and _is_ready_web(pod) else ready.discard)(pod["metadata"]["uid"])
                self._count(ready)

    def _count(self, ready: set[str]) -> None:
        self._story.fewest = min(self._story.fewest, len(ready))


def _is_ready_web(pod: dict[str, Any]) -> bool:
    return pod["metadata"]["name"].startswith("web-") and w.is_ready(pod)
