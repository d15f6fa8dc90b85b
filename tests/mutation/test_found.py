"""What mutation has found, each by name; and the payloads that every later version has to understand."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest

from remesh.errors import ClusterError
from remesh.kube.decode import decode_list, decode_object, decode_status, decode_watch_line
from remesh.meshes import load_profiles
from remesh.models import Action, AuditRecord, Probe, RecordType, RepairRequest, Result
from remesh.objects import ManagedFields, Namespace, NamespaceMeta
from remesh.policy import Policy
from tests.mutation import checks, seeds
from tests.watcher.test_runtime import PASSES, World, replica_set
from tests.workers import doubles as d
from workers import tasks

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / name).read_text(encoding="utf-8"))


def stuck(**spec: Any) -> bytes:
    document = json.loads(json.dumps(seeds.OBJECTS[2]))
    document["spec"].update(spec)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "spec",
    [
        {"template": 5},
        {"template": None},
        {"template": {"spec": {"containers": {}}}},
        {"template": {"metadata": {"labels": {"a": 1}}}},
        {"selector": 5},
    ],
    ids=str,
)
def test_a_template_or_selector_of_another_type_is_a_cluster_error(spec: dict[str, Any]) -> None:
    data = stuck(**spec)
    for call in (
        lambda: decode_object("ReplicaSet", data),
        lambda: decode_list("ReplicaSet", b'{"items":[' + data + b"]}"),
        lambda: decode_watch_line("ReplicaSet", b'{"type":"ADDED","object":' + data + b"}"),
    ):
        with pytest.raises(ClusterError, match="the API server sent something that is not a"):
            call()


def test_a_template_that_is_no_utf8_is_a_cluster_error() -> None:
    data = stuck().replace(b'"value": "b"', b'"value": "\xff"')
    with pytest.raises(ClusterError, match="not a ReplicaSet"):
        decode_object("ReplicaSet", data)


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet", "Namespace"])
def test_an_object_nested_too_deeply_is_a_cluster_error(kind: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(ClusterError):
        decode_object(kind, b'{"metadata":' + deep + b"}")
    with pytest.raises(ClusterError):
        decode_object(kind, b'{"spec":{"template":{"x":' + deep + b'}},"status":{"phase":' + deep + b"}}")
    assert decode_status(b'{"details":' + deep + b"}") is None


@pytest.mark.parametrize(("key", "length"), [("name", 254), ("namespace", 254), ("uid", 65)])
def test_a_name_that_no_api_server_stores_is_a_cluster_error(key: str, length: int) -> None:
    document = json.loads(json.dumps(seeds.OBJECTS[0]))
    document["metadata"][key] = "a" * length
    with pytest.raises(ClusterError, match="metadata"):
        decode_object("Pod", json.dumps(document).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"f:metadata": 5},
        {"f:metadata": []},
        {"f:metadata": {"f:annotations": True}},
        {"f:metadata": {"f:annotations": 1}},
    ],
    ids=str,
)
def test_managed_fields_of_another_shape_name_nothing(fields: dict[str, Any]) -> None:
    from remesh.since import requested_since

    entry = ManagedFields(time="2026-06-01T10:00:00Z", fields_v1=fields)
    namespace = Namespace(metadata=NamespaceMeta(name="shop", managed_fields=[entry]))
    for profile in load_profiles().all:
        assert requested_since(namespace, profile) is None


@pytest.fixture
def world() -> Iterator[d.World]:
    made = d.World(d.FakeCluster(d.a_replica_set(3)))
    yield made
    made.redis.close()


@pytest.fixture
def watched() -> Iterator[World]:
    """A watcher that has released one finding."""
    with fakeredis.FakeRedis(decode_responses=True) as redis:
        made = World(Policy(), load_profiles(), redis)
        made.answer = lambda _finding: PASSES
        made.store.replace("ReplicaSet", [replica_set("web")])
        made.rounds()
        yield made
        made.watcher.gatekeeper.close()


def served(world: d.World, payload: Any) -> dict[str, Any]:
    task: Any = SimpleNamespace(
        request=SimpleNamespace(id="task-1", retries=0), send_event=lambda name, *, retry, **fields: None
    )
    return tasks.serve(task, payload, world.ctx)


def refused(world: d.World, payload: Any) -> str:
    """The reason in the trail; nothing was written to the cluster."""
    assert served(world, payload)["code"] == "malformed"
    assert isinstance(world.cluster, d.FakeCluster)
    assert world.cluster.writes == []
    (said,) = world.records(RecordType.REFUSAL)
    assert said.code == "malformed"
    assert said.reason.isprintable()
    return said.reason


@pytest.mark.parametrize(
    "harm",
    [
        {"mesh": "\x1b[2J"},
        {"actor": "alice\nroot"},
        {"ref": {"api_version": "v1", "kind": "Pod", "namespace": "shop", "name": "\u202egnp", "uid": "u"}},
    ],
    ids=["mesh", "actor", "name"],
)
def test_a_payload_with_control_characters_is_refused(world: d.World, harm: dict[str, Any]) -> None:
    payload = d.a_request().model_dump(mode="json") | harm
    assert "control characters" in refused(world, payload)


def test_a_foreign_key_in_a_payload_does_not_break_the_line_that_refuses_it(world: d.World) -> None:
    payload = d.a_request().model_dump(mode="json")
    payload["ref"]["\r\nforged \x1b[31mline" + "x" * 10_000] = 1
    assert len(refused(world, payload)) < 600


@pytest.mark.parametrize("details", [{}, {"result": "reborn"}, {"finding_id": 1}, {"created": "many"}], ids=str)
def test_an_outcome_that_cannot_be_read_does_not_end_the_watcher(watched: World, details: dict[str, Any]) -> None:
    """A newer worker may have results that this watcher does not know; anybody may write to the trail."""
    world = watched
    (request,) = world.sent
    odd = AuditRecord(
        record_id="odd",
        type=RecordType.OUTCOME,
        at=world.clock,
        cluster="test",
        finding_id=request.finding_id,
        task_id=request.task_id,
        details=details,
    )
    world.watcher._outcomes.put(odd)
    world.watcher.tick()
    assert world.state("web") is not None
    world.ended(request, Result.HEALED)
    world.watcher.tick()
    assert world.state("web") is None


@pytest.mark.parametrize("name", ["nudge", "recreate", "least"])
def test_a_payload_of_version_1_is_understood_for_ever(name: str) -> None:
    assert checks.check_payload(recorded(f"version-1/{name}.json")) == "taken"


def test_what_is_sent_now_is_what_was_recorded() -> None:
    """A changed field is a new version: record it beside the old one, and keep both tests."""
    assert seeds.request().model_dump(mode="json") == recorded("version-1/nudge.json")
    assert RepairRequest.model_validate(recorded("version-1/recreate.json")).action is Action.RECREATE_POD


def test_a_field_that_a_newer_sender_added_is_ignored() -> None:
    assert tasks.decode(recorded("newer/added_field.json"), "test") == seeds.request()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("version_2", "version: Input should be 1"),
        ("unknown_action", "action: "),
        ("unknown_cause", "cause: "),
        ("more_identity", "ref.cluster_uid: "),  # who an object is has to be understood whole
    ],
)
def test_what_only_a_newer_worker_understands_is_refused_and_written_down(world: d.World, name: str, said: str) -> None:
    payload = recorded(f"newer/{name}.json") | {"cluster": d.a_request().cluster}
    assert said in refused(world, payload)


def test_a_text_alone_never_nudges() -> None:
    for text in seeds.texts():
        for probe in (Probe.FAILS, Probe.UNKNOWN):
            checks.check_text(text, probe)
