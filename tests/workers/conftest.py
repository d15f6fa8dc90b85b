"""A cluster, Redis and real worker processes, without a watcher: the tests send the tasks."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from celery import Celery

from remesh import queue
from remesh.ledger import Ledger
from remesh.models import Action, FailureClass, ObjectRef, Outcome, RecordType, RepairRequest, finding_id
from remesh.testbed import Fault, TestBed
from tests.client import Client
from tests.stack import CLUSTER, Stack, wait_until

# The controllers' back-off doubles from 5 ms, so they try after 10.2 s and 20.5 s, and then not before 41 s: in between
# a worker comes first.
BACK_OFF_SECONDS = 22.0


@pytest.fixture
def bed(request: pytest.FixtureRequest) -> Iterator[TestBed]:
    """The simulated cluster, or the one that the test's parameters name. Faults of a test end with it."""
    kind = getattr(request, "param", "sim")
    chosen: TestBed = request.getfixturevalue(f"{kind}_cluster")
    yield chosen
    chosen.heal()


on_every_bed = pytest.mark.parametrize("bed", ["sim", pytest.param("real", marks=pytest.mark.real)], indirect=True)
"""Runs a test on the simulated cluster and on the real control plane."""


@dataclass
class Scene:
    """A namespace of stuck workloads, and the tasks for them."""

    bed: TestBed
    client: Client
    namespace: str
    stack: Stack
    app: Celery
    began: float = 0.0  # monotonic time at which the stuck workloads were created

    def stuck(self, *bodies: dict[str, Any]) -> list[ObjectRef]:
        """Create workloads behind a dead injector."""
        self.bed.inject_fault(Fault.KILLED)
        self.began = time.monotonic()
        made = [self.client.create(self.namespace, body) for body in bodies]
        sets = [body["metadata"]["name"] for body in bodies if body["kind"] == "ReplicaSet"]
        self.client.wait_failing("ReplicaSet", self.namespace, sets)
        return [reference(body, thing, self.namespace) for body, thing in zip(bodies, made, strict=True)]

    def heal_in_back_off(self) -> None:
        """Heal the injector when the stuck workloads' controllers have just begun a long pause."""
        end = self.began + BACK_OFF_SECONDS
        wait_until(lambda: time.monotonic() > end, "a long back-off", BACK_OFF_SECONDS + 5)
        self.bed.heal()

    def request(self, ref: ObjectRef, *, attempt: int = 1, **more: Any) -> RepairRequest:
        known: dict[str, Any] = {
            "cluster": CLUSTER,
            "finding_id": finding_id(CLUSTER, ref.uid, "", ""),
            "ref": ref,
            "mesh": self.bed.wear.mesh,
            "cause": FailureClass.WEBHOOK_CONNECTION_REFUSED,
            "action": Action.NUDGE_OWNER,
            "attempt": attempt,
            "requested_at": datetime.now(UTC),
        }
        return RepairRequest.model_validate(known | more)

    def send(self, request: RepairRequest) -> str:
        return queue.send(self.app, request)

    def outcome(self, request: RepairRequest, seconds: float = 90.0) -> Outcome:
        """Poll until the outcome of this attempt stands in the trail."""

        def ended() -> Outcome | None:
            for record in self.stack.trail.read(finding_id=request.finding_id, types=[RecordType.OUTCOME]):
                if record.details["attempt"] == request.attempt:
                    return Outcome.model_validate(record.details)
            return None

        found = wait_until(ended, f"an outcome for {request.ref}", seconds)
        assert found is not None
        return found

    def types(self, request: RepairRequest) -> list[str]:
        return [record.type.value for record in self.stack.trail.history(request.finding_id)]

    def codes(self, request: RepairRequest, kind: RecordType) -> list[str]:
        return [r.code for r in self.stack.trail.read(finding_id=request.finding_id, types=[kind])]

    def expire_visibility(self) -> None:
        """Let the visibility time-out of every unacknowledged message be over, as five minutes of waiting would."""
        assert self.stack.expire_visibility(), "no message is unacknowledged"

    def expire_lease(self, ref: ObjectRef) -> None:
        """Let a dead worker's lease be over, as some seconds of waiting would."""
        assert self.stack.connection.delete(f"{self.stack.settings.key_prefix}{{{CLUSTER}}}:lease:{ref.uid}") == 1


def reference(body: dict[str, Any], made: dict[str, Any], namespace: str) -> ObjectRef:
    return ObjectRef(
        api_version=body["apiVersion"],
        kind=body["kind"],
        namespace=namespace,
        name=made["metadata"]["name"],
        uid=made["metadata"]["uid"],
    )


@pytest.fixture
def scene(bed: TestBed, tmp_path: Path) -> Iterator[Scene]:
    """A fresh namespace, a Redis of its own, and no worker yet."""
    with open_scene(bed, tmp_path) as opened:
        yield opened


@contextmanager
def open_scene(bed: TestBed, folder: Path) -> Iterator[Scene]:
    """The same on a test bed of the test's own."""
    client = Client(bed.kubeconfig)
    namespace = f"repair-{secrets.token_hex(4)}"
    client.create_meshed_namespace(namespace, bed.wear)
    stack = Stack(bed, folder)
    app = queue.make_app(stack.settings, consumes=False)
    try:
        yield Scene(bed, client, namespace, stack, app)
    finally:
        app.close()
        stack.stop()
        bed.heal()
        client.delete_workloads(namespace)
        client.close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    redis = fakeredis.FakeRedis(decode_responses=True)
    yield Ledger(redis, "test")
    redis.close()
