"""remesh's own processes inside the machine: the watcher and two workers, on doubles, one at a time.

A repair runs in a thread of its own, but only while the machine lets it: it stops at every `Step` and wherever it
sleeps, so that others come in between, and there it may die. A dead process does nothing any more: its next call of
Redis or the API server raises `Dead`, also in a `finally`, as after SIGKILL.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import fakeredis
import redis
from celery.exceptions import Ignore, Retry

from remesh.audit import Trail
from remesh.errors import BrokerError, BrokerUnreachable
from remesh.kube.api import Cluster
from remesh.kube.decode import decode_object
from remesh.kube.live import LiveView
from remesh.kube.probe import AnyPod, ProbeResult, probe
from remesh.ledger import Ledger
from remesh.meshes import Profiles, load_profiles
from remesh.models import AuditRecord, Finding, RecordType, RepairRequest
from remesh.policy import Policy
from remesh.sim import resources as res
from remesh.sim.store import Change, full_body
from tests import fakes  # what fakeredis lacks
from tests.machine.clock import Time
from tests.machine.cluster import WEARS, Door, Faults, MachineCluster
from watcher.desk import Desk
from watcher.runtime import Watcher
from watcher.store import Store
from workers.context import VIEW_SECONDS, Clock, RepairContext
from workers.owed import SWEEP_SECONDS as OWED_SECONDS
from workers.owed import sweep
from workers.tasks import serve

NAME: Final = "machine"
LACKED: Final = fakes
PROFILES: Final[Profiles] = load_profiles()
THREADS: Final = 4  # of one worker
VISIBILITY_SECONDS: Final = 300.0
KEY: Final = b"a key of all workers"


class Dead(BaseException):
    """Raised in a process that was killed."""


class Coroutine:
    """A function that runs only between `resume` and its next `pause`."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self.done = False
        self.error: BaseException | None = None
        self.due = 0.0  # monotonic time at which it goes on
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._run()
        except Dead:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()

    def resume(self) -> None:
        self._go.release()
        self._back.acquire()
        if self.done:
            self._thread.join()
            if self.error is not None:
                raise self.error

    def pause(self) -> None:
        self._back.release()
        self._go.acquire()


@dataclass
class Message:
    """A task on its way."""

    payload: dict[str, Any]
    task_id: str
    due: float
    retries: int = 0


class Broker:
    """The queue. What happens to the next messages is the machine's choice."""

    def __init__(self, clock: Time) -> None:
        self._clock = clock
        self.messages: list[Message] = []
        self.down = False
        self.next: list[str] = []  # "lost", "twice", "late"

    def send(self, payload: dict[str, Any], task_id: str, *, seconds: float = 0.0, retries: int = 0) -> None:
        if self.down:
            raise BrokerUnreachable("cannot reach the broker")
        fate = self.next.pop(0) if self.next else ""
        due = self._clock.monotonic() + seconds + (200.0 if fate == "late" else 0.0)
        copies = {"lost": 0, "twice": 2}.get(fate, 1)
        self.messages += [Message(payload, task_id, due, retries) for _ in range(copies)]

    def take(self) -> Message | None:
        now = self._clock.monotonic()
        due = next((each for each in self.messages if each.due <= now), None)
        if due is not None:
            self.messages.remove(due)
        return due


class _Request:
    def __init__(self, message: Message) -> None:
        self.id, self.retries = message.task_id, message.retries


class _Task:
    """What `serve` asks of a Celery task."""

    def __init__(self, message: Message, broker: Broker) -> None:
        self.request = _Request(message)
        self._message, self._broker = message, broker

    def retry(self, countdown: float, **_: object) -> Retry:
        message = self._message
        self._broker.send(message.payload, message.task_id, seconds=countdown, retries=message.retries + 1)
        return Retry("again", None, countdown)

    def send_event(self, *_: object, **__: object) -> None:
        """For the eye only."""


class GatedRedis(fakeredis.FakeRedis):
    """One process's connection: nothing of a dead one's, and what the machine lets fail fails."""

    gate: Callable[[], bool]  # raises, or says whether the answer gets lost

    def execute_command(self, *args: Any, **options: Any) -> Any:
        lost = self.gate()
        answer = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        if lost:
            raise redis.ConnectionError("the connection broke before the answer came")
        return answer

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Any:
        made = super().pipeline(transaction, shard_hint)
        send = made.execute

        def execute(raise_on_error: bool = True) -> Any:
            lost = self.gate()
            answer = send(raise_on_error)
            if lost:
                raise redis.ConnectionError("the connection broke before the answer came")
            return answer

        setattr(made, "execute", execute)  # noqa: B010
        return made


class NotedTrail(Trail):
    """Tells the machine of each new record."""

    noted: Callable[[AuditRecord], None]

    def append(self, record: AuditRecord) -> str:
        position = ""
        try:
            position = super().append(record)
        finally:
            if position or self.was_written(record):
                self.noted(record)
        return position

    def append_many(self, records: Iterable[AuditRecord]) -> list[str]:
        given, positions = list(records), []
        try:
            positions = super().append_many(given)
        finally:
            for record in given:
                if positions or self.was_written(record):
                    self.noted(record)
        return positions

    was_written: Callable[[AuditRecord], bool]


@dataclass
class Surroundings:
    """What all processes share."""

    clock: Time
    cluster: MachineCluster
    broker: Broker
    policy: Policy
    noted: Callable[[AuditRecord], None]
    wrote: Callable[..., None]
    sent: Callable[[RepairRequest], None]
    server: fakeredis.FakeServer = field(default_factory=fakeredis.FakeServer)
    redis_down: bool = False
    bypass: fakeredis.FakeRedis = field(init=False)  # the machine's own eyes

    def __post_init__(self) -> None:
        self.bypass = fakeredis.FakeRedis(server=self.server, decode_responses=True)


class Process:
    """A life of one process: its connections, and whether it is dead."""

    def __init__(self, around: Surroundings, who: str) -> None:
        self.around, self.who = around, who
        self.faults = Faults()
        self.dead = False
        client = GatedRedis(server=around.server, decode_responses=True)
        client.gate = self._gate
        self.redis = client
        self.trail = NotedTrail(client, NAME)
        self.trail.noted = around.noted
        self.trail.was_written = self._was_written
        self.ledger = Ledger(client, NAME)
        self.door = Door(around.cluster, who, self.faults, around.wrote)
        self.door.alive = self._alive
        self.cluster = Cluster(self.door)

    def _alive(self) -> None:
        if self.dead:
            raise Dead

    def _gate(self) -> bool:
        self._alive()
        if self.around.redis_down:
            raise redis.ConnectionError("connection refused")
        faults = self.faults
        if faults.dies_in >= 0:
            faults.dies_in -= 1
            if faults.dies_in < 0:
                self.dead = True
                raise Dead
        if faults.redis_in < 0:
            return False
        faults.redis_in -= 1
        if faults.redis_in >= 0:
            return False
        if not faults.redis_lost:
            raise redis.ConnectionError("connection reset by peer")
        return True

    def _was_written(self, record: AuditRecord) -> bool:
        return bool(self.around.bypass.exists(f"{self.trail._key}:id:{record.record_id}"))


class WatcherProcess(Process):
    """The watcher's own loop on a store that follows the cluster."""

    def __init__(self, around: Surroundings, records: list[AuditRecord]) -> None:
        super().__init__(around, "watcher")
        self._changes: list[Change] = []
        self.lagging = False
        self._records, self._taken = records, len(records)
        self.store = Store()
        for resource in _WATCHED:
            around.cluster.store.listen(resource, self._changed)
        for resource in _WATCHED:
            items = [
                decode_object(resource.kind, full_body(resource, each))
                for each in around.cluster.store.objects(resource)
            ]
            self.store.replace(resource.kind, items)
        self._ticked = 0.0
        self.desk = Desk(
            cluster=NAME,
            policy=around.policy,
            profiles=PROFILES,
            store=self.store,
            trail=self.trail,
            ledger=self.ledger,
            now=around.clock.now,
            steady=around.clock.now,
        )
        self.watcher = Watcher(self.desk, self._send, self._probe)
        self.watcher.gatekeeper._pool.shutdown(wait=False)
        setattr(self.watcher.gatekeeper, "_pool", _InLine())  # noqa: B010
        self.failing_until = 0.0

    def _changed(self, change: Change) -> None:
        if not self.dead:
            self._changes.append(change)

    def _send(self, request: RepairRequest) -> str:
        self._alive()
        self.around.sent(request)
        self.around.broker.send(request.model_dump(mode="json"), request.task_id)
        return request.task_id

    def _probe(self, finding: Finding) -> ProbeResult:
        """As the watcher's own prober."""
        expected = finding.sidecar_expected and finding.mesh
        proof = PROFILES.by_name(finding.mesh) if expected else AnyPod()
        owned = finding.ref.kind == "Pod" and finding.owner is not None
        ref = finding.owner if owned and finding.owner else finding.ref
        return probe(self.cluster, ref, proof, self.around.policy.gate)

    def tick(self) -> None:
        """One round; what Redis refuses is tried again two seconds later."""
        self._ticked = self.around.clock.monotonic()
        self._deliver()
        for record in self._records[self._taken :]:
            if record.type is RecordType.OUTCOME:
                self.watcher._outcomes.put(record)
        self._taken = len(self._records)
        try:
            self.watcher.tick()
        except BrokerError:
            self.failing_until = self.around.clock.monotonic() + 2.0

    def _deliver(self) -> None:
        if self.lagging:
            return
        changes, self._changes = self._changes, []
        for change in changes:
            item = decode_object(change.resource.kind, full_body(change.resource, change.new))
            self.store.apply(change.resource.kind, change.type, item)
        for wear in (WEARS[mesh] for mesh in self.around.cluster.injectors):
            slices = self.around.cluster.store.get(res.ENDPOINT_SLICES, wear.namespace, f"{wear.service}-own")
            if slices is not None:
                item = decode_object("EndpointSlice", full_body(res.ENDPOINT_SLICES, slices))
                self.store.replace_slices(wear.namespace, wear.service, [item])

    def next_due(self) -> float:
        """Monotonic time of the next round that does something."""
        now = self.around.clock.monotonic()
        if self._changes and not self.lagging:
            return now
        if self._taken < len(self._records) or self.store._dirty or not self.watcher.gatekeeper._results.empty():
            return max(now, self.failing_until)
        times = list(self.desk.due.values())
        keepers = self.watcher.gatekeeper
        probe = keepers.next_probe()
        times += [probe] if probe is not None else []
        expiry = self.desk.book.next_expiry()
        times += [now + (expiry - self.desk.steady()).total_seconds()] if expiry is not None else []
        waiting = any(each.state.value == "waiting" for each in self.desk.book)
        times += [self._ticked + 1.0] if waiting else []
        times.append(self.watcher._next_sweep)  # 0: its first round has yet to succeed
        return max(min(times), self.failing_until)


_WATCHED: Final = (
    res.NAMESPACES,
    res.NODES,
    res.MUTATING_WEBHOOKS,
    res.DEPLOYMENTS,
    res.REPLICA_SETS,
    res.REPLICATION_CONTROLLERS,
    res.STATEFUL_SETS,
    res.DAEMON_SETS,
    res.JOBS,
    res.PODS,
)


class _InLine:
    """Stands for the pool of dry runs."""

    def submit(self, act: Callable[..., ProbeResult], *args: Any) -> "Future[ProbeResult]":
        future: Future[ProbeResult] = Future()
        try:
            future.set_result(act(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        """Nothing to end."""


class WorkerClock(Clock):
    """Sleeping lets others run."""

    def __init__(self, worker: "WorkerProcess") -> None:
        self._worker = worker

    def now(self) -> datetime:
        return self._worker.around.clock.now()

    def monotonic(self) -> float:
        return self._worker.around.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._worker.pause(seconds)


class WorkerProcess(Process):
    """A worker with a few threads."""

    def __init__(self, around: Surroundings, who: str) -> None:
        super().__init__(around, who)
        self.running: dict[Coroutine, Message | None] = {}
        self.current: Coroutine | None = None
        self.die_at = ""  # the step at which it dies
        self.next_sweep = 0.0
        self.ctx = RepairContext(
            cluster_name=NAME,
            cluster=self.cluster,
            view=LiveView(self.cluster, ttl=VIEW_SECONDS),
            probe=lambda of, profile: probe(self.cluster, of, profile, around.policy.gate),
            trail=self.trail,
            ledger=self.ledger,
            policy=around.policy,
            profiles=PROFILES,
            pods=self.cluster,
            clock=WorkerClock(self),
            signing_key=KEY,
        )

    def pause(self, seconds: float) -> None:
        coroutine = self.current
        assert coroutine is not None
        coroutine.due = self.around.clock.monotonic() + seconds
        coroutine.pause()
        self._alive()

    def at(self, step: str) -> None:
        """A repair has come to this step."""
        self._alive()
        if self.die_at == step:
            self.dead = True
            raise Dead
        self.pause(0.0)

    def start(self, message: Message) -> None:
        self._run(lambda: self._serve(message), message)

    def _serve(self, message: Message) -> None:
        task: Any = _Task(message, self.around.broker)
        try:
            serve(task, message.payload, self.ctx)
        except (Retry, Ignore):
            pass
        except BrokerError:  # the message of the next try could not be sent: it was never acknowledged
            self.around.broker.messages.append(_later(message, self.around.clock))

    def sweep(self) -> None:
        self.next_sweep = self.around.clock.monotonic() + OWED_SECONDS
        self._run(self._sweep, None)

    def _sweep(self) -> None:
        try:
            sweep(self.ctx)
        except BrokerError:
            return

    def _run(self, act: Callable[[], Any], message: Message | None) -> None:
        coroutine = Coroutine(act)
        coroutine.due = self.around.clock.monotonic()
        self.running[coroutine] = message

    def resume(self, coroutine: Coroutine) -> None:
        self.current = coroutine
        coroutine.resume()
        if coroutine.done:
            self.running.pop(coroutine, None)

    def kill(self) -> list[Message]:
        """End all that runs; returns what the broker will deliver again."""
        self.dead = True
        messages = [message for message in self.running.values() if message is not None]
        for coroutine in list(self.running):
            self.resume(coroutine)
        self.running.clear()
        return messages


def _later(message: Message, clock: Time) -> Message:
    return Message(message.payload, message.task_id, clock.monotonic() + VISIBILITY_SECONDS, message.retries)
