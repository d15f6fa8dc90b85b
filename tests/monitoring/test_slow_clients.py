"""Clients of the metrics port that are slow, many or long-winded, and what is left for the others."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from remesh import metrics_http
from remesh.metrics import Metrics
from remesh.metrics_http import CONNECTIONS, HEAD_BYTES, MetricsServer
from remesh.metrics_table import WATCHER
from tests.monitoring.scene import fetch
from tests.stack import free_port, wait_until


@pytest.fixture
def port() -> Iterator[int]:
    port = free_port()
    server = MetricsServer(Metrics("c", WATCHER), live=lambda: None, ready=lambda: None)
    server.start("127.0.0.1", port)
    yield port
    server.close()


def slow(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(b"GET /livez HTTP/1.1\r\nX: ")
    client.setblocking(False)
    return client


def drip(client: socket.socket) -> bool:
    """Send one more byte of the head; False if the server has closed."""
    try:
        client.send(b"x")
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.fixture
def serving(port: int) -> Callable[[], int]:
    """Threads that there are now, besides those before the first client."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


def test_many_slow_clients_hold_few_connections_and_keep_no_probe_out(port: int, serving: Callable[[], int]) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(slow(port)) for _ in range(5 * CONNECTIONS)]
        assert fetch(port, "/livez") == (200, "ok\n")
        wait_until(lambda: sum([drip(each) for each in clients]) <= CONNECTIONS, "few are left")
        assert serving() <= 2 * CONNECTIONS
        assert fetch(port, "/livez") == (200, "ok\n")


def test_a_client_that_drips_its_question_is_let_go(
    port: int, serving: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_http, "CLIENT_SECONDS", 0.5)
    with slow(port) as client:
        wait_until(lambda: not drip(client), "it is let go")
    wait_until(lambda: serving() == 0, "no thread is left")


@pytest.mark.parametrize("head", [b"GET /" + b"x" * HEAD_BYTES, b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * HEAD_BYTES])
def test_a_head_that_does_not_end_is_not_read_to_its_end(port: int, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(head)
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        except ConnectionError:
            answer = b""
    assert b" 200 " not in answer
    assert fetch(port, "/livez") == (200, "ok\n")


def test_each_answer_ends_its_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert b"".join(iter(lambda: client.recv(4096), b"")).endswith(b"ok\n")
