"""A span for every request, when traces are on: FastAPI's own, in the provider of `worker.observability.tracing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.observability.tracing import TRACING

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from fastapi.telemetry import TelemetryConfig

_QUIET = frozenset({"/livez", "/readyz", "/metrics"})  # asked every few seconds, by machines


def telemetry() -> TelemetryConfig:
    """Return what FastAPI is to record: the requests' spans, or nothing. Metrics and logs are ours."""
    return {
        "tracing": TRACING.is_on,
        "tracer_provider": TRACING.provider,
        "exclude": _is_quiet,
        "operation_spans": False,
        "metrics": False,
        "logs": False,
        "auto_configure": False,
    }


def _is_quiet(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in _QUIET
