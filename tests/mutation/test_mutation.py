"""Some thousand mutants of everything that comes in; more on demand: `python -m tests.mutation --help`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remesh.models import FailureClass, Probe
from tests.mutation import checks, run
from tests.mutation.run import Tally

SEED = 1


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (run.texts, 1500),
        (run.objects, 600),
        (run.pods, 400),
        (run.documents, 150),
        (run.payloads, 400),
        (run.records, 400),
        (run.answers, 100),
        (run.files, 50),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_mutants_crash_nothing_heal_nothing_and_delete_nothing(kind: Callable[[int, int], Tally], count: int) -> None:
    tally = kind(count, SEED)
    assert tally.failed == 0, "\n".join(tally.lines())
    assert tally.counts.total() == count


def test_the_same_seed_makes_the_same_mutants() -> None:
    assert run.objects(50, 7).counts == run.objects(50, 7).counts
    assert run.objects(50, 7).counts != run.objects(50, 8).counts


def test_the_checks_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would delete an injected pod is caught by the raw document."""
    monkeypatch.setattr(checks, "classify", lambda _text: FailureClass.HEALTHY)
    tally = run.texts(20, SEED)
    assert tally.failed > 10


FEW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@FEW
@given(text=st.text(max_size=400), probe=st.sampled_from(list(Probe)))
def test_any_text_is_classified(text: str, probe: Probe) -> None:
    checks.check_text(text, probe)


@FEW
@given(value=VALUES)
def test_any_payload_is_taken_or_refused(value: object) -> None:
    checks.check_payload(value)


@FEW
@given(text=st.text(max_size=200))
def test_any_text_in_the_trail_is_shown_and_exported(text: str) -> None:
    checks.check_record(text)
    checks.check_line(text)


@FEW
@given(value=VALUES, kind=st.sampled_from(["Pod", "ReplicaSet", "Namespace", "MutatingWebhookConfiguration"]))
def test_any_json_is_an_object_or_refused(value: object, kind: str) -> None:
    checks.check_object(kind, json.dumps(value).encode(), Probe.PASSES)


@FEW
@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    for kind in ("Pod", "ReplicaSet"):
        checks.check_object(kind, data, Probe.PASSES)


@FEW
@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_file_or_refused(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    meshes = Path(folder) / "any-meshes"
    meshes.mkdir(exist_ok=True)
    checks.check_policy(data, folder)
    checks.check_profile(data, meshes)
    checks.check_kubeconfig(data, folder)
