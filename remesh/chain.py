"""The chain of hashes through the audit trail: how a record's hash is made, and what is wrong with a trail. Pure.

Each record of a trail carries its number, counted from 1, and a hash of four things: the hash and the position of the
record before it, its own number, and the SHA-256 of its own bytes. So no record can be altered, removed, moved or put
in between without the next hash no longer fitting. `remesh.audit` makes the chain, `remesh audit verify` checks it.

What it proves and what it cannot: docs/trail.md and docs/decisions/0011-chained-trail.md.
"""

import hmac
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from typing import Any

from remesh.errors import UsageError

PRUNED = "trail_pruned"  # code of the record that says what was exported and removed
LOST = "trail_lost"  # code of the record that says that what stood before is gone
SEALED = "trail_sealed"  # code of the record that signs how far the trail had come

SHOWN = 50  # problems that are kept; the rest are counted
SEALS_REACH = 20_000  # records back from a seal to the one that it is about: written within seconds of each other

_POSITION = r"[0-9]{1,19}-[0-9]{1,19}"
_HASH = r"[0-9a-f]{40}"
_ANCHOR = re.compile(rf"([0-9]{{1,18}})/({_POSITION})/({_HASH})")
_TAIL = re.compile(rf',"position":"({_POSITION})"(?:,"number":([0-9]{{1,18}}),"hash":"({_HASH})")?\}}$')


@dataclass(frozen=True, slots=True)
class Link:
    """One record's place in the chain. As text: `number/position/hash`, which is what an anchor looks like."""

    number: int
    position: str
    hash: str

    def __str__(self) -> str:
        return f"{self.number}/{self.position}/{self.hash}"


START = Link(0, "0-0", "0" * 40)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the stream, or one line of an export, as it is."""

    position: str
    text: str | None  # the record's bytes; None: somebody else's entry, without field r
    number: int = 0
    hash: str = ""  # empty: written before trails had a chain, or by somebody else
    line: int = 0  # of the file; 0: from Redis

    @property
    def link(self) -> Link:
        """Its place in the chain; only of use if it has a hash."""
        return Link(self.number, self.position, self.hash)

    @property
    def where(self) -> str:
        """For messages."""
        return f"line {self.line} (position {self.position})" if self.line else f"position {self.position}"


def digest(text: str) -> str:
    """SHA-256 of a record's bytes. Half-characters, which no record of ours has, count as themselves."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def link_hash(before: Link, number: int, content: str) -> str:
    """Hash of the record of this number and content digest after `before`. The trail's script makes the same in Lua.

    SHA-1 is what Redis has in scripts. Its known weakness, two chosen texts with one hash, needs free choice of bytes;
    here everything variable is itself a hash, a counter or the server's own number.
    """
    text = f"{before.hash} {number} {before.position} {content}"
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


def parse_anchor(text: str) -> Link:
    """An anchor as `verify`, the logs and a pruning print it. Raises UsageError."""
    found = _ANCHOR.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"anchor {text[:100]!r} is none: give it as printed, number/position/hash")
    return Link(int(found[1]), found[2], found[3])


def seal(key: bytes, link: Link, cluster: str) -> str:
    """Signature of how far a cluster's trail had come."""
    return hmac.new(key, f"remesh trail {cluster} {link}".encode(), sha256).hexdigest()


def to_line(entry: Entry) -> str:
    """One line of an export, without its line break: the record's own bytes, then position, number and hash.

    What is no JSON object on one line is wrapped as `raw`, so that every line is JSON.
    """
    text = entry.text if entry.text is not None and _is_plain(entry.text) else _wrapped(entry.text)
    chained = f',"number":{entry.number},"hash":"{entry.hash}"' if entry.hash else ""
    return f'{text[:-1]},"position":"{entry.position}"{chained}}}'


def from_line(line: str, number: int) -> Entry | None:
    """The entry of an export's line; None if it is no such line. `number` is the line's, from 1."""
    text = line.rstrip("\r\n")
    tail = _TAIL.search(text)
    if tail is None:
        return None
    body: str | None = text[: tail.start()] + "}"
    if text.startswith('{"raw":'):
        try:
            body = json.loads(body or "")["raw"]
        except (ValueError, KeyError, TypeError):
            return None
    return Entry(tail[1], body, int(tail[2] or 0), tail[3] or "", number)


def _is_plain(text: str) -> bool:
    if not (text.startswith('{"') and text.endswith("}")) or text.startswith('{"raw":') or _breaks(text):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _wrapped(text: str | None) -> str:
    return json.dumps({"raw": text})


def order(position: str) -> tuple[int, int]:
    """Sort key of a position."""
    ms, _, sequence = position.partition("-")
    return int(ms), int(sequence or 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was done to the trail, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Report:
    """What was found. `problems` are the first ones, `wrong` is how many there are."""

    count: int = 0
    unchained: int = 0  # records from before the first one with a hash
    first: Link | None = None
    head: Link | None = None
    wrong: int = 0
    problems: list[Problem] = field(default_factory=list)
    losses: list[Problem] = field(default_factory=list)  # what the trail itself says is gone
    notes: list[str] = field(default_factory=list)
    seals: int = 0
    sealed: Link | None = None  # the newest link whose seal was checked

    @property
    def whole(self) -> bool:
        """True if nothing is wrong and nothing was lost."""
        return not self.wrong and not self.losses


@dataclass(slots=True)
class _Gap:
    """Numbers that should stand between two records, or before the first one."""

    first: int
    last: int
    where: str
    after: Entry  # the record behind the gap
    open: set[int] | None = None  # those not met yet, where some have turned up later

    def meets(self, number: int) -> bool:
        if not self.first <= number <= self.last:
            return False
        if self.open is None:
            # A moved record makes a gap of one; a gap of millions is a removal, and is not spelled out.
            self.open = set(range(self.first, self.last + 1)) if self.last - self.first < SEALS_REACH else set()
        if number not in self.open:
            return False
        self.open.discard(number)
        return True

    def left(self) -> int:
        return self.last - self.first + 1 if self.open is None else len(self.open)


class Verifier:
    """Takes the entries one by one, in their order, and keeps no more than the last few thousand hashes.

    `head` is what Redis says the chain has come to (None: not asked for, as with a file). `whole` means that the first
    record is the trail's first, unless one that was pruned says otherwise. `key` checks seals; empty: they are counted.
    """

    def __init__(
        self,
        *,
        head: Link | None = None,
        whole: bool = True,
        anchors: Sequence[Link] = (),
        key: bytes = b"",
        cluster: str = "",
        after: Link | None = None,
    ) -> None:
        self.report = Report()
        self._head = head
        self._whole = whole
        self._key = key
        self._cluster = cluster
        self._anchors = {anchor.number: anchor for anchor in anchors}
        self._before = after
        self._position = after.position if after else ""
        self._gaps: list[_Gap] = []
        self._recent: OrderedDict[int, Link] = OrderedDict()
        self._pruned: dict[int, Link] = {}
        self._at_head: Link | None = None

    def take(self, entry: Entry) -> None:
        """Check one entry against those before it."""
        report = self.report
        report.count += 1
        if self._position and order(entry.position) <= order(self._position):
            self._wrong(entry.where, f"it stands behind position {self._position}, which is later or the same")
        else:
            self._position = entry.position
        if not entry.hash:
            self._take_unchained(entry)
        elif self._take_chained(entry):
            self._before = report.head = entry.link
            report.first = report.first or entry.link
            self._remember(entry.link)
            if entry.text is not None and '"code":"trail_' in entry.text:
                self._take_own(entry, entry.text)

    def unreadable(self, where: str) -> None:
        """A line of a file that is no record at all."""
        self.report.count += 1
        self._wrong(where, "it is no line of an export")

    def end(self) -> Report:
        """Everything has been taken."""
        for gap in self._gaps:
            self._close(gap)
        self._check_end()
        for anchor in self._anchors.values():
            self._unmet(anchor)
        if self.report.unchained:
            older = f"{self.report.unchained} records stand before the first one with a hash"
            self.report.notes.append(f"{older}: written before trails had a chain, so nothing is proven of them")
        if self.report.seals and not self._key:
            seals = f"{self.report.seals} seals were not checked"
            self.report.notes.append(f"{seals}: set REMESH_SIGNING_KEY to the key that the watcher has")
        return self.report

    def _take_unchained(self, entry: Entry) -> None:
        if self._before is None:
            self.report.unchained += 1
        else:
            self._wrong(
                entry.where,
                "it carries no hash, though records before it do: an older remesh or somebody else wrote it",
            )

    def _take_chained(self, entry: Entry) -> bool:
        """True if the chain goes on from here."""
        content = digest(entry.text or "")
        if entry.text is None:
            self._wrong(entry.where, "it has a hash and no record")
        before = self._before or START
        if entry.number == before.number + 1:
            if entry.hash != link_hash(before, entry.number, content):
                self._wrong(
                    entry.where, f"record number {entry.number} was altered, or does not follow {before.position}"
                )
            return True
        if entry.number > before.number:
            # A gap before the first record is closed by a pruning's record that comes later.
            where = f"before {entry.where}" if self._before is None else f"between {before.position} and {entry.where}"
            self._gaps.append(_Gap(before.number + 1, entry.number - 1, where, entry))
            return True
        return self._take_earlier(entry, content)

    def _take_earlier(self, entry: Entry, content: str) -> bool:
        if entry.number == 1 and entry.hash == link_hash(START, 1, content):
            self._wrong(entry.where, "the chain begins anew here: its head had been removed from Redis")
            return True
        if any(gap.meets(entry.number) for gap in self._gaps):
            self._wrong(entry.where, f"record number {entry.number} was moved: it stands behind later ones")
        else:
            self._wrong(entry.where, f"record number {entry.number} stands here a second time, or was put here")
        return False

    def _remember(self, link: Link) -> None:
        self._recent[link.number] = link
        if len(self._recent) > SEALS_REACH:
            self._recent.popitem(last=False)
        if self._head is not None and self._head.number == link.number:
            self._at_head = link  # the last one counts: a chain may begin anew
        anchor = self._anchors.pop(link.number, None)
        if anchor is not None and anchor != link:
            self._anew(link, "the anchor")

    def _anew(self, link: Link, who: str) -> None:
        what = f"record number {link.number} is not the one that {who} names: the chain was written anew"
        self._wrong(f"position {link.position}", what)

    def _take_own(self, entry: Entry, text: str) -> None:
        """A record that the trail keeps about itself. Foreign texts that look like one lack the details."""
        try:
            record = json.loads(text)
            code, details = record.get("code"), record.get("details", {})
        except (ValueError, AttributeError, RecursionError):
            return
        if not isinstance(details, dict):
            return
        if code == PRUNED and (link := link_of(details)) is not None:
            self._pruned[link.number] = link
        elif code == LOST:
            self.report.losses.append(Problem(entry.where, f"the trail says itself: {str(record.get('reason'))[:300]}"))
        elif code == SEALED and (link := link_of(details)) is not None:
            self._take_seal(entry, link, details)

    def _take_seal(self, entry: Entry, link: Link, details: dict[str, Any]) -> None:
        self.report.seals += 1
        if not self._key:
            return
        given = details.get("seal")
        if not isinstance(given, str) or not hmac.compare_digest(
            given.encode("utf-8", "replace"), seal(self._key, link, self._cluster).encode()
        ):
            self._wrong(entry.where, "its seal is not by this key")
            return
        met = self._recent.get(link.number)
        if met is not None and met != link:
            self._wrong(entry.where, f"it seals another record number {link.number}: the chain was written anew")
        elif met is not None:
            self.report.sealed = link

    def _close(self, gap: _Gap) -> None:
        left = gap.left()
        if not left or self._explained(gap):
            return
        numbers = f"number {gap.first}" if gap.first == gap.last else f"of the numbers {gap.first} to {gap.last}"
        self._wrong(gap.where, f"{_records(left)} removed, {numbers}")

    def _explained(self, gap: _Gap) -> bool:
        """True for what is missing before the first record, where that may be so."""
        if gap.first != 1 or gap.after.link != self.report.first:
            return False
        if not self._whole:
            self.report.notes.append(f"it begins at record number {gap.after.number}: of those before nothing is said")
            return True
        base = self._pruned.get(gap.last)
        if base is None or gap.after.hash != link_hash(base, gap.after.number, digest(gap.after.text or "")):
            return False
        self.report.notes.append(f"records up to number {base.number} ({base.position}) were exported and pruned")
        return True

    def _check_end(self) -> None:
        last, head = self._before or START, self._head
        if head is None:
            return
        if head.number > last.number:
            gone = _records(head.number - last.number)
            self._wrong(f"after position {last.position}", f"{gone} removed from the end, up to {head.position}")
        elif head == START and last.number:
            self._wrong("head", "Redis knows no head of this chain: the key trail:head was removed")
        elif self._at_head is not None and self._at_head != head:
            self._anew(self._at_head, "the head")

    def _unmet(self, anchor: Link) -> None:
        """An anchor whose record did not come by."""
        last = self._before or START
        base = self._pruned.get(anchor.number)
        where = f"position {anchor.position}"
        if anchor.number > last.number:
            what = f"the trail ends before record number {anchor.number}, which the anchor names"
            self._wrong(f"after position {last.position}", what)
        elif base is not None and base != anchor:
            self._wrong(where, "the anchor is not what was pruned: the chain was written anew")
        elif base is None and (self.report.first is None or anchor.number < self.report.first.number):
            self.report.notes.append(f"anchor {anchor.number} lies before the first record: check it on the export")
        elif base is None:
            self._wrong(where, f"record number {anchor.number}, which the anchor names, is gone")

    def _wrong(self, where: str, what: str) -> None:
        self.report.wrong += 1
        if len(self.report.problems) < SHOWN:
            self.report.problems.append(Problem(where, what))


def _records(count: int) -> str:
    return f"{count} record was" if count == 1 else f"{count} records were"


def link_of(details: dict[str, Any]) -> Link | None:
    """The link that a record about the trail itself carries; None if it carries none."""
    number, position, own = (details.get(name) for name in ("number", "position", "hash"))
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    found = _ANCHOR.fullmatch(f"{number}/{position}/{own}")
    return Link(number, found[2], found[3]) if found else None


def details_of(link: Link) -> dict[str, Any]:
    """The same as a record's details."""
    return {"number": link.number, "position": link.position, "hash": link.hash}


def check_lines(lines: Iterable[str], verifier: Verifier, start: int = 1) -> None:
    """Hand a file's lines to a verifier; empty ones count for nothing."""
    for number, line in enumerate(lines, start):
        if line.strip():
            entry = from_line(line, number)
            if entry is None:
                verifier.unreadable(f"line {number}")
            else:
                verifier.take(entry)
