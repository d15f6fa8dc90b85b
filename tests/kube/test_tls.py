"""TLS to the API server: what is trusted, and what is said of what is not."""

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remesh.errors import ClusterUnreachable
from remesh.kube.config import tls_context
from remesh.kube.watch import Reflector
from tests.cluster.wait import wait_for
from tests.kube.server import ScriptedServer, answer, page, stream
from tests.kube.tls import Authority, authority, issue, pem


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority()


def serve(ca: Authority, folder: Path, address: str) -> ScriptedServer:
    certificate, key = issue(ca, "api.example", address=address)
    path = folder / "server.pem"
    path.write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return ScriptedServer(context).on("other", answer({"gitVersion": "v1.36.3"}))


@pytest.fixture
def server(ca: Authority, tmp_path: Path) -> Iterator[ScriptedServer]:
    scripted = serve(ca, tmp_path, "127.0.0.1")
    yield scripted
    scripted.close()


@pytest.fixture
def elsewhere(ca: Authority, tmp_path: Path) -> Iterator[ScriptedServer]:
    """A server whose certificate is not for the address that it is reached by."""
    scripted = serve(ca, tmp_path, "192.0.2.1")
    yield scripted
    scripted.close()


def trusting(ca: Authority) -> ssl.SSLContext:
    return tls_context(pem(ca.certificate), "test")


def test_the_kubeconfigs_authority_is_trusted(server: ScriptedServer, ca: Authority) -> None:
    assert server.client(tls=trusting(ca)).version() == "v1.36.3"


def test_another_authority_is_not(server: ScriptedServer) -> None:
    with pytest.raises(ClusterUnreachable, match=r"its certificate is not trusted \(.+\); check certificate-authority"):
        server.client(tls=trusting(authority())).version()


def test_a_certificate_for_another_name_is_not(elsewhere: ScriptedServer, ca: Authority) -> None:
    with pytest.raises(ClusterUnreachable, match="IP address mismatch"):
        elsewhere.client(tls=trusting(ca)).version()


def test_tls_server_name_says_which_name_to_expect(elsewhere: ScriptedServer, ca: Authority) -> None:
    assert elsewhere.client(tls=trusting(ca), tls_server_name="api.example").version() == "v1.36.3"


def test_a_watch_over_tls_stops_while_the_server_is_silent(server: ScriptedServer, ca: Authority) -> None:
    server.on("list", page()).on("watch", stream(then="hang"))
    stop = threading.Event()
    reflector = Reflector(server.client(tls=trusting(ca)), "Pod", lambda _: None, lambda *_: None)
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    wait_for(lambda: bool(server.asked("watch")), "the watch")
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
