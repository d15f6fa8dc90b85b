"""A sample of the public cases with remesh's own watcher and worker: bare pods are replaced, all else is left alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from remesh.models import RecordType
from remesh.testbed import Fault
from tests.agreement.stage import CASES, Case, Stage
from tests.agreement.test_cases_live import ids, pod
from tests.cluster import workloads as w
from tests.stack import Stack, wait_until

RECREATED: Final = ("C084", "C094", "C099")
LEFT_ALONE: Final = ("C105", "C107", "C111", "C112", "C115")
MARKER: Final = "marker"

pytestmark = pytest.mark.timeout(180)


def chosen(names: tuple[str, ...]) -> list[Case]:
    return [case for case in CASES if case["id"] in names]


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    opened = Stage(request.param)
    yield opened
    opened.close()


@pytest.fixture
def stack(stage: Stage, tmp_path: Path) -> Iterator[Stack]:
    started = Stack(stage.bed, tmp_path)
    yield started
    started.stop()


@pytest.mark.parametrize("stage", chosen(RECREATED), indirect=True, ids=ids)
def test_bare_pods_are_replaced_and_their_siblings_are_not(stage: Stage, stack: Stack) -> None:
    pod(stage)
    before = {each["metadata"]["uid"]: w.has_container(each, stage.wear.sidecar) for each in stage.pods()}
    stack.start_worker()
    stack.start_watcher()

    def healed() -> bool:
        found = stage.pods()
        return len(found) == len(before) and all(w.has_container(each, stage.wear.sidecar) for each in found)

    wait_until(healed, "every pod has its sidecar", 90)
    left = {each["metadata"]["uid"] for each in stage.pods()} & before.keys()
    assert left == {uid for uid, injected in before.items() if injected}
    wait_until(lambda: len(stack.outcomes()) >= len(before) - len(left), "an outcome for each", 60)
    assert {record.code for record in stack.outcomes()} == {"healed"}


@pytest.mark.parametrize("stage", chosen(LEFT_ALONE), indirect=True, ids=ids)
def test_what_is_not_to_be_touched_is_left_alone_while_others_are_repaired(stage: Stage, stack: Stack) -> None:
    name = pod(stage)
    before = stage.client.get("Pod", stage.namespace, name)["metadata"]
    _bare_marker(stage)
    stack.start_worker()
    stack.start_watcher()
    stage.client.wait_healed(MARKER, stage.wear.sidecar, 1)
    assert wait_until(stack.outcomes, "the marker's outcome", 60)
    after = stage.client.get("Pod", stage.namespace, name)["metadata"]
    assert (after["uid"], after["resourceVersion"]) == (before["uid"], before["resourceVersion"])
    intents = stack.records(types=[RecordType.INTENT, RecordType.ACTION])
    written_to = {(record.ref.namespace, record.ref.name) for record in intents if record.ref is not None}
    assert MARKER in {namespace for namespace, _ in written_to}
    assert (stage.namespace, name) not in written_to


def _bare_marker(stage: Stage) -> None:
    """A pod that is to be repaired: once it is, the watcher has looked at everything else, too."""
    stage.client.create_meshed_namespace(MARKER, stage.wear)
    stage.bed.inject_fault(Fault.NOT_INJECTING)
    stage.client.create(MARKER, w.replica_set("marker"))
    wait_until(lambda: stage.client.ready(MARKER), "the marker, bare", 30)
    stage.bed.heal()
