"""The state machine: what people, faults and time may do to a cluster in which remesh is at work."""

from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remesh.policy import Policy
from remesh.testbed import Fault
from tests.machine.world import MESHES, World, crashes
from workers.context import Step

KINDS: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Pod")
SPACES: Final = ("shop", "shop", "bank", "both", "plain", "kube-system")
FLAVOURS: Final = ("plain", "plain", "plain", "plain", "out", "host", "crashing")
FAULTS: Final = (
    Fault.KILLED,
    Fault.NOT_INJECTING,
    Fault.NOT_INJECTING,
    Fault.NOT_INJECTING,
    Fault.DENYING,
    Fault.ERROR_500,
    Fault.SLOW,
    Fault.FROZEN,
    Fault.NO_ENDPOINTS,
    Fault.WRONG_CA,
)
SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 10.0, 40.0, 40.0, 130.0, 400.0)

kinds, spaces, flavours = st.sampled_from(KINDS), st.sampled_from(SPACES), st.sampled_from(FLAVOURS)
meshes, faults, numbers = st.sampled_from(MESHES), st.sampled_from(FAULTS), st.integers(0, 50)
processes = st.sampled_from(("watcher", "worker-0", "worker-1"))
workloads = st.tuples(kinds, spaces, st.integers(1, 4), flavours, st.booleans())

policies = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(("repair",) * 9 + ("observe",)),
        "gate": st.fixed_dictionaries(
            {"successes": st.sampled_from((1, 3)), "retry_seconds": st.sampled_from((1.0, 5.0))}
        ),
        "window": st.fixed_dictionaries(
            {"initial": st.integers(1, 6), "minimum": st.integers(1, 2), "maximum": st.integers(2, 8)}
        ),
        "repair": st.fixed_dictionaries(
            {
                "max_attempts": st.integers(1, 3),
                "cooldown_seconds": st.sampled_from((0.0, 10.0, 60.0)),
                "verify_seconds": st.sampled_from((5.0, 20.0)),
                "release_deadline_seconds": st.sampled_from((30.0, 120.0)),
                "share": st.sampled_from((None, None, 0.5, 1.0)),
                "bare_pods": st.booleans(),
                "job_pods": st.booleans(),
            }
        ),
    }
)


class Machine(RuleBasedStateMachine):
    """One example. Whatever does not hold stands in `world.judge.violations`."""

    tell: "Callable[[World], None] | None" = None  # told of each example's world at its end

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.failed = False

    @property
    def w(self) -> World:
        assert self.world is not None
        return self.world

    @initialize(
        policy=policies,
        failure_policy=st.sampled_from(("Fail", "Ignore")),
        sound=st.lists(workloads, max_size=2),
        fault=faults,
        broken=st.lists(workloads, min_size=1, max_size=3),
        seed=numbers,
    )
    def begin(
        self,
        policy: dict[str, Any],
        failure_policy: str,
        sound: list[tuple[str, str, int, str, bool]],
        fault: Fault,
        broken: list[tuple[str, str, int, str, bool]],
        seed: int,
    ) -> None:
        self.world = World(Policy.model_validate(policy), seed=seed, failure_policy=failure_policy)
        for each in sound:
            self._create(*each)
        self.w.run(5.0)
        for mesh in MESHES:
            self.w.break_injector(mesh, fault)
        for each in broken:
            self._create(*each)
        self.w.run(2.0)

    def _create(self, kind: str, space: str, replicas: int, flavour: str, parallel: bool) -> None:
        self.w.create(kind, space, replicas, flavour, parallel=parallel)

    # Time

    @rule(seconds=st.sampled_from(SECONDS))
    def time_passes(self, seconds: float) -> None:
        self.w.run(seconds)

    @rule(seconds=st.sampled_from(SECONDS))
    def more_time_passes(self, seconds: float) -> None:
        self.w.run(seconds)

    # People

    @rule(workload=workloads)
    def create(self, workload: tuple[str, str, int, str, bool]) -> None:
        self._create(*workload)
        self.w.run(2.0)

    @rule(space=spaces, flavour=st.sampled_from(("mirror", "out", "host")))
    def create_untouchable_pod(self, space: str, flavour: str) -> None:
        self.w.create("Pod", space, 1, flavour)

    @rule(number=numbers, replicas=st.integers(0, 5))
    def scale(self, number: int, replicas: int) -> None:
        found = self.w.owners("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
        if found:
            self.w.scale(*found[number % len(found)], replicas)

    @rule(number=numbers)
    def roll_out(self, number: int) -> None:
        """Of what can become Ready: a rollout that never ends is somebody's, and remesh says that it waits for it."""
        found = [each for each in self.w.owners("Deployment", "StatefulSet", "DaemonSet") if not crashes(each[1])]
        if found:
            self.w.roll_out(*found[number % len(found)])

    @rule(number=numbers)
    def delete_owner(self, number: int) -> None:
        found = self.w.owners("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")
        if len(found) > 1:
            self.w.delete(*found[number % len(found)])

    @rule(number=numbers)
    def delete_pod(self, number: int) -> None:
        found = self.w.cluster.pods()
        if found:
            self.w.delete("Pod", found[number % len(found)])

    @rule(number=numbers, least=st.integers(0, 3))
    def set_budget(self, number: int, least: int) -> None:
        found = self.w.owners("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
        if found:
            metadata = found[number % len(found)][1]["metadata"]
            self.w.budget(metadata["namespace"], metadata["labels"]["app"], least)

    # Injectors and their webhooks

    @rule(mesh=meshes, fault=faults)
    def injector_breaks(self, mesh: str, fault: Fault) -> None:
        self.w.break_injector(mesh, fault)

    @rule(mesh=meshes)
    def injector_heals(self, mesh: str) -> None:
        self.w.heal_injector(mesh)

    @rule()
    def all_injectors_heal(self) -> None:
        for mesh in MESHES:
            self.w.heal_injector(mesh)
        self.w.run(10.0)

    @rule(seconds=st.sampled_from((3.0, 30.0)))
    def injectors_heal_for_a_while(self, seconds: float) -> None:
        self.all_injectors_heal()
        self.w.run(seconds)

    @rule(mesh=meshes, policy=st.sampled_from(("Fail", "Ignore")))
    def failure_policy_changes(self, mesh: str, policy: str) -> None:
        self.w.failure_policy[mesh] = policy
        self.w.cluster.configure(mesh, failurePolicy=policy)

    @rule(mesh=meshes, number=st.integers(1, 4))
    def webhook_excludes_somebody(self, mesh: str, number: int) -> None:
        policy = self.w.failure_policy[mesh]
        self.w.cluster.configure(mesh, failurePolicy=policy, leaves_out=f"app{number}")

    @rule(mesh=meshes)
    def webhook_is_installed_anew(self, mesh: str) -> None:
        self.w.cluster.configure(mesh, anew=True, failurePolicy=self.w.failure_policy[mesh])

    # Faults

    @rule(who=processes, kind=st.sampled_from(("500", "429", "unreachable", "lost")), count=st.integers(1, 3))
    def api_requests_fail(self, who: str, kind: str, count: int) -> None:
        self._faults(who).api += [kind] * count

    @rule(seconds=st.sampled_from((3.0, 30.0)))
    def api_server_is_away(self, seconds: float) -> None:
        self.w.cluster.api_down = True
        self.w.run(seconds)
        self.w.cluster.api_down = False

    @rule(seconds=st.sampled_from((3.0, 30.0, 150.0)), broker=st.booleans())
    def redis_is_away(self, seconds: float, broker: bool) -> None:
        self.w.around.redis_down, self.w.broker.down = True, broker
        self.w.run(seconds)
        self.w.around.redis_down = self.w.broker.down = False

    @rule(who=processes, commands=st.integers(0, 40), lost=st.booleans())
    def redis_fails_once(self, who: str, commands: int, lost: bool) -> None:
        found = self._faults(who)
        found.redis_in, found.redis_lost = commands, lost

    @rule(who=processes, commands=st.integers(0, 40))
    def process_dies_before_a_command(self, who: str, commands: int) -> None:
        self._faults(who).dies_in = commands

    @rule(index=st.integers(0, 1), step=st.sampled_from([each.value for each in Step]))
    def worker_dies_at_step(self, index: int, step: str) -> None:
        self.w.workers[index].die_at = step

    @rule(index=st.integers(0, 1))
    def worker_is_killed(self, index: int) -> None:
        self.w.kill_worker(index)

    @rule()
    def watcher_is_restarted(self) -> None:
        self.w.restart_watcher()

    @rule(lags=st.booleans())
    def watches_stall(self, lags: bool) -> None:
        if self.w.watcher is not None:
            self.w.watcher.lagging = lags

    @rule(fate=st.sampled_from(("lost", "twice", "late")), count=st.integers(1, 3))
    def tasks_go_astray(self, fate: str, count: int) -> None:
        self.w.broker.next += [fate] * count

    @rule(down=st.booleans())
    def controllers_stop(self, down: bool) -> None:
        self.w.cluster.controllers_down = down

    @rule(broken=st.booleans())
    def nothing_becomes_ready(self, broken: bool) -> None:
        self.w.cluster.kubelets.broken = broken

    def _faults(self, who: str) -> Any:
        if who == "watcher":
            assert self.w.watcher is not None
            return self.w.watcher.faults
        return self.w.workers[int(who[-1])].faults

    # What must hold

    @precondition(lambda self: self.world is not None)
    @invariant()
    def nothing_is_violated(self) -> None:
        if self.w.judge.violations:
            self.failed = True
            raise AssertionError("\n".join(self.w.judge.violations))

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if not self.failed and not self.w.judge.violations:
                self.w.come_to_rest()
                if self.w.judge.violations:
                    raise AssertionError("\n".join(self.w.judge.violations))
        finally:
            if type(self).tell is not None:
                type(self).tell(self.w)  # type: ignore[misc]
            self.w.close()


def given(examples: int, steps: int = 25, *, shrink: bool = True) -> settings:
    """Settings of a run."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        report_multiple_bugs=False,
    )
