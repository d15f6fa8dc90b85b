"""What `remesh run` shows of its processes: their own lines, without what Celery says of itself at each turn."""

import re
import sys
from collections.abc import Callable

from remesh.cli.text import plain

# Connections, neighbours, and each task's result, which watcher and trail tell better. Warnings and errors stay.
_CHATTER = re.compile(r'^\S+ INFO (celery|kombu)\b|"level": "info", "logger": "(celery|kombu)\b')
READY_WORDS = {"watcher": "synced", "worker": "ready."}


class RunLog:
    """A sink of lines. Calls `ready` once, when every process has said that it is at work."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self._awaited = set(READY_WORDS)

    def __call__(self, name: str, text: str) -> None:
        """Print one line of one process, or leave it out."""
        if text.strip() and not _CHATTER.search(text):
            sys.stdout.write(f"{name:<8} | {plain(text)}\n")
            sys.stdout.flush()
        if name in self._awaited and READY_WORDS[name] in text:
            self._awaited.remove(name)
            if not self._awaited:
                self._ready()
