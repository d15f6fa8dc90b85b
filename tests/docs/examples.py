"""The examples of README and docs: what stands in their fenced blocks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_REDIRECT = re.compile(r"^(\d?>|<|\||&&|;)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """The fenced blocks in these languages, page by page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            if found["language"] in languages:
                line = text.count("\n", 0, found.start()) + 1
                yield Block(str(page.relative_to(ROOT)), line, found["language"], found["body"])


@dataclass(frozen=True, slots=True)
class Command:
    """One command that a page tells its reader to type."""

    block: Block
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.block}: {' '.join(self.words)}"


def commands() -> Iterator[Command]:
    """Every command after a prompt, without the settings before it and the comment, pipe or redirection behind it."""
    for block in blocks("console", "bash", "sh", "shell"):
        joined = block.text.replace("\\\n", " ")
        for line in joined.splitlines():
            typed = line.strip()
            if block.language == "console":
                if not typed.startswith("$ "):
                    continue
                typed = typed.removeprefix("$ ")
            yield from _split(block, typed)


def _split(block: Block, typed: str) -> Iterator[Command]:
    words: list[str] = []
    for word in shlex.split(typed, comments=True):
        if _REDIRECT.match(word):
            break
        if not words and re.match(r"^[A-Z_]+=", word):
            continue
        words.append(word)
    if words:
        yield Command(block, tuple(words))
