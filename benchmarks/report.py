"""How a benchmark shows and keeps its figures."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def facts() -> str:
    """The machine in one line, and how busy it is; times mean little without."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release().partition('-')[0]}, Python {sys.version.split()[0]}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}, load {load():.1f}"


def load() -> float:
    """Processes that want to run, over the last minute."""
    return os.getloadavg()[0]


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Left the names, right the figures. A row may be shorter than the head."""
    widths = [max(len(line[at]) for line in (heads, *rows) if at < len(line)) for at in range(len(heads))]
    print(f"{title} ({facts()})")
    for line in (heads, *rows):
        cells = [text.ljust(widths[at]) if at == 0 else text.rjust(widths[at]) for at, text in enumerate(line)]
        print("  ".join(cells))


def write(file: Path | None, name: str, figures: Any, **settings: Any) -> None:
    """Keep figures in a file, with settings and the machine's facts."""
    if file is None:
        return
    known = {"benchmark": name, "at": datetime.now(UTC).isoformat(), "machine": facts(), "settings": settings}
    file.write_text(json.dumps({**known, "figures": figures}, indent=2, default=str) + "\n", encoding="utf-8")
