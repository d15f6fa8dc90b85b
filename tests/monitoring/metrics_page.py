"""Renders docs/metrics.md from the table of metrics, so that it cannot drift.

`python -m tests.monitoring.metrics_page` writes it.
"""

from remesh.metrics_table import SPECS, WATCHER, Spec
from tests.stack import ROOT

PAGE = ROOT / "docs" / "metrics.md"

HEAD = """# Metrics, health, logs and traces

Watcher and worker serve three paths on `REMESH_METRICS_PORT` (9464; 0 turns it off) of `REMESH_METRICS_HOST`
(127.0.0.1; the manifests set 0.0.0.0):

- `/livez` answers 200 while nothing is stuck. Watcher: the main loop went round within a minute, and each watch heard
  something or tried again within five. Worker: Celery's consumer sends its heartbeats, unless the broker is away, which
  a restart would not mend.
- `/readyz` answers 200 while, on the watcher, every kind has been listed and no watch has been silent for three
  minutes; while the worker takes tasks and reaches Redis and the broker.
- `/metrics` has Prometheus' text format or OpenMetrics.

Otherwise health answers 503 with one line that says why. Nothing is written and nobody is asked for a password, so keep
the port inside the cluster. If the port is taken, the process says so once and works without: on one host give each
process its own.

## Metrics

Every metric carries the label `cluster`, so that several clusters can be on one Prometheus. Labels hold words of
remesh's own, names of mesh profiles, and injectors as `namespace/service`; never names of workloads, namespaces or
people, and at most 60 values each (then `other`). Tasks are counted by the process that runs them: the worker's pool
has to be `threads`, as in every command of these pages.
"""

MORE = """
## Dashboard and alerts

`config/monitoring/dashboard.json` is for Grafana (import it, choose the data source), `config/monitoring/alerts.yaml`
holds rules for Prometheus; each alert leads to its section of the [runbook](runbook.md). `remesh files
monitoring --to .` copies both out of an installed package.

![The panels during an incident: an injector dies, findings wait, the gate opens, all heal](images/dashboard.png)

The picture is of a real incident on the simulated cluster, scraped by a real Prometheus; the panels were drawn from the
dashboard's own queries by `python -m tests.monitoring.picture`.

## Logs

`REMESH_LOG_FORMAT=json` makes every line of watcher and worker one JSON object, Celery's own lines included: `at`,
`level`, `logger`, `message`, and the pairs. The pair `finding` is the same from the line that detects a workload to the
one that says how its repair ended, in both processes, in the audit trail and in Flower:

```console
$ kubectl -n remesh logs -l app.kubernetes.io/name=remesh --tail=-1 | jq -c 'select(.finding == "f-9b8d0c8c6a4e")'
```

## Traces

With the extra `otel` installed (`pip install 'remesh[otel]'`) and `REMESH_TRACING=true`, one trace leads from the
watcher's release over the task to each call of the API server. It goes by OTLP over HTTP to
`OTEL_EXPORTER_OTLP_ENDPOINT` (default `http://localhost:4318`); OpenTelemetry's other variables hold as well. The
context travels in the task's headers. Attributes hold names of workloads, never texts of pods, headers or secrets.

## Kubernetes Events

With `REMESH_KUBERNETES_EVENTS=true` workers say how a repair ended by one Kubernetes Event on the owner (`kubectl
describe deployment/…` shows it). The same outcome again within ten minutes raises the count of the first; beyond 25 at
once and one a second Events are dropped, and counted. It needs the right to create and patch Events, see
[security](security.md), and never holds up a repair.
"""


def render() -> str:
    """The whole page."""
    head = "| metric | type | labels | of | meaning |\n|---|---|---|---|---|\n"
    return HEAD + "\n" + head + "\n".join(_row(spec) for spec in SPECS) + "\n" + MORE


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    of = "both" if len(spec.on) > 1 else "watcher" if WATCHER in spec.on else "worker"
    return f"| `{spec.name}` | {spec.type} | {labels} | {of} | {spec.help} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
