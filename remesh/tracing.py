"""Traces of repairs by OpenTelemetry: off unless REMESH_TRACING is set, and then nothing but numbers and names leave.

`span` is used where work is done, and does nothing while traces are off. One trace leads from the watcher's release,
over the task's headers, to each call of the API server that the task makes. Attributes are identities (finding, object,
action, cluster), paths, status codes and results; never bodies, headers or texts of the API server.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from remesh import __version__, logs
from remesh.errors import ConfigError
from remesh.models import RepairRequest

if TYPE_CHECKING:  # whoever only lists and watches does without pydantic-settings, which imports asyncio
    from remesh.settings import Settings

log = logs.get("tracing")

HEADERS: Final = ("traceparent", "tracestate")
"""Of W3C's Trace Context: what of a trace travels with a task."""
FLUSH_MILLISECONDS: Final = 3000  # a collector that is away must not hold up the end of a process

Attributes = Mapping[str, str | int]
_NONE: Final[Attributes] = {}


class Span:
    """One piece of work that nobody traces."""

    def set(self, attributes: Attributes) -> None:
        """Say more of it."""

    def failed(self, why: str) -> None:
        """It did not do what it should; `why` is a class or a code, no text of others."""


class _Recorded(Span):
    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def failed(self, why: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, why))


class _Tracing:
    """What this process has set up."""

    provider: Any = None
    tracer: Any = None


def start(settings: "Settings", component: str) -> None:
    """Trace from now on, if the settings say so. Raises ConfigError if OpenTelemetry is not installed."""
    if not settings.tracing or _Tracing.tracer is not None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "REMESH_TRACING is set, and OpenTelemetry is not installed: pip install 'remesh[otel]', or unset it"
        ) from error
    described = {
        "service.name": f"remesh-{component}",
        "service.version": __version__,
        "k8s.cluster.name": settings.cluster,
    }
    _Tracing.provider = TracerProvider(resource=Resource.create(described))
    _Tracing.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _Tracing.tracer = _Tracing.provider.get_tracer("remesh", __version__)
    log.info("traces are sent", component=component)


def stop() -> None:
    """Send what is left, for a few seconds at most."""
    if _Tracing.provider is not None:
        _Tracing.provider.force_flush(FLUSH_MILLISECONDS)
        _Tracing.provider.shutdown()
        _Tracing.provider = _Tracing.tracer = None


@contextmanager
def span(
    name: str, attributes: Attributes = _NONE, *, kind: str = "internal", of: Mapping[str, str] | None = None
) -> Iterator[Span]:
    """Trace what is done inside. `of` are a task's headers: their span is the parent. Raises what the body does."""
    if _Tracing.tracer is None:
        yield Span()
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract(dict(of)) if of else None
    # An error's text may quote anything, so it is not recorded by itself.
    with _Tracing.tracer.start_as_current_span(
        name,
        context=parent,
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        recorded = _Recorded(begun)
        try:
            yield recorded
        except Exception as error:
            recorded.failed(type(error).__name__)
            raise


@contextmanager
def inner(name: str, attributes: Attributes = _NONE, *, kind: str = "internal") -> Iterator[Span]:
    """As `span`, but only inside of one: what nobody's repair asks for begins no trace of its own."""
    if not _inside():
        yield Span()
        return
    with span(name, attributes, kind=kind) as begun:
        yield begun


def headers() -> dict[str, str]:
    """What a task has to carry so that its work is in the current trace; nothing if there is none."""
    if not _inside():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carried)
    return carried


def of_request(request: RepairRequest) -> Attributes:
    """What identifies a repair, as attributes."""
    return {
        "remesh.finding": request.finding_id,
        "remesh.object": str(request.ref),
        "remesh.action": request.action.value,
        "remesh.mesh": request.mesh,
        "remesh.cause": request.cause.value,
        "remesh.attempt": request.attempt,
    }


def _inside() -> bool:
    if _Tracing.tracer is None:
        return False
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid
