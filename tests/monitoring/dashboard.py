"""The dashboard's panels and their queries, with Grafana's variables filled in."""

import json
from dataclasses import dataclass
from typing import Any

from tests.monitoring.scene import DASHBOARD


@dataclass(frozen=True)
class Query:
    """One query of a panel."""

    expression: str
    legend: str
    instant: bool


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    kind: str
    unit: str
    place: dict[str, int]
    queries: tuple[Query, ...]
    raw: dict[str, Any]


def document() -> dict[str, Any]:
    """The file."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels(*, seconds: int, rate_seconds: int = 15) -> list[Panel]:
    """All panels, for a time range of so many seconds and rates over `rate_seconds`."""
    filled = {"$cluster": ".*", "$__rate_interval": f"{rate_seconds}s", "$__range": f"{seconds}s"}
    return [_panel(each, filled) for each in document()["panels"]]


def _panel(raw: dict[str, Any], filled: dict[str, str]) -> Panel:
    queries = tuple(
        Query(_filled(target["expr"], filled), target["legendFormat"], target.get("instant", False))
        for target in raw["targets"]
    )
    unit = str(raw["fieldConfig"]["defaults"]["unit"])
    return Panel(raw["title"], raw["type"], unit, raw["gridPos"], queries, raw)


def _filled(expression: str, filled: dict[str, str]) -> str:
    for name, value in filled.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"a variable that is not known: {expression}"
    return expression
