"""The reflector against an API server that breaks in every way that was seen in the wild."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remesh.kube import watch
from remesh.kube.watch import Backoff, Reflector
from tests.cluster.wait import wait_for
from tests.kube.server import ScriptedServer, bookmark, event, hang, page, pod, refusal, stream


class Store:
    """What a reflector handed over, and its thread."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.events: list[tuple[str, str]] = []
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None
        self.raised: BaseException | None = None

    def on_list(self, items: list[Any]) -> None:
        self.lists.append([item.metadata.name for item in items])

    def on_event(self, kind: str, obj: Any) -> None:
        self.events.append((kind, obj.metadata.name))

    def run(self, reflector: Reflector) -> None:
        try:
            reflector.run(self.stop)
        except RuntimeError as error:
            self.raised = error

    def end(self) -> None:
        self.stop.set()
        if self.thread:
            self.thread.join(10)  # far below the time-outs of whatever hangs
            assert not self.thread.is_alive()


Start = Callable[..., tuple[Store, Reflector]]


@pytest.fixture
def start(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(watch, "BACKOFF_SECONDS", 0.02)
    store = Store()

    def begin(**options: Any) -> tuple[Store, Reflector]:
        callbacks = {"on_list": store.on_list, "on_event": store.on_event} | options
        reflector = Reflector(server.client(), "Pod", **callbacks)
        store.thread = threading.Thread(target=store.run, args=(reflector,))
        store.thread.start()
        return store, reflector

    yield begin
    store.end()


def test_hands_over_all_pages_as_one_set_then_changes(server: ScriptedServer, start: Start) -> None:
    server.on("list", page(pod("a"), more="next"), page(pod("b")))
    server.on("watch", stream(event("ADDED", pod("c", "101")), event("DELETED", pod("a", "102")), then="hang"))
    store, reflector = start()
    wait_for(lambda: len(store.events) == 2, "two changes")
    assert store.lists == [["a", "b"]]
    assert store.events == [("ADDED", "c"), ("DELETED", "a")]
    assert reflector.synced.is_set()
    assert [seen.params.get("continue") for seen in server.asked("list")] == [None, "next"]
    watched = server.asked("watch")[0].params
    assert watched["resourceVersion"] == "100"
    assert watched["allowWatchBookmarks"] == "true"
    assert 200 < int(watched["timeoutSeconds"]) <= 290


def test_what_does_not_matter_is_neither_held_nor_handed_over(server: ScriptedServer, start: Start) -> None:
    server.on("list", page(pod("a"), pod("b"), more="next"), page(pod("c")))
    changes = event("ADDED", pod("d", "101")), event("MODIFIED", pod("a", "102")), event("MODIFIED", pod("b", "103"))
    server.on("watch", stream(*changes, then="hang"), stream(then="hang"))
    store, _ = start(keep=lambda item: item.metadata.name in "ad")
    wait_for(lambda: len(store.events) == 2, "two changes")
    assert store.lists == [["a"]]
    assert store.events == [("ADDED", "d"), ("MODIFIED", "a")]


def test_starts_the_list_over_when_its_pages_expire(server: ScriptedServer, start: Start) -> None:
    expired = refusal(410, "Expired", "The provided continue parameter is too old")
    server.on("list", page(pod("a"), more="x"), expired, page(pod("a2"), more="y"), page(pod("b2")))
    server.on("watch", stream(then="hang"))
    store, _ = start()
    wait_for(lambda: bool(store.lists), "a list")
    assert store.lists == [["a2", "b2"]]


def test_goes_on_from_the_last_bookmark_after_a_broken_stream(server: ScriptedServer, start: Start) -> None:
    server.on("list", page())
    broken = stream(event("ADDED", pod("a", "101")), bookmark("150"), then="break")
    server.on("watch", broken, stream(event("ADDED", pod("b", "151")), then="hang"))
    store, _ = start()
    wait_for(lambda: len(store.events) == 2, "two changes")
    assert store.events == [("ADDED", "a"), ("ADDED", "b")]
    assert store.lists == [[]]
    assert [seen.params["resourceVersion"] for seen in server.asked("watch")] == ["100", "150"]


def test_puts_lines_together_that_break_across_chunks(server: ScriptedServer, start: Start) -> None:
    whole = event("ADDED", pod("ä-" * 30, "101")) + event("MODIFIED", pod("b", "102"))
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    server.on("list", page()).on("watch", stream(*pieces, then="hang"))
    store, _ = start()
    wait_for(lambda: len(store.events) == 2, "two changes")
    assert store.events == [("ADDED", "ä-" * 30), ("MODIFIED", "b")]


def test_half_a_line_at_the_end_is_dropped_and_asked_for_again(server: ScriptedServer, start: Start) -> None:
    line = event("ADDED", pod("a", "101"))
    server.on("list", page()).on("watch", stream(line[:30]), stream(line, then="hang"))
    store, _ = start()
    wait_for(lambda: bool(store.events), "the change")
    assert store.events == [("ADDED", "a")]
    assert server.asked("watch")[1].params["resourceVersion"] == "100"


@pytest.mark.parametrize("by", ["status", "event"])
def test_lists_again_when_the_version_is_too_old(server: ScriptedServer, start: Start, by: str) -> None:
    status = {
        "kind": "Status",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": "too old",
        "metadata": {},
    }
    gone = refusal(410, "Expired", "too old") if by == "status" else stream(event("ERROR", status))
    server.on("list", page(pod("a")), page(pod("b"), version="200"))
    server.on("watch", gone, stream(then="hang"))
    store, reflector = start()
    wait_for(lambda: len(server.asked("watch")) == 2, "the second watch")
    assert store.lists == [["a"], ["b"]]
    assert reflector.lists == 2
    assert server.asked("watch")[1].params["resourceVersion"] == "200"


def test_lists_again_after_any_other_error_event(server: ScriptedServer, start: Start) -> None:
    status = {"kind": "Status", "status": "Failure", "code": 500, "message": "etcd is unwell", "metadata": {}}
    server.on("list", page()).on("watch", stream(event("ERROR", status)), stream(then="hang"))
    store, _ = start()
    wait_for(lambda: len(store.lists) == 2, "the second list")


def test_a_stalled_stream_is_given_up_and_continued(server: ScriptedServer, start: Start) -> None:
    server.on("list", page())
    server.on("watch", stream(bookmark("120"), then="hang"), stream(event("ADDED", pod("a", "121")), then="hang"))
    store, reflector = start(silence=0.2)
    wait_for(lambda: bool(store.events), "a change in the second stream")
    assert store.lists == [[]]
    assert reflector.last_error == ""
    assert server.asked("watch")[1].params["resourceVersion"] == "120"


def test_waits_as_long_as_a_throttling_server_asks(server: ScriptedServer, start: Start) -> None:
    server.on("list", refusal(429, "TooManyRequests", "busy", Retry_After="1"), page(pod("a")))
    server.on("watch", stream(then="hang"))
    store, reflector = start()
    wait_for(lambda: bool(reflector.last_error), "the refusal")
    assert "come back in 1 s" in reflector.last_error
    wait_for(lambda: bool(store.lists), "a list")
    wait_for(lambda: not reflector.last_error, "the error to be forgotten")


def test_tries_again_while_the_server_fails_or_lacks_the_right(server: ScriptedServer, start: Start) -> None:
    forbidden = refusal(403, "Forbidden", 'pods is forbidden: User "x" cannot list resource "pods"')
    server.on("list", refusal(500, "InternalError", "oops"), forbidden, page(pod("a")))
    server.on("watch", stream(then="hang"))
    store, _ = start()
    wait_for(lambda: store.lists == [["a"]], "a list")


def test_a_damaged_line_is_reported_and_asked_for_again(server: ScriptedServer, start: Start) -> None:
    server.on("list", page())
    server.on("watch", stream(b'{"type": "ADDED", "object": {]}\n'), stream(event("ADDED", pod("a")), then="hang"))
    store, _ = start()
    wait_for(lambda: bool(store.events), "the change")
    assert store.events == [("ADDED", "a")]


def test_a_watch_that_ends_at_once_is_not_repeated_in_a_tight_loop(
    server: ScriptedServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def pause(self: Reflector, seconds: float) -> None:
        waits.append(seconds)
        self._stopped.wait(0.01)

    monkeypatch.setattr(Reflector, "_pause", pause)
    server.on("list", page()).on("watch", stream())
    start()
    wait_for(lambda: len(waits) >= 6, "six pauses")
    assert all(later > earlier for earlier, later in zip(waits, waits[2:], strict=False))


@pytest.mark.parametrize("hanging", ["list", "watch", "stream"])
def test_stops_although_the_server_hangs(server: ScriptedServer, start: Start, hanging: str) -> None:
    server.on("list", hang if hanging == "list" else page())
    server.on("watch", hang if hanging == "watch" else stream(then="hang"))
    store, _ = start()
    wait_for(lambda: bool(server.asked("list" if hanging == "list" else "watch")), "the request")
    store.end()
    assert store.lists == ([] if hanging == "list" else [[]])


def test_asks_for_one_namespace_and_labels_only(server: ScriptedServer, start: Start) -> None:
    server.on("list", page()).on("watch", stream(then="hang"))
    start(namespace="shop", label_selector="a in (b,c)")
    wait_for(lambda: bool(server.asked("watch")), "the watch")
    for seen in server.seen:
        assert seen.path == "/api/v1/namespaces/shop/pods"
        assert seen.params["labelSelector"] == "a in (b,c)"


def test_what_a_callback_raises_ends_the_run(server: ScriptedServer, start: Start) -> None:
    def fail(items: list[Any]) -> None:
        raise RuntimeError("a bug")

    server.on("list", page()).on("watch", stream(then="hang"))
    store, _ = start(on_list=fail)
    wait_for(lambda: store.raised, "the error")
    assert str(store.raised) == "a bug"


def test_backoff_doubles_up_to_its_limit_and_starts_over() -> None:
    backoff = Backoff()
    waits = [backoff.wait() for _ in range(12)]
    assert 0.25 <= waits[0] <= 0.5
    assert all(wait <= 30 for wait in waits)
    assert waits[-1] >= 15
    backoff.reset()
    assert backoff.wait() <= 0.5
