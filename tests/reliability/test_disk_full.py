"""Disks run full in the middle of an incident: what cannot be written down is not done, and it goes on by itself.

A disk is a tmpfs of a few megabytes, which a test fills. Mounting it needs root.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from remesh.sim import SimCluster
from remesh.testbed import InjectorWear
from tests.needs import need
from tests.reliability.story import Story, told
from tests.reliability.test_faults import at_work
from tests.stack import wait_until

pytestmark = pytest.mark.timeout(280)


class Disk:
    """A small one."""

    def __init__(self, folder: Path, megabytes: int = 8) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "remesh-test", str(folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        need(done.returncode == 0, f"the right to mount a small disk, of which mount says: {done.stderr.strip()}")

    def fill(self) -> None:
        """Not a byte is left."""
        with (self.folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(65536))

    def free(self) -> None:
        """There is room again."""
        (self.folder / "ballast").unlink()

    def unmount(self) -> None:
        """Also while somebody still has a file of it open."""
        subprocess.run(["umount", "--lazy", self.folder], check=True)


@pytest.fixture(scope="module")
def sim() -> Iterator[SimCluster]:
    """A simulated cluster of this module's own: it changes the webhook's policy."""
    with SimCluster.start(InjectorWear(timeout_seconds=2), controller_qps=200) as cluster:
        yield cluster


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """What `Stack` keeps its Redis on."""
    need(os.geteuid() == 0 and shutil.which("mount") and shutil.which("umount"), "root, and mount, for a small disk")
    made = Disk(tmp_path / "redis")
    yield made
    made.unmount()


@pytest.fixture
def story(sim: SimCluster, tmp_path: Path, disk: Disk) -> Iterator[Story]:
    with told(sim, tmp_path) as told_story:
        told_story.begin()
        yield told_story


def untouched(story: Story) -> bool:
    """Every bare pod is still the same one, and no owner was nudged."""
    there = {each["metadata"]["uid"] for each in story.client.pods(story.namespace)}
    return set(story.bare) <= there and not story.client.nudge_annotations(story.namespace)


def stays_untouched(story: Story, seconds: float) -> None:
    """Look all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert untouched(story), "something was touched that could not be written down"
        time.sleep(0.2)


def test_with_the_disk_of_redis_full_nothing_is_touched_until_there_is_room(story: Story, disk: Disk) -> None:
    def cannot_write() -> bool:
        return bool(story.stack.connection.info("persistence")["aof_last_write_status"] == "err")

    with at_work(story) as (watcher, _):
        wait_until(story.chains, "findings are known", 60)
        disk.fill()
        wait_until(cannot_write, "Redis cannot write")
        story.heal()
        stays_untouched(story, 8)
        watcher.wait_for("MISCONF", 30)
        disk.free()


def test_with_fsync_always_a_full_disk_ends_redis_and_nothing_is_touched_until_it_is_back(
    story: Story, disk: Disk
) -> None:
    story.stack.connection.config_set("appendfsync", "always")
    with at_work(story):
        wait_until(story.chains, "findings are known", 60)
        disk.fill()
        story.heal()
        wait_until(lambda: not story.stack.redis.running, "Redis gives up", 60)
        stays_untouched(story, 5)
        disk.free()
        story.stack.redis.start()


def test_a_full_disk_of_logs_and_heartbeat_stops_no_repair(story: Story, tmp_path: Path) -> None:
    logs = Disk(tmp_path / "logs", megabytes=1)
    try:
        story.stack.folder = logs.folder
        with at_work(story):
            wait_until(story.chains, "findings are known", 60)
            logs.fill()
            story.heal()
    finally:
        story.stack.stop()
        logs.unmount()
