"""`python -m tests.monitoring.picture`: plays an incident, and draws the dashboard as Prometheus answers its queries.

The drawing is not Grafana's, which no package index has; titles, places, units, queries and legends are those of
config/monitoring/dashboard.json, and every number is Prometheus' answer. It needs the Debian packages prometheus and
chromium.
"""

import html
import math
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from remesh.sim import SimCluster
from remesh.testbed import Fault, InjectorWear
from tests.client import Client
from tests.cluster import workloads as w
from tests.monitoring.dashboard import Panel, Query, panels
from tests.monitoring.scene import Prometheus, program, start_served
from tests.stack import ROOT, Stack, wait_until

TARGET = ROOT / "docs" / "images" / "dashboard.png"
COLUMN, ROW = 60, 34  # pixels of one cell of Grafana's grid of 24 columns
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#e02f44", "#b877d9", "#8ab8ff", "#96d98d", "#ffb357", "#c0d8ff")
STATES = {0.0: ("closed", "#e02f44"), 1.0: ("open", "#73bf69"), 2.0: ("canary", "#f2cc0c")}
OWNERS, OUTAGE_SECONDS, BEFORE_SECONDS, AFTER_SECONDS = 24, 45, 15, 20

Point = tuple[float, float]
Line = tuple[str, list[Point]]


def incident(prometheus: Prometheus, cluster: SimCluster, client: Client) -> tuple[float, float]:
    """An outage of the injector during a roll-out, and its end; returns when it all began and ended."""
    began = time.time()
    time.sleep(BEFORE_SECONDS)
    cluster.inject_fault(Fault.KILLED)
    for number in range(OWNERS):
        client.create("shop", w.deployment(f"app-{number:02d}", 3))
    time.sleep(OUTAGE_SECONDS)
    cluster.heal()
    client.wait_healed("shop", cluster.wear.sidecar, 3 * OWNERS, 120)
    wait_until(lambda: prometheus.query("sum(remesh_findings) or vector(0)")[0]["value"][1] == "0", "all is over", 60)
    time.sleep(AFTER_SECONDS)
    return began, time.time()


def lines_of(prometheus: Prometheus, panel: Panel, began: float, ended: float) -> Iterator[Line]:
    """Every series of a panel that has a number, with its legend."""
    for query in panel.queries:
        for series in prometheus.range(query.expression, began, ended):
            points = [(at, float(value)) for at, value in series["values"]]
            points = [(at, value) for at, value in points if math.isfinite(value)]
            if points:
                yield legend(query, series["metric"]), points


def legend(query: Query, labels: dict[str, str]) -> str:
    text = query.legend
    for name, value in labels.items():
        text = text.replace("{{" + name + "}}", value)
    return " ".join(text.split()) or query.expression[:20]


def told(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1000:.0f} ms" if 0 < value < 1 else f"{value:.0f} s"
    number = f"{value:.0f}" if value == int(value) else f"{value:.2f}"
    return f"{number}/s" if unit == "ops" else number


def drawn(panel: Panel, lines: list[Line], began: float, ended: float) -> str:
    """One panel as HTML."""
    place = panel.place
    width, height = place["w"] * COLUMN - 10, place["h"] * ROW - 10
    box = f"left:{place['x'] * COLUMN}px;top:{place['y'] * ROW + 50}px;width:{width}px;height:{height}px"
    inside = {"stat": stat, "state-timeline": timeline}.get(panel.kind, chart)(
        panel, lines, width, height, began, ended
    )
    return f'<div class="panel" style="{box}"><h3>{html.escape(panel.title)}</h3>{inside}</div>'


def stat(panel: Panel, lines: list[Line], width: int, height: int, began: float, ended: float) -> str:
    value = told(lines[0][1][-1][1], panel.unit) if lines else "no data"
    return f'<div class="stat">{value}</div>'


def timeline(panel: Panel, lines: list[Line], width: int, height: int, began: float, ended: float) -> str:
    parts = []
    for row, (name, points) in enumerate(lines):
        parts.append(f'<text x="8" y="{24 + row * 60}" class="name">{html.escape(name)}</text>')
        for (at, value), (until, _) in zip(points, [*points[1:], (points[-1][0] + 1, 0.0)], strict=True):
            x, x2 = (8 + (moment - began) / (ended - began) * (width - 24) for moment in (at, until))
            parts.append(
                f'<rect x="{x:.1f}" y="{32 + row * 60}" width="{x2 - x + 0.5:.1f}" '
                f'height="26" fill="{STATES[value][1]}"/>'
            )
    words = " ".join(f'<tspan fill="{color}">■</tspan> {word} ' for word, color in STATES.values())
    parts.append(f'<text x="8" y="{height - 44}" class="name">{words}</text>')
    return f'<svg width="{width}" height="{height - 30}">{"".join(parts)}</svg>'


def chart(panel: Panel, lines: list[Line], width: int, height: int, began: float, ended: float) -> str:
    stacked = panel.raw["fieldConfig"]["defaults"].get("custom", {}).get("stacking", {}).get("mode") == "normal"
    lines = sorted(lines, key=lambda line: -max(value for _, value in line[1]))[: len(COLORS)]
    shown = min(len(lines), 4)
    inner, left = height - 52 - 16 * shown, 52
    layers = list(_stack(lines)) if stacked else [(name, points, None) for name, points in lines]
    top = max((value for _, points, _ in layers for _, value in points), default=1.0) * 1.1 or 1.0

    def spot(at: float, value: float) -> str:
        x = left + (at - began) / (ended - began) * (width - left - 14)
        return f"{x:.1f},{8 + inner - value / top * inner:.1f}"

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = 8 + inner - share * inner / 1.1
        parts.append(f'<line x1="{left}" x2="{width - 14}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" class="axis">{told(share * top / 1.1, panel.unit)}</text>')
    for color, (_, points, floor) in zip(COLORS, layers, strict=False):
        path = " ".join(spot(at, value) for at, value in points)
        if floor is not None:
            under = " ".join(spot(at, value) for at, value in reversed(floor))
            parts.append(f'<polygon points="{path} {under}" fill="{color}" fill-opacity="0.4"/>')
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
    for row, (color, (name, _, _)) in enumerate(zip(COLORS, layers[:shown], strict=False)):
        y = inner + 26 + row * 16
        more = f" and {len(layers) - shown} more" if row == shown - 1 and len(layers) > shown else ""
        parts.append(
            f'<text x="8" y="{y}" class="name"><tspan fill="{color}">■</tspan> {html.escape(name)}{more}</text>'
        )
    if not layers:
        parts.append(f'<text x="{width / 2:.0f}" y="{height / 2 - 20:.0f}" class="none">no data</text>')
    return f'<svg width="{width}" height="{height - 30}">{"".join(parts)}</svg>'


def _stack(lines: Iterable[Line]) -> Iterator[tuple[str, list[Point], list[Point]]]:
    below: dict[float, float] = {}
    for name, points in lines:
        floor = [(at, below.get(at, 0.0)) for at, _ in points]
        above = [(at, value + under) for (at, value), (_, under) in zip(points, floor, strict=True)]
        below.update(above)
        yield name, above, floor


STYLE = """
body { background: #111217; color: #ccccdc; font: 13px "DejaVu Sans", sans-serif; margin: 0; padding: 10px }
.panel { position: absolute; background: #181b1f; border: 1px solid #2a2d34; border-radius: 3px; overflow: hidden }
h1 { font-size: 18px; margin: 8px 4px; font-weight: 500 } h1 small { color: #8e8ea0; font-size: 12px }
h3 { font-size: 13px; font-weight: 500; margin: 7px 8px 2px }
.stat { font-size: 40px; color: #73bf69; text-align: center } .grid { stroke: #2a2d34 }
.axis { fill: #8e8ea0; font-size: 11px; text-anchor: end } .name { fill: #ccccdc; font-size: 11px }
.none { fill: #8e8ea0; text-anchor: middle }
"""


def page(prometheus: Prometheus, began: float, ended: float) -> tuple[str, int]:
    """The whole dashboard as HTML, and its height in pixels."""
    chosen = panels(seconds=round(ended - began))
    parts = [drawn(panel, list(lines_of(prometheus, panel, began, ended)), began, ended) for panel in chosen]
    clock = [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") for at in (began, ended)]
    head = f"<h1>remesh <small>{clock[0]} to {clock[1]} UTC, an incident on the simulated cluster</small></h1>"
    height = max(panel.place["y"] + panel.place["h"] for panel in chosen) * ROW + 70
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{head}{''.join(parts)}", height


def photograph(document: str, height: int, target: Path) -> None:
    """The page as headless Chromium shows it."""
    with tempfile.TemporaryDirectory(prefix="remesh-picture-") as folder:
        source = Path(folder) / "page.html"
        source.write_text(document, encoding="utf-8")
        quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
        quiet += ["--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1"]
        shot = (
            f"--window-size={24 * COLUMN + 20},{height}",
            f"--screenshot={target}",
            f"--user-data-dir={folder}/profile",
        )
        command = [program("chromium"), "--headless", "--no-sandbox", *quiet, *shot, source.as_uri()]
        subprocess.run(command, check=True, timeout=120, capture_output=True)


def main() -> None:
    """Play, ask, draw."""
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="remesh-picture-")))
        cluster = exits.enter_context(SimCluster.start(InjectorWear(timeout_seconds=2), controller_qps=200))
        client, stack = Client(cluster.kubeconfig), Stack(cluster, folder)
        exits.callback(client.close)
        exits.callback(stack.stop)
        client.create_meshed_namespace("shop", cluster.wear)
        watcher, worker = start_served(stack)
        prometheus = Prometheus(folder / "prometheus", {"watcher": watcher.port, "worker": worker.port})
        exits.callback(prometheus.stop)
        prometheus.wait_ready()
        wait_until(lambda: prometheus.query("remesh_broker_up == 1"), "Prometheus sees the worker")
        began, ended = incident(prometheus, cluster, client)
        photograph(*page(prometheus, began, ended), TARGET)
        print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size} bytes, {len(panels(seconds=60))} panels")


if __name__ == "__main__":
    main()
