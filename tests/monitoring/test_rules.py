"""The alert rules, by Prometheus' own tool: each fires when it should, and not when it should not."""

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.cases import CASES, Case
from tests.monitoring.scene import ALERTS, program
from tests.stack import ROOT

RUNBOOK = ROOT / "docs" / "runbook.md"


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> None:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", str(ALERTS))


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [_test(case) for case in CASES]}
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=1000), encoding="utf-8")
    promtool("test", "rules", str(path))


def _test(case: Case) -> dict[str, Any]:
    # An instance of its own for each series, as in the real thing; and a count, so that no label need be repeated.
    expression = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{case.alert}, {case.what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": case.firing}],
            }
        ],
    }


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(rules: list[dict[str, Any]]) -> None:
    counted = Counter((case.alert, bool(case.firing)) for case in CASES)
    names = [rule["alert"] for rule in rules]
    assert {name for name, _ in counted} == set(names)
    assert [name for name in names if not counted[name, True] or not counted[name, False]] == []


def test_every_alert_says_what_it_means_and_leads_to_a_section_of_the_runbook(rules: list[dict[str, Any]]) -> None:
    sections = {
        title.lower(): body
        for title, body in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(encoding="utf-8"), re.M | re.S)
    }
    for rule in rules:
        notes = rule["annotations"]
        assert notes["summary"]
        assert notes["description"]
        anchor = notes["runbook_url"].removeprefix("https://remesh.dev/docs/runbook/#")
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        for part in ("**What it means.**", "**Look here.**", "**Do this.**"):
            assert part in sections[anchor], f"{rule['alert']} has no {part} in docs/runbook.md"
