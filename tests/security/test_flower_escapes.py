"""Flower shows texts that others wrote: in a real browser they stay texts."""

from collections.abc import Iterator

import pytest

from remesh.models import Action, FailureClass, ObjectRef, Result
from remesh.testbed import Fault
from tests.cluster import workloads as w
from tests.flower import test_flower
from tests.flower.browser import FlowerPages
from tests.flower.test_flower import in_state
from tests.stack import wait_until
from tests.workers.conftest import Scene

pytestmark = pytest.mark.timeout(280)

scene, worker, pages = test_flower.scene, test_flower.worker, test_flower.pages

MARKUP = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


@pytest.fixture
def bare(scene: Scene) -> Iterator[ObjectRef]:
    """A bare pod that names an owner whose kind is markup: the API server takes any kind."""
    configuration = scene.bed.wear.configuration
    scene.client.change_webhooks(configuration, failurePolicy="Ignore")
    scene.bed.inject_fault(Fault.KILLED)
    body = w.pod("stray")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "<b>/v1", "kind": MARKUP, "name": MARKUP, "uid": "1111-2222", "controller": True}
    ]
    made = scene.client.create(scene.namespace, body)
    yield ObjectRef(api_version="v1", kind="Pod", namespace=scene.namespace, name="stray", uid=made["metadata"]["uid"])
    scene.bed.heal()
    scene.client.change_webhooks(configuration, failurePolicy="Fail")


def test_markup_in_texts_is_shown_and_never_obeyed(scene: Scene, pages: FlowerPages, bare: ObjectRef) -> None:
    request = scene.request(
        bare,
        finding_id="f-0009",
        actor=MARKUP,
        action=Action.RECREATE_POD,
        cause=FailureClass.MISSING_SIDECAR,
    )
    scene.send(request)
    outcome = scene.outcome(request)
    assert outcome.result is Result.REPORTED
    assert MARKUP[:20] in outcome.reason, "the text did come through"

    row = in_state(pages, request, "SUCCESS")
    assert MARKUP in row["args"]
    assert MARKUP[:20] in row["Result"]
    for path in ("/tasks?limit=100", f"/task/{request.task_id}"):
        pages.open(path)
        wait_until(lambda: "onerror" in pages.driver.page_source, "the text is on the page")
        assert pages.driver.find_elements("css selector", "img[src=x]") == []
        assert pages.driver.title != "owned"
