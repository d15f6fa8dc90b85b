"""Foreign texts and names stay texts and names: on a terminal, in logs, in the trail, in an export, in metrics."""

import io
import json
import logging
import re
import sys
import unicodedata
from datetime import UTC, datetime
from typing import Any

import fakeredis
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from remesh import logs
from remesh.audit import Trail, to_json_line
from remesh.cli.options import Output
from remesh.cli.render import Table, emit, json_line, print_table, terminal_lines
from remesh.cli.text import one_line, plain
from remesh.kube.events import described
from remesh.meter import Meter
from remesh.metrics import Metrics
from remesh.metrics_table import WORKER
from remesh.models import AuditRecord, ObjectRef, RecordType
from tests.watcher.test_findings import finding

NOW = datetime(2026, 5, 1, tzinfo=UTC)

HOSTILE = [
    "\x1b[2J\x1b[H\x1b]0;owned\x07",  # clears the screen, sets the title
    "\x9b31mred",
    "ok\r\n2026-05-01T00:00:00.000Z INFO remesh.watcher: forged finding=f-000000000000",
    'x"}\n{"type":"outcome","finding_id":"f-000000000000","code":"healed"}',
    "\u202egnp.exe\u2066\u2069",  # right-to-left override
    "a\u2028b\u2029c\x85d\x0be\x0cf",  # what some readers take for the end of a line
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) | cell | `code`",
    '=cmd|"/c calc"!A1,"b"',
    'mesh"} 1\nremesh_forged_total{a="b',
    '\\\\ \\n \\" {{ $labels.x }} or up == 1',
    "\ud800 lone half",
    "\x00null\ufeff\u200b",
    "[bold red]markup[/]",
]
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(), max_size=60),
    st.lists(st.sampled_from(HOSTILE), max_size=4).map("".join),
)
few = settings(max_examples=150, deadline=None)


def harmless(line: str) -> bool:
    """Nothing in it steers a terminal or ends a line: no control, format, separator or half character."""
    return not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in line)


def formatted(formatter: logging.Formatter, message: str, pairs: dict[str, Any]) -> str:
    record = logging.LogRecord("remesh.x", logging.INFO, "f", 1, message, None, None)
    record.pairs = pairs
    return formatter.format(record)


@few
@given(texts)
def test_a_log_line_is_one_line_and_cannot_be_forged(text: str) -> None:
    line = formatted(logs.TextFormatter(), "finding", {"reason": text, "object": text})
    assert harmless(line)
    assert len(line.splitlines()) == 1
    assert harmless(formatted(logs.TextFormatter(), text, {}))


@few
@given(texts)
def test_a_json_log_line_is_one_object_that_says_what_was_said(text: str) -> None:
    line = formatted(logs.JsonFormatter(), "finding", {"reason": text})
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["reason"] == text


def test_a_traceback_that_quotes_a_foreign_text_begins_no_line_of_its_own() -> None:
    try:
        raise ValueError(HOSTILE[2])
    except ValueError:
        record = logging.LogRecord("remesh.x", logging.ERROR, "f", 1, "failed", None, sys.exc_info())
    lines = logs.TextFormatter().format(record).split("\n")
    assert all(line.startswith("  ") for line in lines[1:])
    assert all(map(harmless, lines))


@few
@given(texts)
def test_what_is_printed_for_people_steers_no_terminal(text: str) -> None:
    assert harmless(plain(text))
    assert harmless(one_line(text))
    out, saved = io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        print_table(Table(["OBJECT", "REASON"], [[text, text], ["web", "fine"]]))
    finally:
        sys.stdout = saved
    lines = out.getvalue().split("\n")
    assert len(lines) == 4, "a head, two rows, and the end of the last line"
    assert all(map(harmless, lines))
    rows = [[plain(text), plain(text)]]
    assert all(map(harmless, terminal_lines(["OBJECT", "REASON"], rows, [len(plain(text))] * 2, 40)))


@few
@given(texts)
def test_json_lines_and_yaml_for_machines_are_whole_and_ascii(text: str) -> None:
    item = {"name": text, text: "key"}
    assert json.loads(json_line(item)) == item
    for output in (Output.JSONL, Output.JSON, Output.YAML):
        out, saved = io.StringIO(), sys.stdout
        sys.stdout = out
        try:
            emit(output, [{"reason": text}], Table([], []), empty="", kind="FindingList")
        finally:
            sys.stdout = saved
        assert out.getvalue().isascii()
        assert all(map(harmless, out.getvalue().split("\n")))
        assert output is not Output.JSONL or out.getvalue().count("\n") == 1


def record_of(text: str) -> AuditRecord:
    name = text.encode("utf-8", "replace").decode()[:253] or "x"
    return AuditRecord(
        record_id="f-1:refusal:0:denied",
        type=RecordType.REFUSAL,
        at=NOW,
        cluster="c",
        finding_id="f-000000000001",
        ref=ObjectRef(api_version="v1", kind="Pod", namespace="evil", name=name, uid="u"),
        owner=ObjectRef(api_version="v1", kind=name, namespace="evil", name=name, uid="u"),
        code="denied",
        reason=name,
        details={"message": name, name: name},
    )


@few
@given(texts)
def test_a_record_stays_one_record_whatever_it_quotes(text: str) -> None:
    with fakeredis.FakeRedis(decode_responses=True) as server:
        trail, record = Trail(server, "c"), record_of(text)
        trail.append(record)
        trail.append(record)  # a repeat
        found = list(trail.read())
        assert [each.model_copy(update={"position": ""}) for each in found] == [record]
        exported = to_json_line(record)
        assert "\n" not in exported
        assert "\r" not in exported
        assert json.loads(exported)["reason"] == record.reason
        assert not list(trail.read(ref=ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="web")))


def test_an_owner_whose_kind_looks_like_a_path_is_not_shown_for_somebody_else() -> None:
    """Records of a forged owner share a key with nobody's, or are left out when they are read."""
    with fakeredis.FakeRedis(decode_responses=True) as server:
        trail = Trail(server, "c")
        forged = ObjectRef(api_version="x/v1", kind="deployment/shop", namespace="web", name="x", uid="u")
        trail.append(record_of("x").model_copy(update={"owner": forged}))
        victim = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web/x")
        assert list(trail.read(ref=victim)) == []


def counted(meter: Meter, text: str) -> None:
    made = finding("web").model_copy(update={"mesh": text})
    meter.found(made)
    meter.dry_run(text, "fails", text, 0.1)


@few
@given(texts.filter(lambda text: text.encode("utf-8", "replace").decode() == text))
def test_a_label_is_a_value_and_never_a_line_of_metrics(text: str) -> None:
    metrics = Metrics("c", "watcher")
    counted(metrics, text)
    body = metrics.scrape()[0].decode()
    values = {
        sample.labels["mesh"]
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if "mesh" in sample.labels
    }
    assert text in values
    assert not [line for line in body.split("\n") if line.startswith("remesh_forged")]


def test_no_label_of_a_metric_holds_a_name_of_a_namespaces_object() -> None:
    """Whoever may name pods may make many names: neither names nor namespaces nor texts are labels."""
    for component in ("watcher", WORKER):
        page = Metrics("c", component).scrape()[0].decode()
        labels = {key for family in text_string_to_metric_families(page) for s in family.samples for key in s.labels}
        assert not labels & {"namespace", "pod", "name", "object", "owner", "reason", "message", "uid"}


def test_values_of_a_label_are_bounded_in_number() -> None:
    metrics = Metrics("c", "watcher")
    for number in range(5000):
        counted(metrics, f"mesh-{number}")
    assert len(metrics.scrape()[0]) < 2_000_000


@few
@given(texts)
def test_a_kubernetes_event_has_a_name_that_is_one_and_a_bounded_text(text: str) -> None:
    ref = ObjectRef(api_version="v1", kind="Pod", namespace="shop", name="web-0", uid="u")
    made = described(ref, "RepairRefused", text * 100, NOW, warning=False)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", made["metadata"]["name"])
    assert len(made["message"]) <= 1024
