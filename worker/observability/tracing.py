"""OpenTelemetry spans where they are wanted (extra `otel`); elsewhere nothing, and no import of ours.

The standard OTEL_* variables say where spans go, how many and under what name. A work-horse sends its spans when its
task is over, for it ends then.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

    from worker.base.settings import Settings

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
HORSE_SECONDS = 1.0  # a task waits no longer for a collector that does not answer


def wanted(settings: Settings) -> bool:
    """Say whether traces are switched on, by setting or by the standard variable.

    Raises
    ------
    SettingsError
        When they are and what makes them is not installed.

    """
    asked = any(os.environ.get(name) for name in _ENDPOINTS)
    if settings.traces == "off" or (settings.traces == "auto" and not asked):
        return False
    if not _installed():
        raise SettingsError("Traces need OpenTelemetry: pip install 'glle-server[otel]', or set GLLE_TRACES=off.")
    return True


def load() -> None:
    """Import what makes spans: before a fork, not once a task."""
    import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: PLC0415 # only where wanted
    import opentelemetry.trace.propagation.tracecontext  # noqa: F401, PLC0415 # likewise


class Tracing:
    """The spans of a process; all of it does nothing until `start`."""

    def __init__(self) -> None:
        self._tracer: Tracer | None = None
        self.provider: TracerProvider | None = None

    @property
    def is_on(self) -> bool:
        """Whether spans are made."""
        return self._tracer is not None

    def start(self, service: str, *, seconds: float | None = None, exporter: SpanExporter | None = None) -> None:
        """Make spans from now on.

        Parameters
        ----------
        service
            The process's name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES give one.
        seconds
            For which an export is tried; None for what the standard variables say.
        exporter
            Where they go; None for OTLP over HTTP.

        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 # only where wanted
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 # likewise
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 # likewise
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 # likewise

        named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {"service.name": service})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(timeout=seconds)))
        self._tracer = self.provider.get_tracer("glle")

    def stop(self) -> None:
        """Send what is left, and make no more spans."""
        if self.provider is not None:
            self.provider.shutdown()
        self._tracer = self.provider = None

    def flush(self) -> None:
        """Send the spans that are over."""
        if self.provider is not None:
            self.provider.force_flush()

    def span(
        self, name: str, *, parent: Context | None = None, kind: str = "INTERNAL", **attributes: Any
    ) -> AbstractContextManager[Span | None]:
        """Return the context of a new span, None in it where there are none; attributes' ``__`` are dots."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 # only where wanted

        return self._tracer.start_as_current_span(name, parent, SpanKind[kind], _dotted(attributes))

    def over(
        self, name: str, began: float, seconds: float, *, parent: Context | None = None, **attributes: Any
    ) -> None:
        """Make a span of what began at a time (of `time.time`) and is over."""
        if self._tracer is not None:
            start = int(began * 1e9)
            span = self._tracer.start_span(name, parent, attributes=_dotted(attributes), start_time=start)
            span.end(start + int(seconds * 1e9))

    def failed(self, span: Span, code: str, detail: str) -> None:
        """Mark a span as failed with a problem."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 # only where wanted

        span.set_attribute("error.type", code)
        span.set_status(Status(StatusCode.ERROR, detail))

    def answers(self, method: str, route: str) -> None:
        """Name the current span, of a request, after the route that answers it; FastAPI names those that it routes."""
        if self._tracer is not None:
            from opentelemetry.trace import get_current_span  # noqa: PLC0415 # only where wanted

            span = get_current_span()
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)

    def carrier(self) -> dict[str, str]:
        """Return the current span as W3C headers: traceparent and, where there is one, tracestate."""
        found: dict[str, str] = {}
        if self._tracer is not None:
            from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 # only where wanted
                TraceContextTextMapPropagator,
            )

            TraceContextTextMapPropagator().inject(found)
        return found

    def parent(self, carrier: Mapping[str, str]) -> Context | None:
        """Return the span of W3C headers as a parent; a header that is none is no parent."""
        if self._tracer is None:
            return None
        from opentelemetry.context import Context  # noqa: PLC0415 # only where wanted
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 # likewise
            TraceContextTextMapPropagator,
        )

        return TraceContextTextMapPropagator().extract(carrier, Context())

    def here(self) -> Context | None:
        """Return the current span as a parent for what another thread does."""
        if self._tracer is None:
            return None
        from opentelemetry.context import get_current  # noqa: PLC0415 # only where wanted

        return get_current()

    def trace_id(self) -> str:
        """Return the id of the current trace, empty where there is none."""
        if self._tracer is None:
            return ""
        from opentelemetry.trace import format_trace_id, get_current_span  # noqa: PLC0415 # only where wanted

        context = get_current_span().get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else ""


def _installed() -> bool:
    try:
        return None not in (find_spec("opentelemetry.sdk.trace"), find_spec(_EXPORTER))
    except ModuleNotFoundError:  # not even what they are in
        return False


def _dotted(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items()}


TRACING = Tracing()  # of this process
