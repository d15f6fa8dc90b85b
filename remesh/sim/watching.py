"""Watch responses: one JSON line for each change that the watcher selects, bookmarks, and the end."""

import queue
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from remesh.sim import status
from remesh.sim.api import Selection
from remesh.sim.resources import Resource
from remesh.sim.store import Change, Store, Stored, full_body

_TICK_SECONDS = 0.5  # how often a quiet watch looks whether its client is still there
_BOOKMARK_SECONDS = 60.0  # kube-apiserver sends one about every minute, and one shortly before the end
_LAST_BOOKMARK_SECONDS = 2.0
_SHORTEST_DEFAULT_SECONDS = 1800.0  # a watch without timeoutSeconds ends between this and twice this
_LINES_PER_CHUNK = 500


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The query of a watch. `since` None: start with the present objects."""

    resource: Resource
    selection: Selection
    since: int | None
    bookmarks: bool = False
    initial_events: bool = False
    seconds: float | None = None


def watch(store: Store, options: WatchOptions) -> Iterator[bytes]:
    """Yields chunks of lines; an empty chunk now and then when there is nothing to say.

    A `since` older than the history gives a single ERROR line with the 410, as kube-apiserver does.
    """
    changes: queue.SimpleQueue[Change] = queue.SimpleQueue()
    started = store.follow(options.resource, options.since, changes.put)
    if started is None:
        oldest = store.forgotten(options.resource)
        error = status.expired(f"too old resource version: {options.since} ({oldest})")
        yield line("ERROR", msgspec.json.encode(error.body()))
        return
    try:
        version, present = started
        yield _initial(options, version, present)
        yield from _follow(store, options, changes, version)
    finally:
        store.unfollow(options.resource, changes.put)


def line(kind: str, body: bytes) -> bytes:
    """One line of a watch response."""
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


def _initial(options: WatchOptions, version: int, present: list[Stored]) -> bytes:
    lines = [line("ADDED", full_body(options.resource, item)) for item in present if options.selection.wants(item.obj)]
    if options.initial_events and options.bookmarks:
        lines.append(_bookmark(options.resource, version, {"k8s.io/initial-events-end": "true"}))
    return b"".join(lines)


def _follow(store: Store, options: WatchOptions, changes: "queue.SimpleQueue[Change]", version: int) -> Iterator[bytes]:
    seconds = options.seconds or _SHORTEST_DEFAULT_SECONDS * (1 + random.random())
    end = time.monotonic() + seconds
    marks = _bookmark_times(end) if options.bookmarks else iter(())
    next_mark = next(marks, end)
    while (present := time.monotonic()) < end:
        if present >= next_mark:
            # Whatever is not in the queue yet has a version above this one.
            seen = max(version, store.version if changes.empty() else version)
            yield _drain(options, changes) + _bookmark(options.resource, seen, None)
            next_mark = next(marks, end)
            continue
        try:
            first = changes.get(timeout=max(0.001, min(_TICK_SECONDS, end - present, next_mark - present)))
        except queue.Empty:
            yield b""
            continue
        version = first.new.version
        yield _seen(first, options) + _drain(options, changes)


def _bookmark_times(end: float) -> Iterator[float]:
    following = time.monotonic() + _BOOKMARK_SECONDS
    while following < end - _LAST_BOOKMARK_SECONDS:
        yield following
        following += _BOOKMARK_SECONDS
    yield end - _LAST_BOOKMARK_SECONDS


def _drain(options: WatchOptions, changes: "queue.SimpleQueue[Change]") -> bytes:
    lines = []
    for _ in range(_LINES_PER_CHUNK):
        try:
            lines.append(_seen(changes.get_nowait(), options))
        except queue.Empty:
            break
    return b"".join(lines)


def _seen(change: Change, options: WatchOptions) -> bytes:
    kind = as_seen(change, options.selection)
    return line(kind, full_body(change.resource, change.new)) if kind else b""


def as_seen(change: Change, selection: Selection) -> str:
    """What a change is to a watcher that selects: an object can enter or leave its view. Empty: nothing."""
    before = change.old is not None and selection.wants(change.old.obj)
    after = change.type != "DELETED" and selection.wants(change.new.obj)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _bookmark(resource: Resource, version: int, annotations: dict[str, str] | None) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    if annotations:
        metadata["annotations"] = annotations
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return line("BOOKMARK", msgspec.json.encode(body))
