"""Pictures of the terminal for the documentation, from a real incident: `python -m tests.docs.screens [sim|real]`.

Each command runs on a terminal of its own against a cluster that is made for it, and what it wrote is drawn as SVG into
docs/images. Nothing is edited but names of the machine that it ran on.
"""

import io
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear, TestBed
from tests.cli.terminal import on_terminal
from tests.client import Client
from tests.cluster import RealCluster
from tests.cluster import workloads as w
from tests.stack import ROOT, Stack, wait_until

IMAGES = ROOT / "docs" / "images"
COLUMNS = 110
STUCK = 60  # ReplicaSets of the incident
# Slow enough that a status is taken in the middle of it.
SLOWLY = "[window]\ninitial = 1\nminimum = 1\nmaximum = 2\n"
_TOKEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+")


def final(written: str) -> str:
    """What stands on the terminal in the end: lines that a program redrew in place are there once.

    Knows what rich writes for that: cursor up, erase line, carriage return; colours are kept.
    """
    lines, row = [""], 0
    for token in _TOKEN.findall(written):
        if token == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif token.startswith("\x1b[") and not token.endswith("m"):
            count = int(token[2:-1]) if token[2:-1].isdigit() else 1
            if token.endswith("A"):
                row = max(0, row - count)
            elif token.endswith("K"):
                lines[row] = ""
        elif token != "\r":
            lines[row] += token
    return "\n".join(lines).rstrip()


def svg(command: str, written: str, title: str) -> str:
    """The terminal as a picture, without anything that would be fetched from elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{written}"), soft_wrap=False)
    drawn = console.export_svg(title=title, unique_id=title.replace(" ", "-"))
    drawn = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono").replace("\r\n", "\n")


def impersonal(text: str, folder: Path) -> str:
    """Without the names of this machine and its folders."""
    text = text.replace(str(folder), "/var/lib/remesh").replace(socket.gethostname(), "ops-1")
    text = re.sub(r"/tmp/[^\s/]+", "/var/lib/remesh", text)
    return re.sub(r"https?://(127\.0\.0\.1|198\.1[89]\.\d+\.\d+):\d+", "https://10.0.0.1:6443", text)


def draw(name: str, command: str, written: str, folder: Path) -> None:
    """Write one picture."""
    path = IMAGES / f"{name}.svg"
    path.write_text(svg(command, impersonal(final(written), folder), f"remesh {name}"), encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size >> 10} KiB")


@contextmanager
def scene(kind: str) -> Iterator[tuple[TestBed, Stack, Client]]:
    """A cluster with two injector replicas, a watcher and a worker."""
    wear = InjectorWear(timeout_seconds=2, replicas=2)
    bed: TestBed = RealCluster.start(wear) if kind == "real" else SimCluster.start(wear, controller_qps=200)
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(bed, Path(folder), cluster="shop-prod")
        stack.policy(SLOWLY)
        client = Client(bed.kubeconfig)
        try:
            client.create_meshed_namespace("shop", wear)
            stack.start_worker()
            stack.start_watcher()
            yield bed, stack, client
        finally:
            client.close()
            stack.stop()
            bed.stop()


def remesh(stack: Stack, *arguments: str) -> str:
    """One command as a person sees it."""
    return on_terminal(["-m", "remesh", *arguments], stack.env, columns=COLUMNS)


def in_the_middle(show: Callable[[], str]) -> str:
    """A status with repairs that are under way and whose end is known; else the last that was seen."""
    end = time.monotonic() + 60
    text = show()
    while time.monotonic() < end and "done in about" not in text:
        text = show()
    return text


def incident(bed: TestBed, stack: Stack, client: Client) -> Mapping[str, str]:
    """What check says while the certificate is wrong, and status while all is being healed."""
    bed.inject_fault(Fault.WRONG_CA)
    for number in range(STUCK):
        client.create("shop", w.replica_set(f"web-{number}", 1))
    client.wait_failing("ReplicaSet", "shop", [f"web-{number}" for number in range(STUCK)])
    shown = {"check": remesh(stack, "check")}
    bed.heal()
    wait_until(stack.outcomes, "the first that is healed")
    return shown | {"status": in_the_middle(lambda: remesh(stack, "status"))}


def main(kind: str) -> None:
    """All pictures."""
    IMAGES.mkdir(exist_ok=True)
    with scene(kind) as (bed, stack, client):
        for name, written in incident(bed, stack, client).items():
            draw(name, f"remesh {name}", written, stack.folder)
    played = on_terminal(
        ["-m", "remesh", "demo", "--on", kind, "--count", "40", "--outage", "20"], columns=COLUMNS, seconds=400
    )
    draw("demo", "make demo", played, Path("/nowhere"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sim")
