"""`remesh explain -f`: no cluster, no Redis, the same decisions."""

import json
import os
import threading
from pathlib import Path

import pytest
import yaml

from remesh.cli import exits
from tests.cli.conftest import Remesh

CASES = Path(__file__).parents[1] / "cases" / "cases.jsonl"


def test_every_public_case_gets_its_class_and_action(remesh: Remesh) -> None:
    expected = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    answer = remesh("explain", "-f", CASES, "-o", "jsonl")
    found = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 0
    assert [(each["id"], each["class"], each["action"]) for each in found] == [
        (case["id"], case["expect_class"], case["expect_action"]) for case in expected
    ]
    assert all(set(each) == {"id", "class", "action", "reason"} and each["reason"] for each in found)
    assert len(found) == 87


DEPLOYED = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: app-1, namespace: shop}
spec:
  replicas: 3
  template:
    metadata: {annotations: {linkerd.io/inject: enabled}}
    spec: {containers: [{name: app, image: app}]}
status:
  replicas: 0
  conditions:
  - type: ReplicaFailure
    status: "True"
    reason: FailedCreate
    message: >-
      Internal error occurred: failed calling webhook "linkerd-proxy-injector.linkerd.io": failed to call webhook:
      Post "https://linkerd-proxy-injector.linkerd.svc:443/?timeout=10s": connect: connection refused
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: app-2, namespace: shop}
spec: {replicas: 1}
status: {replicas: 1, readyReplicas: 1}
"""


def test_a_manifest_of_several_documents(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(DEPLOYED)
    answer = remesh("explain", "-f", path, "-o", "jsonl")
    first, second = (json.loads(line) for line in answer.out.splitlines())
    assert (first["class"], first["action"]) == ("webhook_connection_refused", "wait_for_injector")
    assert (second["class"], second["action"]) == ("healthy", "none")
    assert "app-1" in first["id"]


def test_the_namespace_option_fills_in_what_manifests_leave_out_and_contradicts_none(
    remesh: Remesh, tmp_path: Path
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(DEPLOYED.replace(", namespace: shop", "", 1))
    answer = remesh("explain", "-f", path, "-n", "shop", "-o", "jsonl")
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == [
        "ReplicaSet/app-1 -n shop",
        "ReplicaSet/app-2 -n shop",
    ]
    refused = remesh("explain", "-f", path, "-n", "other")
    assert (refused.code, refused.out) == (exits.USAGE, "")
    assert "ReplicaSet/app-2 is in namespace 'shop'" in refused.err


def test_a_list_is_taken_apart(remesh: Remesh, tmp_path: Path) -> None:
    items = list(yaml.safe_load_all(DEPLOYED))
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert len(remesh("explain", "-f", path, "-o", "jsonl").out.splitlines()) == 2


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_carry_the_whole_decision(remesh: Remesh, tmp_path: Path, output: str) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(DEPLOYED)
    document = yaml.safe_load(remesh("explain", "-f", path, "-o", output).out)
    assert document["kind"] == "DecisionList"
    assert document["items"][0]["after_recovery"] == "nudge_owner"
    assert document["items"][0]["injector"]["mesh"] == "linkerd"


def test_the_table_has_one_line_for_each(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(DEPLOYED)
    lines = remesh("explain", "-f", path).out.splitlines()
    assert lines[0].split() == ["ID", "CLASS", "ACTION", "REASON"]
    assert "wait_for_injector, then nudge_owner" in lines[1]
    assert len(lines) == 3


NAMESPACE = """
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {linkerd.io/inject: enabled, secret.example/note: x}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: linkerd-proxy-injector-webhook-config}
webhooks:
- name: linkerd-proxy-injector.linkerd.io
  clientConfig: {service: {name: linkerd-proxy-injector, namespace: linkerd}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
"""
MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]
spec: {containers: [{name: app, image: app}]}
"""


def test_one_manifest_is_explained_step_by_step(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(MANIFEST)
    out = remesh("explain", "-f", path).out
    assert "namespace shop is not in the file" in out
    assert "decision" in out
    assert "healthy" not in out


def test_namespace_and_webhooks_of_the_same_file_are_its_surroundings(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "with.yaml"
    path.write_text(MANIFEST + "status: {phase: Running}" + NAMESPACE)
    out = remesh("explain", "-f", path).out
    assert "linkerd.io/inject=enabled" in out
    assert "secret.example" not in out
    assert "(linkerd's injector) sees its pods" in out
    (line,) = (json.loads(text) for text in remesh("explain", "-f", path, "-o", "jsonl").out.splitlines())
    assert line["class"] == "missing_sidecar"


WORKLOAD = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {linkerd.io/inject: %(namespace)s}}
---
apiVersion: apps/v1
kind: %(kind)s
metadata: {name: app, namespace: shop}
spec:
  replicas: 3
  template:
    metadata: {annotations: {linkerd.io/inject: %(pod)s}}
    spec: {containers: [{name: app, image: app}]}
"""


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_the_template_of_a_manifest_is_judged_as_its_pods_would_be(remesh: Remesh, tmp_path: Path, kind: str) -> None:
    def judged(namespace: str, pod: str) -> dict[str, object]:
        path = tmp_path / "workload.yaml"
        path.write_text(WORKLOAD % {"kind": kind, "namespace": namespace, "pod": pod})
        (found,) = json.loads(remesh("explain", "-f", path, "-o", "json").out)["items"]
        assert (found["class"], found["action"], found["code"]) == ("healthy", "none", "not_created")
        return dict(found)

    expected = judged("enabled", "enabled")
    assert expected["sidecar_expected"] is True
    assert expected["reason"] == "it is not in the cluster yet; a pod of it: Linkerd would inject it when it is created"
    refused = judged("enabled", "disabled")
    assert refused["sidecar_expected"] is False
    assert "opts out of Linkerd" in str(refused["reason"])


def test_a_template_whose_namespace_is_not_in_the_file_is_not_said_to_be_unmeshed(
    remesh: Remesh, tmp_path: Path
) -> None:
    path = tmp_path / "workload.yaml"
    text = WORKLOAD % {"kind": "Deployment", "namespace": "", "pod": ""}
    path.write_text(text.split("---")[1].replace("annotations: {linkerd.io/inject: }", "labels: {a: b}"))
    (found,) = json.loads(remesh("explain", "-f", path, "-o", "json").out)["items"]
    assert found["sidecar_expected"] is None
    assert "not in the file" in found["reason"]


def test_a_condition_is_printed_whole(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    document = yaml.safe_load(DEPLOYED.split("---", maxsplit=1)[0])
    document["status"]["conditions"][0]["message"] += " and " * 400 + "the end"
    path.write_text(yaml.safe_dump(document))
    assert "the end\n" in remesh("explain", "-f", path).out


def test_a_hostile_name_does_not_reach_the_terminal(remesh: Remesh, tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    path.write_text(
        json.dumps({"kind": "ReplicaSet", "metadata": {"name": "\x1b[31m\r[bold]x"}, "spec": {"replicas": 0}})
    )
    for output in ("table", "json", "yaml", "jsonl"):
        answer = remesh("explain", "-f", path, "-o", output)
        assert answer.code == 0
        assert "\x1b" not in answer.out
        assert "\r" not in answer.out
        assert "[bold]x" in answer.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: [", "not YAML"),
        ("", "no document"),
        ("- a\n- b\n", "mapping"),
        ("apiVersion: v1\n", "kind: missing"),
        ('{"kind": "ReplicaSet"}\n{"kind": \n', "not JSON"),
        ("kind: ReplicaSet\nspec: {replicas: many}\n", "spec.replicas"),
    ],
)
def test_a_file_that_cannot_be_right(remesh: Remesh, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    answer = remesh("explain", "-f", path)
    assert answer.code == exits.USAGE
    assert words in answer.line
    assert "broken.yaml" in answer.line


def test_a_file_that_is_not_there(remesh: Remesh, tmp_path: Path) -> None:
    answer = remesh("explain", "-f", tmp_path / "gone.yaml")
    assert answer.code == exits.USAGE
    assert "gone.yaml" in answer.line


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_what_is_neither_a_file_nor_a_pipe_is_not_read(remesh: Remesh, device: str) -> None:
    answer = remesh("explain", "-f", device)
    assert answer.code == 2
    assert answer.line == f"remesh: file {device}: neither a file nor a pipe; give a readable file with -f"


def test_a_file_without_end_is_read_to_a_bound(remesh: Remesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    answer = remesh("explain", "-f", path)
    assert (answer.code, "longer than 64 MiB" in answer.line) == (2, True)
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr("sys.stdin", endless)
        answer = remesh("explain", "-f", "-")
    assert (answer.code, "file -: longer than 64 MiB" in answer.line) == (2, True)


def test_a_pipe_is_read_as_a_file_is(remesh: Remesh, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    manifest = b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}'
    writer = threading.Thread(target=pipe.write_bytes, args=[manifest])
    writer.start()
    answer = remesh("explain", "-f", pipe)
    writer.join()
    assert (answer.code, answer.err) == (0, "")
