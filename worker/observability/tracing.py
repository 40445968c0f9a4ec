"""The request's context: the ids of request and job, and the trace, which a task carries to its worker.

OpenTelemetry spans are the no-ops of opentelemetry-api until `TRACING.start` sets up the SDK (extra `otel`).

The standard OTEL_* variables set the collector, the sampling and the service name. A work-horse exports its spans at
the end of its task, because its process ends then.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import NoOpTracer, SpanKind, format_trace_id, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
REQUEST_MS: ContextVar[int] = ContextVar("request_ms", default=0)  # begin of the request, ms since 1970; 0: unknown
JOB_ID: ContextVar[str] = ContextVar("job_id", default="")
PROPAGATOR = TraceContextTextMapPropagator()  # W3C headers: traceparent, tracestate
HORSE_SECONDS = 1.0  # time limit of a work-horse's export
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"


def has_collector() -> bool:
    """Return whether a standard variable names a collector of traces, which switches them on.

    Raises
    ------
    SettingsError
        If traces are on and the SDK is not installed.

    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return False
    if not _is_installed():
        raise SettingsError(
            f"Traces need OpenTelemetry: pip install 'glle-server[otel]', or unset {' and '.join(_ENDPOINTS)}."
        )
    return True


def load() -> None:
    """Import the exporter before a fork, because an import in every task costs time."""
    import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401, PLC0415 # an extra


def trace_id() -> str:
    """Return the id of the current trace, empty outside a trace."""
    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""


class Tracing:
    """Tracer of this process.

    Attributes
    ----------
    provider
        The SDK's provider; None while spans are no-ops.
    tracer
        The tracer of opentelemetry-api.

    """

    def __init__(self) -> None:
        self.provider: TracerProvider | None = None
        self.tracer: Tracer = NoOpTracer()

    @property
    def is_on(self) -> bool:
        """Whether spans are recorded."""
        return self.provider is not None

    def start(self, service: str, *, seconds: float | None = None, exporter: SpanExporter | None = None) -> None:
        """Record spans from now on.

        Parameters
        ----------
        service
            Service name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES sets one.
        seconds
            Time limit of an export; None for the standard variables' limit.
        exporter
            Default: OTLP over HTTP.

        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 # an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 # an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 # an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 # an extra

        is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if is_named else {"service.name": service})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(timeout=seconds)))
        self.tracer = self.provider.get_tracer("glle")

    def stop(self) -> None:
        """Export the pending spans, and record no more."""
        if self.provider is not None:
            self.provider.shutdown()
        self.provider, self.tracer = None, NoOpTracer()

    def flush(self) -> None:
        """Export the finished spans."""
        if self.provider is not None:
            self.provider.force_flush()

    def span(
        self, name: str, *, parent: Context | None = None, kind: SpanKind = SpanKind.INTERNAL, **attributes: Any
    ) -> AbstractContextManager[Span]:
        """Return the context manager of a new current span; ``__`` in an attribute's name becomes a dot."""
        return use_span(self.tracer.start_span(name, parent, kind, _dot_names(attributes)), end_on_exit=True)

    def record(
        self, name: str, began: float, seconds: float, *, parent: Context | None = None, **attributes: Any
    ) -> None:
        """Record a finished span that began at `began` (of `time.time`); attributes as in `span`."""
        start = int(began * 1e9)
        span = self.tracer.start_span(name, parent, attributes=_dot_names(attributes), start_time=start)
        span.end(start + int(seconds * 1e9))


def _is_installed() -> bool:
    try:
        return None not in (find_spec("opentelemetry.sdk.trace"), find_spec(_EXPORTER))
    except ModuleNotFoundError:  # of a parent package
        return False


def _dot_names(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name.replace("__", "."): value for name, value in attributes.items()} if attributes else None


TRACING = Tracing()  # of this process


def task_metadata() -> dict[str, str]:
    """Return the request id and the W3C trace headers for a task that is enqueued now."""
    metadata: dict[str, str] = {}
    if request := REQUEST_ID.get():
        metadata["request_id"] = request
    PROPAGATOR.inject(metadata)
    return metadata


@contextmanager
def on_behalf(task_metadata: Mapping[str, str], job: str) -> Iterator[None]:
    """Give log lines and enqueued tasks the ids of a job and of the request in `task_metadata`."""
    request_token = REQUEST_ID.set(str(task_metadata.get("request_id", "")))
    job_token = JOB_ID.set(job)
    try:
        yield
    finally:
        JOB_ID.reset(job_token)
        REQUEST_ID.reset(request_token)
