"""Clocks are set by hours and days in the middle of an incident, or differ from the start: it ends as it should.

That no pod is evicted twice, that records stay in order or the trail says why, and that nothing waits for a clock to
come to where it was, is what `Story` looks at in each of these.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.needs import ALL_FAULTS, need
from tests.reliability.clocks import DAY, HOUR, MINUTE, WallClock, built
from tests.reliability.proxy import FaultyProxy
from tests.reliability.story import Story, told
from tests.reliability.test_faults import at_work, begun
from tests.stack import wait_until
from watcher.trailkeeper import CHECK_SECONDS, CLOCK_JUMPED

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def sim() -> Iterator[SimCluster]:
    """A simulated cluster of this module's own: it changes the webhook's policy."""
    with SimCluster.start(InjectorWear(timeout_seconds=2), controller_qps=200) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(shutil.which("cc"), "a C compiler (Debian: gcc libc6-dev)")
    return built(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def story(sim: SimCluster, tmp_path: Path) -> Iterator[Story]:
    with told(sim, tmp_path) as told_story:
        told_story.slack = timedelta(seconds=1)  # where a clock is wrong, headers of whole seconds stand for it
        told_story.begin()
        yield told_story


def jumps(story: Story) -> list[tuple[str, float]]:
    """What the trail says of clocks that jumped."""
    return [
        (each.details["clock"], each.details["seconds"]) for each in story.stack.records() if each.code == CLOCK_JUMPED
    ]


def trail_is_known_for_a_while(story: Story) -> None:
    """The watcher has looked at the clocks once, and so sees what happens to them from here on."""
    wait_until(story.chains, "findings are known", 60)
    first = min(record.at for record in story.stack.records())
    wait_until(lambda: (datetime.now(UTC) - first).total_seconds() > 2 * CHECK_SECONDS, "the clocks are known")


def times_are_right(story: Story) -> bool:
    """The times of the records are the cluster's."""
    off = (abs((record.at - datetime.now(UTC)).total_seconds()) for record in story.stack.records())
    return max(off) < 10 * MINUTE


@pytest.mark.parametrize("seconds", [DAY, -DAY][not ALL_FAULTS :], ids=["forward", "back"][not ALL_FAULTS :])
def test_the_clock_of_the_watchers_host_is_set_by_a_day(
    story: Story, library: Path, tmp_path: Path, seconds: float
) -> None:
    clock = WallClock(library, tmp_path / "clock")
    with at_work(story, clock.env):
        wait_until(story.chains, "findings are known", 60)
        clock.set(seconds)
        story.heal()
    assert times_are_right(story)


@pytest.mark.parametrize("seconds", [DAY, -DAY][not ALL_FAULTS :], ids=["forward", "back"][not ALL_FAULTS :])
def test_the_clock_of_a_workers_host_is_set_by_a_day_in_the_middle_of_repairs(
    story: Story, library: Path, tmp_path: Path, seconds: float
) -> None:
    clock = WallClock(library, tmp_path / "clock")
    with at_work(story, {"LANG": "C"}, **clock.env):
        story.heal()
        begun(story)
        clock.set(seconds)
    assert times_are_right(story)


@pytest.mark.parametrize(
    "seconds",
    [10 * MINUTE, DAY, -DAY][not ALL_FAULTS :],
    ids=["minutes forward", "a day forward", "a day back"][not ALL_FAULTS :],
)
def test_the_clock_of_redis_host_is_set_in_the_middle_of_repairs(
    story: Story, library: Path, tmp_path: Path, seconds: float
) -> None:
    clock = WallClock(library, tmp_path / "clock")
    clock.start(story.stack.redis)
    with at_work(story):
        trail_is_known_for_a_while(story)
        story.heal()
        begun(story)
        clock.set(seconds)
        wait_until(lambda: jumps(story), "the trail says that a clock jumped", 30)
    assert [(whose, round(by / MINUTE)) for whose, by in jumps(story)] == [("Redis'", round(seconds / MINUTE))]


def test_hosts_whose_clocks_differ_by_hours_and_days_from_the_start(
    story: Story, library: Path, tmp_path: Path
) -> None:
    """Each takes the other's messages for lost or not yet due; the lease on the object holds."""
    clocks = [WallClock(library, tmp_path / f"clock-{by:g}", by) for by in (HOUR, -DAY, DAY, -HOUR)]
    watcher, first, second, redis = clocks
    redis.start(story.stack.redis)
    with at_work(story, watcher.env, **first.env):
        story.stack.start_worker(**second.env)
        story.heal()
    assert times_are_right(story)


@pytest.mark.parametrize("seconds", [HOUR, -HOUR][not ALL_FAULTS :], ids=["forward", "back"][not ALL_FAULTS :])
def test_the_clock_of_the_api_server_is_set_by_an_hour(story: Story, tmp_path: Path, seconds: float) -> None:
    proxy = FaultyProxy(story.bed.kubeconfig, tmp_path)
    story.stack.settings_extra["REMESH_KUBECONFIG"] = str(proxy.kubeconfig)
    try:
        with at_work(story):
            trail_is_known_for_a_while(story)
            proxy.mood.ahead_seconds = seconds
            story.heal()
            wait_until(lambda: jumps(story), "the trail says that a clock jumped", 60)
    finally:
        proxy.stop()
    assert [(whose, round(by / MINUTE)) for whose, by in jumps(story)] == [
        ("the API server's", round(seconds / MINUTE))
    ]
