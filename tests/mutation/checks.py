"""What has to hold for any mutant. Each check returns a word for the count, and raises where something does not hold.

The rule for an act is read off the raw document, not off remesh's own reading of it: what the raw document does not
plainly show to be a bare, running, owned pod must never be recreated.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remesh import chain
from remesh.admission import would_call
from remesh.audit import _decode, record_of_finding, record_of_request, to_json_line
from remesh.classify import base_class, classify, service_named, webhook_named
from remesh.cli.text import one_line
from remesh.decide import decide
from remesh.detect import explain_document, finding_for
from remesh.documents import load_documents
from remesh.errors import ClusterError, ConfigError, RemeshError, UsageError
from remesh.kube.api import count_endpoints
from remesh.kube.config import load_access
from remesh.kube.decode import decode_list, decode_object, decode_status, decode_watch_line
from remesh.kube.failures import Answer, answer_error
from remesh.kube.protobuf import decode_pods
from remesh.meshes import load_profiles
from remesh.models import (
    Action,
    AuditRecord,
    BaseClass,
    Decision,
    FailureClass,
    InjectorHealth,
    Observed,
    Probe,
    RecordType,
    RepairRequest,
)
from remesh.objects import NAME_CHARACTERS, Namespace, Pod, Webhook, WebhookConfiguration, Workload
from remesh.observe import observe
from remesh.policy import Policy, load_policy
from tests.mutation import seeds
from tests.unit.objects import PROFILES
from watcher.store import LOOKED_AT, Store
from workers.tasks import Malformed, decode

POLICY = Policy()
PROBES = (Probe.PASSES, Probe.FAILS, Probe.UNKNOWN)
PROTECTED = POLICY.scope.protected_namespaces
GOOD = (FailureClass.HEALTHY, FailureClass.HAS_SIDECAR, FailureClass.NOT_EXPECTED, FailureClass.NOT_APPLICABLE)
# What somebody said no to: however well the injector works, trying again is not what was asked for.
NO = (BaseClass.WEBHOOK_DENIED, BaseClass.QUOTA, BaseClass.POD_SECURITY, BaseClass.SERVICE_ACCOUNT)


def _template_of_stuck() -> tuple[bytes, bytes]:
    """A stuck ReplicaSet's JSON on both sides of its failure text."""
    document = json.loads(json.dumps(seeds.OBJECTS[2]))
    document["status"]["conditions"][0]["message"] = "@"
    before, after = json.dumps(document).encode().split(b'"@"')
    return before, after


BEFORE, AFTER = _template_of_stuck()


def _stuck(text: str) -> bytes:
    return BEFORE + json.dumps(text).encode() + AFTER


def fixed_store() -> Store:
    """A meshed namespace and a live injector."""
    store = Store()
    store.apply("Namespace", "ADDED", decode_object("Namespace", json.dumps(seeds.NAMESPACE).encode()))
    webhook = decode_object("MutatingWebhookConfiguration", json.dumps(seeds.WEBHOOK).encode())
    store.apply("MutatingWebhookConfiguration", "ADDED", webhook)
    return store


STORE = fixed_store()


def check_text(text: str, probe: Probe, *, whole: bool = True) -> str:
    """A failure text from the API server's bytes to the decision; `whole`: on to finding, record, task and screen."""
    try:
        workload = decode_object("ReplicaSet", _stuck(text))
    except ClusterError:
        return "refused as no JSON"
    found = classify(text)
    assert found not in (*GOOD, FailureClass.MISSING_SIDECAR), f"a text alone says {found}"
    webhook_named(text)
    service_named(text)
    decision = _decided(workload, STORE, probe, whole=whole)
    assert decision.failure_class not in GOOD, f"three pods are missing, and it says {decision.failure_class}"
    if decision.action is Action.NUDGE_OWNER:
        assert probe is Probe.PASSES, "nudged without a dry run that passes"
        assert base_class(found) not in NO, f"nudged after {found}"
    assert decision.action is not Action.RECREATE_POD
    return decision.failure_class.value


def _decided(obj: Workload | Pod, store: Store, probe: Probe, *, whole: bool = True) -> Decision:
    """Decide, and everything that is then made of the decision."""
    health = InjectorHealth(ready=probe is not Probe.FAILS, probe=probe)
    observed = observe(obj, store, health=health, now=seeds.NOW)
    decision = decide(observed, POLICY, PROFILES, seeds.NOW)
    assert decision.reason
    if whole:
        assert one_line(decision.reason).isprintable()
    if whole and decision.is_finding:
        _followed(observed, decision)
    return decision


def _followed(observed: Observed, decision: Decision) -> None:
    finding = finding_for(observed, decision, cluster="test", now=seeds.NOW)
    _kept(record_of_finding(finding, RecordType.FINDING, at=seeds.NOW, details={"message": finding.message}))
    if finding.action not in (Action.NUDGE_OWNER, Action.RECREATE_POD) or not finding.ref.uid:
        return
    request = RepairRequest(
        cluster="test",
        finding_id=finding.id,
        ref=finding.ref,
        mesh=finding.mesh,
        cause=finding.failure_class,
        action=finding.action,
        requested_at=seeds.NOW,
    )
    if (request.task_id + finding.ref.uid).isprintable():  # else no API server sent it, and no worker takes it
        assert decode(json.loads(json.dumps(request.model_dump(mode="json"))), "test") == request
    _kept(record_of_request(request, RecordType.INTENT, at=seeds.NOW))


def _kept(record: AuditRecord) -> None:
    """A record comes back as it was, from one line that verifies."""
    text = to_json_line(record)
    assert "\n" not in text
    assert AuditRecord.model_validate_json(text) == record
    link = chain.link_hash(chain.START, 1, chain.digest(text))
    back = chain.from_line(chain.to_line(chain.Entry("1-0", text, 1, link)), 1)
    assert back is not None
    assert back.text == text


def check_object(kind: str, data: bytes, probe: Probe) -> str:
    """An object from the API server: read alone, in a list and by a watch; kept; judged."""
    try:
        found = decode_object(kind, data)
    except ClusterError:
        if data.strip():
            _refused_everywhere(kind, data)
        return "refused"
    event = decode_watch_line(kind, b'{"type":"MODIFIED","object":' + data + b"}")
    assert event.type == "MODIFIED"
    assert len(decode_list(kind, b'{"metadata":{},"items":[' + data + b"]}").items) == 1
    return _judged(kind, found, data, probe)


def check_pods(body: bytes, probe: Probe) -> str:
    """A list of pods as protobuf: refused, or each pod is judged, and what is done with it is allowed."""
    try:
        found = decode_pods(body)
    except ClusterError as error:
        return _refused(error)
    for pod in found.items:
        assert len(pod.metadata.name) <= NAME_CHARACTERS
        decision = _decided(pod, STORE, probe)
        _require_allowed("Pod", decision, msgspec.to_builtins(pod), probe)
    return "judged"


def _refused_everywhere(kind: str, data: bytes) -> None:
    for call in (
        lambda: decode_watch_line(kind, b'{"type":"ADDED","object":' + data + b"}"),
        lambda: decode_list(kind, b'{"metadata":{},"items":[' + data + b"]}"),
    ):
        try:
            call()
        except ClusterError:
            continue
        raise AssertionError("refused alone, and taken otherwise")


def _judged(kind: str, found: Any, data: bytes, probe: Probe) -> str:
    store = STORE
    if kind not in LOOKED_AT:
        store = fixed_store()
        store.apply(kind, "MODIFIED", found)
    if isinstance(found, (Workload, Pod)):
        if kind not in LOOKED_AT:
            return "kept"
        decision = _decided(found, store, probe)
        _require_allowed(kind, decision, json.loads(data.decode("utf-8", "replace")), probe)
        store.apply(kind, "ADDED", found)
        store.apply(kind, "DELETED", found)
        return decision.action.value
    if kind == "EndpointSlice":
        counted = count_endpoints([found])
        assert 0 <= counted.ready <= counted.total
        return "counted"
    if isinstance(found, (Namespace, WebhookConfiguration)):
        return _around(store, probe)
    return "kept"


def _around(store: Store, probe: Probe) -> str:
    """The same pod and workload in odd surroundings."""
    for each in store.webhooks():
        _asked(each[1], store.namespace("shop"))
    actions = set()
    for document in seeds.OBJECTS[:3]:
        data = json.dumps(document).encode()
        decision = _decided(decode_object(document["kind"], data), store, probe)
        _require_allowed(document["kind"], decision, document, probe)
        actions.add(decision.action.value)
    return "+".join(sorted(actions))


def _asked(webhook: Webhook, namespace: Namespace | None) -> None:
    for labels in (None, {}, {"app": "web"}):
        would_call(webhook, namespace, labels)


def _require_allowed(kind: str, decision: Decision, raw: Any, probe: Probe) -> None:
    if decision.action not in (Action.NUDGE_OWNER, Action.RECREATE_POD):
        return
    assert probe is Probe.PASSES, f"{decision.action} without a dry run that passes"
    meta, spec, status = (_map(raw.get(name)) for name in ("metadata", "spec", "status"))
    assert not meta.get("deletionTimestamp"), f"{decision.action} of what is going away"
    assert meta.get("namespace") not in PROTECTED, f"{decision.action} in a protected namespace"
    if decision.action is Action.NUDGE_OWNER:
        assert kind != "Pod"
        return
    assert kind == "Pod"
    names = [each.get("name") for part in ("containers", "initContainers") for each in spec.get(part) or []]
    assert "linkerd-proxy" not in names, "an injected pod"
    assert not spec.get("hostNetwork"), "on the host's network"
    assert status.get("phase") not in ("Succeeded", "Failed"), "a finished pod"
    told = {**_map(meta.get("labels")), **_map(meta.get("annotations"))}
    assert told.get("linkerd.io/inject") != "disabled", "opted out"
    assert "kubernetes.io/config.mirror" not in told, "a mirror pod"
    owners = [each for each in meta.get("ownerReferences") or [] if each.get("controller") is True]
    assert owners, "a pod that nobody would create again"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _refused(error: RemeshError, name: str = "") -> str:
    """One clear line, not too long for a screen's few."""
    line = str(error)
    assert line
    assert "\n" not in line
    assert len(line) < 2000
    assert name in line
    return "refused"


def check_document(text: str) -> str:
    """A file given to `remesh explain -f`."""
    try:
        for document in load_documents(text, "odd.json"):
            decision = explain_document(document, POLICY, PROFILES, seeds.NOW)
            assert decision.action is not Action.RECREATE_POD or json.loads(text), "recreate offline"
    except UsageError as error:
        return _refused(error)
    return "explained"


def check_payload(payload: Any) -> str:
    """A task's payload: a request, or one clear line. What is taken is bounded, and of this version."""
    try:
        request = decode(payload, "test")
    except Malformed as error:
        return _refused(error)
    assert request.version == 1
    assert request.ref.uid
    assert len(request.model_dump_json()) < 10_000
    assert request.task_id.isprintable()
    _kept(record_of_request(request, RecordType.INTENT, at=seeds.NOW))
    return "taken"


def check_record(text: str) -> str:
    """An entry of the trail: shown, exported and verified, whatever it is."""
    record = _decode("5-1", {"r": text}, "test")
    verifier = chain.Verifier(key=b"k" * 16, cluster="test")
    entry = chain.Entry("5-1", text, 1, chain.link_hash(chain.START, 1, chain.digest(text)))
    verifier.take(entry)
    assert verifier.end().wrong <= 1  # a seal that is none
    back = chain.from_line(chain.to_line(entry), 1)
    assert back is not None
    assert (back.text, back.hash) == (text, entry.hash)
    to_json_line(record)
    return "unreadable" if record.code == "unreadable" else "read"


def check_line(line: str) -> str:
    """A line of an export."""
    verifier = chain.Verifier(whole=False)
    chain.check_lines([line], verifier)
    report = verifier.end()
    return "named" if report.wrong else "passed"


def check_policy(text: bytes, folder: Path) -> str:
    """A policy file: a policy, or a line that names the file."""
    file = folder / "policy.toml"
    file.write_bytes(text)
    try:
        policy = load_policy(file)
    except ConfigError as error:
        return _refused(error, "policy.toml")
    assert policy.window.minimum <= policy.window.maximum
    return "taken"


def check_profile(text: bytes, folder: Path) -> str:
    """A mesh profile: taken and then used, or refused with a line that names the file."""
    file = folder / "odd.toml"
    file.write_bytes(text)
    try:
        profiles = load_profiles(folder)
    except ConfigError as error:
        return _refused(error)
    for document in seeds.OBJECTS[:3]:
        obj = decode_object(document["kind"], json.dumps(document).encode())
        observed = observe(obj, STORE, health=InjectorHealth(probe=Probe.FAILS), now=seeds.NOW)
        decision = decide(observed, POLICY, profiles, seeds.NOW)
        assert decision.action not in (Action.NUDGE_OWNER, Action.RECREATE_POD)
    return "taken"


def check_kubeconfig(text: bytes, folder: Path) -> str:
    """A kubeconfig: an access, or one line without its secrets. Nothing is connected to, and no plugin is run."""
    file = folder / "kubeconfig"
    file.write_bytes(text)
    try:
        load_access(file, None)
    except RemeshError as error:
        return _refused(error)
    return "taken"


def check_answer(status: int, body: bytes) -> str:
    """An answer that is no success: always one of the tree, with one line."""
    decode_status(body)
    error = answer_error(Answer("https://127.0.0.1", "x", "GET /api/v1/pods", status, body, "soon"))
    return type(error).__name__


def as_yaml(document: Any) -> bytes:
    """A document as a person's file; what YAML cannot write goes as JSON, which is YAML too."""
    try:
        return yaml.safe_dump(document).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, RecursionError, UnicodeEncodeError):
        return json.dumps(document).encode()
