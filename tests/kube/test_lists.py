"""Lists of several pages: in which form they are asked for, one page ahead, and what is left when they fail."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remesh.errors import ClusterError, Forbidden, Gone, Throttled
from remesh.kube import ahead
from remesh.kube.ahead import Ahead
from remesh.kube.api import list_all
from tests.cluster.wait import wait_for
from tests.kube import wire
from tests.kube.server import Handler, Reply, ScriptedServer, answer, hang, page, pod, refusal

PROTOBUF = "application/vnd.kubernetes.protobuf"


def protobuf_page(*items: Any, version: str = "100", more: str = "") -> Reply:
    document = {"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)}
    return answer(wire.pod_list(document), Content_Type=PROTOBUF)


def protobuf_refusal(status: int, reason: str, message: str, **details: Any) -> Reply:
    document = {"code": status, "reason": reason, "message": message, "details": details}
    return answer(wire.status(document), status, Content_Type=PROTOBUF)


FORMS = pytest.mark.parametrize("made", [page, protobuf_page], ids=["json", "protobuf"])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread of a list outlives its test."""
    yield
    wait_for(lambda: not [each for each in threading.enumerate() if each.name == "ahead"], "the threads to end")


def names(found: Any) -> list[str]:
    return [item.metadata.name for item in found.items]


@FORMS
def test_pages_in_either_form_are_one_list(server: ScriptedServer, made: Callable[..., Reply]) -> None:
    server.on("list", made(pod("a"), more="x"), made(pod("b"), more="y"), made(pod("c")))
    found = list_all(server.client(), "Pod", "shop", "app=cart")
    assert (names(found), found.resource_version, found.continue_token) == (["a", "b", "c"], "100", "")
    assert [seen.params.get("continue") for seen in server.seen] == [None, "x", "y"]
    for seen in server.seen:
        assert (seen.path, seen.params["labelSelector"]) == ("/api/v1/namespaces/shop/pods", "app=cart")
        assert seen.headers["Accept"] == f"{PROTOBUF},application/json;q=0.9"
        assert seen.headers["Accept-Encoding"] == "gzip"


def test_pages_of_one_list_may_differ_in_form(server: ScriptedServer) -> None:
    """Two API servers of different make behind one address."""
    server.on("list", page(pod("a"), more="x"), protobuf_page(pod("b"), more="y"), page(pod("c")))
    assert names(list_all(server.client(), "Pod")) == ["a", "b", "c"]


def test_the_bytes_say_what_they_are_whatever_the_header_says(server: ScriptedServer) -> None:
    document = {"metadata": {"resourceVersion": "7"}, "items": [pod("a")]}
    server.on("list", answer(wire.pod_list(document), Content_Type="application/json"))
    assert names(list_all(server.client(), "Pod")) == ["a"]


def test_other_kinds_are_asked_for_as_json(server: ScriptedServer) -> None:
    server.on("list", page(pod("a"), more="x"), page(pod("b")))
    assert names(list_all(server.client(), "ReplicaSet")) == ["a", "b"]
    assert {seen.headers["Accept"] for seen in server.seen} == {"application/json"}


def test_whoever_cannot_give_protobuf_is_asked_for_json(server: ScriptedServer) -> None:
    server.on("list", refusal(406, "NotAcceptable", "only JSON"), page(pod("a")))
    assert names(list_all(server.client(), "Pod")) == ["a"]
    assert [seen.headers["Accept"] for seen in server.seen][1] == "application/json"


@FORMS
def test_the_next_page_is_asked_for_meanwhile_and_no_more(server: ScriptedServer, made: Callable[..., Reply]) -> None:
    server.on("list", made(pod("a"), more="x"), made(pod("b"), more="y"), made(pod("c"), more="z"), made(pod("d")))
    asked: list[int] = []

    def each(item: Any) -> None:
        number = "abcd".index(item.metadata.name)
        wait_for(lambda: len(server.seen) >= min(number + 2, 4), "the next page to be asked for")
        threading.Event().wait(0.05)  # for one page too many
        asked.append(len(server.seen))

    list_all(server.client(), "Pod", each=each)
    assert asked == [2, 3, 4, 4]


def test_a_list_of_one_page_needs_no_thread(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remesh.kube.api.Ahead", None)
    server.on("list", protobuf_page(pod("a")))
    assert names(list_all(server.client(), "Pod")) == ["a"]


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (
            protobuf_refusal(403, "Forbidden", 'pods is forbidden: User "u" cannot list'),
            Forbidden,
            "a right is missing",
        ),
        (protobuf_refusal(429, "TooManyRequests", "later", retryAfterSeconds=7), Throttled, "come back in 7 s: later"),
        (protobuf_page(pod("a" * 254)), ClusterError, "not a list of Pod"),
        (answer(b"k8s\0\xff"), ClusterError, "not a list of Pod"),
    ],
    ids=["403", "429", "name", "damage"],
)
def test_an_error_comes_after_the_pages_before_it(
    server: ScriptedServer, reply: Reply, kind: type[ClusterError], text: str
) -> None:
    seen: list[str] = []
    server.on("list", protobuf_page(pod("a"), more="x"), reply)
    with pytest.raises(kind, match=text):
        list_all(server.client(), "Pod", each=lambda item: seen.append(item.metadata.name))
    assert seen == ["a"]


def test_a_list_whose_token_expired_starts_over_and_gives_up_in_the_end(server: ScriptedServer) -> None:
    gone = protobuf_refusal(410, "Expired", "The provided continue parameter is too old")
    server.on("list", protobuf_page(pod("a"), more="x"), gone, protobuf_page(pod("b"), version="101"))
    found = list_all(server.client(), "Pod")
    assert (names(found), found.resource_version) == (["b"], "101")
    server.on("list", *[protobuf_page(pod("a"), more="x"), gone] * 3)
    with pytest.raises(Gone, match="too old"):
        list_all(server.client(), "Pod")


def test_what_is_raised_over_an_item_is_not_held_up_by_a_page_that_hangs(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "LEAVE_SECONDS", 0.1)
    server.on("list", protobuf_page(pod("a"), more="x"), hang)

    def each(item: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list_all(server.client(), "Pod", each=each)
    wait_for(lambda: len(server.seen) == 2, "the second page to be asked for")
    server.closing.set()  # the connection that hangs ends, and so does its thread


def test_what_an_iterator_raises_comes_in_its_place() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    with Ahead(source()) as found:
        items = iter(found)
        assert next(items) == 1
        with pytest.raises(ValueError, match="two"):
            next(items)


def test_an_iterator_that_is_left_is_not_run_to_its_end() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    with Ahead(source()) as found:
        assert next(iter(found)) == 0
    assert len(made) <= 2


def test_a_broken_connection_is_tried_again_on_every_page(server: ScriptedServer) -> None:
    def reset(handler: Handler) -> None:
        handler.close_connection = True

    server.on("list", protobuf_page(pod("a"), more="x"), reset, reset, protobuf_page(pod("b")))
    assert names(list_all(server.client(), "Pod")) == ["a", "b"]
