"""Mesh profiles: who is recognised, who asks, and how injection shows."""

from pathlib import Path

import pytest

from remesh.errors import ConfigError, UsageError
from remesh.meshes import Expect, MeshProfile, load_profiles
from remesh.objects import Container, Namespace, Pod, PodSpec, ServiceReference
from remesh.sidecars import expected_sidecars
from tests.unit.objects import PROFILES, namespace, pod, webhook

SHIPPED = ("linkerd", "istio", "dapr", "vault", "consul", "kuma", "opentelemetry")


def mesh(name: str) -> MeshProfile:
    return PROFILES.by_name(name)


def test_the_seven_meshes_are_shipped() -> None:
    assert set(SHIPPED) <= {profile.name for profile in PROFILES.all}


@pytest.mark.parametrize("name", [profile.name for profile in PROFILES.all])
def test_profile_recognises_its_own_default_webhooks(name: str) -> None:
    profile = mesh(name)
    for each in profile.default_webhooks:
        assert PROFILES.for_webhook("", each) is profile
        assert PROFILES.for_webhook("renamed-configuration", each) is profile


RECOGNISED = [
    ("linkerd", "linkerd-proxy-injector-webhook-config", "linkerd-proxy-injector.linkerd.io", "mesh/renamed"),
    ("istio", "istio-sidecar-injector-1-20", "rev.namespace.sidecar-injector.istio.io", "istio-system/istiod-1-20"),
    ("istio", "istio-revision-tag-prod", "rev.object.sidecar-injector.istio.io", "istio-system/istiod-1-20"),
    ("istio", "istio-sidecar-injector", "sidecar-injector.istio.io", "control/is-sidecar"),
    ("istio", "istio-sidecar-injector", "renamed.example.com", "istio-system/istiod"),
    ("dapr", "dapr-sidecar-injector", "sidecar-injector.dapr.io", "dapr-system/dapr-sidecar-injector"),
    ("vault", "my-vault-agent-injector-cfg", "vault.hashicorp.com", "secrets/my-vault-agent-injector-svc"),
    ("consul", "prod-connect-injector", "prod-connect-injector.consul.hashicorp.com", "consul/prod-connect-injector"),
    (
        "kuma",
        "kuma-admission-mutating-webhook-configuration",
        "pods-kuma-injector.kuma.io",
        "kuma-system/kuma-control-plane",
    ),
    ("opentelemetry", "opentelemetry-operator-mutation", "mpod.kb.io", "obs/opentelemetry-operator-webhook"),
    ("opentelemetry", "x", "mpod.kb.io", "obs/my-opentelemetry-operator-webhook-service"),
]


@pytest.mark.parametrize(("expected", "configuration", "name", "service"), RECOGNISED)
def test_injector_is_recognised_by_configuration_and_service(
    expected: str, configuration: str, name: str, service: str
) -> None:
    found = PROFILES.for_webhook(configuration, webhook(name, service))
    assert found is not None
    assert found.name == expected


STRANGERS = [
    ("linkerd-sp-validator-webhook-config", "linkerd-sp-validator.linkerd.io", "linkerd/linkerd-sp-validator", "/"),
    (
        "kuma-admission-mutating-webhook-configuration",
        "defaulter.kuma-admission.kuma.io",
        "kuma-system/kuma-control-plane",
        "/default-kuma-io-v1alpha1-mesh",
    ),
    (
        "opentelemetry-operator-mutation",
        "minstrumentation.kb.io",
        "obs/opentelemetry-operator-webhook",
        "/mutate-opentelemetry-io-v1alpha1-instrumentation",
    ),
    ("my-operator", "mpod.kb.io", "my-system/my-operator-webhook-service", "/mutate-v1-pod"),
    ("sidecar-injector", "sidecar-injector.example.com", "default/sidecar-injector", "/inject"),
    ("kyverno", "mutate.kyverno.svc-fail", "kyverno/kyverno-svc", "/mutate"),
    ("opa", "validating-webhook.openpolicyagent.org", "opa/opa", "/"),
    ("istiod-default-validator", "validation.istio.io", "istio-system/istiod", "/validate"),
]


@pytest.mark.parametrize(("configuration", "name", "service", "path"), STRANGERS)
def test_other_webhooks_are_no_injectors(configuration: str, name: str, service: str, path: str) -> None:
    assert PROFILES.for_webhook(configuration, webhook(name, service, path=path)) is None


def test_webhook_without_service_needs_a_unique_name() -> None:
    assert PROFILES.named("sidecar-injector.dapr.io", None) is mesh("dapr")
    assert PROFILES.named("mpod.kb.io", None) is None


def asks(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    around: Namespace | None = None,
    spec: PodSpec | None = None,
) -> Expect:
    return mesh(name).expects(labels, annotations, around or namespace(), spec).answer


LINKERD_TABLE = [
    ("enabled", None, Expect.YES),
    ("ingress", None, Expect.YES),
    ("disabled", "enabled", Expect.REFUSED),
    ("enabled", "disabled", Expect.YES),
    (None, "enabled", Expect.YES),
    (None, "ingress", Expect.YES),
    (None, "disabled", Expect.REFUSED),
    (None, None, Expect.NO),
    ("enable", "enabled", Expect.NO),
    ("Enabled", None, Expect.NO),
    ("true", "enabled", Expect.NO),
    ("enabled", "enable", Expect.NO),
    ("", "enabled", Expect.YES),
]


@pytest.mark.parametrize(("of_pod", "of_namespace", "expected"), LINKERD_TABLE)
def test_linkerd_reads_exact_words_pod_before_namespace(
    of_pod: str | None, of_namespace: str | None, expected: Expect
) -> None:
    key = "linkerd.io/inject"
    annotations = {key: of_pod} if of_pod is not None else None
    around = namespace(annotations={key: of_namespace} if of_namespace is not None else None)
    assert asks("linkerd", annotations=annotations, around=around) is expected


def test_linkerd_ignores_a_label_and_says_so() -> None:
    answer = mesh("linkerd").expects(None, None, namespace(labels={"linkerd.io/inject": "enabled"}), None)
    assert answer.answer is Expect.NO
    assert "reads the annotation" in answer.reason


def test_linkerd_leaves_its_control_plane_and_other_proxies_alone() -> None:
    annotations = {"linkerd.io/inject": "enabled"}
    labels = {"linkerd.io/control-plane-component": "destination"}
    assert asks("linkerd", labels=labels, annotations=annotations) is Expect.NEVER
    assert asks("linkerd", annotations=annotations, spec=PodSpec(host_network=True)) is Expect.NEVER
    assert asks("linkerd", annotations=annotations, spec=pod("app", "istio-proxy").spec) is Expect.NEVER


ISTIO_TABLE = [
    ({"istio-injection": "enabled"}, None, None, True),
    ({"istio-injection": "disabled"}, {"sidecar.istio.io/inject": "true"}, None, False),
    ({"istio-injection": "Enabled"}, None, None, False),
    ({"istio.io/rev": "prod"}, None, None, True),
    ({"istio.io/rev": "prod", "istio-injection": "enabled"}, None, None, True),
    ({}, {"sidecar.istio.io/inject": "true"}, None, True),
    ({}, {"istio.io/rev": "prod"}, None, True),
    ({}, None, {"sidecar.istio.io/inject": "true"}, False),
    ({}, None, None, False),
    ({"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "false"}, None, False),
    ({"istio-injection": "enabled"}, None, {"sidecar.istio.io/inject": "false"}, False),
    ({"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "true"}, {"sidecar.istio.io/inject": "false"}, True),
    ({"istio-injection": "enabled", "istio.io/dataplane-mode": "ambient"}, None, None, False),
]


@pytest.mark.parametrize(("of_namespace", "labels", "annotations", "expected"), ISTIO_TABLE)
def test_istio_by_its_charts_selectors_and_its_own_rules(
    of_namespace: dict[str, str], labels: dict[str, str] | None, annotations: dict[str, str] | None, expected: bool
) -> None:
    subject = pod(labels=labels, annotations=annotations)
    found = expected_sidecars(subject, namespace(labels=of_namespace), None, PROFILES)
    assert ([profile.name for profile, _ in found] == ["istio"]) is expected


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"])
def test_istio_never_injects_system_namespaces(name: str) -> None:
    around = namespace(name, labels={"istio-injection": "enabled"})
    assert asks("istio", labels={"sidecar.istio.io/inject": "true"}, around=around) is Expect.NEVER


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", Expect.YES),
        ("1", Expect.YES),
        ("T", Expect.YES),
        ("TRUE", Expect.YES),
        ("True", Expect.YES),
        ("false", Expect.REFUSED),
        ("0", Expect.REFUSED),
        ("yes", Expect.NO),
        ("tRUE", Expect.NO),
        ("on", Expect.NO),
    ],
)
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("vault", "vault.hashicorp.com/agent-inject"),
        ("consul", "consul.hashicorp.com/connect-inject"),
    ],
)
def test_vault_and_consul_read_go_booleans(name: str, key: str, value: str, expected: Expect) -> None:
    assert asks(name, annotations={key: value}) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", Expect.YES),
        ("True", Expect.YES),
        ("yes", Expect.YES),
        ("on", Expect.YES),
        ("1", Expect.YES),
        ("false", Expect.REFUSED),
        ("maybe", Expect.NO),
    ],
)
def test_dapr_reads_yaml_booleans(value: str, expected: Expect) -> None:
    assert asks("dapr", annotations={"dapr.io/enabled": value}) is expected


def test_kuma_reads_labels_pod_before_namespace() -> None:
    key = "kuma.io/sidecar-injection"
    assert asks("kuma", labels={key: "enabled"}) is Expect.YES
    assert asks("kuma", around=namespace(labels={key: "true"})) is Expect.YES
    assert asks("kuma", labels={key: "disabled"}, around=namespace(labels={key: "enabled"})) is Expect.REFUSED
    assert asks("kuma", annotations={key: "enabled"}) is Expect.NO
    assert asks("kuma", labels={key: "enabled"}, spec=PodSpec(host_network=True)) is Expect.YES


@pytest.mark.parametrize(
    ("of_pod", "of_namespace", "expected"),
    [
        ("true", None, Expect.YES),
        ("True", None, Expect.YES),
        (None, "true", Expect.YES),
        ("my-collector", None, Expect.NO),
        ("other/my-collector", None, Expect.NO),
        ("my-collector", "true", Expect.NO),
        ("true", "my-collector", Expect.NO),
        ("false", "true", Expect.REFUSED),
        (None, None, Expect.NO),
    ],
)
def test_opentelemetry_counts_on_true_only(of_pod: str | None, of_namespace: str | None, expected: Expect) -> None:
    key = "sidecar.opentelemetry.io/inject"
    around = namespace(annotations={key: of_namespace} if of_namespace else None)
    assert asks("opentelemetry", annotations={key: of_pod} if of_pod else None, around=around) is expected


def native(name: str) -> Pod:
    return pod("app", init=[Container(name=name, image="example/proxy:1", restart_policy="Always")])


INJECTED = [
    ("linkerd", pod("app", "linkerd-proxy")),
    ("linkerd", native("linkerd-proxy")),
    ("istio", pod("app", "istio-proxy")),
    ("istio", native("istio-proxy")),
    ("istio", pod(annotations={"sidecar.istio.io/status": "{}"})),
    ("dapr", pod("app", "daprd")),
    ("dapr", native("daprd")),
    ("dapr", pod(labels={"dapr.io/sidecar-injected": "true"})),
    ("vault", pod(annotations={"vault.hashicorp.com/agent-inject-status": "injected"})),
    ("consul", pod(annotations={"consul.hashicorp.com/connect-inject-status": "injected"})),
    ("consul", pod("app", "consul-dataplane-web")),
    ("kuma", pod(annotations={"kuma.io/sidecar-injected": "true"})),
    ("kuma", native("kuma-sidecar")),
    ("opentelemetry", pod("app", "otc-container")),
    ("opentelemetry", pod(labels={"sidecar.opentelemetry.io/injected": "ns.name"})),
]


@pytest.mark.parametrize(("name", "subject"), INJECTED)
def test_mark_shows_injection(name: str, subject: Pod) -> None:
    assert mesh(name).injected(subject)


BARE = [
    *((name, pod()) for name in SHIPPED),
    ("istio", pod("app", "linkerd-proxy")),
    ("vault", pod(annotations={"vault.hashicorp.com/agent-inject-status": "update"})),
    ("vault", pod(annotations={"vault.hashicorp.com/agent-inject": "true"})),
    ("kuma", pod(annotations={"kuma.io/sidecar-injected": "false"})),
    ("linkerd", pod(labels={"linkerd.io/control-plane-ns": "linkerd"})),
]


@pytest.mark.parametrize(("name", "subject"), BARE)
def test_no_mark_no_injection(name: str, subject: Pod) -> None:
    assert not mesh(name).injected(subject)


def test_placeholder_image_is_no_sidecar() -> None:
    gateway = Pod(spec=PodSpec(containers=[Container(name="istio-proxy", image="auto")]))
    assert not mesh("istio").injected(gateway)


def test_injectors_own_pods_are_told_by_labels_and_namespace() -> None:
    labels = {"linkerd.io/control-plane-component": "proxy-injector"}
    assert mesh("linkerd").is_injector("linkerd", labels, "linkerd")
    assert not mesh("linkerd").is_injector("shop", labels, "linkerd")
    assert not mesh("linkerd").is_injector("linkerd", {"linkerd.io/control-plane-component": "destination"}, "linkerd")


OWN = """
name = "acme"
title = "Acme"
[webhook]
names = ["inject.acme.example"]
services = ["acme"]
[service]
namespace = "acme"
name = "acme"
[[defaults]]
name = "inject.acme.example"
[[asks.places]]
on = "pod"
kind = "label"
key = "acme.example/mesh"
yes = ["on"]
[mark]
containers = ["acme-proxy"]
"""


def test_own_profile_is_added(tmp_path: Path) -> None:
    (tmp_path / "acme.toml").write_text(OWN)
    profiles = load_profiles(tmp_path)
    found = profiles.named("inject.acme.example", ServiceReference(namespace="acme", name="acme"))
    assert found is profiles.by_name("acme")
    assert len(profiles.all) == len(PROFILES.all) + 1


def test_own_profile_replaces_the_shipped_one_of_the_same_file_name(tmp_path: Path) -> None:
    (tmp_path / "linkerd.toml").write_text(OWN.replace('"acme"', '"linkerd"', 1))
    profiles = load_profiles(tmp_path)
    assert profiles.by_name("linkerd").title == "Acme"
    assert len(profiles.all) == len(PROFILES.all)


WRONG = [
    ('on = "pod"', 'on = "pods"', "own.toml:13: asks.places.0.on: must be 'pod' or 'namespace'"),
    ("containers =", "container =", "own.toml:18: mark.container: unknown key"),
    ('title = "Acme"', "", "own.toml: title: is missing"),
    ('containers = ["acme-proxy"]', "", "own.toml: asks without a mark"),
    ('name = "acme"\ntitle', "name = acme\ntitle", "own.toml: not valid TOML"),
    ('name = "acme"\ntitle', 'name = "istio"\ntitle', "'istio' is taken by config/meshes/istio.toml"),
    ('names = ["inject.acme.example"]', "names = []", "own.toml:5: webhook.names: must have at least 1 entries"),
]


@pytest.mark.parametrize(("old", "new", "expected"), WRONG)
def test_malformed_profile_is_named_with_file_line_and_key(tmp_path: Path, old: str, new: str, expected: str) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_profiles(tmp_path)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reference_shows_a_whole_profile(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "mesh-profiles.md").read_text(encoding="utf-8")
    shown = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "acme.toml").write_text(shown)
    profile = load_profiles(tmp_path).by_name("acme")
    for section in (MeshProfile, type(profile.webhook), type(profile.asks), type(profile.never), type(profile.mark)):
        for key in section.model_fields:
            assert key in shown


def test_missing_folder_and_unreadable_file_are_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_profiles(tmp_path / "nothing")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"bad\.toml: not UTF-8"):
        load_profiles(tmp_path)


def test_unknown_mesh_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown mesh 'mesh-x'; known are .*linkerd"):
        PROFILES.by_name("mesh-x")
