"""The parts of the test cluster that need no control plane."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remesh.testbed import InjectorWear
from tests.cluster import BinariesUnavailable, NotInTime, build, workloads
from tests.cluster.__main__ import guide, main
from tests.cluster.istio_revision import ISTIO_WEAR
from tests.cluster.wait import wait_for
from tests.cluster.webhook import Mode, ModeFile, injection_patch, wants_sidecar

WEAR = InjectorWear()
ASKS = {"annotations": {"linkerd.io/inject": "enabled"}}
REFUSES = {"annotations": {"linkerd.io/inject": "disabled"}}
SHOUTS = {"annotations": {"linkerd.io/inject": "Enabled"}}
SILENT: dict[str, Any] = {}


def pod(metadata: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": [{"name": "app"}], **spec}}


@pytest.mark.parametrize(
    ("pod_metadata", "namespace_metadata", "wanted"),
    [
        (SILENT, SILENT, False),
        (SILENT, ASKS, True),
        (ASKS, SILENT, True),
        (REFUSES, ASKS, False),
        (ASKS, REFUSES, True),
        (SHOUTS, ASKS, False),
        (SILENT, SHOUTS, False),
        ({"annotations": None}, ASKS, True),
    ],
)
def test_word_of_the_pod_goes_before_that_of_its_namespace(
    pod_metadata: dict[str, Any], namespace_metadata: dict[str, Any], wanted: bool
) -> None:
    assert wants_sidecar(WEAR, pod(pod_metadata), namespace_metadata) is wanted


def test_host_network_and_injected_pods_are_left_alone() -> None:
    assert not wants_sidecar(WEAR, pod(ASKS, hostNetwork=True), SILENT)
    assert not wants_sidecar(WEAR, pod(ASKS, initContainers=[{"name": WEAR.sidecar}]), SILENT)


def test_label_can_ask_and_a_wear_without_keys_injects_all() -> None:
    by_label = replace(WEAR, ask_annotation=None, ask_label=("kuma.io/sidecar-injection", "enabled"))
    assert wants_sidecar(by_label, pod({"labels": {"kuma.io/sidecar-injection": "enabled"}}), SILENT)
    assert not wants_sidecar(by_label, pod(ASKS), SILENT)
    assert wants_sidecar(replace(WEAR, ask_annotation=None), pod(SILENT), SILENT)


def test_patch_adds_the_sidecar_where_the_wear_has_it() -> None:
    native = injection_patch(WEAR, pod(SILENT, initContainers=[{"name": "first"}]))[-1]
    assert native["path"] == "/spec/initContainers"
    assert [container["name"] for container in native["value"]] == [WEAR.sidecar, "first"]
    assert native["value"][0]["restartPolicy"] == "Always"

    ordinary = injection_patch(replace(WEAR, native_sidecar=False), pod(SILENT))[-1]
    assert (ordinary["path"], ordinary["value"]["name"]) == ("/spec/containers/-", WEAR.sidecar)


def test_mode_is_in_force_as_soon_as_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mode.json"
    path.write_text("{}")
    mode = ModeFile(path)
    assert mode.current() == Mode()

    fresh = tmp_path / "mode.new"
    fresh.write_text(json.dumps({"delay_ms": 5, "answer": "deny"}))
    fresh.replace(path)
    assert mode.current() == Mode(delay_ms=5, answer="deny")


def test_labels_for_a_selector_satisfy_it() -> None:
    selector = {
        "matchLabels": {"istio-injection": "enabled"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
            {"key": "present", "operator": "Exists"},
            {"key": "absent", "operator": "DoesNotExist"},
            {"key": "name", "operator": "NotIn", "values": ["kube-system"]},
        ],
    }
    assert workloads.labels_for(selector) == {"istio-injection": "enabled", "tier": "gold", "present": "true"}


def test_assets_go_before_the_cache_and_the_cache_before_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    for program in build.PROGRAMS:
        put_program(build.cache_directory(program.module) / program.name)
    put_program(assets / "etcd")

    found = build.ensure()

    assert found["etcd"] == assets / "etcd"
    assert found["kwok"] == build.cache_directory("kwok") / "kwok"


def test_missing_programs_without_go_are_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("REMESH_GO", raising=False)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    with pytest.raises(BinariesUnavailable, match=r"kube-apiserver.* install Go .* or set KUBEBUILDER_ASSETS"):
        build.ensure()
    assert "\n" not in str(build.unavailable_reason())


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("none", "REMESH_GO=none forbids to build them"),
        ("/no/such/go", "REMESH_GO names /no/such/go, and there is no such command"),
    ],
)
def test_go_can_be_ruled_out_and_a_wrong_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, complaint: str
) -> None:
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("REMESH_GO", value)

    with pytest.raises(BinariesUnavailable, match=complaint):
        build.ensure()
    assert "\n" not in str(build.unavailable_reason())


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    put_program(go, "#!/bin/sh\necho out of memory >&2\nexit 2\n")
    monkeypatch.setenv("REMESH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("REMESH_GO", str(go))
    progress = io.StringIO()

    with pytest.raises(BinariesUnavailable, match="etcd failed: out of memory"):
        build.ensure(out=progress)

    assert "building etcd (1 of 5)" in progress.getvalue()
    assert list(build.cache_directory("controlplane").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["fault", "tired"], 2, "there is no fault 'tired'"),
        (["fault", "slow"], 1, "needs --delay-ms"),
        (["fault", "killed", "--delay-ms", "5"], 1, "no other fault takes it"),
        (["up", "--nodes", "0"], 2, "not a whole number above 0"),
        (["heal", "--name", "../etc"], 1, "is no name for a cluster"),
        (["heal", "--name", "nobody"], 1, "no test cluster named 'nobody' is running"),
        ([], 2, "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_line(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    assert exit_code(lambda: main(arguments)) == code

    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(NotInTime, match="in vain for the moon"):
        wait_for(lambda: None, "the moon", timeout=0.01)


def exit_code(run: Callable[[], int]) -> object:
    try:
        return run()
    except SystemExit as stop:
        return stop.code


def put_program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_up_says_what_a_namespace_needs_and_how_to_break_the_injector() -> None:
    asks, faults = guide("default", InjectorWear())
    assert "kubectl annotate namespace shop linkerd.io/inject=enabled" in asks
    assert "`python -m tests.cluster fault killed`" in faults
    assert "`python -m tests.cluster heal`" in faults
    assert "kubectl label namespace shop istio-injection=enabled" in guide("default", ISTIO_WEAR)[0]
    assert "heal --name mine`" in guide("mine", InjectorWear())[1]


def test_without_what_developing_takes_it_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.cluster", "up"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("pip install -e '.[dev]'")
