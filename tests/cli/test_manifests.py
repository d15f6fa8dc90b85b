"""`remesh audit manifest`: what a person needs to bring a pod back, and no secret that was not asked for."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import yaml
from pydantic import SecretStr

from remesh import redisdb
from remesh.audit import Trail, record
from remesh.kube.manifest import COVERED
from remesh.ledger import Ledger
from remesh.models import ObjectRef, RecordType
from remesh.settings import Settings
from tests.cli.conftest import Remesh

SECRETS = ("hunter2", "--token=abc123", "Bearer xyz789", "t0p-s3cret")


def manifest(name: str = "lonely", namespace: str = "shop") -> dict[str, Any]:
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRETS[2]}]}}
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "args": [SECRETS[1]],
        "env": [
            {"name": "PASSWORD", "value": SECRETS[0]},
            {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "kept-apart", "key": "k"}}},
        ],
        "livenessProbe": probe,
    }
    metadata = {"name": name, "namespace": namespace, "annotations": {"note": SECRETS[3]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


class Store:
    """Trail and ledger of a cluster that no other test has."""

    def __init__(self, url: str) -> None:
        self.cluster = f"kept-{uuid4().hex[:8]}"
        settings = Settings(cluster=self.cluster, redis_url=SecretStr(url))
        self.redis = redisdb.connect(settings)
        self.ledger = Ledger(self.redis, self.cluster, settings.key_prefix)
        self.trail = Trail(self.redis, self.cluster, settings.key_prefix)

    def keep(self, uid: str, kept: dict[str, Any], *, intended: bool = True) -> None:
        """As a worker does before it evicts."""
        digest = self.ledger.keep_manifest(uid, kept)
        if intended:
            self.note(uid, kept, RecordType.INTENT, {"manifest": {"digest": digest}}, "evict it and create it again")

    def note(self, uid: str, kept: dict[str, Any], kind: RecordType, details: dict[str, Any], reason: str) -> None:
        meta = kept["metadata"]
        ref = ObjectRef(api_version="v1", kind="Pod", namespace=meta["namespace"], name=meta["name"], uid=uid)
        at = datetime.now(UTC)
        self.trail.append(record(kind, cluster=self.cluster, at=at, ref=ref, reason=reason, details=details))


@pytest.fixture
def store(remesh: Remesh, redis_url: str) -> Iterator[Store]:
    made = Store(redis_url)
    remesh.set(REMESH_REDIS_URL=redis_url, REMESH_CLUSTER=made.cluster)
    yield made
    made.redis.close()


def test_the_list_says_of_each_what_became_of_it_and_shows_no_secret(remesh: Remesh, store: Store) -> None:
    kept = manifest()
    store.keep("uid-1", kept)
    store.note("uid-1", kept, RecordType.OUTCOME, {"result": "failed"}, "a person has to create it")
    store.keep("uid-2", manifest("other", "bank"))

    answer = remesh("audit", "manifest")

    assert answer.code == 0
    lines = {line.split()[1]: line for line in answer.out.splitlines()[1:]}
    assert set(lines) == {"lonely", "other"}
    assert "uid-1" in lines["lonely"]
    assert "failed" in lines["lonely"]
    assert "a person has to create it" in lines["lonely"]
    assert "open" in lines["other"]
    assert "forged" not in answer.out
    assert [line.split()[1] for line in remesh("audit", "manifest", "-n", "bank").out.splitlines()[1:]] == ["other"]
    document = remesh("audit", "manifest", "-o", "json")
    assert [each["uid"] for each in json.loads(document.out)["items"]] == ["uid-2", "uid-1"]
    assert not any(secret in answer.out + document.out for secret in SECRETS)


def test_one_is_shown_with_its_secrets_covered_and_in_a_form_that_nothing_creates(remesh: Remesh, store: Store) -> None:
    store.keep("uid-1", manifest())

    answer = remesh("audit", "manifest", "pod/lonely", "-n", "shop")

    assert answer.code == 0
    shown = yaml.safe_load(answer.out)
    assert shown["kind"] == "KeptManifest"
    (container,) = shown["manifest"]["spec"]["containers"]
    assert container["image"] == "registry.example/app:1"
    assert container["env"][0] == {"name": "PASSWORD", "value": COVERED}
    assert container["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "kept-apart"
    assert not any(secret in answer.out + answer.err for secret in SECRETS)
    assert "--show-secrets" in answer.err


@pytest.mark.parametrize("target", [("pod/lonely", "-n", "shop"), ("uid-1",)], ids=["by name", "by UID"])
def test_the_whole_manifest_is_printed_only_when_asked_for_and_that_is_written_down(
    remesh: Remesh, store: Store, target: tuple[str, ...]
) -> None:
    store.keep("uid-1", manifest())

    answer = remesh("audit", "manifest", *target, "--show-secrets")

    assert yaml.safe_load(answer.out) == manifest()
    assert answer.err == ""
    (note,) = store.trail.read(types=[RecordType.NOTE])
    assert (note.code, note.ref and note.ref.uid) == ("manifest_shown", "uid-1")
    assert "@" in note.actor
    assert not any(secret in note.model_dump_json() for secret in SECRETS)
    assert json.loads(remesh("audit", "manifest", *target, "--show-secrets", "-o", "json").out) == manifest()


def test_a_manifest_that_no_intent_names_is_said_to_be_possibly_forged(remesh: Remesh, store: Store) -> None:
    store.keep("uid-1", manifest(), intended=False)

    assert "may be forged" in remesh("audit", "manifest").out
    assert "may be forged" in remesh("audit", "manifest", "uid-1").err
    assert "may be forged" in remesh("audit", "manifest", "uid-1", "--show-secrets").err


def test_of_several_of_one_name_the_newest_is_shown_and_the_others_named(remesh: Remesh, store: Store) -> None:
    for uid in ("uid-1", "uid-2"):
        store.keep(uid, manifest())
    store.redis.expire(f"remesh:{{{store.cluster}}}:manifest:uid-1", 60)

    answer = remesh("audit", "manifest", "pod/lonely", "-n", "shop")

    assert yaml.safe_load(answer.out)["uid"] == "uid-2"
    assert "uid-1" in answer.err


def test_what_cannot_be_read_keeps_the_others_from_nobody(remesh: Remesh, store: Store) -> None:
    store.keep("uid-1", manifest())
    base = f"remesh:{{{store.cluster}}}:manifest:"
    store.redis.set(base + "broken", "hunter2")
    odd = {"salt": "x", "manifest": {"metadata": {"name": "n" * 5000, "namespace": ["a"]}}}
    store.redis.set(base + "odd" * 100, json.dumps(odd))

    answer = remesh("audit", "manifest")

    assert answer.code == 0
    assert "lonely" in answer.out
    assert "hunter2" not in answer.out + answer.err


def test_nothing_kept_is_said(remesh: Remesh, store: Store) -> None:
    assert remesh("audit", "manifest").err.startswith("No manifests are kept for cluster")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("manifest", "--show-secrets"), 2, "needs one pod"),
        (("manifest", "--since", "1h"), 2, "takes no --since"),
        (("manifest", "-f"), 2, "takes no --follow"),
        (("manifest", "rs/web"), 2, "is no pod"),
        (("manifest", "pod/none", "-n", "shop"), 6, "no manifest is kept of pod shop/none"),
        (("manifest", "no-such-uid"), 6, "no manifest is kept under UID no-such-uid"),
        (("pod/lonely", "pod/other"), 2, "one argument too many"),
        (("--show-secrets",), 2, "the trail holds no secrets"),
    ],
)
def test_wrong_use_is_one_line(remesh: Remesh, store: Store, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = remesh("audit", *arguments)

    assert answer.code == code
    assert words in answer.line
