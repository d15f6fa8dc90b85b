"""Redis and Flower as they are shipped: nobody gets in without credentials, by any of the ways to install."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from remesh.errors import ConfigError
from tests.manifests import generate, tools
from tests.manifests.test_chart import VALUE_SETS
from tests.stack import ROOT
from workers.app import require_password

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
MUST_BE_SET = re.compile(r"^[^$]*\$\{(REDIS_PASSWORD|REMESH_FLOWER_BASIC_AUTH):\?[^}]+\}")

Objects = list[tools.Object]


def rendered() -> dict[str, Objects]:
    """Every set of values of the chart, and every overlay as kustomize builds it."""
    found = {f"chart: {name}": tools.render(values) for name, values in VALUE_SETS.items()}
    return found | {f"kustomize: {each.name}": tools.kustomize(each.folder) for each in generate.OVERLAYS}


@pytest.fixture(scope="module")
def installs(deploy_tools: None) -> dict[str, Objects]:
    return rendered()


def component(found: tools.Object) -> str:
    return str(found["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def containers(objects: Objects, part: str) -> Iterator[dict[str, Any]]:
    for each in objects:
        if "template" in each.get("spec", {}) and component(each) == part:
            yield from each["spec"]["template"]["spec"]["containers"]


def secret_of(container: dict[str, Any], variable: str) -> dict[str, Any]:
    """Where a variable comes from: a key of a Secret that has to be there."""
    (found,) = [each for each in container["env"] if each["name"] == variable]
    reference: dict[str, Any] = found["valueFrom"]["secretKeyRef"]
    assert not reference.get("optional")
    return reference


# In Kubernetes


def test_redis_starts_with_a_password_out_of_a_secret_and_on_no_port_of_the_node(installs: dict[str, Objects]) -> None:
    seen = 0
    for objects in installs.values():
        for container in containers(objects, "redis"):
            seen += 1
            secret_of(container, "REDISCLI_AUTH")
            script = container["command"][-1]
            assert 'printf \'requirepass "%s"\\n\' "$REDISCLI_AUTH" > /run/redis/password.conf' in script
            assert "redis-server /run/redis/password.conf" in script
            assert "protected-mode no" not in script
            assert not any("hostPort" in port for port in container["ports"])
    assert seen >= 8


def test_flower_has_a_login_out_of_a_secret_and_no_token_of_the_cluster(installs: dict[str, Objects]) -> None:
    seen = 0
    for name, objects in installs.items():
        for container in containers(objects, "flower"):
            seen += 1
            secret_of(container, "REMESH_FLOWER_BASIC_AUTH")
            variables = {each["name"] for each in container["env"]}
            assert "FLOWER_UNAUTHENTICATED_API" not in variables, name
            assert not any("hostPort" in port for port in container["ports"])
        for each in objects:
            if each["kind"] == "Deployment" and component(each) in ("flower", "redis"):
                assert each["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert seen >= 10


def test_no_service_is_reached_from_outside_of_the_cluster(installs: dict[str, Objects]) -> None:
    for objects in installs.values():
        assert not [each for each in objects if each["kind"] in ("Ingress", "Gateway", "HTTPRoute")]
        for service in tools.kinds(objects, "Service"):
            assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
            assert not {"externalIPs", "loadBalancerIP"} & set(service["spec"])
        for each in objects:
            pod = each.get("spec", {}).get("template", {}).get("spec", {})
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_of_the_pods_of_the_cluster_only_remeshs_own_reach_redis_and_nobody_reaches_flower(
    installs: dict[str, Objects],
) -> None:
    for name, objects in installs.items():
        if name in ("chart: trusting", "chart: monitored"):  # asked for by its values
            continue
        policies = {component(each): each["spec"] for each in tools.kinds(objects, "NetworkPolicy")}
        assert policies["watcher"]["ingress"] == policies["worker"]["ingress"] == []
        assert all("Ingress" in spec["policyTypes"] for spec in policies.values())
        if "flower" in policies:
            assert policies["flower"]["ingress"] == []
        if "redis" not in policies:
            assert not list(containers(objects, "redis"))
            continue
        (rule,) = policies["redis"]["ingress"]
        allowed = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
        assert sorted(allowed) == ["flower", "watcher", "worker"]
        assert not any("namespaceSelector" in peer or "ipBlock" in peer for peer in rule["from"])
        assert all(peer["podSelector"]["matchLabels"].get("app.kubernetes.io/instance") for peer in rule["from"])


def test_no_manifest_holds_a_password(installs: dict[str, Objects]) -> None:
    for name, objects in installs.items():
        secrets = tools.kinds(objects, "Secret")
        assert not (secrets and name.startswith("kustomize")), name
        others = yaml.safe_dump([each for each in objects if each["kind"] != "Secret"])
        for value in (text for each in secrets for text in each["data"].values()):
            assert value not in others
        assert not re.search(r"(?:redis|amqp)s?://[^$\s]*:[^$@\s]+@", others)


# By compose


def test_by_compose_redis_has_a_password_and_no_published_port() -> None:
    redis = COMPOSE["services"]["redis"]
    password = redis["command"][redis["command"].index("--requirepass") + 1]
    assert MUST_BE_SET.match(password)
    assert not {"ports", "network_mode"} & set(redis)


def test_by_compose_flower_has_a_login_and_listens_on_loopback_only() -> None:
    flower = COMPOSE["services"]["flower"]
    assert MUST_BE_SET.match(flower["environment"]["FLOWER_BASIC_AUTH"])
    assert flower["ports"] == ["127.0.0.1:5555:5555"]


def test_by_compose_nothing_else_is_published_and_each_url_carries_the_password() -> None:
    for name, service in COMPOSE["services"].items():
        assert name == "flower" or "ports" not in service, name
        assert service.get("network_mode") is None
        assert not service.get("privileged")
        if name != "redis":
            assert MUST_BE_SET.match(service["environment"]["REMESH_REDIS_URL"])


# Whatever somebody made of it


@pytest.mark.parametrize("basic", [[], [""], ["me"], ["me:"], [":secret"], ["me:secret", "you:"]])
def test_flower_does_not_start_open(basic: list[str]) -> None:
    with pytest.raises(ConfigError):
        require_password(basic, "")


def test_flower_starts_with_a_password_or_a_login_elsewhere() -> None:
    require_password(["me:secret"], "")
    require_password([], ".*@example[.]com")
