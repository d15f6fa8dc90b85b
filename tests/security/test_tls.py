"""TLS is verified everywhere. Where somebody turns that off by name, each process says so; by accident it never is."""

import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from remesh import amqp, redisdb
from remesh.broker_urls import endpoint
from remesh.errors import BrokerError, ConfigError, RemeshError
from remesh.kube.config import load_access
from tests.cli.conftest import run_apart
from tests.kube.server import ScriptedServer, answer
from tests.kube.tls import authority, issue, pem

UNVERIFIED = "TLS certificate of the API server is not verified"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """A server on loopback whose certificate is right for its address and comes from an authority that nobody knows."""
    certificate, key = issue(authority(), "stranger")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server = ScriptedServer(context).on("other", answer({"gitVersion": "v1.36.3"}))
    yield server
    server.close()


def port_of(server: ScriptedServer) -> int:
    return int(server.url.rpartition(":")[2])


def ask_redis(port: int, query: str = "") -> None:
    with redisdb.connect_url(f"rediss://:secret@127.0.0.1:{port}/0{query}") as client:
        client.ping()


def ask_sentinel(port: int, query: str = "") -> None:
    with redisdb.connect_url(f"sentinels://127.0.0.1:{port}/0?master=main{query}") as client:
        client.ping()


def ask_rabbit(port: int, query: str = "") -> None:
    url = f"amqps://guest:guest@127.0.0.1:{port}/{query}"
    amqp.check(endpoint(url, "REMESH_BROKER_URL"), {})


@pytest.mark.parametrize("ask", [ask_redis, ask_sentinel, ask_rabbit])
def test_nothing_is_said_to_a_server_whose_certificate_is_from_nobody(
    stranger: ScriptedServer, ask: Callable[[int], None]
) -> None:
    before = len(stranger.seen)
    with pytest.raises((redis.ConnectionError, BrokerError)):
        ask(port_of(stranger))
    assert len(stranger.seen) == before


def test_no_trace_is_sent_to_a_server_whose_certificate_is_from_nobody(stranger: ScriptedServer) -> None:
    before = len(stranger.seen)
    exporter: Any = OTLPSpanExporter(endpoint=f"{stranger.url}/v1/traces", timeout=2)
    span = TracerProvider().get_tracer("t").start_span("s")
    span.end()
    assert exporter.export([span]) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert len(stranger.seen) == before


@pytest.mark.parametrize("url", ["rediss://host:1/0", "amqps://host:1/v", "sentinels://host:1/0?master=main"])
def test_without_a_word_about_it_certificate_and_name_are_verified(url: str) -> None:
    tls = endpoint(url, "REMESH_BROKER_URL").tls or {}
    rules = {value for key, value in tls.items() if key.endswith("cert_reqs")}
    assert rules == {ssl.CERT_REQUIRED}
    assert False not in tls.values()


@pytest.mark.parametrize("url", ["rediss://h/0?ssl_cert_reqs=off", "rediss://h/0?ssl_cert_reqs="])
def test_a_rule_that_is_none_is_no_way_to_turn_it_off(url: str) -> None:
    try:
        tls = endpoint(url, "X").tls or {}
    except ConfigError:
        return
    assert tls["ssl_cert_reqs"] is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("rediss://h/0?ssl_cert_reqs=none", "REMESH_REDIS_URL"),
        ("rediss://h/0?ssl_check_hostname=false", "REMESH_REDIS_URL"),
        ("sentinels://h:1/0?master=main&ssl_cert_reqs=none", "REMESH_REDIS_URL"),
    ],
)
def test_what_the_url_turns_off_is_said(url: str, variable: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("remesh").propagate = True
    redisdb.connect_url(url, variable).close()
    assert any("not fully verified" in record.message for record in caplog.records)


def test_what_an_amqps_url_turns_off_is_said(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("remesh").propagate = True
    endpoint("amqps://h/?ssl_cert_reqs=none", "REMESH_BROKER_URL")
    assert any("not fully verified" in record.message for record in caplog.records)


def kubeconfig(folder: Path, **cluster: Any) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "a-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


def test_a_kubeconfig_that_skips_verification_is_obeyed_and_each_command_says_so(
    stranger: ScriptedServer, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path, **{"server": stranger.url, "insecure-skip-tls-verify": True})
    told = run_apart("scan", "--kubeconfig", str(path))
    assert UNVERIFIED in told.err


def test_a_kubeconfig_without_an_authority_trusts_the_systems_and_no_other(
    stranger: ScriptedServer, tmp_path: Path
) -> None:
    before = len(stranger.seen)
    told = run_apart("scan", "--kubeconfig", str(kubeconfig(tmp_path, server=stranger.url)))
    assert told.code != 0
    assert "certificate" in told.err
    assert "a-token" not in told.err
    assert len(stranger.seen) == before


def test_a_token_that_would_go_over_the_network_without_tls_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("remesh").propagate = True
    load_access(kubeconfig(tmp_path, server="http://127.0.0.1:8001"))
    assert not caplog.records
    load_access(kubeconfig(tmp_path, server="http://api.example:8080"))
    assert [record.message for record in caplog.records] == ["the API server is reached without TLS"]


def test_an_authority_that_is_none_ends_it(tmp_path: Path) -> None:
    with pytest.raises(RemeshError, match="not a PEM certificate"):
        load_access(kubeconfig(tmp_path, **{"server": "https://h", "certificate-authority-data": "bm9uZQ=="}))
    good = pem(authority().certificate)
    assert "BEGIN CERTIFICATE" in good
