"""The parts around remesh fail in the middle of an incident: it ends as it should, and nobody is hurt on the way."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest

from remesh.embedded import socket_path
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.cluster.cluster import RealCluster
from tests.reliability.cable import Cable
from tests.reliability.proxy import FaultyProxy, Mood
from tests.reliability.story import BudgetWatch, Story, told
from tests.stack import Process, wait_until
from watcher.trailkeeper import CHECK_SECONDS

pytestmark = pytest.mark.timeout(280)

HEALED_SECONDS = 150.0


@pytest.fixture(scope="module")
def sim() -> Iterator[SimCluster]:
    """A simulated cluster of this module's own: it changes the webhook's policy."""
    with SimCluster.start(InjectorWear(timeout_seconds=2), controller_qps=200) as cluster:
        yield cluster


@pytest.fixture
def story(sim: SimCluster, tmp_path: Path) -> Iterator[Story]:
    with told(sim, tmp_path) as told_story:
        told_story.begin()
        yield told_story


@contextmanager
def at_work(
    story: Story, watcher_env: Mapping[str, str] = MappingProxyType({}), **env: str
) -> Iterator[tuple[Process, Process]]:
    """Watcher and worker, with the budget looked at all the time; in the end all is healed and nothing violated."""
    with BudgetWatch(story):
        worker = story.stack.start_worker(**env)
        watcher = story.stack.start_watcher(**(watcher_env or env))
        yield watcher, worker
        wait_until(story.healed, "all is healed and every finding has its end", HEALED_SECONDS)
    assert story.violations() == []
    assert watcher.popen.poll() is None, watcher.text()[-2000:]
    assert worker.popen.poll() is None, worker.text()[-2000:]


def begun(story: Story) -> None:
    """Poll until a repair has begun: the middle of the incident."""
    wait_until(lambda: any(r.type.value == "intent" for r in story.stack.records()), "the first intent", 90)


# Redis


def killed_and_restarted(story: Story) -> None:
    story.stack.redis.kill()
    story.stack.redis.start()


def paused(story: Story) -> None:
    pid = int(story.stack.connection.info("server")["process_id"])
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    time.sleep(8)  # the fault itself: longer than any answer is waited for
    subprocess.run(["kill", "-CONT", str(pid)], check=True)


def full(story: Story) -> None:
    story.stack.connection.config_set("maxmemory", "1")
    time.sleep(5)  # the fault itself
    story.stack.connection.config_set("maxmemory", "0")


def wiped(story: Story) -> None:
    story.stack.connection.flushall()


@pytest.mark.parametrize("happens", [killed_and_restarted, paused, full])
def test_redis_fails_for_a_while(story: Story, happens: Callable[[Story], None]) -> None:
    with at_work(story):
        story.heal()
        begun(story)
        happens(story)


def test_redis_is_wiped_and_the_watcher_derives_all_findings_again(story: Story) -> None:
    """Before the first repair: what is lost with it is told in docs/reliability.md."""
    with at_work(story) as (watcher, _):
        wait_until(lambda: len(story.chains()) >= len(story.bare) + 1, "the findings are known", 60)
        first = min(record.at for record in story.stack.records())
        wait_until(lambda: (datetime.now(UTC) - first).total_seconds() > 2 * CHECK_SECONDS, "the trail's head is known")
        wiped(story)
        watcher.wait_for("the audit trail has lost records", 60)
        story.bed.heal()


# The API server, by way of a proxy that misbehaves


@pytest.fixture
def proxy(story: Story, tmp_path: Path) -> Iterator[FaultyProxy]:
    made = FaultyProxy(story.bed.kubeconfig, tmp_path)
    story.stack.settings_extra["REMESH_KUBECONFIG"] = str(made.kubeconfig)
    yield made
    made.stop()


MOODS = {
    "slow": Mood(delay_seconds=0.5),
    "throttling": Mood(status=429, status_probability=0.3, retry_after="1"),
    "failing": Mood(status=500, status_probability=0.3),
    "unavailable": Mood(status=503, status_probability=0.3),
    "watches break inside a line": Mood(break_probability=0.2),
    "watches are answered with 410 and without bookmarks": Mood(gone=True, bookmarks=False),
    "watches stall": Mood(stalled=True),
    "refused": Mood(refused=True),
}


@pytest.mark.parametrize("mood", MOODS.values(), ids=MOODS)
def test_the_api_server_misbehaves_for_a_while(story: Story, proxy: FaultyProxy, mood: Mood) -> None:
    with at_work(story):
        wait_until(lambda: len(story.chains()) >= 2, "findings are known", 60)
        proxy.mood = mood
        story.bed.heal()
        time.sleep(10)  # the fault itself
        proxy.mood = Mood()


# Injectors, processes, clocks


def test_an_injector_that_flaps_every_few_seconds_costs_nobody_anything(story: Story) -> None:
    with at_work(story):
        for _ in range(8):
            story.bed.heal()
            time.sleep(2)  # the fault itself
            story.bed.inject_fault(Fault.KILLED)
            time.sleep(2)
        story.bed.heal()


def test_a_worker_cut_off_for_longer_than_its_messages_are_its_own(story: Story) -> None:
    """It sleeps with a repair in hand; another one takes the message over; then it wakes up and goes on."""
    with at_work(story) as (_, worker):
        story.heal()
        begun(story)
        worker.popen.send_signal(signal.SIGSTOP)
        story.stack.start_worker()
        time.sleep(25)  # the fault itself: longer than a lease
        worker.popen.send_signal(signal.SIGCONT)


def test_a_worker_whose_redis_is_out_of_reach_for_longer_than_its_messages_are_its_own(
    story: Story, tmp_path: Path
) -> None:
    """It still reaches the API server, with repairs in hand; others get its messages; then it is there again."""
    cable = Cable(socket_path(story.stack.redis.folder), tmp_path / "cable.sock")
    try:
        with at_work(story, REMESH_REDIS_URL=cable.url, watcher_env={"REMESH_REDIS_URL": story.stack.redis_url}):
            story.heal()
            begun(story)
            cable.pull()
            story.stack.start_worker()
            story.stack.expire_visibility()
            time.sleep(25)  # the fault itself: longer than a lease
            cable.plug()
    finally:
        cable.close()


def test_asked_to_end_in_the_middle_of_repairs_a_worker_hands_them_on(story: Story) -> None:
    with BudgetWatch(story):
        first = story.stack.start_worker()
        story.stack.start_watcher()
        story.heal()
        begun(story)
        first.terminate(60)
        assert first.popen.returncode == 0, first.text()[-2000:]
        story.stack.start_worker()
        wait_until(story.healed, "all is healed and every finding has its end", HEALED_SECONDS)
    assert story.violations() == []


# The real control plane


@pytest.mark.real
@pytest.mark.parametrize("component", ["etcd", "kube-controller-manager", "kube-apiserver"])
def test_a_part_of_the_control_plane_is_killed_and_comes_back(
    real_cluster: RealCluster, tmp_path: Path, component: str
) -> None:
    with told(real_cluster, tmp_path) as story:
        story.begin()
        with at_work(story):
            story.heal()
            begun(story)
            real_cluster.restart(component)
