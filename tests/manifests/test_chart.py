"""The chart and what is rendered from it: drift, schema, and what the manifests say, without a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from remesh import __version__
from remesh.admission import would_call
from remesh.meshes import load_profiles
from remesh.objects import Namespace, NamespaceMeta
from remesh.policy import load_policy
from remesh.profile import Expect
from tests.docs import examples
from tests.manifests import generate, schema, tools
from tests.manifests.tools import CHART, Object, ToolFailed
from tests.stack import ROOT

pytestmark = pytest.mark.usefixtures("deploy_tools")

# Sets of values that exercise every branch of the templates.
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "observe": {"mode": "observe"},
    "bare pods in two namespaces": {
        "policy": {"scope": {"namespaces": ["shop", "bank"]}, "repair": {"bare_pods": True}}
    },
    "shards": {"watcher": {"shards": 3, "replicas": 2}},
    "alone": {"watcher": {"replicas": 1}, "flower": {"enabled": False}, "redis": {"persistence": {"enabled": False}}},
    "everything external": {
        "redis": {"enabled": False},
        "externalRedis": {"existingSecret": "url"},
        "broker": {"existingSecret": "rabbit"},
        "flower": {"existingSecret": "login", "extraArgs": ["--url-prefix=flower"]},
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    },
    "monitored": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}], "flowerFrom": [{"podSelector": {}}]},
    },
    "placed": {
        "priorityClass": {"create": True},
        "imagePullSecrets": [{"name": "pull"}],
        "image": {"repository": "mirror/remesh", "digest": f"sha256:{'a' * 64}"},
        "watcher": {
            "nodeSelector": {"pool": "infra"},
            "tolerations": [{"operator": "Exists"}],
            "podLabels": {"a": "b"},
        },
        "worker": {
            "affinity": {"nodeAffinity": {}},
            "podAnnotations": {"c": "d"},
            "extraEnv": [{"name": "A", "value": "b"}],
        },
    },
    "trusting": {
        "admissionPolicy": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudgets": {"enabled": False},
        "rbac": {"create": False},
    },
    "everything asked": {
        "namespace": {"create": True},
        "kubernetesEvents": True,
        "meshes": {"mine.toml": 'name = "mine"\ntitle = "Mine"\n'},
        "rbac": {"evictions": False, "customOwners": [{"apiGroups": ["argoproj.io"], "resources": ["rollouts"]}]},
        "policy": {"repair": {"impersonate_controller": True}, "detection": {"silent_seconds": 7.5}},
    },
}


def workloads(objects: list[Object]) -> list[Object]:
    return [each for each in objects if "template" in each.get("spec", {})]


def test_what_is_rendered_is_as_the_chart_is() -> None:
    made = generate.files() | generate.kubernetes()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    left = set(tools.KUBERNETES.rglob("*.yaml")) - set(made)
    assert not stale + sorted(left), "out of date: run python -m tests.manifests"


@pytest.mark.parametrize("name", [each.name for each in generate.OVERLAYS])
def test_an_overlay_is_what_the_chart_makes_of_its_values(name: str) -> None:
    built = tools.by_key(tools.kustomize(generate.overlay(name).folder))
    assert built == tools.by_key(generate.manifests(name))


def test_the_linter_finds_nothing() -> None:
    tools.run("helm", "lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_every_set_of_values_renders_objects_with_a_name_and_a_place_of_their_own(values: dict[str, Any]) -> None:
    objects = tools.render(values)
    assert len(tools.by_key(objects)) == len(objects)
    for each in workloads(objects):
        selector = each["spec"]["selector"]["matchLabels"].items()
        assert selector <= each["spec"]["template"]["metadata"]["labels"].items()


WRONG = {
    "mode=reapir": "at '/mode': value must be one of 'observe', 'repair'",
    "bogus=1": "at '': additional properties 'bogus' not allowed",
    "policy.repair.bare_pod=true": "at '/policy/repair': additional properties 'bare_pod' not allowed",
    "policy.gate.quorum=0": "at '/policy/gate/quorum': minimum",
    "policy.mode=observe": "at '/policy': additional properties 'mode' not allowed",
    "watcher.replicas=two": "at '/watcher/replicas': got string, want integer",
    "worker.terminationGracePeriodSeconds=30": "at '/worker/terminationGracePeriodSeconds': minimum",
    "redis.maxmemory=half": "at '/redis/maxmemory': 'half' does not match pattern",
    "image.digest=latest": "at '/image/digest'",
    "cluster=My_Cluster": "at '/cluster'",
}


def test_each_wrong_value_is_refused_with_its_path() -> None:
    with pytest.raises(ToolFailed) as told:
        tools.render({}, "--set", ",".join(WRONG))
    lines = str(told.value).splitlines()
    assert [words for words in WRONG.values() if not any(words in line for line in lines)] == []


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("redis.enabled=false", "name a Secret whose key holds the Redis URL"),
        ("externalRedis.existingSecret=url", "set one of them"),
        ("serviceMonitor.enabled=true", "name its namespace there"),
    ],
)
def test_values_that_contradict_each_other_are_refused(setting: str, words: str) -> None:
    with pytest.raises(ToolFailed) as told:
        tools.render({}, "--set", setting)
    assert words in str(told.value)


def test_a_cluster_without_admission_policies_has_to_be_accepted_as_such() -> None:
    with pytest.raises(ToolFailed, match=r"set admissionPolicy\.enabled=false"):
        tools.render({}, "--kube-version", "1.29.3")
    assert tools.render({"admissionPolicy": {"enabled": False}}, "--kube-version", "1.29.3")


def test_the_schema_knows_each_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known = schema.schema()["properties"]
    assert set(known) - {"global"} == set(values)
    for name, value in values.items():
        if "properties" in known[name] and name not in ("policy", "resources"):
            assert set(known[name]["properties"]) == set(value), name


def test_each_value_has_a_comment() -> None:
    """Above it, or above the group of lines without a blank or deeper line that it belongs to."""
    commented, bare = False, []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#"):
            commented = True
        elif not text:
            commented = False
        elif not commented and not text.endswith(":"):
            bare.append(line)
    assert not bare


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_the_policy_in_the_config_map_is_one_that_remesh_takes(values: dict[str, Any], tmp_path: Path) -> None:
    objects = tools.render(values)
    (text,) = [
        each["data"]["policy.toml"] for each in tools.kinds(objects, "ConfigMap") if "policy.toml" in each["data"]
    ]
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    told = load_policy(path).model_dump(mode="json")
    assert told["mode"] == values.get("mode", "repair")
    for section, keys in values.get("policy", {}).items():
        for key, value in keys.items():
            assert told[section][key] == value


def test_no_mesh_would_inject_remesh_itself() -> None:
    """Whatever the meshes' webhooks select: neither with the namespace's own opt-outs nor in a foreign namespace."""
    objects = tools.render({"namespace": {"create": True}})
    own = tools.named(objects, "Namespace", "remesh")["metadata"]
    asking = {"istio-injection": "enabled", "kuma.io/sidecar-injection": "enabled", "secrets-injection": "enabled"}
    asking |= {"appmesh.k8s.aws/sidecarInjectorWebhook": "enabled", "openservicemesh.io/monitored-by": "osm"}
    asked = {"linkerd.io/inject": "enabled", "openservicemesh.io/sidecar-injection": "enabled"}
    asked |= {"sidecar.opentelemetry.io/inject": "true"}
    places = [
        Namespace(metadata=NamespaceMeta(name="remesh", labels=own["labels"], annotations=own["annotations"])),
        Namespace(metadata=NamespaceMeta(name="foreign", labels=asking, annotations=asked)),
    ]
    for each in workloads(objects):
        metadata = each["spec"]["template"]["metadata"]
        for profile in load_profiles().all:
            for place in places:
                called = any(would_call(w, place, metadata["labels"]).matches for w in profile.default_webhooks)
                expected = profile.expects(metadata["labels"], metadata["annotations"], place, None)
                injected = called and expected.answer is Expect.YES
                assert not injected, f"{profile.name} would inject {each['metadata']['name']} in {place.metadata.name}"


@pytest.mark.parametrize("part", ["watcher", "worker", "flower"])
def test_each_part_starts_as_compose_starts_it(part: str) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    pod = tools.named(tools.render({}), "Deployment", f"remesh-{part}")["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == [str(word) for word in compose["services"][part]["command"]]


def test_the_commands_of_the_documentation_are_ones_that_helm_and_kubectl_take() -> None:
    typed = [each.words for each in examples.commands() if each.words[0] in ("helm", "kubectl")]
    installs = [
        words[3:] for words in typed if words[:3] in (("helm", "install", "remesh"), ("helm", "upgrade", "remesh"))
    ]
    assert len(installs) >= 3
    for words in installs:
        assert words[0] == "config/chart"
        flags = [word for word in words[1:] if word != "--reuse-values"]
        tools.run("helm", "template", "remesh", str(CHART), "--kube-version", tools.KUBE_VERSION, *flags)
    folders = {words[words.index("-k") + 1] for words in typed if "-k" in words}
    overlays = {str(each.folder.relative_to(ROOT)) for each in generate.OVERLAYS if each.name != generate.BASE}
    assert folders == overlays


def test_chart_and_program_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_only_watcher_and_worker_get_a_token() -> None:
    objects = tools.render({})
    assert all(each["automountServiceAccountToken"] is False for each in tools.kinds(objects, "ServiceAccount"))
    got = {
        each["metadata"]["name"]
        for each in workloads(objects)
        if each["spec"]["template"]["spec"]["automountServiceAccountToken"]
    }
    assert got == {"remesh-watcher", "remesh-worker"}


def test_flower_has_its_password_from_a_secret_and_is_not_exposed() -> None:
    objects = tools.render({})
    container = tools.named(objects, "Deployment", "remesh-flower")["spec"]["template"]["spec"]["containers"][0]
    (auth,) = [each for each in container["env"] if each["name"] == "REMESH_FLOWER_BASIC_AUTH"]
    assert auth["valueFrom"]["secretKeyRef"] == {"name": "remesh-flower", "key": "basic-auth"}
    assert "type" not in tools.named(objects, "Service", "remesh-flower")["spec"]  # ClusterIP
    assert not tools.kinds(objects, "Ingress")
    policies = {each["metadata"]["name"]: each["spec"] for each in tools.kinds(objects, "NetworkPolicy")}
    assert policies["remesh-flower"]["ingress"] == []


def test_rights_that_write_stay_within_the_policy_s_namespaces() -> None:
    objects = tools.render(VALUE_SETS["bare pods in two namespaces"])
    everywhere = {each["roleRef"]["name"] for each in tools.kinds(objects, "ClusterRoleBinding")}
    assert everywhere == {"remesh-watcher-read", "remesh-worker-read"}
    within = {(each["metadata"]["namespace"], each["roleRef"]["name"]) for each in tools.kinds(objects, "RoleBinding")}
    assert within == {
        ("remesh", "remesh-lease"),
        *((namespace, f"remesh-{role}") for namespace in ("shop", "bank") for role in ("dry-run", "repair")),
    }


def test_each_shard_has_its_own_watchers_and_lease() -> None:
    objects = tools.render(VALUE_SETS["shards"])
    watchers = [each for each in tools.kinds(objects, "Deployment") if "watcher" in each["metadata"]["name"]]
    selectors = {json.dumps(each["spec"]["selector"]) for each in watchers}
    assert len(selectors) == 3
    shards = [
        env["value"]
        for each in watchers
        for env in each["spec"]["template"]["spec"]["containers"][0]["env"]
        if env["name"] == "REMESH_SHARD"
    ]
    assert shards == ["0/3", "1/3", "2/3"]
    (_, by_name) = tools.named(objects, "Role", "remesh-lease")["rules"]
    assert by_name["resourceNames"] == ["remesh-watcher-0", "remesh-watcher-1", "remesh-watcher-2"]
    assert (
        len([each for each in tools.kinds(objects, "PodDisruptionBudget") if "watcher" in each["metadata"]["name"]])
        == 3
    )


def test_what_is_monitored_is_what_the_files_say() -> None:
    objects = tools.render(VALUE_SETS["monitored"])
    rules = tools.named(objects, "PrometheusRule", "remesh")["spec"]
    assert rules == yaml.safe_load((ROOT / "config/monitoring/alerts.yaml").read_text(encoding="utf-8"))
    board = tools.named(objects, "ConfigMap", "remesh-dashboard")["data"]["remesh.json"]
    assert json.loads(board) == json.loads((ROOT / "config/monitoring/dashboard.json").read_text(encoding="utf-8"))


def test_a_certificate_of_an_external_redis_reaches_every_part_that_talks_to_it() -> None:
    for each in workloads(tools.render(VALUE_SETS["everything external"])):
        spec = each["spec"]["template"]["spec"]
        assert "ca" in {volume["name"] for volume in spec["volumes"]}
        assert "/etc/ca" in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
