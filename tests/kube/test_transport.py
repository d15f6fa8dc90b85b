"""Requests, and the one clear line that each failure becomes."""

import socket
import threading
import time
from collections.abc import Mapping

import pytest

from remesh.errors import (
    ClusterError,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
)
from remesh.kube import transport
from remesh.kube.config import Access, tls_context
from remesh.kube.credentials import FixedAuth
from remesh.kube.transport import KubeClient
from tests.kube.server import Handler, Reply, ScriptedServer, answer, hang, refusal, reset

DENIED = 'admission webhook "w.example.com" denied the request: no'
CALL_FAILED = 'Internal error occurred: failed calling webhook "w": failed to call webhook: Post "https://w": EOF'
RBAC = 'pods "x" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "shop"'
QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
UID = 'Pod "x" is invalid: metadata.uid: Invalid value: "0": field is immutable'


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (401, "Unauthorized", "Unauthorized", Unauthorized),
        (403, "Forbidden", RBAC, Forbidden),
        (403, "Forbidden", 'forbidden: User "bob" cannot get path "/metrics"', Forbidden),
        (403, "Forbidden", QUOTA, Rejected),
        (403, "", DENIED, Rejected),
        (404, "", DENIED, Rejected),
        (409, "", DENIED, Rejected),
        (429, "", DENIED, Rejected),
        (404, "NotFound", 'pods "x" not found', NotFound),
        (409, "Conflict", "the UID in the precondition does not match", Conflict),
        (410, "Expired", "too old", Gone),
        (422, "Invalid", UID, Conflict),
        (422, "Invalid", 'Pod "x" is invalid: spec.containers: Required value', Rejected),
        (400, "BadRequest", 'admission webhook "w" does not support dry run', Rejected),
        (500, "InternalError", CALL_FAILED, Rejected),
        (503, "ServiceUnavailable", "apiserver not ready", ClusterUnreachable),
        (504, "Timeout", "Timeout: request did not complete within the allotted timeout", ClusterUnreachable),
    ],
)
def test_refusals_become_errors_that_keep_the_servers_text(
    server: ScriptedServer, status: int, reason: str, message: str, kind: type[ClusterError]
) -> None:
    server.on("other", refusal(status, reason, message))
    with pytest.raises(ClusterError) as caught:
        server.client().request("POST", "/api/v1/namespaces/shop/pods", body={})
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, reason, message)
    assert "\n" not in str(error)
    if kind is not Unauthorized:
        assert message in str(error)


def test_throttling_says_when_to_come_back(server: ScriptedServer) -> None:
    server.on("other", refusal(429, "TooManyRequests", "Cannot evict pod", Retry_After="7"))
    with pytest.raises(Throttled) as caught:
        server.client().request("POST", "/x", body={})
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (403, Forbidden), (302, ClusterError), (502, ClusterError)]
)
def test_refusals_without_a_status_object_are_one_line_too(
    server: ScriptedServer, status: int, kind: type[ClusterError]
) -> None:
    server.on("other", answer(b"<html>a proxy's page</html>", status))
    with pytest.raises(ClusterError) as caught:
        server.client().get("/version")
    assert type(caught.value) is kind
    assert "html" not in str(caught.value)


def test_expired_credentials_are_named_by_context_and_never_shown(server: ScriptedServer) -> None:
    server.on("other", refusal(401, "Unauthorized", "Unauthorized"))
    with pytest.raises(Unauthorized, match=r"refused the credentials of context test: expired or wrong; log in again"):
        server.client(FixedAuth.bearer("t0p-secret")).version()
    assert server.seen[0].headers["Authorization"] == "Bearer t0p-secret"


class RenewedAuth:
    """Credentials that are good only after a renewal."""

    def __init__(self) -> None:
        self.token = "old"

    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def renew(self) -> bool:
        changed, self.token = self.token != "new", "new"
        return changed


def test_renewed_credentials_are_tried_once_even_for_a_write(server: ScriptedServer) -> None:
    server.on("other", refusal(401, "Unauthorized", "Unauthorized"), answer({}))
    server.client(RenewedAuth()).request("POST", "/x", body={"a": 1})
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
    assert [seen.json() for seen in server.seen] == [{"a": 1}, {"a": 1}]


def test_a_read_is_repeated_when_the_connection_breaks(server: ScriptedServer) -> None:
    server.on("other", reset, reset, answer({"gitVersion": "v1.36.3"}))
    assert server.client().version() == "v1.36.3"


def test_a_write_is_never_repeated(server: ScriptedServer) -> None:
    server.on("other", reset, answer({}))
    with pytest.raises(ClusterUnreachable, match="broke"):
        server.client().request("PATCH", "/x", body={})
    assert len(server.seen) == 1


def test_an_answer_that_does_not_come_is_a_time_out(server: ScriptedServer) -> None:
    server.on("other", hang)
    with pytest.raises(ClusterUnreachable, match=r"did not answer within 0\.2 s"):
        server.client().get("/version", timeout=0.2)


def drip(begin: bytes, forever: bytes) -> Reply:
    """An answer that always has one more byte, each soon enough for any time-out of a read."""

    def reply(handler: Handler) -> None:
        handler.wfile.write(begin)
        while not handler.script.closing.wait(0.02):
            handler.wfile.write(forever)
            handler.wfile.flush()

    return reply


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS = {
    "in the status": drip(b"HTTP/1.1 200 ", b"O"),
    "in the head": drip(HEAD + b"X: ", b"x"),
    "in the body": drip(HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "in chunks": drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "in a refusal": drip(b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n", b" "),
}


@pytest.mark.parametrize("where", DRIPS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_answer_that_only_drips_has_an_end(server: ScriptedServer, where: str, method: str) -> None:
    server.on("other", DRIPS[where])
    with pytest.raises(ClusterUnreachable, match=r"answers too slowly: .* not whole after 1\.6 s") as caught:
        server.client().request(method, "/version", timeout=0.8)  # a drop each 20 ms, also on a busy machine
    assert "\n" not in str(caught.value)
    assert len(server.seen) == 1


@pytest.mark.parametrize("where", ["in the head", "in a refusal"])
def test_a_watch_that_does_not_get_to_begin_has_an_end(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(transport, "WHOLE_SECONDS", 0.3)
    server.on("watch", DRIPS[where])
    with pytest.raises(ClusterUnreachable, match="answers too slowly"):
        server.client().stream("/pods", params={"watch": 1}, silence=5)


def test_a_watch_that_has_begun_may_take_as_long_as_it_likes(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WHOLE_SECONDS", 0.3)
    server.on("watch", drip(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nx\n\r\n"))
    with server.client().stream("/pods", params={"watch": 1}, silence=5) as stream:
        began = time.monotonic()
        lines = stream.lines()
        while time.monotonic() - began < 0.6:
            assert next(lines) == b"x"


def test_a_proxy_that_drips_has_an_end(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "do_CONNECT", Handler.handle_any, raising=False)
    server.on("other", drip(b"HTTP/1.1 200 ", b"O"))
    client = KubeClient(Access("https://api.invalid:6443", "test", tls=tls_context("", "test"), proxy_url=server.url))
    with pytest.raises(ClusterUnreachable, match="answers too slowly"):
        client.get("/version", timeout=0.3)


def test_an_answer_that_is_no_json_is_named(server: ScriptedServer) -> None:
    server.on("other", answer(b"<html>log in</html>"))
    with pytest.raises(ClusterError, match="not a JSON object"):
        server.client().version()


def test_a_refused_connection_says_where_and_what_to_check() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        line = f"cannot reach the API server at {url}: connection refused; check --context and that the cluster is up"
        with pytest.raises(ClusterUnreachable) as caught:
            KubeClient(Access(url, "test")).version()
    assert str(caught.value) == line


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ClusterUnreachable, match="host name not found"):
        KubeClient(Access("http://no-such-host.invalid", "test")).version()


def test_a_server_without_tls_is_named(server: ScriptedServer) -> None:
    url = server.url.replace("http:", "https:")
    with pytest.raises(ClusterUnreachable, match="does not speak TLS"):
        KubeClient(Access(url, "test", tls=tls_context("", "test"))).version()


def test_a_path_in_the_servers_url_is_kept(server: ScriptedServer) -> None:
    server.on("other", answer({"gitVersion": "v1"}))
    client = KubeClient(Access(server.url + "/k8s/clusters/c-1", "test"))
    client.version()
    client.close()
    assert server.seen[0].path == "/k8s/clusters/c-1/version"


def test_many_threads_share_one_client(server: ScriptedServer) -> None:
    server.on("other", answer({"gitVersion": "v1"}))
    client = server.client()
    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.extend(client.version() for _ in range(20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["v1"] * 160


def test_requests_go_through_the_proxy(server: ScriptedServer) -> None:
    server.on("other", answer({"gitVersion": "v1"}))
    client = KubeClient(Access("http://api.invalid:6443", "test", proxy_url=server.url))
    assert client.version() == "v1"
    client.close()
    assert server.seen[0].headers["Host"] == "api.invalid:6443"


def test_a_proxy_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=r"the proxy failed.*check proxy-url or HTTPS_PROXY"):
            KubeClient(Access("http://api.invalid:6443", "test", proxy_url=proxy)).version()
