"""The story: an injector dies, a release rolls out behind it, the injector comes back, remesh repairs.

Everything of remesh's own is real: the watcher and the worker are the processes that a person would start.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from remesh.audit import Trail
from remesh.cli.policies import write_policy
from remesh.cli.processes import WATCHER, WORKER, Child, Processes
from remesh.cli.run import start_flower
from remesh.cli.session import environment_of
from remesh.cli.text import count
from remesh.demo import bed as beds
from remesh.demo.options import On
from remesh.demo.report import Ending, ended_well, rows
from remesh.demo.screen import Scene, Screen
from remesh.demo.stage import ALONE, Stage
from remesh.embedded import EmbeddedRedis
from remesh.errors import ClusterError, RemeshError, RepairIncomplete
from remesh.ledger import Ledger
from remesh.models import AuditRecord, RecordType
from remesh.policy import Policy, load_policy
from remesh.redisdb import connect
from remesh.settings import Settings
from remesh.testbed import Fault, TestBed

CLUSTER = "demo"
LOOK_SECONDS = 0.25
START_PATIENCE_SECONDS = 60.0  # importing Celery on a busy machine takes a while
STUCK_PATIENCE_SECONDS = 300.0  # a webhook that hangs blocks the controller's five workers in turn
HEAL_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Plot:
    """What to play."""

    on: On = On.AUTO
    count: int = 40
    replicas: int = 1
    outage: float = 40.0
    fault: Fault = Fault.KILLED
    flower: bool = False


class Play:
    """One performance. A context manager: leaving it ends everything that was started."""

    def __init__(self, plot: Plot, *, quiet: bool = False) -> None:
        self.plot = plot
        self.screen = Screen(quiet=quiet)
        self.folder = Path(tempfile.mkdtemp(prefix="remesh-demo-"))
        self._keep_logs = False
        self._exits = ExitStack()
        self._began = time.monotonic()
        self._most_stuck = 0

    def __enter__(self) -> "Play":
        return self

    def __exit__(self, *exception: object) -> None:
        self._exits.close()
        if self._keep_logs:
            self.screen.step(f"The logs of watcher and worker are in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self) -> None:
        """All acts. Raises RepairIncomplete if not everything is healed at the end."""
        try:
            self._set_up()
            stuck = self._outage()
            back_at = self._recovery()
            ending = self._ending(stuck, back_at)
        except RemeshError:
            self._keep_logs = True
            raise
        self.screen.blank()
        self.screen.summary(rows(ending))
        if not ending.healed:
            self._keep_logs = True
            raise RepairIncomplete(
                f"{ending.total - ending.whole} of {ending.total} ReplicaSets are not healed, "
                f"{ending.pods - ending.injected} of {ending.pods} pods are not Ready with the sidecar"
            )
        self._linger()

    # Act 0

    def _set_up(self) -> None:
        self._bed: TestBed = beds.start(self.plot.on, self.screen.step)
        self._exits.callback(self._bed.stop)
        self._stage = Stage(self._bed, self.plot.count, self.plot.replicas)
        server = EmbeddedRedis(self.folder / "valkey").start()
        self._exits.callback(server.stop)
        self._settings = self._make_settings(server.url)
        redis = connect(self._settings)
        self.trail = Trail(redis, CLUSTER, self._settings.key_prefix)
        self._ledger = Ledger(redis, CLUSTER, self._settings.key_prefix)
        self._start_processes()
        self._stage.set_up()

    def _make_settings(self, url: str) -> Settings:
        policy = write_policy(_without(load_policy(), ALONE), self.folder / "policy.toml")
        return Settings(cluster=CLUSTER, kubeconfig=self._bed.kubeconfig, redis_url=SecretStr(url), policy=policy)

    def _start_processes(self) -> None:
        environment = environment_of(self._settings) | {"REMESH_METRICS_PORT": "0"}  # for a minute nobody scrapes it
        self._processes = self._exits.enter_context(Processes(self._log))
        self.screen.step("Starting the watcher, a Celery worker and an embedded Valkey …")
        worker = self._processes.start_python("worker", (*WORKER, "--loglevel", "INFO"), environment)
        watcher = self._processes.start_python("watcher", WATCHER, environment)
        if self.plot.flower:
            start_flower(self._processes, environment)
        self._await_word(worker, "ready.")
        self._await_word(watcher, "synced")

    def _log(self, name: str, text: str) -> None:
        with (self.folder / f"{name}.log").open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    def _await_word(self, child: Child, word: str) -> None:
        path = self.folder / f"{child.name}.log"
        self._until(
            lambda: path.exists() and word in path.read_text(encoding="utf-8"), START_PATIENCE_SECONDS, child.name
        )

    # Act 1

    def _outage(self) -> int:
        plot = self.plot
        self.screen.blank()
        self.screen.step(
            f"1. The sidecar injector fails ({plot.fault.value}). {count(plot.count, 'Deployment')} roll out behind it."
        )
        self.screen.step(
            f"   It stays away for {plot.outage:g} s at least, until every ReplicaSet is stuck in back-off."
        )
        self._bed.inject_fault(plot.fault, delay_ms=0)
        self._began = time.monotonic()
        self._stage.roll_out()
        with self.screen.block():
            self._until(self._all_stuck, plot.outage + STUCK_PATIENCE_SECONDS, "every ReplicaSet stuck in back-off")
            # The one that is left alone has just been tried when the injector comes back: its wait is seen in full.
            tries = self._stage.tries_of_the_one_left_alone()
            self._until(lambda: self._tried_again(tries), plot.outage, "", fatal=False)
        return self._most_stuck

    def _all_stuck(self) -> bool:
        self._most_stuck = max(self._most_stuck, self._show().stuck)
        long_enough = time.monotonic() - self._began >= self.plot.outage
        return long_enough and self._most_stuck >= self.plot.count and self._stage.look(ALONE).stuck >= 1

    def _tried_again(self, tries: int) -> bool:
        self._show()
        return self._stage.tries_of_the_one_left_alone() > tries

    # Act 2

    def _recovery(self) -> datetime:
        self._lasted = time.monotonic() - self._began
        self.screen.blank()
        self.screen.step("2. The injector comes back. remesh proves it by dry runs, opens the gate and nudges.")
        self._began = time.monotonic()
        self._bed.heal()
        back_at = datetime.now(UTC)
        with self.screen.block():
            self._until(self._all_healed, HEAL_PATIENCE_SECONDS, "", fatal=False)
        return back_at

    def _all_healed(self) -> bool:
        return self._show().healed >= self.plot.count

    def _show(self) -> Scene:
        seen = self._stage.look()
        states = Counter(each.state for each in self._ledger.open_findings())
        scene = Scene(
            total=self.plot.count,
            stuck=seen.stuck,
            healed=min(seen.whole, self._ended()),
            gate=self._gate(),
            findings=", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "none",
            seconds=time.monotonic() - self._began,
        )
        self.screen.show(scene)
        return scene

    def _ended(self) -> int:
        """Findings whose chain has its end."""
        ends = (record for record in self._records() if record.type is RecordType.OUTCOME)
        return len({record.finding_id for record in ends if ended_well(record)})

    def _gate(self) -> str:
        gates = list(self._ledger.gates().values())
        if not gates:
            return "idle: nothing waits"
        return ("open" if gates[0].open else "closed") + (f": {gates[0].reason}" if gates[0].reason else "")

    # Act 3

    def _ending(self, stuck: int, back_at: datetime) -> Ending:
        seen = self._stage.look()
        injected, pods = self._stage.injected()
        return Ending(
            stuck=stuck,
            whole=seen.whole,
            total=seen.total,
            back_at=back_at,
            now=datetime.now(UTC),
            injected=injected,
            pods=pods,
            records=self._records(),
            events=self._stage.events(),
            alone=self._stage.look(ALONE),
            outage=self._lasted,
        )

    def _records(self) -> list[AuditRecord]:
        """The trail without the workload that was left alone."""
        return [each for each in self.trail.read() if each.ref is None or each.ref.namespace != ALONE]

    def _linger(self) -> None:
        if not self.plot.flower:
            return
        self.screen.blank()
        self.screen.step("Flower stays up until Ctrl-C.")
        try:
            self._processes.wait()
        except KeyboardInterrupt:
            return

    def _until(self, done: Callable[[], bool], seconds: float, what: str, *, fatal: bool = True) -> None:
        """Look again and again; a process that ends meanwhile, or time that runs out, ends the play."""
        end = time.monotonic() + seconds
        while not done():
            ended = self._processes.ended()
            if ended is not None:
                raise ClusterError(f"the {ended.name} ended with exit code {ended.code}; {self._last_line(ended.name)}")
            if time.monotonic() > end:
                if fatal:
                    raise ClusterError(f"not within {seconds:.0f} s: {what}")
                return
            time.sleep(LOOK_SECONDS)

    def _last_line(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return next((text for text in reversed(texts) if text.strip()), "it logged nothing")


def _without(policy: Policy, namespace: str) -> Policy:
    """The policy, keeping remesh out of one more namespace."""
    protected = (*policy.scope.protected_namespaces, namespace)
    return policy.model_copy(update={"scope": policy.scope.model_copy(update={"protected_namespaces": protected})})
