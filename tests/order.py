"""In which order several workers run the tests: the slow ones first, dealt out evenly, the quick ones after them.

pytest-xdist's `--dist worksteal` gives each worker an equal stretch of the collected tests and later takes from the
end of the longest queue for whoever has nothing left. So what stands first in a stretch is begun first and stays
where it is, and the quick ones at the ends even out what was dealt unevenly.
"""

from collections import deque
from collections.abc import Sequence

# About how many seconds one test takes, by the beginning of its node id; the longest that fits counts. Only what is
# slow needs to be here, and only roughly right.
SECONDS: dict[str, float] = {
    "tests/agreement/": 6,
    "tests/agreement/test_plan_and_repair.py::test_repair_does_what_plan_says": 15,
    "tests/cli/test_check_faults.py": 4,
    "tests/cli/test_run.py": 8,
    "tests/cli/test_status.py::test_an_incident": 15,
    "tests/cluster/test_istio.py": 12,
    "tests/cluster/test_lifecycle.py": 10,
    "tests/containers/": 6,
    "tests/containers/test_compose.py": 60,
    "tests/e2e/": 25,
    "tests/e2e/test_bare_pods.py::test_an_injector_that_dies_again": 50,
    "tests/e2e/test_in_cluster.py": 90,
    "tests/e2e/test_istio": 40,
    "tests/e2e/test_istio_check.py": 5,
    "tests/e2e/test_main_job.py::test_a_worker_killed": 60,
    "tests/e2e/test_main_job.py::test_stuck_replicasets_are_healed_once_the_injector_works_again": 35,
    "tests/e2e/test_brokers.py": 40,
    "tests/e2e/test_brokers.py::test_a_failover": 39,
    "tests/flower/": 10,
    "tests/harm/": 3,
    "tests/harm/test_by_processes.py": 15,
    "tests/machine/": 15,
    "tests/manifests/test_at_work.py": 20,
    "tests/mutation/test_mutation.py": 8,
    "tests/reliability/": 32,
    "tests/reliability/test_long.py": 60,
    "tests/security/": 6,
    "tests/monitoring/": 10,
    "tests/redis/test_outages.py": 10,
}
# Groups that share what takes long to start, a cluster with Istio or a container engine: one worker runs a whole group.
TOGETHER = (
    ("tests/e2e/test_istio", "tests/cluster/test_istio.py"),
    ("tests/containers/", "tests/e2e/test_in_cluster.py"),
    ("tests/e2e/test_brokers.py",),
)


def seconds(name: str) -> float:
    """About how long this test takes; 0 for one that is quick."""
    fitting = [prefix for prefix in SECONDS if name.startswith(prefix)]
    return SECONDS[max(fitting, key=len)] if fitting else 0.0


def arranged(names: Sequence[str], workers: int) -> list[int]:
    """Indices of the tests, in an order that lets this many workers end together. The same for the same names."""
    sizes = stretches(len(names), workers)
    quick = deque(index for index, name in enumerate(names) if not seconds(name))
    return [
        index
        for queue, size in zip(dealt(names, sizes), sizes, strict=True)
        for index in [*queue, *(quick.popleft() for _ in range(size - len(queue)))]
    ]


def dealt(names: Sequence[str], sizes: Sequence[int]) -> list[list[int]]:
    """For each worker the indices of its slow tests: each goes to the worker that has the least to do so far."""
    queues: list[list[int]] = [[] for _ in sizes]
    load = [0.0] * len(sizes)
    slow = [index for index, name in enumerate(names) if seconds(name)]
    for index in sorted(slow, key=lambda index: (together(names[index]) is None, -seconds(names[index]))):
        free = [worker for worker, size in enumerate(sizes) if len(queues[worker]) < size]
        group = together(names[index])
        worker = min(free, key=load.__getitem__) if group is None else free[group % len(free)]
        queues[worker].append(index)
        load[worker] += seconds(names[index])
    return queues


def together(name: str) -> int | None:
    """The group of a test that one worker runs along with all others of the group; None for one that is free."""
    return next((number for number, group in enumerate(TOGETHER) if name.startswith(group)), None)


def stretches(count: int, workers: int) -> list[int]:
    """How many tests each worker gets at first, as `--dist worksteal` cuts them."""
    sizes: list[int] = []
    for left in range(workers, 0, -1):
        sizes.append((count - sum(sizes)) // left)
    return sizes
