"""A template whose dry runs promise a sidecar its pods never get: left alone after the limit; others are healed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remesh.ledger import Quarantine
from remesh.models import RecordType
from remesh.testbed import DRY_RUN_ONLY, Fault, TestBed
from tests.client import Client
from tests.cluster import workloads as w
from tests.e2e.test_bare_pods import bare
from tests.e2e.test_main_job import QUICK, start_all
from tests.stack import Stack, wait_until

pytestmark = pytest.mark.timeout(240)

ATTEMPTS = 2
POLICY = QUICK + f"[repair]\nmax_attempts = {ATTEMPTS}\ncooldown_seconds = 1.0\n"
PODS = 4
KEY, VALUE = DRY_RUN_ONLY


@pytest.fixture(autouse=True)
def fails_open(bed: TestBed, client: Client) -> Iterator[None]:
    """The webhook has `failurePolicy: Ignore` for one test."""
    client.change_webhooks(bed.wear.configuration, failurePolicy="Ignore", timeoutSeconds=bed.wear.timeout_seconds)
    yield
    client.change_webhooks(
        bed.wear.configuration, failurePolicy=bed.wear.failure_policy, timeoutSeconds=bed.wear.timeout_seconds
    )


def remesh(stack: Stack, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of the command line, as an operator runs it."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "remesh"), *words],
        env=stack.env,
        cwd=stack.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def listed(stack: Stack) -> list[dict[str, Any]]:
    document = json.loads(remesh(stack, "quarantine", "list", "--output", "json").stdout)
    items: list[dict[str, Any]] = document["items"]
    return items


def intents_of(stack: Stack, owner: str) -> list[str]:
    """UIDs of the pods of this owner for whose eviction there is an intent, in order."""
    found = stack.records(types=[RecordType.INTENT])
    return [r.ref.uid for r in found if r.ref and r.owner and r.owner.name.startswith(owner)]


def quarantined(stack: Stack, uid: str) -> Quarantine:
    """Poll until this owner is quarantined."""

    def held() -> list[Quarantine]:
        return [each for each in stack.ledger.quarantines() if each.uid == uid]

    return wait_until(held, "the owner is quarantined", 150)[0]


def outcomes_of(stack: Stack, code: str) -> list[str]:
    """Results of the repairs that ended with this code, in order."""
    return [str(r.details["result"]) for r in stack.outcomes() if r.details["code"] == code]


def notes(stack: Stack, code: str) -> list[str]:
    return [r.reason for r in stack.records(types=[RecordType.NOTE]) if r.code == code]


@pytest.fixture
def doomed(bed: TestBed, client: Client, namespace: str) -> str:
    """UID of a ReplicaSet whose pods are bare, and whose replacements will be; beside it a sound one, bare too."""
    bed.inject_fault(Fault.KILLED)
    made = client.create(namespace, w.replica_set("doomed", PODS, labels={KEY: VALUE}))
    client.create(namespace, w.replica_set("sound", PODS))
    wait_until(lambda: len(client.ready(namespace)) == 2 * PODS, "all pods Ready and bare", 60)
    assert len(bare(client, namespace, bed.wear.sidecar)) == 2 * PODS
    bed.heal()
    uid: str = made["metadata"]["uid"]
    return uid


def test_an_owner_whose_pods_come_back_bare_is_quarantined_and_others_are_healed(
    bed: TestBed, client: Client, namespace: str, stack: Stack, doomed: str
) -> None:
    before = {pod["metadata"]["uid"] for pod in client.pods(namespace, "doomed")}
    start_all(stack, POLICY)

    held = quarantined(stack, doomed)
    sidecar = bed.wear.sidecar
    wait_until(lambda: len(client.pods_ready_with_sidecar(namespace, sidecar, "sound")) == PODS, "the sound", 90)

    after = {pod["metadata"]["uid"] for pod in client.pods(namespace, "doomed")}
    assert 1 <= len(before - after) <= ATTEMPTS
    assert len(set(intents_of(stack, "doomed"))) <= ATTEMPTS
    assert held.evidence["code"] == "came_back_bare"
    assert held.evidence["ref"]["name"] == "doomed"
    assert f"{ATTEMPTS} repairs failed" in held.evidence["reason"]
    assert outcomes_of(stack, "came_back_bare") == ["failed"] * (ATTEMPTS - 1) + ["quarantined"]
    assert [each.uid for each in stack.ledger.quarantines()] == [doomed]
    # Each of its pods says why it is left alone, also the last one that came back bare.
    wait_until(lambda: refused(stack) >= after, "a refusal for each of its pods", 60)
    assert {pod["metadata"]["uid"] for pod in client.pods(namespace, "doomed")} == after


def test_the_command_line_shows_a_quarantine_and_ends_it(
    bed: TestBed, client: Client, namespace: str, stack: Stack, doomed: str
) -> None:
    start_all(stack, POLICY)
    quarantined(stack, doomed)
    (shown,) = listed(stack)
    assert shown["uid"] == doomed
    assert "ReplicaSet/doomed" in remesh(stack, "quarantine", "list").stdout
    tried = intents_of(stack, "doomed")

    said = remesh(stack, "quarantine", "clear", "ReplicaSet/doomed", "--namespace", namespace)

    assert doomed in said.stdout + said.stderr
    assert notes(stack, "quarantine_cleared")
    wait_until(lambda: len(intents_of(stack, "doomed")) > len(tried), "it is tried again", 60)
    quarantined(stack, doomed)
    assert len(set(intents_of(stack, "doomed"))) <= 2 * ATTEMPTS


def test_another_webhook_configuration_ends_a_quarantine(
    bed: TestBed, client: Client, namespace: str, stack: Stack, doomed: str
) -> None:
    start_all(stack, POLICY)
    quarantined(stack, doomed)
    tried = intents_of(stack, "doomed")

    client.change_webhooks(bed.wear.configuration, timeoutSeconds=bed.wear.timeout_seconds + 1)

    wait_until(lambda: len(intents_of(stack, "doomed")) > len(tried), "it is tried again", 60)
    assert notes(stack, "quarantine_ended")
    quarantined(stack, doomed)
    assert len(set(intents_of(stack, "doomed"))) <= 2 * ATTEMPTS


def test_another_template_ends_a_quarantine_and_its_pods_are_healed(
    bed: TestBed, client: Client, namespace: str, stack: Stack, doomed: str
) -> None:
    start_all(stack, POLICY)
    quarantined(stack, doomed)

    without = {"spec": {"template": {"metadata": {"labels": {KEY: None}}}}}
    client.api.patch(w.path("ReplicaSet", namespace, "doomed"), without)

    client.wait_healed(namespace, bed.wear.sidecar, 2 * PODS, 120)


def refused(stack: Stack) -> set[str]:
    """UIDs of the pods that are left alone because of a quarantine, by what the trail says."""
    found = stack.records(types=[RecordType.REFUSAL])
    ended = [r for r in stack.outcomes() if r.details["result"] == "quarantined"]
    return {r.ref.uid for r in [*found, *ended] if r.ref and (r.code == "quarantined" or r in ended)}
