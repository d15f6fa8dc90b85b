"""Flower as a person sees it, in a real browser: who, what, why and the outcome; and its buttons do what they say."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.models import FailureClass, RepairRequest, Result
from remesh.queue import TASK_NUDGE
from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.cluster import workloads as w
from tests.flower.browser import CHROMIUM, DRIVER, FlowerPages, chromium
from tests.needs import need
from tests.stack import Process, free_port, wait_until
from tests.workers.conftest import Scene, open_scene

pytestmark = pytest.mark.timeout(240)

LOGIN = "ada:correct-horse"
SLOW_MS = 12_000
POLICY = "[gate]\nlatency_seconds = 25\n"  # so that a proof lasts long enough for a hand on a mouse


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A cluster whose webhook may take its time."""
    need(CHROMIUM and DRIVER, "chromium and chromedriver (Debian: chromium, chromium-driver)")
    wear = InjectorWear(timeout_seconds=30)
    with (
        SimCluster.start(wear, controller_qps=200) as cluster,
        open_scene(cluster, tmp_path_factory.mktemp("flower")) as opened,
    ):
        opened.stack.policy(POLICY)
        yield opened


@pytest.fixture(scope="module")
def worker(scene: Scene) -> Process:
    return scene.stack.start_worker()


@pytest.fixture(scope="module")
def pages(scene: Scene, worker: Process) -> Iterator[FlowerPages]:
    port = free_port()
    env = {"REMESH_FLOWER_BASIC_AUTH": LOGIN}
    scene.stack.start("flower", f"--port={port}", "--address=127.0.0.1", env=env).wait_for("Visit me")
    with chromium() as driver:
        yield FlowerPages(driver, port, LOGIN)


def keep_picture(pages: FlowerPages, name: str) -> None:
    """For the docs: `REMESH_PICTURES=docs/images make test TESTS=tests/flower` renews them."""
    folder = os.environ.get("REMESH_PICTURES")
    if folder:
        pages.picture(Path(folder) / name)


def row_of(pages: FlowerPages, request: RepairRequest) -> dict[str, str]:
    found = [row for row in pages.rows() if row["UUID"].startswith(request.task_id)]
    return found[0] if found else {}


def in_state(pages: FlowerPages, request: RepairRequest, state: str) -> dict[str, str]:
    """The row of a task, once it says this."""

    def seen() -> dict[str, str]:
        row = row_of(pages, request)
        return row if row.get("State") == state else {}

    return wait_until(seen, f"{request.task_id}: {state}", 60)


def test_the_list_says_whom_what_why_and_how_it_ended(scene: Scene, pages: FlowerPages) -> None:
    [healed] = scene.stuck(w.replica_set("web", 2))
    scene.bed.heal()
    good = scene.request(healed, finding_id="f-0001", actor="ada")
    scene.send(good)
    assert scene.outcome(good).result in (Result.HEALED, Result.ALREADY_HEALTHY)
    [late] = scene.stuck(w.replica_set("late", 1))
    scene.bed.heal()
    scene.bed.inject_fault(Fault.DENYING)
    refused = scene.request(late, finding_id="f-0002", cause=FailureClass.WEBHOOK_TIMEOUT)
    scene.send(refused)
    assert scene.outcome(refused).result is Result.REPORTED

    row = in_state(pages, good, "SUCCESS")
    assert row["Name"] == TASK_NUDGE
    assert all(word in row["UUID"] for word in ("nudge-owner", "ReplicaSet", scene.namespace, "web"))
    told = row["args"]
    assert "because of: webhook connection refused" in told
    assert "asked for by ada" in told
    result = row["Result"]
    assert "healed: " in result or "already_healthy: " in result
    assert "reported: " in in_state(pages, refused, "SUCCESS")["Result"]

    keep_picture(pages, "flower.png")
    details = pages.details(good.task_id)
    keep_picture(pages, "flower-task.png")
    for words in (TASK_NUDGE, str(good.ref), "asked for by ada", "webhook connection refused", "SUCCESS"):
        assert words in details, words


def test_terminate_stops_a_repair_that_has_written_no_intent(scene: Scene, pages: FlowerPages, worker: Process) -> None:
    [ref] = scene.stuck(w.replica_set("slow", 1))
    scene.bed.heal()
    scene.bed.inject_fault(Fault.SLOW, delay_ms=SLOW_MS)
    request = scene.request(ref, finding_id="f-0003")
    scene.send(request)
    in_state(pages, request, "STARTED")

    pages.press(request.task_id, "Terminate")

    worker.wait_for("a repair that has written no intent ends there")
    outcome = scene.outcome(request)
    assert (outcome.result, outcome.code, outcome.acted) == (Result.REPORTED, "revoked", False)
    assert "intent" not in scene.types(request)
    in_state(pages, request, "REVOKED")
    assert scene.client.nudge_annotations(scene.namespace) == []


def test_revoke_drops_a_task_that_waits_and_says_so_in_the_trail(
    scene: Scene, pages: FlowerPages, worker: Process
) -> None:
    [ref] = scene.stuck(w.replica_set("held", 1))
    scene.bed.heal()
    lease = scene.stack.ledger.lease(ref.uid, 120)
    assert lease is not None
    request = scene.request(ref, finding_id="f-0004")
    scene.send(request)
    in_state(pages, request, "RETRY")

    pages.press(request.task_id, "Revoke")
    worker.wait_for(f"flagged as revoked: {request.task_id}")
    lease.release()

    outcome = scene.outcome(request)
    assert (outcome.code, outcome.acted) == ("revoked", False)
    assert scene.types(request) == ["outcome"]
    in_state(pages, request, "REVOKED")


def test_a_wrong_password_sees_nothing(scene: Scene, pages: FlowerPages, tmp_path: Path) -> None:
    stranger = FlowerPages(pages.driver, pages.port, "ada:wrong")
    stranger.open("/tasks")
    assert "UUID" not in pages.driver.page_source
