"""The certificate that is really served, against the caBundle: right, and wrong in every way by itself."""

import base64
import datetime
import socket
from pathlib import Path

import pytest

from remesh.cli.check_tls import Served, Target, bundle_check, examine, served_check
from remesh.cli.checks import Check, State
from tests.cli.tls import DAY, bundle, issued, serving
from tests.cluster import pki

NAME = "web.shop.svc"
CA = pki.authority("injector")
STRANGER = pki.authority("stranger")
NOW = datetime.datetime.now(datetime.UTC)


def judged(pair: pki.KeyPair, trusted: str | None, folder: Path) -> Check:
    with serving(pair, folder) as port:
        return served_check([examine(Target("127.0.0.1", port, NAME), trusted)], NOW, "web")


def test_a_right_certificate_is_described(tmp_path: Path) -> None:
    check = judged(issued(CA, [NAME, "10.0.0.1"]), bundle(CA), tmp_path)
    assert check.state is State.OK, check.text
    assert "issued by 'injector', for web.shop.svc, 10.0.0.1, valid until" in check.text


@pytest.mark.parametrize(
    ("pair", "trusted", "words"),
    [
        (issued(CA, [NAME]), bundle(STRANGER), "is not trusted through caBundle"),
        (issued(None, [NAME]), bundle(CA), "is not trusted through caBundle"),
        (issued(CA, ["other.shop.svc"]), bundle(CA), f"is not for {NAME}; it is issued by 'injector', for other"),
        (issued(CA, [], common_name=NAME), bundle(CA), f"is not for {NAME}"),
        (issued(CA, [NAME], since=-3 * DAY, until=-DAY), bundle(CA), "has expired"),
        (issued(CA, [NAME], since=DAY, until=3 * DAY), bundle(CA), "is not valid yet"),
        (issued(CA, [NAME]), base64.b64encode(b"no certificate").decode(), "the caBundle cannot be used"),
        (issued(CA, [NAME]), None, "is not trusted"),
    ],
    ids=["wrong-ca", "self-signed", "wrong-name", "common-name-only", "expired", "not-yet", "garbage", "no-bundle"],
)
def test_a_wrong_certificate_fails_and_says_what_it_is(
    pair: pki.KeyPair, trusted: str | None, words: str, tmp_path: Path
) -> None:
    check = judged(pair, trusted, tmp_path)
    assert check.state is State.FAILED
    assert words in check.text
    assert "valid until" in check.text


def test_a_certificate_that_signed_itself_is_trusted_where_it_is_the_bundle(tmp_path: Path) -> None:
    own = issued(None, [NAME])
    assert judged(own, bundle(own), tmp_path).state is State.OK


def test_one_of_two_authorities_is_enough(tmp_path: Path) -> None:
    assert judged(issued(CA, [NAME]), bundle(STRANGER, CA), tmp_path).state is State.OK


def test_a_certificate_near_its_end_is_a_warning(tmp_path: Path) -> None:
    check = judged(issued(CA, [NAME], since=-90 * DAY, until=2 * DAY), bundle(CA), tmp_path)
    assert check.state is State.WARNING
    assert "ends in" in check.text


def test_a_short_lived_certificate_in_its_prime_is_none(tmp_path: Path) -> None:
    assert judged(issued(CA, [NAME], since=-DAY / 4, until=DAY / 2), bundle(CA), tmp_path).state is State.OK


def test_who_cannot_be_reached_was_not_checked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    check = served_check([examine(Target("127.0.0.1", port, NAME), bundle(CA))], NOW, "web")
    assert check.state is State.SKIPPED
    assert "not checked from here: 127.0.0.1" in check.text
    assert "connection refused" in check.text


def test_who_speaks_no_tls_was_not_checked(tmp_path: Path) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        check = served_check([examine(Target("127.0.0.1", server.getsockname()[1], NAME), bundle(CA))], NOW, "web")
        thread.join()
    assert check.state is State.SKIPPED
    assert "does not speak TLS" in check.text


def test_one_silent_replica_beside_one_that_serves_is_a_warning(tmp_path: Path) -> None:
    with serving(issued(CA, [NAME]), tmp_path) as port:
        good = examine(Target("127.0.0.1", port, NAME), bundle(CA))
    silent = Served(Target("10.9.8.7", 1, NAME), unreachable="does not answer within 2 s")
    check = served_check([good, silent], NOW, "web")
    assert check.state is State.WARNING
    assert "1 endpoint not checked: 10.9.8.7:1 does not answer" in check.text


@pytest.mark.parametrize(
    ("text", "by_url", "state", "words"),
    [
        (bundle(CA), False, State.OK, "1 authority, issued by 'injector'"),
        ("", False, State.FAILED, "is empty"),
        ("", True, State.OK, "the API server's own authorities"),
        ("####", False, State.FAILED, "not base64"),
        (base64.b64encode(b"hello").decode(), False, State.FAILED, "no PEM certificate"),
        (bundle(issued(None, [], since=-9 * DAY, until=-DAY)), False, State.FAILED, "has expired"),
        (bundle(issued(None, [], since=DAY, until=9 * DAY)), False, State.FAILED, "is not valid yet"),
        (bundle(issued(None, [], since=-90 * DAY, until=DAY)), False, State.WARNING, "ends in"),
        (bundle(issued(None, [], since=-9 * DAY, until=-DAY), CA), False, State.OK, "2 authorities"),
    ],
    ids=["right", "empty", "empty-url", "garbage", "no-pem", "expired", "not-yet", "ends", "one-expired"],
)
def test_the_bundle_itself(text: str, by_url: bool, state: State, words: str) -> None:
    check = bundle_check(text, by_url=by_url, now=NOW, subject="web")
    assert (check.state, words in check.text) == (state, True), check.text
