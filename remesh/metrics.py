"""The metrics of watcher and worker, by Prometheus' conventions, each with the cluster's name as label `cluster`.

Everything is described in `remesh.metrics_table`. What happens is counted through the port
`remesh.meter`; what is so now comes from sources, functions that must answer at once and without I/O. Values of labels
are words of remesh's own, names of mesh profiles, and injectors (namespace and Service): never names of workloads, and
never more than `MOST_VALUES` to a label. The registry is this module's own: nothing that another library counts, and
nothing about the process, appears in it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from remesh import logs
from remesh.meter import Meter
from remesh.metrics_table import SPECS, Spec
from remesh.models import Action, FailureClass, Finding, Result

log = logs.get("metrics")

MOST_VALUES: Final = 60
"""Different values of one label; all others become `OTHER`. More meshes or injectors than that no cluster has."""
OTHER: Final = "other"

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels (without `cluster`), in the order of the spec, and the number."""
Source = Callable[[], Mapping[str, Samples]]
"""What is so now, by metric."""


_REPAIRS: Final = (Action.NUDGE_OWNER, Action.RECREATE_POD)
_OF_INJECTORS: Final = (FailureClass.MISSING_SIDECAR, FailureClass.STUCK_SILENT, FailureClass.API_TIMEOUT)


class Metrics(Meter):
    """The metrics of one process. Thread-safe."""

    def __init__(self, cluster: str, component: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each, which nobody asks for
        self.component = component
        self._cluster = cluster
        self._registry = CollectorRegistry(auto_describe=False)
        self._bounds: dict[str, _Bound] = {}
        self._kept = {spec.name: self._keep(spec) for spec in SPECS if not spec.state and component in spec.on}
        self._state = _State(self, [spec for spec in SPECS if spec.state and component in spec.on])
        self._registry.register(self._state)
        self._running = 0
        self._lock = threading.Lock()
        self._begin_at_zero()

    def add(self, source: Source) -> None:
        """Ask `source` at every scrape, from any thread."""
        self._state.sources.append(source)

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the form that `accept` asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def labels(self, spec: Spec, values: tuple[str, ...]) -> list[str]:
        """Values of a metric's labels: the cluster's, then these, bounded in number."""
        bounded = (self._bound(name, value) for name, value in zip(spec.labels, values, strict=True))
        return [self._cluster, *bounded]

    def _bound(self, label: str, value: str) -> str:
        return self._bounds.setdefault(label, _Bound())(value)

    def _keep(self, spec: Spec) -> tuple[Spec, Counter | Histogram]:
        labels = ("cluster", *spec.labels)
        if spec.buckets:
            return spec, Histogram(spec.name, spec.help, labels, registry=self._registry, buckets=spec.buckets)
        return spec, Counter(spec.name, spec.help, labels, registry=self._registry)

    def _begin_at_zero(self) -> None:
        """A rate needs a value from before the first event; where the labels are known, it is there from the start."""
        for name, (spec, _) in self._kept.items():
            if not spec.labels and not spec.buckets:
                self._count(name, by=0)
        for action in _REPAIRS:
            self._count("remesh_releases_total", action.value, by=0)
            self._count("remesh_task_retries_total", action.value, by=0)
            self._keep_ready("remesh_repair_seconds", action.value)
            for result in Result:
                self._count("remesh_repairs_total", action.value, result.value, by=0)
        for word in ("sent", "dropped", "failed"):
            self._count("remesh_kubernetes_events_total", word, by=0)

    def expect(self, mesh: str) -> None:
        """Count from zero on what may happen with a mesh that injects in this cluster."""
        for result in Result:
            self._count("remesh_findings_ended_total", mesh, result.value, by=0)
        for cause in FailureClass:
            if cause in _OF_INJECTORS or cause.value.startswith("webhook_"):
                self._count("remesh_findings_detected_total", cause.value, mesh, by=0)
        for name in ("remesh_heal_seconds", "remesh_dry_run_seconds"):
            self._keep_ready(name, mesh)

    def _keep_ready(self, name: str, *values: str) -> None:
        if name in self._kept:
            spec, kept = self._kept[name]
            kept.labels(*self.labels(spec, values))

    def _count(self, name: str, *values: str, by: int = 1) -> None:
        kept = self._kept.get(name)
        if kept is not None and isinstance(kept[1], Counter):
            kept[1].labels(*self.labels(kept[0], values)).inc(by)

    def _time(self, name: str, seconds: float, *values: str) -> None:
        kept = self._kept.get(name)
        if kept is not None and isinstance(kept[1], Histogram):
            kept[1].labels(*self.labels(kept[0], values)).observe(max(0.0, seconds))

    # As remesh.meter has them

    def found(self, finding: Finding) -> None:
        """See `Meter`."""
        self._count("remesh_findings_detected_total", finding.failure_class.value, finding.mesh)

    def released(self, action: Action) -> None:
        """See `Meter`."""
        self._count("remesh_releases_total", action.value)

    def ended(self, finding: Finding, result: Result, seconds: float | None) -> None:
        """See `Meter`."""
        self._count("remesh_findings_ended_total", finding.mesh, result.value)
        if result in (Result.HEALED, Result.INJECTED) and seconds is not None:
            self._time("remesh_heal_seconds", seconds, finding.mesh)

    def dry_run(self, mesh: str, outcome: str, code: str, seconds: float) -> None:
        """See `Meter`."""
        self._count("remesh_dry_runs_total", mesh, outcome, code)
        self._time("remesh_dry_run_seconds", seconds, mesh)

    def repaired(self, action: Action, result: Result, seconds: float) -> None:
        """See `Meter`."""
        self._count("remesh_repairs_total", action.value, result.value)
        self._time("remesh_repair_seconds", seconds, action.value)

    def retried(self, action: Action) -> None:
        """See `Meter`."""
        self._count("remesh_task_retries_total", action.value)

    def refused(self) -> None:
        """See `Meter`."""
        self._count("remesh_tasks_refused_total")

    def task_began(self) -> None:
        """See `Meter`."""
        with self._lock:
            self._running += 1

    def task_over(self) -> None:
        """See `Meter`."""
        with self._lock:
            self._running -= 1

    @property
    def running(self) -> int:
        """Tasks that run now."""
        return self._running

    def appended(self, records: int) -> None:
        """See `Meter`."""
        self._count("remesh_trail_appends_total", by=records)

    def append_failed(self) -> None:
        """See `Meter`."""
        self._count("remesh_trail_append_failures_total")

    def announced(self, result: str) -> None:
        """See `Meter`."""
        self._count("remesh_kubernetes_events_total", result)


class _Bound:
    """The values of one label: the first `MOST_VALUES` as they are, all later ones as one."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        with self._lock:
            if value not in self._known:
                if len(self._known) >= MOST_VALUES:
                    return OTHER
                self._known.add(value)
        return value


class _State(Collector):
    """What is so now, put together at each scrape."""

    def __init__(self, metrics: Metrics, specs: list[Spec]) -> None:
        self.sources: list[Source] = []
        self._metrics = metrics
        self._specs = specs

    def collect(self) -> Iterator[Metric]:
        """Every metric that a source has values for."""
        values: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        for source in list(self.sources):
            for name, samples in self._asked(source).items():
                values.setdefault(name, []).extend(samples)
        for spec in self._specs:
            yield self._family(spec, values.get(spec.name, []))

    def _asked(self, source: Source) -> Mapping[str, Samples]:
        try:
            return source()
        except Exception:  # one source that fails must not hide the others
            log.exception("metrics could not be read")
            return {}

    def _family(self, spec: Spec, samples: list[tuple[tuple[str, ...], float]]) -> Metric:
        labels = ("cluster", *spec.labels)
        made: Any = CounterMetricFamily if spec.type == "counter" else GaugeMetricFamily
        family: Metric = made(spec.name, spec.help, labels=labels)
        merged: dict[tuple[str, ...], float] = {}
        for values, number in samples:
            key = tuple(self._metrics.labels(spec, values))
            merged[key] = merged.get(key, 0.0) + number  # those beyond the bound add up
        for key, number in merged.items():
            family.add_metric(list(key), number)  # type: ignore[attr-defined]
        return family
