"""kubeconfig files and service accounts: what is found, and what is said when it is not."""

import base64
import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from remesh.errors import ConfigError, Unauthorized
from remesh.kube import config, credentials
from remesh.kube.config import load_access, proxy_from_environment
from tests.kube.tls import authority, issue, pem

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def document(user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    return {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **top,
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: Any, name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return written


def test_reads_server_namespace_and_token(write: Write) -> None:
    access = load_access(write(document({"token": "t0p"})))
    assert (access.server, access.context, access.namespace) == ("https://192.0.2.1:6443", "one", "shop")
    assert access.headers() == {"Authorization": "Bearer t0p"}
    assert "t0p" not in repr(access)


def test_files_of_kubeconfig_are_merged_and_the_first_wins(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write({"users": [{"name": "u", "user": {"token": "first"}}]}, "a")
    second = write(document({"token": "second"}), "b")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(first), "/no/such/file", str(second)]))
    access = load_access()
    assert access.headers() == {"Authorization": "Bearer first"}
    assert access.context == "one"


def test_the_context_asked_for_wins(write: Write) -> None:
    two = {"name": "two", "context": {"cluster": "c"}}
    path = write(document({"token": "t"}) | {"contexts": [*document()["contexts"], two]})
    access = load_access(path, "two")
    assert (access.context, access.namespace, access.headers()) == ("two", "default", {})


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in document().items() if name != key}


@pytest.mark.parametrize(
    ("content", "context", "line"),
    [
        (
            _without("current-context"),
            None,
            "has no current context; pass --context or run `kubectl config use-context",
        ),
        ("", None, "has no current context"),
        (document(), "three", r"has no context 'three'; there are: one; correct the name"),
        (_without("clusters"), None, r"has no cluster 'c' that context 'one' names; there are: none"),
        (_without("users"), None, r"has no user 'u' that context 'one' names"),
        ("contexts:\n- name: [\n", None, r"config:3: not valid YAML"),
        ("- a\n", None, "not a kubeconfig"),
        (document(users={"a": 1}), None, "users must be a list"),
        (document(users=[{"user": {}}]), None, r"users\[0\] has no name"),
        (document(users=[{"name": "u", "user": 1}]), None, r"users\[0\]\.user must be a mapping"),
        (document(cluster={"server": "192.0.2.1:6443"}), None, "is no URL; write https://HOST:PORT"),
        (document(cluster={"server": "https://[::1"}), None, "is no URL; write https://HOST:PORT"),
        (document(cluster={"server": "https://192.0.2.1:many"}), None, "is no URL; write https://HOST:PORT"),
        ("current-context: 2026-99-99\n", None, "not valid YAML: a value that its tag does not allow"),
        (document(cluster={"certificate-authority": "no-such-file"}), None, "no-such-file: no such file"),
        (document(cluster={"certificate-authority-data": "%%%"}), None, "certificate-authority-data is not base64"),
        (
            document(cluster={"certificate-authority-data": "YWJj"}),
            None,
            "certificate-authority: not a PEM certificate",
        ),
        (document(cluster={"proxy-url": "socks5://192.0.2.2"}), None, "proxy-url must begin with http"),
        (document({"tokenFile": "no-such-token"}), None, "no-such-token: No such file"),
        (
            document({"client-certificate-data": "YWJj", "client-key-data": "YWJj"}),
            None,
            "certificate and key do not fit",
        ),
    ],
)
def test_mistakes_are_one_line_naming_the_file(write: Write, content: Any, context: str | None, line: str) -> None:
    path = write(content)
    with pytest.raises(ConfigError, match=line) as caught:
        load_access(path, context)
    assert "\n" not in str(caught.value)
    assert str(path.parent) in str(caught.value) or "user 'u'" in str(caught.value)


@pytest.mark.parametrize(
    "server",
    ["https://tok:hunter2@192.0.2.1:6443", "tok:hunter2@192.0.2.1", "https://hunter2@[::1", "http://:hunter2@x"],
)
def test_credentials_in_the_servers_address_are_refused_and_never_shown(
    write: Write, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(document(cluster={"server": server, "insecure-skip-tls-verify": True}))
    with pytest.raises(ConfigError, match="server carries a user or a password; write https://HOST:PORT") as caught:
        load_access(path)
    assert "hunter2" not in str(caught.value) + caplog.text


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig /no/such: no such file or directory"):
        load_access(Path("/no/such"))


def test_kubeconfig_naming_no_file_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such")
    with pytest.raises(ConfigError, match=r"/no/such \(from KUBECONFIG\): no such file"):
        load_access()


def test_neither_kubeconfig_nor_pod_is_said() -> None:
    with pytest.raises(ConfigError, match="no kubeconfig found and not inside a pod; set KUBECONFIG"):
        load_access()


def test_basic_authentication(write: Write) -> None:
    access = load_access(write(document({"username": "bob", "password": "pw"})))
    assert access.headers() == {"Authorization": "Basic " + base64.b64encode(b"bob:pw").decode()}


def test_a_token_file_is_read_again_when_it_is_old_or_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    token = write("one\n", "token")
    access = load_access(write(document({"tokenFile": "token"})))  # relative to the kubeconfig
    assert access.headers() == {"Authorization": "Bearer one"}
    assert not access.auth.renew()
    token.write_text("two")
    assert access.headers() == {"Authorization": "Bearer one"}
    assert access.auth.renew()
    token.write_text("three")
    monkeypatch.setattr(credentials, "TOKEN_FILE_SECONDS", -1)
    assert access.headers() == {"Authorization": "Bearer three"}


def test_certificates_by_file_and_by_data(write: Write, tmp_path: Path) -> None:
    ca = authority()
    certificate, key = issue(ca, "bob")
    write(pem(ca.certificate), "ca.crt")
    write(certificate, "bob.crt")
    user = {"client-certificate": "bob.crt", "client-key-data": base64.b64encode(key.encode()).decode()}
    access = load_access(write(document(user, {"certificate-authority": "ca.crt", "tls-server-name": "api.example"})))
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert access.tls_server_name == "api.example"
    assert len(access.tls.get_ca_certs()) == 1


def test_unverified_tls_is_never_silent(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("remesh").propagate = True
    access = load_access(write(document(cluster={"insecure-skip-tls-verify": True})))
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_NONE
    assert [record.message for record in caplog.records] == ["TLS certificate of the API server is not verified"]


def test_an_authority_without_verification_is_refused(write: Write) -> None:
    data = base64.b64encode(pem(authority().certificate).encode()).decode()
    cluster = {"insecure-skip-tls-verify": True, "certificate-authority-data": data}
    with pytest.raises(ConfigError, match="exclude each other"):
        load_access(write(document(cluster=cluster)))


def test_inside_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("token", "tok"), ("ca.crt", pem(authority().certificate)), ("namespace", "remesh")):
        (tmp_path / name).write_text(text)
    access = load_access()
    assert (access.server, access.context, access.namespace) == ("https://[fd00::1]:443", "in-cluster", "remesh")
    assert access.headers() == {"Authorization": "Bearer tok"}
    with pytest.raises(ConfigError, match="context 'x': there is no kubeconfig"):
        load_access(context="x")


def test_inside_a_pod_without_token_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    with pytest.raises(ConfigError, match="mount the pod's service account token"):
        load_access()


PLUGIN = """#!/bin/sh
echo run >> "$0.runs"
cat "$0.answer"
"""


def plugin(write: Write, status: dict[str, Any]) -> dict[str, Any]:
    script = write(PLUGIN, "plugin")
    script.chmod(0o700)
    api = "client.authentication.k8s.io/v1"
    write(json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": status}), "plugin.answer")
    return {"exec": {"apiVersion": api, "command": "./plugin", "interactiveMode": "Never"}}


def runs(path: Path) -> int:
    return len((path.parent / "plugin.runs").read_text().splitlines())


def test_a_credential_plugin_runs_once_until_its_token_expires(write: Write) -> None:
    path = write(document(plugin(write, {"token": "p1", "expirationTimestamp": "2999-01-01T00:00:00Z"})))
    access = load_access(path)
    assert [access.headers()["Authorization"] for _ in range(3)] == ["Bearer p1"] * 3
    assert runs(path) == 1
    plugin(write, {"token": "p2", "expirationTimestamp": "2001-01-01T00:00:00Z"})
    assert access.auth.renew()
    assert access.headers()["Authorization"] == "Bearer p2"
    assert runs(path) == 3  # the renewal's token had expired, so it was asked for again


def test_a_credential_plugin_may_give_a_certificate(write: Write) -> None:
    certificate, key = issue(authority(), "bob")
    path = write(document(plugin(write, {"clientCertificateData": certificate, "clientKeyData": key})))
    assert load_access(path).headers() == {}


def test_a_credential_plugin_that_is_not_installed_is_named(write: Write) -> None:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "installHint": "get it\nnow"}
    with pytest.raises(Unauthorized, match=r"user u: credential plugin 'no-such-plugin' is not installed; get it$"):
        load_access(write(document({"exec": exec_})))


def test_a_credential_plugin_that_fails_is_named(write: Write) -> None:
    path = write(document(plugin(write, {})))
    (path.parent / "plugin").write_text("#!/bin/sh\necho session expired >&2\nexit 3\n")
    with pytest.raises(Unauthorized, match=r"failed: exec: process returned 3. session expired"):
        load_access(path)


def test_a_credential_plugin_without_a_token_is_named(write: Write) -> None:
    with pytest.raises(Unauthorized, match="gave no token; log in again"):
        load_access(write(document(plugin(write, {}))))


def test_an_auth_provider_gives_its_token(write: Write) -> None:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    token = ".".join([part('{"alg": "none"}'), part('{"exp": 32503680000, "sub": "bobby"}'), part("s")])
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    assert load_access(write(document(user))).headers() == {"Authorization": f"Bearer {token}"}


def test_impersonation_is_passed_on(write: Write) -> None:
    assert load_access(write(document({"token": "t", "as": "carol"}))).headers()["Impersonate-User"] == "carol"


def test_proxies_of_the_environment_count_except_for_loopback_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.9:3128")
    monkeypatch.setenv("NO_PROXY", ".internal")
    assert proxy_from_environment(urlsplit("https://api.example:6443")) == "http://192.0.2.9:3128"
    assert proxy_from_environment(urlsplit("https://api.internal:6443")) == ""
    assert proxy_from_environment(urlsplit("https://127.0.0.1:6443")) == ""


def test_plain_kubeconfigs_leave_the_official_client_alone(write: Write) -> None:
    code = "import sys; from pathlib import Path; from remesh.kube.config import load_access\n"
    code += "from remesh.kube import api, watch\n"
    code += f"load_access(Path({str(write(document({'token': 't'})))!r}))\n"
    code += "sys.exit(any(name == 'kubernetes' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
